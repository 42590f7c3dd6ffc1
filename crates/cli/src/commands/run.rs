//! `hostler run`: runs a command as a job and shows its output.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use hostler_client::{Client, ClientError, new_key};
use hostler_model::{
    ArraySpec, Environment, Files, JobId, JobState, MAX_SCRIPT_BYTES, OpenMode, Submission, TaskId, Work, os_string_of,
    text_of,
};
use hostler_proto::api::{AwaitedJob, JobAction, JobDetail, ShortOutput, SubmitRequest, Submitted};
use hostler_proto::link::Output;
use hostler_remote::step::{Allocation, TEMPORARY, VARIABLE, launcher_variables};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::{Whence, lseek};
use serde_json::json;

use super::attach::{Left, attach_when_running};
use super::dry_run::dry_run;
use super::logs::{Source, print, print_labelled, read};
use super::wait::explain_waiting;
use crate::command_words::check_command;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::{JobFlags, VariableNames, words};
use crate::here::here;
use crate::interrupts::{Interrupts, exit_code};
use crate::output::views;
use crate::passed_on::PassedOn;
use crate::submission::announce;

/// Time in milliseconds after which the command streams output. Reading the output of a shorter command once, at its end, is faster.
const STREAM_DELAY_MS: u64 = 30;

/// Variables that describe the calling shell and mean nothing to a command elsewhere.
const EXCLUDED_VARIABLES: [&str; 4] = ["_", "SHLVL", "OLDPWD", "HOSTLER_HEAD"];

/// Prefixes of variables that mark a process as part of a Slurm allocation or as an MPI rank. The job must not get
/// these variables, even if the caller is such a process.
const LAUNCHER_PREFIXES: [&str; 7] =
    ["SLURM_", "SLURMD_", "PMI_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "PRTE_LAUNCHED"];

/// Variables that tell `mpirun` about the CPUs of the caller's job. The job must not get them, because it has other
/// CPUs.
const CPU_VARIABLES: [&str; 3] =
    ["OMPI_MCA_orte_set_default_slots", "PRTE_MCA_prte_set_default_slots", "OMPI_MCA_mpi_yield_when_idle"];

/// Name of the variable by which Slurm's commands find their cluster. It is passed on like any other variable, because
/// it does not mark an allocation.
const SLURM_CONF_VARIABLE: &str = "SLURM_CONF";

/// Run a command as a job, show its output, return its exit code
///
/// The command runs in the current directory, which must also exist on the node, with the current environment and
/// without standard input. Ctrl-C cancels the job and waits for the end of the job; a second Ctrl-C returns at once.
///
/// With --nodes N and --tasks-per-node M, N times M processes run the command. If a process fails, Hostler ends the
/// other processes. With --array, `hostler logs` prints the output of the tasks; --label prints the output at the end.
///
/// Variables such as HOSTLER_JOB_ID, HOSTLER_ARRAY_INDEX and HOSTLER_CPUS describe the job to the command. The page
/// docs/reference/variables.md lists all of them.
///
/// Exit codes: the exit code of the command; 124 if the job reached its time limit; 125 if the head refused or lost the
/// job, or its output could not be written, which cancels the job; 128 + N if signal N ended the command.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub job: CommandJob,

    /// Print the job id and return without waiting for the job
    #[arg(long, conflicts_with = "label")]
    detach: bool,

    /// Say when and where the job would start, or why the head would refuse it, and submit nothing
    #[arg(long, conflicts_with = "detach")]
    dry_run: bool,

    /// Label each line of output with the rank of the process
    ///
    /// With --array, print the output of each task at the end and label each line with the task's index.
    #[arg(long, conflicts_with = "first_node")]
    label: bool,
}

/// A job that runs a command of this machine.
#[derive(Debug, Args)]
pub struct CommandJob {
    #[command(flatten)]
    flags: JobFlags,

    /// Pass on only these environment variables, e.g. PATH,HOME,LC_*; repeatable
    ///
    /// With an empty list, the job gets only the variables that a login on the node sets. The head stores the variables
    /// of a job as long as the job may run again. [default: all variables, or `env_only` in config.toml]
    #[arg(long, value_name = "NAMES")]
    env_only: Vec<VariableNames>,

    /// COMMAND is a script on this machine, or `-` for standard input: run its present content
    ///
    /// The job keeps a copy of the script, so the file may change or disappear, and need not exist on the nodes.
    #[arg(long)]
    script: bool,

    /// File on the node to read standard input from [default: /dev/null]
    ///
    /// Paths of the files may contain %j (job id), %a (array index), %N (node), %n (number of the node), %x (name of
    /// the job), %u (user) or %r (number of restarts). %4j fills up with zeros; %% is a percent sign.
    #[arg(long, value_name = "FILE", conflicts_with = "pty")]
    stdin: Option<String>,

    /// File on the node for standard output and standard error, e.g. log/%j.txt
    ///
    /// The job creates missing directories. `hostler logs` does not show output that goes to files.
    #[arg(long, value_name = "FILE", conflicts_with = "pty")]
    stdout: Option<String>,

    /// File on the node for standard error [default: the file of --stdout]
    #[arg(long, value_name = "FILE", conflicts_with = "pty")]
    stderr: Option<String>,

    /// Append to the files of --stdout and --stderr instead of replacing their content
    #[arg(long)]
    append: bool,

    /// Run the image's entry point, with COMMAND as its arguments
    ///
    /// It starts in the working directory that the image names, or else in the job's folder. Without COMMAND, it gets
    /// the arguments that the image names, and this option is not needed.
    #[arg(long, requires = "image")]
    entrypoint: bool,

    /// Command and arguments
    #[arg(value_name = "COMMAND", required_unless_present = "image", trailing_var_arg = true, value_parser = words())]
    pub command: Vec<String>,
}

impl Run {
    pub fn run(self, context: &Context) -> Outcome {
        if !self.job.script && self.job.command == ["-"] {
            return Err(Failure::usage("`hostler run` does not read jobs from standard input")
                .hint("`hostler submit -` submits a job for each line"));
        }
        if !self.job.script && !self.job.command.is_empty() {
            check_command(context, "run", &self.job.command)?;
        }
        if self.dry_run {
            let spec = self.noted_spec(context)?;
            return dry_run(context, &context.client()?, &spec, &[]);
        }
        if self.detach {
            let spec = self.noted_spec(context)?;
            let client = context.watching_client()?;
            announce(context, block_on(async { Ok(client.submit_new(spec).await?) })?, &[]);
            return Ok(exit::OK);
        }
        // Exit codes below 125 belong to the command, so all failures but mistakes on the command line exit with 125.
        self.attended(context).map_err(|failure| match failure.exit {
            exit::USAGE => failure,
            _ => failure.exiting(exit::RUN_FAILED),
        })
    }

    fn attended(&self, context: &Context) -> Outcome {
        let spec = self.noted_spec(context)?;
        let client = context.watching_client()?;
        let attended = Attended { context, client: &client, array: self.job.flags.array.as_ref(), label: self.label };
        block_on(attended.run(spec)).map_err(|failure| failure.exiting(exit::RUN_FAILED))
    }

    /// Like [`CommandJob::spec`]. Prints a note about input that the job does not get.
    fn noted_spec(&self, context: &Context) -> Result<Submission, Failure> {
        let mut spec = self.job.spec()?;
        // The cluster's settings may set the number of processes, so the head decides whether labels contain ranks.
        spec.label = self.label;
        if self.job.stdin.is_none() && spec.pty.is_none() && has_unread_input() {
            context.output.say(
                "note: the job does not read this standard input; `hostler exec` passes it on, --stdin names a file on the node",
            );
        }
        Ok(spec)
    }
}

impl CommandJob {
    /// Describes the job.
    pub(super) fn spec(&self) -> Result<Submission, Failure> {
        let named = match (self.command.first(), &self.flags.image) {
            (Some(program), _) => program,
            (None, Some(image)) => image.as_str(),
            (None, None) => return Err(Failure::usage("a command is missing")),
        };
        let program = named.rsplit('/').next().unwrap_or_default();
        let script = self.script.then(|| read_script(named)).transpose()?;
        let work = Work::Command { argv: self.command.clone(), directory: own_directory()?.into(), script };
        // An image brings its own variables, such as PATH. Those of this machine name files that it does not have.
        let passed_on = match self.flags.image {
            Some(_) if self.env_only.is_empty() => PassedOn::Only(vec!["TERM".parse()?]),
            _ => PassedOn::chosen(&self.env_only)?,
        };
        let mut environment = own_environment(&passed_on);
        if self.flags.first_node {
            // The job gets a directory for temporary files on each node instead of the caller's.
            environment.remove(TEMPORARY);
        }
        let mut spec = self.flags.spec(work, program, environment)?;
        spec.surroundings.entrypoint = self.entrypoint || self.command.is_empty();
        spec.umask = Some(own_umask());
        spec.files = self.files().map(Box::new);
        Ok(spec)
    }

    fn files(&self) -> Option<Files> {
        let Self { stdin, stdout, stderr, append, .. } = self;
        let has_files = stdin.is_some() || stdout.is_some() || stderr.is_some();
        has_files.then(|| Files {
            stdin: stdin.clone(),
            stdout: stdout.clone(),
            stderr: stderr.clone(),
            open_mode: append.then_some(OpenMode::Append),
        })
    }
}

/// Whether standard input is a file or a pipe with data that nobody has read.
fn has_unread_input() -> bool {
    let stdin = io::stdin();
    let Ok(metadata) = fstat(&stdin) else { return false };
    match SFlag::from_bits_truncate(metadata.st_mode) & SFlag::S_IFMT {
        // A file that somebody has begun to read is the input of a loop around this command.
        SFlag::S_IFREG => metadata.st_size > 0 && lseek(&stdin, 0, Whence::SeekCur) == Ok(0),
        SFlag::S_IFIFO => {
            let mut streams = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            poll(&mut streams, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
                && streams[0].revents().is_some_and(|found| found.contains(PollFlags::POLLIN))
        }
        _ => false,
    }
}

/// Reads a script, from standard input if its path is `-`.
fn read_script(path: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the head refuses a script that is too long.
    let limit = MAX_SCRIPT_BYTES as u64 + 1;
    let read = match path {
        "-" => io::stdin().lock().take(limit).read_to_end(&mut bytes),
        path => File::open(os_string_of(path)).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
    };
    let name = if path == "-" { "from standard input" } else { path };
    read.during(|| format!("cannot read the script {name}"))?;
    Ok(text_of(OsString::from_vec(bytes)))
}

/// How long an interrupted submission may still take.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// A job whose end the caller waits for.
pub(crate) struct Attended<'a> {
    pub(crate) context: &'a Context,
    pub(crate) client: &'a Client,
    /// The array of the job, if any.
    pub(crate) array: Option<&'a ArraySpec>,
    /// Print the output of array tasks at the end.
    pub(crate) label: bool,
}

impl Attended<'_> {
    /// Submits the job, shows its output and returns its exit code. A signal cancels the job, and so does output that
    /// cannot be written.
    pub(crate) async fn run(&self, spec: Submission) -> Outcome {
        let Self { context, client, .. } = *self;
        let has_terminal = spec.pty.is_some() && io::stdin().is_terminal() && !context.output.is_json();
        // Handle signals from before the submission on, so that a signal always cancels the job.
        let mut interrupts = Interrupts::take()?;
        let wait_ms = (!has_terminal).then_some(STREAM_DELAY_MS);
        let Submitted { id, awaited, .. } = match self.submit(spec, wait_ms, &mut interrupts).await? {
            ControlFlow::Continue(submitted) => submitted,
            ControlFlow::Break(code) => return Ok(code),
        };
        if has_terminal && self.array.is_none() {
            return match attach_when_running(context, client, id).await {
                Ok(Left::ByUser) => Ok(exit::OK),
                Ok(Left::Closed) => {
                    let job = client.ended(id, 1).await?;
                    explain(context, &job);
                    Ok(code_of(&job))
                }
                Err(failure) => Err(self.give_up(id, failure, &mut interrupts).await),
            };
        }
        let mut watching = std::pin::pin!(self.watch(id, awaited));
        let signal = tokio::select! {
            code = &mut watching => return match code {
                Err(failure) => Err(self.give_up(id, failure, &mut interrupts).await),
                code => code,
            },
            signal = interrupts.next() => signal,
        };
        context.output.say(&format!("cancelling job {id}; press Ctrl-C again to return without waiting"));
        tokio::select! {
            cancelled = client.act(id, None, JobAction::Cancel) => { cancelled?; }
            signal = interrupts.next() => {
                context.output.say(&format!("the head has not confirmed; `hostler cancel {id}` cancels job {id}"));
                return Ok(exit_code(signal));
            }
        }
        tokio::select! {
            result = watching => result.map(|_| exit_code(signal)),
            signal = interrupts.next() => Ok(exit_code(signal)),
        }
    }

    /// Submits the job and waits for its end, but at most `wait_ms`. A signal that comes first ends this; the job may exist all the
    /// same, and is then cancelled if the head answers soon.
    async fn submit(
        &self,
        spec: Submission,
        wait_ms: Option<u64>,
        interrupts: &mut Interrupts,
    ) -> Result<ControlFlow<u8, Submitted>, Failure> {
        let Self { context, client, .. } = *self;
        let request = SubmitRequest { key: new_key(), spec, wait_ms };
        let mut submitting = std::pin::pin!(client.submit(&request));
        let signal = tokio::select! {
            submitted = &mut submitting => return Ok(ControlFlow::Continue(submitted?)),
            signal = interrupts.next() => signal,
        };
        let cancelled = async {
            let id = submitting.await?.id;
            client.act(id, None, JobAction::Cancel).await?;
            Ok::<_, ClientError>(id)
        };
        context.output.say(&match tokio::time::timeout(LAST_ANSWER, cancelled).await {
            Ok(Ok(id)) => format!("cancelling job {id}"),
            _ => format!(
                "the head has not confirmed the job; `hostler jobs --key {}` shows it if it was submitted",
                request.key
            ),
        });
        Ok(ControlFlow::Break(exit_code(signal)))
    }

    /// Cancels the job if its output cannot be written. Returns `failure`.
    async fn give_up(&self, id: JobId, failure: Failure, interrupts: &mut Interrupts) -> Failure {
        if failure.is_about_output() {
            tokio::select! {
                cancelled = self.client.act(id, None, JobAction::Cancel) => {
                    if let Err(error) = cancelled {
                        let text = format!("cannot cancel job {id}, whose output cannot be written: {error}");
                        self.context.output.say(&text);
                    }
                }
                _ = interrupts.next() => {}
            }
        }
        failure
    }

    /// Shows the output of the job and waits for its end. The head has described the job if it could.
    async fn watch(&self, id: JobId, awaited: Option<Box<AwaitedJob>>) -> Outcome {
        let Self { context, client, .. } = *self;
        let is_shown = self.array.is_none() && !context.output.is_json();
        if self.array.is_some() && !self.label && !context.output.is_json() {
            context.output.say(&format!(
                "job {id}: `hostler logs {id}` shows the output of its tasks; --label prints the output here at the end"
            ));
        }
        let task = TaskId { job: id, index: 0 };
        let outputs = [Output::Stdout, Output::Stderr];
        let AwaitedJob { job: early, output } = match awaited {
            Some(awaited) => *awaited,
            None => AwaitedJob { job: client.job(id, 1).await?, output: None },
        };
        let ranks = 0..early.summary.node_count;
        let job = if early.summary.state.is_ended() {
            match &output {
                Some(ShortOutput { stdout, stderr }) if is_shown => {
                    context.output.job_output(true, stdout.as_bytes())?;
                    context.output.job_output(false, stderr.as_bytes())?;
                }
                None if is_shown => print(context, client, Source { task, ranks }, &outputs, false).await?,
                Some(_) | None => {}
            }
            early
        } else {
            let shown = async {
                if is_shown {
                    print(context, client, Source { task, ranks }, &outputs, true).await?;
                }
                Ok::<_, Failure>(client.ended(id, 1).await?)
            };
            tokio::select! {
                job = shown => job?,
                never = explain_waiting(context, client, id) => match never {},
            }
        };
        if self.label && self.array.is_some() {
            self.print_labelled(&job).await?;
        }
        if context.output.is_json() {
            self.print_json(&job, output).await?;
        }
        explain(context, &job);
        Ok(code_of(&job))
    }

    async fn print_labelled(&self, job: &JobDetail) -> Result<(), Failure> {
        let Self { context, client, .. } = *self;
        for index in self.array.iter().flat_map(|array| array.indices.iter()) {
            let task = TaskId { job: job.summary.id, index };
            let source = Source { task, ranks: 0..job.summary.node_count };
            for output in [Output::Stdout, Output::Stderr] {
                print_labelled(context, client, &source, output).await?;
            }
        }
        Ok(())
    }

    async fn print_json(&self, job: &JobDetail, output: Option<ShortOutput>) -> Result<(), Failure> {
        let Self { context, client, .. } = *self;
        let summary = &job.summary;
        let mut value = json!({ "id": summary.id, "state": summary.state, "exit_code": code_of(job) });
        if let Some(ShortOutput { stdout, stderr }) = output {
            value["stdout"] = stdout.into();
            value["stderr"] = stderr.into();
        } else if self.array.is_none() {
            let source = Source { task: TaskId { job: summary.id, index: 0 }, ranks: 0..summary.node_count };
            for output in [Output::Stdout, Output::Stderr] {
                let bytes = read(client, &source, output, false).await?;
                value[output.as_str()] = String::from_utf8_lossy(&bytes).into();
            }
        }
        context.output.json(&value);
        Ok(())
    }
}

/// Prints how the job ended, with the node's message. Prints nothing for a command that exited by itself without a
/// message, unless it is an array: then prints how many tasks ended how.
fn explain(context: &Context, job: &JobDetail) {
    let summary = &job.summary;
    let message = job.tasks_shown.iter().find_map(|task| task.message.as_deref());
    let by_itself = matches!(summary.state, JobState::Completed | JobState::Failed) && summary.exit_code.is_some();
    let ended_tasks = summary.array.as_ref().and_then(|_| views::ended_tasks(&summary.tasks));
    let tasks = ended_tasks.as_ref().map(|tasks| format!(" ({tasks})")).unwrap_or_default();
    let tell = |text: &str| {
        if summary.state == JobState::Completed { context.output.say(text) } else { context.output.complain(text) }
    };
    let how = format!("job {} {}{tasks}", summary.id, views::ending(summary));
    match message {
        Some(message) => tell(&format!("{how}: {message}")),
        None if by_itself && ended_tasks.is_none() => {}
        None => tell(&how),
    }
    if message.is_some_and(is_about_missing_directory) {
        context.output.say("hint: the node does not have this directory; `hostler submit` sends a folder to the node");
    }
}

/// Whether a node's message says that the node has no such directory.
pub(crate) fn is_about_missing_directory(message: &str) -> bool {
    let is_about_directory = message.contains("cannot enter directory") || message.contains("as the job's folder");
    is_about_directory && message.contains("No such file or directory")
}

/// The exit code of `run`; for an array, the exit code of the worst task.
pub(crate) fn code_of(job: &JobDetail) -> u8 {
    let code = job.summary.exit_code.map(|code| u8::try_from(code).unwrap_or(u8::MAX));
    match job.summary.state {
        JobState::Timeout => exit::RUN_TIMEOUT,
        JobState::Completed => code.unwrap_or(exit::OK),
        JobState::NodeFail | JobState::Preempted => exit::RUN_FAILED,
        JobState::Failed | JobState::Cancelled | JobState::OutOfMemory => code.unwrap_or(exit::RUN_FAILED),
        JobState::Pending | JobState::Starting | JobState::Running | JobState::Completing => exit::RUN_FAILED,
    }
}

/// The current directory, as [`text_of`] writes it.
pub(crate) fn own_directory() -> Result<String, Failure> {
    Ok(text_of(here()?))
}

/// Returns the caller's environment variables that the job gets.
pub(crate) fn own_environment(passed_on: &PassedOn) -> Environment {
    // If the caller is in a job with steps, `mpirun` in the new job must not use the nodes of the caller's job.
    let of_the_job = allocation_variables();
    let is_of_the_job = |name: &str, value: &str| of_the_job.iter().any(|(own, theirs)| own == name && theirs == value);
    let is_in_a_job = std::env::var_os("HOSTLER_JOB_ID").is_some();
    let is_of_another = |name: &str| {
        let is_launchers = LAUNCHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        (is_launchers && name != SLURM_CONF_VARIABLE) || (is_in_a_job && CPU_VARIABLES.contains(&name))
    };
    std::env::vars_os()
        .map(|(name, value)| (text_of(name), text_of(value)))
        .filter(|(name, value)| !EXCLUDED_VARIABLES.contains(&name.as_str()) && !is_of_the_job(name, value))
        .filter(|(name, _)| passed_on.takes(name))
        .filter(|(name, _)| !is_of_another(name))
        .collect()
}

/// The launcher variables of the caller's job, if it is a job with steps.
fn allocation_variables() -> Environment {
    let Ok(path) = std::env::var(VARIABLE) else { return Environment::new() };
    let allocation = Allocation::read(Path::new(&path));
    let (nodes, temporary) = allocation.map(|it| (it.nodes, it.temporary)).unwrap_or_default();
    let directory = Path::new(&path).parent().unwrap_or(Path::new("/"));
    let own = launcher_variables(directory, &nodes).into_iter().map(|(name, value)| (name.to_owned(), value));
    let temporary = temporary.map(|path| (TEMPORARY.to_owned(), path.to_string_lossy().into_owned()));
    own.chain(temporary).chain([(VARIABLE.to_owned(), path.clone())]).collect()
}

pub(crate) fn own_umask() -> u16 {
    // Reading the umask requires setting it. No other thread creates files yet.
    let own = umask(Mode::empty());
    umask(own);
    u16::try_from(own.bits()).expect("a mask has nine bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Probe {
        #[command(flatten)]
        run: Run,
    }

    #[test]
    fn flags_before_the_command_are_parsed_and_later_ones_passed_on() {
        let parse = |line: &str| {
            let words = std::iter::once("probe").chain(line.split_whitespace());
            <Probe as clap::Parser>::try_parse_from(words).map(|probe| probe.run)
        };
        for line in
            ["-c2 -m1G -N2 echo -n x", "-c 2 -m 1G -N=2 -- echo -n x", "--cpus=2 --memory=1G --nodes 2 echo -n x"]
        {
            let run = parse(line).expect(line);
            assert_eq!((run.job.flags.cpus, run.job.flags.nodes), (Some(2), Some(2)), "{line}");
            assert_eq!(run.job.command, ["echo", "-n", "x"], "{line}");
        }
        let help = parse("--memroy 1G true").expect_err("`--memroy` is not a flag").to_string();
        assert!(help.contains("--memory"), "{help}");
    }

    #[test]
    fn reading_the_umask_does_not_change_it() {
        assert_eq!(own_umask(), own_umask());
    }
}
