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
use crate::keyed;
use crate::submission::{captured, narrate};
use crate::xdg;

/// The most submissions in one request, and about the most bytes.
const MOST: usize = 200;
const MOST_BYTES: usize = 4 << 20;

/// The keys that say what a line is.
const COMMAND: &str = "command";
const PROJECT: &str = "project";

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
    given: &'a [OsString],
    /// Number of the last line that was read.
    line: u64,
    /// Submissions that the head does not have yet, and the numbers of their lines.
    waiting: Vec<(u64, Keyed)>,
    waiting_bytes: usize,
    submitted: Vec<JobId>,
    failed: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(context: &'a Context, client: &'a Client, given: &'a [OsString]) -> Self {
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
        match self.request(line).await {
            Ok(Some(keyed)) => {
                self.waiting_bytes += serde_json::to_vec(&keyed.request).map_or(0, |json| json.len());
                self.waiting.push((self.line, keyed));
                if self.waiting.len() >= MOST || self.waiting_bytes >= MOST_BYTES {
                    self.send().await?;
                }
            }
            Ok(None) => {}
            Err(failure) if failure.exit == exit::UNREACHABLE => return Err(self.interrupted(failure)),
            Err(failure) => self.refuse(self.line, &failure),
        }
        Ok(())
    }

    /// The submission of a command. A project is submitted at once, after the lines before it.
    async fn request(&mut self, line: &str) -> Result<Option<Keyed>, Failure> {
        if line.len() > MOST_BYTES {
            return Err(Failure::usage(format!("a line has at most {}", format_bytes(MOST_BYTES as u64))));
        }
        match self.asked(line)? {
            Asked::Run(one) => {
                let has_own_key = one.key.is_some();
                let key = one.key.unwrap_or_else(new_key);
                let request = KeyedSubmission { key, spec: one.job.spec()? };
                Ok(Some(Keyed { request, has_own_key }))
            }
            Asked::Submit(one) => {
                self.send().await?;
                let OneSubmit { project, entrypoint, args, key, flags } = *one;
                let folder = ProjectFolder::open(&project, &entrypoint)?;
                let left_out = xdg::own_directories(&project);
                let (captured, spec, _) = captured(self.context, folder, &project, &left_out, &flags, &args)?;
                let id = captured.submit(self.client, spec, key.as_deref(), &narrate(&self.context.output)).await?;
                self.accept(self.line, id);
                Ok(None)
            }
        }
    }

    fn asked(&self, line: &str) -> Result<Asked, Failure> {
        if !line.starts_with('{') {
            return run(named(line).chain(self.given.iter().cloned()), &shell(line));
        }
        let table = table(line).map_err(Failure::usage)?;
        let rest = table.iter().filter(|(key, _)| *key != COMMAND);
        let options = keyed::options(rest).map_err(Failure::usage)?;
        let options = self.given.iter().cloned().chain(options);
        match (table.get(COMMAND), table.contains_key(PROJECT)) {
            (Some(_), true) => Err(Failure::usage("a line has either a command or a project")),
            (Some(Value::String(text)), false) if !text.trim().is_empty() => {
                run(named(text).chain(options), &shell(text))
            }
            (Some(list @ Value::Array(words)), false) if !words.is_empty() => {
                run(options, &keyed::words(COMMAND, list).map_err(Failure::usage)?)
            }
            (Some(_), false) => Err(Failure::usage("the command is a string or a list, and not empty")),
            (None, true) => {
                let parsed = keyed::parse(options.collect());
                parsed.map(|it| Asked::Submit(Box::new(it))).map_err(Failure::usage)
            }
            (None, false) => Err(Failure::usage("the line has neither a command nor a project")
                .hint(r#"e.g. {"command": ["python3", "main.py"], "cpus": 2}"#)
                .hint(r#"or {"project": "folder", "entrypoint": "main.py"}"#)),
        }
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
        let answers = answers.map_err(|error| self.interrupted(error.into()))?;
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

    /// The head did not answer.
    fn interrupted(&self, failure: Failure) -> Failure {
        failure.hint("the jobs whose ids were printed are submitted; `hostler jobs` shows whether later ones are")
    }
}

fn run(options: impl Iterator<Item = OsString>, command: &[String]) -> Result<Asked, Failure> {
    let words = options.chain(["--".into()]).chain(command.iter().map(|word| os_string_of(word)));
    keyed::parse(words.collect()).map(|it| Asked::Run(Box::new(it))).map_err(Failure::usage)
}

/// Runs the text of a command line. A text that begins like an option of the shell is none.
fn shell(text: &str) -> Vec<String> {
    let space = if text.starts_with(['-', '+']) { " " } else { "" };
    vec!["sh".to_owned(), "-c".to_owned(), format!("{space}{text}")]
}

/// The option with a name for a command line: its program.
fn named(text: &str) -> std::iter::Once<OsString> {
    let is_part = |it: char| it.is_alphanumeric() || "._-+".contains(it);
    let program = text.split_whitespace().find(|word| !word.contains('=')).unwrap_or_default();
    let program = program.split([';', '|', '>']).next().unwrap_or_default();
    let program = program.trim_matches(|it: char| !is_part(it)).rsplit('/').next().unwrap_or_default();
    std::iter::once(format!("--name={}", derived_name(program)).into())
}

/// The values of a JSON object, without those that are `null`.
fn table(line: &str) -> Result<Table, String> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line)
        .map_err(|error| format!("the line begins with {{ but is no JSON object: {error}"))?;
    let values = object.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| {
        let value =
            serde_json::from_value(value).map_err(|error| format!("the value of {key} is not valid: {error}"))?;
        Ok((key, value))
    });
    values.collect()
}

/// Reads the lines of standard input, in a thread of its own: a read cannot be cancelled.
fn read() -> mpsc::Receiver<Result<String, Failure>> {
    let (sender, lines) = mpsc::channel(MOST);
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
