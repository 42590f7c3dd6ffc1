//! `sbatch`: submits a script as a job.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostler_client::Client;
use hostler_model::{JobId, JobState, MAX_SCRIPT_BYTES, Submission, Work, text_of};
use hostler_remote::inherited::Inherited;
use hostler_slurm::getopt::{Order, parse};
use hostler_slurm::job_options::{JobOptions, Key, MISTAKE, SBATCH_OPTIONS, SBATCH_VARIABLES};
use hostler_slurm::reads::Reads;
use hostler_slurm::{pbs, script};

use super::node_files::{apply, place_by_file};
use super::placing::place;
use super::request::{self, files};
use super::rows::split_code;
use super::test_only::test_only;
use super::{
    CLUSTER, Ended, Outcome, Refused, VERSION, check_clusters, heterogeneous, job_options, mistaken_job, print, tell,
};
use crate::commands::run::own_directory;
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "sbatch";

/// What the errors of a submission begin with.
pub(super) const SUBMISSION_FAILED: &str = "Batch job submission failed";

/// How long one request for a job's end waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const USAGE: &str = "Usage: sbatch [OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]\n\
    \n\
    Submits a script as a job. The options are those of Slurm's sbatch; `hostler run --script` submits a script with\n\
    Hostler's own options.\n";

/// What `sbatch` does besides describing a job.
#[derive(Debug, Default)]
struct Own {
    parsable: bool,
    test_only: bool,
    wait: bool,
}

/// Leaves `#PBS` lines unread.
const IGNORE_PBS: Key = Key::Own("ignore-pbs", Reads::Nothing);

/// The script of a job, with the name to show for it.
struct Script {
    content: Vec<u8>,
    /// Path as the job's first argument.
    path: String,
    /// Name of the job, unless an option gives one.
    name: String,
    /// The file, as the user names it.
    file: Option<String>,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let all = job_options(SBATCH_OPTIONS);
    let commands = own_commands(args.first());
    let given = parse(&all, Order::StopAtOperand, args.into_iter().skip(1)).map_err(|it| mistaken_job(NAME, &it))?;
    for (key, _) in &given.options {
        match key {
            Key::Own("help" | "usage", _) => return Ok(print(context, USAGE)),
            Key::Own("version", _) => return Ok(print(context, &format!("{VERSION}\n"))),
            _ => {}
        }
    }
    let wrap = given.options.iter().rev().find(|(key, _)| matches!(key, Key::Own("wrap", _)));
    let wrap = wrap.and_then(|(_, value)| value.as_ref()).map(|value| value.to_string_lossy().into_owned());
    // Mistakes on the command line count before those of the script.
    apply_all(&mut JobOptions::default(), &mut Own::default(), &given.options)?;
    let mut operands = given.operands.into_iter();
    let first = operands.next();
    if first.as_deref().is_some_and(|word| word == ":") {
        return Err(heterogeneous());
    }
    let script = read_script(wrap.as_deref(), first)?;
    let text = check(&script.content)?;

    // Later options replace earlier ones: of the script, of the environment, of the command line.
    let mut options = JobOptions::default();
    let mut own = Own::default();
    let mut chosen: Vec<Key> = Vec::new();
    let directives = |mark| {
        script::directives(&text, mark).map_err(|unmatched| match &script.file {
            Some(file) => Ended::fatal(format!("{file}: {unmatched}")),
            None => Ended::fatal(unmatched),
        })
    };
    let own_lines = directives("#SBATCH")?;
    let is_given = given.options.iter().any(|(key, _)| *key == IGNORE_PBS);
    let ignores_pbs = is_given
        || std::env::var_os("SBATCH_IGNORE_PBS").is_some()
        || own_lines.iter().flatten().any(|word| word == "--ignore-pbs");
    let of_pbs = if ignores_pbs { Vec::new() } else { directives("#PBS")? };
    let of_pbs = of_pbs.iter().map(|words| pbs::options(words));
    for words in of_pbs.chain(own_lines.iter().cloned()) {
        let words = words.into_iter().map(OsString::from);
        let parsed = parse(&all, Order::StopAtOperand, words).map_err(|it| mistaken_job(NAME, &it))?;
        if let Some(word) = parsed.operands.first() {
            if word == "hetjob" || word == "packjob" {
                return Err(heterogeneous());
            }
            let text = format!("Invalid directive found in batch script: {}", word.display());
            return Err(Ended { code: MISTAKE, ..Ended::error(text) });
        }
        apply_all(&mut options, &mut own, &parsed.options)?;
        chosen.extend(parsed.options.iter().map(|(key, _)| *key));
    }
    chosen.extend(given.options.iter().map(|(key, _)| *key));
    check_memory(&chosen)?;
    apply_all(&mut options, &mut own, &variables())?;
    apply_all(&mut options, &mut own, &given.options)?;
    place_by_file(&mut options)?;
    options.clusters.as_deref().map_or(Ok(()), check_clusters)?;

    let directory = own_directory().map_err(|failure| Ended::error(failure.summary()))?;
    let job_directory = match &options.chdir {
        Some(path) => Path::new(&directory).join(path).to_string_lossy().into_owned(),
        None => directory.clone(),
    };
    let mut argv = vec![script.path];
    argv.extend(operands.map(text_of));
    let work = Work::Command { argv, directory: job_directory.into(), script: Some(text) };
    let mut spec = request::submission(&options, work, &script.name, &directory, commands.as_deref())?;
    spec.files = Some(Box::new(files(&options)));
    spec.environment.extend(Inherited::own().with_limits_of(|name| options.propagates(name)).variables());
    spec.environment.extend(request::login(&options));
    submit(context, &options, &own, &spec)
}

/// Submits the job, prints its id, and waits for its end if asked to.
fn submit(context: &Context, options: &JobOptions, own: &Own, spec: &Submission) -> Outcome {
    tell(context, NAME, &request::warnings(options));
    let client = context.watching_client().map_err(|failure| Ended::error(failure.summary()))?;
    if own.test_only {
        block_on(async { Ok(test_only(context, &client, NAME, options, spec).await) })??;
        return Ok(0);
    }
    let ends = async {
        let submitted = place(&client, options, spec).await;
        let id = match submitted {
            Ok(submitted) => submitted.id,
            Err(refused) => return Ok(Err(refused)),
        };
        announce(context, options, own, id);
        let code = if own.wait { wait(&client, id).await? } else { 0 };
        Ok(Ok(code))
    };
    let ended = block_on(ends).map_err(|failure| Ended::error(failure.summary()))?;
    ended.map_err(|refused: Refused| refused.ended(SUBMISSION_FAILED, options))
}

fn announce(context: &Context, options: &JobOptions, own: &Own, id: JobId) {
    let cluster = options.clusters.is_some();
    let text = match (own.parsable, cluster) {
        _ if options.quiet => return,
        (true, false) => format!("{id}\n"),
        (true, true) => format!("{id};{CLUSTER}\n"),
        (false, false) => format!("Submitted batch job {id}\n"),
        (false, true) => format!("Submitted batch job {id} on cluster {CLUSTER}\n"),
    };
    context.output.has_submitted(id);
    context.output.job_stdout(text.as_bytes());
}

/// Waits for the end of the job and returns its largest exit code; 1 for a signal, a limit or a cancellation.
async fn wait(client: &Client, id: JobId) -> Result<u8, crate::failure::Failure> {
    loop {
        let job = client.job_when_ended(id, 1, REQUEST_TIMEOUT).await?;
        if job.summary.state.is_ended() {
            return Ok(match (job.summary.state, job.summary.exit_code) {
                (JobState::Completed, _) => 0,
                (JobState::Failed, Some(code)) => match split_code(code) {
                    (code, 0) => u8::try_from(code).unwrap_or(1),
                    _ => 1,
                },
                _ => 1,
            });
        }
    }
}

/// Reads the script: of `--wrap`, of a file, or from standard input.
fn read_script(wrap: Option<&str>, operand: Option<OsString>) -> Result<Script, Ended> {
    if let Some(command) = wrap {
        if operand.is_some() {
            return Err(Ended::error("Script arguments not permitted with --wrap option"));
        }
        let content = format!("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n");
        return Ok(Script {
            content: content.into_bytes(),
            path: "wrap".to_owned(),
            name: "wrap".to_owned(),
            file: None,
        });
    }
    let mut content = Vec::new();
    let limit = MAX_SCRIPT_BYTES as u64 + 1;
    let Some(operand) = operand else {
        let read = io::stdin().lock().take(limit).read_to_end(&mut content);
        read.map_err(|error| Ended::error(format!("Unable to read the script from standard input: {error}")))?;
        return Ok(Script { content, path: "sbatch".to_owned(), name: "sbatch".to_owned(), file: None });
    };
    let path = find(&operand);
    let cannot = |error: io::Error| {
        let why = nix::Error::try_from(error).map_or("it cannot be read", nix::Error::desc);
        Ended::error(format!("Unable to open file {}", operand.display())).and(why)
    };
    File::open(&path).and_then(|file| file.take(limit).read_to_end(&mut content)).map_err(cannot)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let path = text_of(std::path::absolute(&path).unwrap_or(path));
    Ok(Script { content, path, name, file: Some(operand.to_string_lossy().into_owned()) })
}

/// Finds a script in the current directory, or else on `PATH`.
fn find(operand: &OsStr) -> PathBuf {
    let here = PathBuf::from(operand);
    if here.components().count() > 1 || here.exists() {
        return here;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(operand)).find(|path| path.is_file()).unwrap_or(here)
}

/// Checks that a text is a script that the head accepts.
fn check(content: &[u8]) -> Result<String, Ended> {
    script::check(content).map_err(|wrong| {
        let mut lines = wrong.lines().iter();
        let first = Ended::error(lines.next().copied().unwrap_or_default());
        lines.fold(first, |ended, line| ended.and(format!("error: {line}")))
    })?;
    if content.len() > MAX_SCRIPT_BYTES {
        return Err(Ended::error(
            "Batch job submission failed: Pathname of a file, directory or other parameter too long",
        )
        .and(format!("hint: a script has at most {} MiB", MAX_SCRIPT_BYTES >> 20)));
    }
    Ok(text_of(OsStr::from_bytes(content)))
}

fn apply_all(options: &mut JobOptions, own: &mut Own, all: &[(Key, Option<OsString>)]) -> Result<(), Ended> {
    for (key, value) in all {
        match key {
            Key::Own("parsable", _) => own.parsable = true,
            Key::Own("test-only", _) => own.test_only = true,
            Key::Own("wait", _) => own.wait = true,
            key => apply(options, *key, value.as_ref())?,
        }
    }
    Ok(())
}

/// Refuses several amounts of memory, in the script or on the command line.
fn check_memory(chosen: &[Key]) -> Result<(), Ended> {
    let amounts = [Key::Mem, Key::MemPerCpu, Key::MemPerGpu];
    match amounts.iter().filter(|key| chosen.contains(key)).count() {
        0 | 1 => Ok(()),
        _ => Err(Ended::fatal("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")),
    }
}

/// The options that variables of the environment give.
fn variables() -> Vec<(Key, Option<OsString>)> {
    let value = |name: &str| std::env::var_os(format!("SBATCH_{name}"));
    SBATCH_VARIABLES.iter().filter_map(|(name, key)| Some((*key, Some(value(name)?)))).collect()
}

/// The directory in which the shell found this command.
pub(super) fn own_commands(called: Option<&OsString>) -> Option<PathBuf> {
    let called = Path::new(called?);
    if called.components().count() > 1 {
        return std::path::absolute(called.parent()?).ok();
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|directory| directory.join(called).is_file())
}
