//! `hostler submit -`: many jobs from the lines of standard input.

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::Parser;
use hostler_client::{Client, ProjectFolder, check_same, new_key};
use hostler_model::{JobId, format_bytes, os_string_of, text_of};
use hostler_proto::api::KeyedSubmission;
use serde_json::json;
use tokio::sync::mpsc;
use toml::{Table, Value};

use super::run::CommandJob;
use super::target::derived_name;
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::flags::JobFlags;
use crate::keyed::{self, Given};
use crate::submission::{captured, narrate};
use crate::xdg;

/// The most submissions in one request, and the most bytes of several.
const MAX_BATCH: usize = 200;
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Keys that say what a line is.
const COMMAND: &str = "command";
const PROJECT: &str = "project";
const SCRIPT: &str = "script";

/// A submission, and whether its key is the user's.
struct Keyed {
    request: KeyedSubmission,
    has_own_key: bool,
}

/// What one line asks for.
enum Asked {
    Run(Box<OneRun>),
    Submit(Box<OneSubmit>),
}

#[derive(Debug, Parser)]
struct OneRun {
    #[command(flatten)]
    job: CommandJob,

    /// As in `hostler submit`
    #[arg(long)]
    key: Option<String>,
}

#[derive(Debug, Parser)]
struct OneSubmit {
    #[arg(long)]
    project: PathBuf,

    #[arg(long)]
    entrypoint: String,

    #[arg(long, allow_hyphen_values = true)]
    args: Vec<String>,

    #[arg(long)]
    key: Option<String>,

    #[command(flatten)]
    flags: JobFlags,
}

/// Submits a job for each line of standard input, as they come, and prints their ids. `given` has the options that hold for all
/// lines.
pub(super) struct Lines<'a> {
    context: &'a Context,
    client: &'a Client,
    given: &'a Given,
    /// Number of the last line that was read.
    line: u64,
    /// Submissions that the head does not have yet, and the numbers of their lines.
    waiting: Vec<(u64, Keyed)>,
    waiting_bytes: usize,
    submitted: Vec<JobId>,
    failed: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(context: &'a Context, client: &'a Client, given: &'a Given) -> Self {
        Self {
            context,
            client,
            given,
            line: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
            submitted: Vec::new(),
            failed: 0,
        }
    }

    /// Returns the jobs in the order of their lines, and the number of lines that are not submitted.
    ///
    /// # Errors
    /// If the input cannot be read, or the head cannot be reached.
    pub(super) async fn submit(mut self) -> Result<(Vec<JobId>, u64), Failure> {
        if io::stdin().is_terminal() {
            self.context.output.say("reading one job a line; Ctrl-D ends the input");
        }
        let mut lines = read();
        while let Some(line) = lines.recv().await {
            self.take(&line?).await?;
            // Another line may come only after the answer to this one.
            if lines.is_empty() {
                self.send().await?;
            }
        }
        self.send().await?;
        Ok((self.submitted, self.failed))
    }

    /// Takes one line. A mistake in it has no effect on other lines.
    async fn take(&mut self, line: &str) -> Result<(), Failure> {
        self.line += 1;
        // Editors of other systems begin a file with a byte order mark.
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let outcome = match self.asked(line) {
            Ok(Asked::Run(one)) => match one.submission() {
                Ok(keyed) => return self.add(keyed).await,
                Err(failure) => Err(failure),
            },
            Ok(Asked::Submit(one)) => {
                // Its job comes after those of the lines before it.
                self.send().await?;
                self.submit_project(*one).await
            }
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(id) => self.accept(self.line, id),
            Err(failure) if failure.exit == exit::UNREACHABLE => return Err(interrupted(failure)),
            Err(failure) => self.refuse(self.line, &failure),
        }
        Ok(())
    }

    /// Adds the job of a command to the next request.
    async fn add(&mut self, keyed: Keyed) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(&keyed.request).map_or(0, |json| json.len());
        if self.waiting.len() >= MAX_BATCH || self.waiting_bytes + bytes > MAX_BATCH_BYTES {
            self.send().await?;
        }
        self.waiting_bytes += bytes;
        self.waiting.push((self.line, keyed));
        Ok(())
    }

    async fn submit_project(&self, one: OneSubmit) -> Result<JobId, Failure> {
        let OneSubmit { project, entrypoint, args, key, flags } = one;
        let folder = ProjectFolder::open(&project, &entrypoint)?;
        let left_out = xdg::own_directories(&project);
        let (captured, spec, _) = captured(self.context, folder, &project, &left_out, &flags, &args)?;
        Ok(captured.submit(self.client, spec, key.as_deref(), &narrate(&self.context.output)).await?)
    }

    fn asked(&self, line: &str) -> Result<Asked, Failure> {
        if line.len() > MAX_BATCH_BYTES {
            return Err(Failure::usage(format!("a line has at most {}", format_bytes(MAX_BATCH_BYTES as u64))));
        }
        let mut table = if line.starts_with('{') { table(line).map_err(Failure::usage)? } else { Table::new() };
        let command = match line.starts_with('{') {
            true => table.remove(COMMAND),
            false => Some(Value::String(line.to_owned())),
        };
        let is_script = table.get(SCRIPT) == Some(&Value::Boolean(true));
        let options = keyed::options(&table).map_err(Failure::usage)?;
        let mut options = self.given.beside(&table, &options);
        let command = match (command, table.contains_key(PROJECT)) {
            (Some(_), true) => return Err(Failure::usage("a line has either a command or a project")),
            (Some(Value::String(text)), false) if !text.trim().is_empty() && !is_script => {
                if !options.iter().any(|word| word.as_encoded_bytes().starts_with(b"--name=")) {
                    options.push(named(&text));
                }
                shell(&text)
            }
            (Some(list @ Value::Array(_)), false) => {
                let words = keyed::words(COMMAND, &list).map_err(Failure::usage)?;
                match words.first().map(String::as_str) {
                    Some("-") if is_script => {
                        return Err(Failure::usage("the script cannot be `-`: standard input has the lines"));
                    }
                    Some(_) => words,
                    None => return Err(Failure::usage("the command is empty")),
                }
            }
            (Some(_), false) if is_script => {
                return Err(Failure::usage("the command of a script is a list: its file and the arguments"));
            }
            (Some(Value::String(_)), false) => return Err(Failure::usage("the command is empty")),
            (Some(_), false) => return Err(Failure::usage("the command is neither a string nor a list")),
            (None, true) => {
                let parsed = keyed::parse(options);
                return parsed.map(|it| Asked::Submit(Box::new(it))).map_err(Failure::usage);
            }
            (None, false) => {
                return Err(Failure::usage("the line has neither a command nor a project")
                    .hint(r#"e.g. {"command": ["python3", "main.py"], "cpus": 2}"#)
                    .hint(r#"or {"project": "folder", "entrypoint": "main.py"}"#));
            }
        };
        options.push("--".into());
        options.extend(command.iter().map(|word| os_string_of(word)));
        keyed::parse(options).map(|it| Asked::Run(Box::new(it))).map_err(Failure::usage)
    }

    /// Sends the submissions that wait, and prints their jobs.
    async fn send(&mut self) -> Result<(), Failure> {
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let requests = waiting.iter().map(|(_, keyed)| keyed.request.clone()).collect();
        let answers = self.client.submit_several(requests).await;
        let answers = answers.map_err(|error| interrupted(error.into()))?;
        for ((line, Keyed { request, has_own_key }), answer) in waiting.into_iter().zip(answers) {
            let answer = answer.map_err(Failure::from);
            match answer {
                Ok(job) if job.duplicate && has_own_key => {
                    match check_same(self.client, &request.key, &request.spec, job.id).await {
                        Ok(()) => self.accept(line, job.id),
                        Err(error) => self.refuse(line, &error.into()),
                    }
                }
                Ok(job) => self.accept(line, job.id),
                Err(failure) => self.refuse(line, &failure),
            }
        }
        Ok(())
    }

    fn accept(&mut self, line: u64, id: JobId) {
        self.submitted.push(id);
        self.context.output.has_submitted(id);
        match self.context.output.is_json() {
            true => self.context.output.json(&json!({ "line": line, "id": id })),
            false => self.context.output.data(&id.to_string()),
        }
    }

    fn refuse(&mut self, line: u64, failure: &Failure) {
        self.failed += 1;
        if self.context.output.is_json() {
            self.context.output.json(&json!({ "line": line, "error": failure.as_json() }));
        } else {
            let text = failure.render();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            self.context.output.complain(&format!("line {line}: {}", text.trim_end()));
        }
    }
}

impl OneRun {
    fn submission(self) -> Result<Keyed, Failure> {
        let has_own_key = self.key.is_some();
        let request = KeyedSubmission { key: self.key.unwrap_or_else(new_key), spec: self.job.spec()? };
        Ok(Keyed { request, has_own_key })
    }
}

/// The failure of a request that the head may have received.
fn interrupted(failure: Failure) -> Failure {
    failure.hint("the jobs whose ids were printed are submitted; `hostler jobs` shows whether later ones are")
}

/// The command that has a shell run a text. A leading space keeps the shell from reading the text as an option.
fn shell(text: &str) -> Vec<String> {
    let space = if text.starts_with(['-', '+']) { " " } else { "" };
    vec!["sh".to_owned(), "-c".to_owned(), format!("{space}{text}")]
}

/// The option with a name for a command line: its program.
fn named(text: &str) -> OsString {
    let is_part = |it: char| it.is_alphanumeric() || "._-+".contains(it);
    let program = text.split_whitespace().find(|word| !word.contains('=')).unwrap_or_default();
    let program = program.split([';', '|', '>']).next().unwrap_or_default();
    let program = program.trim_matches(|it: char| !is_part(it)).rsplit('/').next().unwrap_or_default();
    format!("--name={}", derived_name(program)).into()
}

/// The values of a JSON object, without those that are `null`.
fn table(line: &str) -> Result<Table, String> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line)
        .map_err(|error| format!("the line begins with {{ but is not valid JSON: {error}"))?;
    let values = object.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| {
        let value =
            serde_json::from_value(value).map_err(|error| format!("the value of {key} is not valid: {error}"))?;
        Ok((key, value))
    });
    values.collect()
}

/// Reads the lines of standard input, in a thread of its own: a read cannot be cancelled.
fn read() -> mpsc::Receiver<Result<String, Failure>> {
    let (sender, lines) = mpsc::channel(MAX_BATCH);
    std::thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            let line = line.map(|bytes| text_of(OsString::from_vec(bytes)));
            let line = line.map_err(|error| Failure::new("cannot read standard input").because(&error));
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                break;
            }
        }
    });
    lines
}
