//! `hostler jupyter`: runs a Jupyter server as a job and opens it in a browser.
//!
//! The server listens on a Unix socket that only its user can reach, so the node has no open port. The job gets the token
//! as a variable: the head shows variables to nobody, unlike arguments and output. [`START`] moves it to a private file, so
//! that kernels do not inherit it.

mod limit;
mod session;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hostler_client::{CaptureCache, Client, ClientError, ProjectFolder, escape};
use hostler_model::{JobId, JobState, NodeName, Submission, TaskId, Work, plural};
use hostler_proto::api::{JobAction, JobDetail, JobSummary};
use hostler_proto::forward::Destination;
use hostler_proto::link::Output;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::time::{sleep, timeout};

use self::limit::Warnings;
use self::session::{App, Session, file_of};
use super::forward::local::Listener;
use super::forward::{JobServer, PAUSE, REQUEST_TIMEOUT, serve};
use super::logs::{Source, read};
use super::run::{code_of, is_about_missing_directory, own_directory, own_environment, own_umask};
use crate::browser::Browser;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::{JobFlags, VariableNames, words};
use crate::interrupts::{Interrupts, exit_code};
use crate::output::text::Moment;
use crate::output::views;
use crate::passed_on::PassedOn;
use crate::submission::announce;
use crate::submission::narrate;
use crate::xdg;

/// The script that the job runs.
const START: &str = include_str!("start.sh");

/// The variable with the token, for [`START`].
const TOKEN_VARIABLE: &str = "HOSTLER_JUPYTER_TOKEN";

/// The variable with the directory in which [`START`] starts Jupyter, if the node has it.
const DIRECTORY_VARIABLE: &str = "HOSTLER_JUPYTER_DIRECTORY";

/// Name of [`START`] in a folder with requirements.
const START_FILE: &str = "start.sh";

/// Pause between two attempts to connect while Jupyter starts.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How often the command asks why the job waits.
const WAITING_INTERVAL: Duration = Duration::from_secs(2);

/// After this, a second signal ends the command also if the head has not confirmed the cancellation.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// The most lines of standard error that are shown when Jupyter does not start.
const LAST_LINES: usize = 20;

/// Start Jupyter as a job and open it in a browser
///
/// Jupyter runs in the current directory, which must also exist on the node, with the current environment: the job starts
/// the `jupyter` of the current PATH. The server has no port on the node, and its address contains a token for you alone.
/// The command ends with the job, and warns 15, 5 and 1 minutes before the time limit. Ctrl-C ends the job; a second
/// Ctrl-C returns at once.
///
/// The browser is that in BROWSER, or else the default one if there is a display.
///
/// Exit codes: that of Jupyter; 124 if the job reached its time limit; 125 if it was lost; 128 + N if signal N ended this
/// command or Jupyter.
#[derive(Debug, Args)]
pub struct Jupyter {
    /// Which Jupyter to start [default: lab]
    #[arg(value_name = "APP")]
    app: Option<App>,

    /// Print the job id and return; --attach opens Jupyter later
    #[arg(long, conflicts_with_all = ["no_browser", "port", "socket"])]
    detach: bool,

    /// Open the Jupyter of this job again; Ctrl-C leaves the job running
    ///
    /// Works only for the user and on the machine that started the job.
    #[arg(long, value_name = "ID", conflicts_with_all = ["detach", "JobFlags", "env_only", "args"])]
    attach: Option<JobId>,

    /// Print the address and open no browser
    #[arg(long)]
    no_browser: bool,

    /// Port of this machine that leads to Jupyter [default: any free port]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// Listen on a Unix socket at this path instead of a local port, for you alone
    #[arg(long, value_name = "PATH", conflicts_with = "port")]
    socket: Option<PathBuf>,

    /// Pass on only these environment variables, e.g. PATH,HOME,LC_*; repeatable
    ///
    /// [default: all variables, or `env_only` in config.toml]
    #[arg(long, value_name = "NAMES")]
    env_only: Vec<VariableNames>,

    /// Run the Jupyter of an environment with the packages in this file, which the node builds
    ///
    /// The file has the form of requirements.txt; Jupyter itself need not be in it. The node needs neither Jupyter nor the
    /// current directory: without the latter, notebooks are in the job's folder and are results of the job. The job gets no
    /// environment variables but those of --env.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["attach", "env_only"])]
    requirements: Option<PathBuf>,

    #[command(flatten)]
    flags: JobFlags,

    /// Arguments of Jupyter
    #[arg(value_name = "ARGS", last = true, value_parser = words())]
    args: Vec<String>,
}

/// A Jupyter server that runs or will run as a job.
struct Server<'a> {
    context: &'a Context,
    client: Arc<Client>,
    job: JobId,
    session: Session,
}

impl Jupyter {
    pub fn run(self, context: &Context) -> Outcome {
        self.check()?;
        block_on(self.open(context))
    }

    fn check(&self) -> Result<(), Failure> {
        let Self { flags, .. } = self;
        let is_many = |count: Option<u32>| count.is_some_and(|count| count > 1);
        let unfit = [
            ("--array", flags.array.is_some()),
            ("--pty", flags.pty),
            ("--nodes", is_many(flags.nodes)),
            ("--tasks-per-node", is_many(flags.tasks_per_node)),
            ("--first-node", flags.first_node),
        ];
        match unfit.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(Failure::usage(format!(
                "{flag} does not fit: Jupyter is one server on one node, without a terminal"
            ))),
            None => Ok(()),
        }
    }

    async fn open(self, context: &Context) -> Outcome {
        // From before the submission on, so that a signal always ends the job.
        let mut interrupts = Interrupts::take()?;
        let client = context.client()?;
        let state = xdg::directory("XDG_STATE_HOME", ".local/state")
            .ok_or_else(|| Failure::new("no directory for the token: neither HOME nor XDG_STATE_HOME is set"))?;
        let info = tokio::select! {
            info = client.info() => info?,
            signal = interrupts.next() => return Ok(exit_code(signal)),
        };
        let cluster = info.head.authority.map_or_else(|| "local".to_owned(), |it| it.to_string());
        let cluster = cluster.get(..16).unwrap_or(&cluster);
        // A port in use is found before a job is submitted.
        let listener = match &self.socket {
            _ if self.detach => None,
            Some(path) => Some(Listener::on_socket(path)?),
            None => Some(
                Listener::on_port(self.port)
                    .await
                    .map_err(|failure| failure.hint("leave out --port for a free one"))?,
            ),
        };
        let (job, session) = match self.attach {
            Some(job) => {
                let session = Session::read(&file_of(&state, cluster, job));
                let failed = || format!("this machine does not have the token of a Jupyter in job {job}");
                let hint = "use the machine and the user that started the job with `hostler jupyter`";
                (job, session.during(failed).map_err(|failure| failure.hint(hint).exiting(exit::REFUSED))?)
            }
            None => {
                let session = Session::new(self.app.unwrap_or(App::Lab));
                let submitting = async {
                    match &self.requirements {
                        Some(file) => self.submit_with(file, context, &client, &session).await,
                        None => Ok(client.submit_new(self.spec(&session)?).await?),
                    }
                };
                let job = match submit(context, &client, submitting, &mut interrupts).await? {
                    Ok(job) => job,
                    Err(signal) => return Ok(exit_code(signal)),
                };
                if let Err(error) = session.store(&file_of(&state, cluster, job)) {
                    context
                        .output
                        .say(&format!("note: `--attach {job}` will not work: cannot store the token: {error}"));
                }
                (job, session)
            }
        };
        let file = file_of(&state, cluster, job);
        // From here on, the command outlasts any outage of the head.
        let server = Server { context, client: Arc::new(context.watching_client()?), job, session };
        let Some(listener) = listener else {
            announce(context, job, &[]);
            context.output.aside(&format!("`hostler jupyter --attach {job}` opens Jupyter"));
            return Ok(exit::OK);
        };
        let outcome = self.attend(&server, listener, &mut interrupts).await;
        if server.has_ended().await {
            // Nobody can use the token of a server that has ended.
            let _ = std::fs::remove_file(file);
        }
        outcome
    }

    /// Describes the job.
    fn spec(&self, session: &Session) -> Result<Submission, Failure> {
        let start = ["jupyter", &session.directory, session.app.name()].map(str::to_owned);
        let work = Work::Command {
            argv: start.into_iter().chain(self.args.iter().cloned()).collect(),
            directory: own_directory()?.into(),
            script: Some(START.to_owned()),
        };
        let passed_on = PassedOn::chosen(&self.env_only)?;
        let mut environment = own_environment(&passed_on);
        environment.insert(TOKEN_VARIABLE.to_owned(), session.token.clone());
        let mut spec = self.flags.spec(work, "jupyter", environment)?;
        spec.umask = Some(own_umask());
        Ok(spec)
    }

    /// Submits a job with the environment that the file describes.
    async fn submit_with(
        &self,
        file: &Path,
        context: &Context,
        client: &Client,
        session: &Session,
    ) -> Result<JobId, Failure> {
        let wanted = fs::read_to_string(file).during(|| format!("cannot read {}", file.display()))?;
        let folder = tempfile::tempdir().during(|| "cannot make a temporary directory".to_owned())?;
        let package = if session.app == App::Lab { "jupyterlab" } else { "notebook" };
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        write("requirements.txt", &format!("{wanted}\n{package}\n"))
            .and_then(|()| write(START_FILE, START))
            .during(|| "cannot write a temporary file".to_owned())?;
        let narrate = narrate(&context.output);
        let project = ProjectFolder::open(folder.path(), START_FILE)?;
        let mut captured = project.capture(&[], CaptureCache::default(), &narrate)?;
        let start = [&session.directory, session.app.name()].map(str::to_owned);
        let arguments: Vec<String> = start.into_iter().chain(self.args.iter().cloned()).collect();
        let directory = own_directory()?;
        let environment =
            [(TOKEN_VARIABLE.to_owned(), session.token.clone()), (DIRECTORY_VARIABLE.to_owned(), directory)];
        let mut spec = self.flags.spec(captured.work(&arguments), "jupyter", environment.into())?;
        spec.umask = Some(own_umask());
        captured.require_packages(&mut spec)?;
        Ok(captured.submit(client, spec, None, &narrate).await?)
    }

    /// Opens Jupyter and waits for the end of the job, or for a signal. Ends the job that this command has started.
    async fn attend(&self, server: &Server<'_>, listener: Listener, interrupts: &mut Interrupts) -> Outcome {
        let Server { context, client, job, .. } = server;
        let signal = tokio::select! {
            ended = self.until_the_end(server, listener) => return ended.map(|job| code_of(&job)),
            signal = interrupts.next() => signal,
        };
        if self.attach.is_some() {
            context.output.say(&format!("job {job} continues; `hostler cancel {job}` ends it"));
            return Ok(exit::OK);
        }
        context.output.say(&format!("cancelling job {job}; press Ctrl-C again to return without waiting"));
        let is_cancelled = Cell::new(false);
        let cancel = async {
            client.act(*job, None, JobAction::Cancel).await?;
            is_cancelled.set(true);
            while !server.job(REQUEST_TIMEOUT).await?.is_some_and(|job| job.summary.state.is_ended()) {}
            Ok(exit_code(signal))
        };
        let again = async {
            // A second signal may be there already. The cancellation gets time to reach the head.
            sleep(CANCEL_TIME).await;
            interrupts.next().await
        };
        tokio::select! {
            ended = cancel => ended,
            signal = again => {
                if !is_cancelled.get() {
                    context.output.say(&format!("job {job} may continue: the head has not confirmed its end"));
                }
                Ok(exit_code(signal))
            }
        }
    }

    async fn until_the_end(&self, server: &Server<'_>, listener: Listener) -> Result<JobDetail, Failure> {
        let Server { context, client, job, session } = server;
        let node = match server.until_it_listens(self.attach.is_some()).await {
            Err(failure) if self.attach.is_none() => return Err(server.give_up(failure).await),
            listening => listening?,
        };
        let address = listener.address()?;
        let base = match self.socket {
            Some(_) => format!("http+unix://{}", escape(&address)),
            None => format!("http://{address}"),
        };
        let url = session.url(&base, self.app.unwrap_or(session.app));
        let effect = if self.attach.is_some() { "leaves it running" } else { "ends it" };
        context.output.say(&format!("Jupyter runs as job {job} on {node}; Ctrl-C {effect}"));
        if context.output.is_json() {
            context.output.json(&json!({ "url": url, "job": job, "node": node }));
        } else {
            context.output.data(&url);
        }
        let browser = if self.no_browser || self.socket.is_some() { None } else { Browser::find() };
        let opened = browser.map(|browser| browser.open(&url, "`--no-browser` only prints the address"));
        if let Some(Err(failure)) = &opened {
            context.output.say(failure.summary());
        }
        let to = JobServer { task: server.task(), rank: 0, at: Destination::Socket(session.socket()) };
        let ended = serve(context, client, vec![(listener, to)], server.watch()).await;
        // The job outlasts a login that ends, for example.
        let hint = || format!("the job may continue; `hostler jupyter --attach {job}` opens it again");
        let ended = ended.map_err(|failure| failure.hint(hint()))?;
        context.output.say(&how_it_ended(&ended.summary));
        Ok(ended)
    }
}

impl Server<'_> {
    fn task(&self) -> TaskId {
        TaskId { job: self.job, index: 0 }
    }

    /// The job, as soon as it has ended, but at most after `wait`. `None` if the head is away for now.
    async fn job(&self, wait: Duration) -> Result<Option<JobDetail>, Failure> {
        self.known(self.client.task(self.task(), wait).await).await
    }

    /// The job in an answer. `None` if the head is away for now.
    async fn known(&self, answer: Result<JobDetail, ClientError>) -> Result<Option<JobDetail>, Failure> {
        match answer {
            Ok(mut detail) => {
                detail.summary = views::of_task(&detail, 0);
                Ok(Some(detail))
            }
            Err(error) if error.is_transient() => {
                sleep(PAUSE).await;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the job has certainly ended. Does not wait for a head that is away.
    async fn has_ended(&self) -> bool {
        let job = timeout(PAUSE, self.job(Duration::ZERO)).await;
        matches!(job, Ok(Ok(Some(job))) if job.summary.state.is_ended())
    }

    /// Cancels the job after `failure`, because nobody can reach its Jupyter. Returns `failure`.
    async fn give_up(&self, failure: Failure) -> Failure {
        if !self.has_ended().await {
            self.context.output.say(&format!("cancelling job {}", self.job));
            if let Err(error) = self.client.act(self.job, None, JobAction::Cancel).await {
                self.context.output.say(&format!("cannot cancel job {}: {error}", self.job));
            }
        }
        failure
    }

    /// Waits until Jupyter accepts connections. Says what it waits for. Returns the node.
    ///
    /// # Errors
    /// If the job ends before that. With `was_open`, the error does not say that Jupyter failed to start.
    async fn until_it_listens(&self, was_open: bool) -> Result<NodeName, Failure> {
        let to = Destination::Socket(self.session.socket());
        let mut said = None;
        let mut asked = self.job(Duration::ZERO).await?;
        loop {
            let Some(job) = asked else {
                asked = self.job(POLL_INTERVAL).await?;
                continue;
            };
            let JobSummary { state, nodes, reason, message, .. } = &job.summary;
            let is_waiting = *state == JobState::Pending;
            if state.is_ended() && was_open {
                return Err(Failure::new(how_it_ended(&job.summary)).exiting(code_of(&job).max(exit::FAILED)));
            } else if state.is_ended() {
                return Err(self.early_end(&job).await);
            }
            let now = match (state, nodes.first()) {
                (JobState::Running, Some(node)) => {
                    match self.client.forward(self.task(), 0, &to).await {
                        Ok(_) => return Ok(node.clone()),
                        // Jupyter does not listen yet, or the job has stopped running.
                        Err(error) if error.is_transient() => {}
                        Err(error)
                            if matches!(error.code(), Some("no_listener" | "not_running" | "node_unreachable")) => {}
                        Err(error) => return Err(error.into()),
                    }
                    format!("job {} runs on {node}; starting Jupyter", self.job)
                }
                (JobState::Pending, _) => waiting(self.job, reason.as_deref()),
                _ => match message {
                    Some(message) => format!("job {} is {state}: {message}", self.job),
                    None => format!("job {} is {state}", self.job),
                },
            };
            if said.as_ref() != Some(&now) {
                self.context.output.say(&now);
                said = Some(now);
            }
            asked = match is_waiting {
                true => self.known(self.client.job_when_running(self.job, WAITING_INTERVAL).await).await?,
                false => self.job(POLL_INTERVAL).await?,
            };
        }
    }

    /// Why Jupyter does not run, after the last lines of its messages.
    async fn early_end(&self, job: &JobDetail) -> Failure {
        let source = Source { task: self.task(), ranks: 0..1 };
        let messages = read(&self.client, &source, Output::Stderr, false).await.unwrap_or_default();
        let messages = String::from_utf8_lossy(&messages);
        let lines: Vec<&str> = messages.lines().collect();
        for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
            self.context.output.say(line);
        }
        let failure = Failure::new(format!("Jupyter did not start: {}", how_it_ended(&job.summary)));
        let failure = failure.exiting(code_of(job).max(exit::FAILED));
        match job.summary.message.as_deref().is_some_and(is_about_missing_directory) {
            true => failure.hint("start Jupyter in a directory that the node has too, such as a shared home directory"),
            false => failure.hint(format!("`hostler logs {}` shows all messages", self.job)),
        }
    }

    /// Waits for the end of the job. Warns before its time limit, and says when the job waits again.
    async fn watch(&self) -> Result<JobDetail, Failure> {
        let mut warnings = Warnings::default();
        let mut wait = Duration::ZERO;
        let mut was_waiting = false;
        loop {
            let Some(job) = self.job(wait).await? else { continue };
            if job.summary.state.is_ended() {
                return Ok(job);
            }
            let is_waiting = job.summary.state == JobState::Pending;
            if is_waiting && !was_waiting {
                self.context.output.say(&waiting(self.job, job.summary.reason.as_deref()));
            }
            was_waiting = is_waiting;
            let Ok(now) = Moment::of_head(&self.client).await else { continue };
            let left = left(&job.summary, &now);
            if let Some(left) = left.filter(|left| !left.is_zero() && warnings.is_due(*left)) {
                let minutes = plural(left.as_secs().div_ceil(60), "minute");
                let job = self.job;
                self.context
                    .output
                    .say(&format!("Jupyter ends in {minutes}, at the time limit of job {job}: save your work"));
            }
            wait = left.and_then(Warnings::next_in).map_or(REQUEST_TIMEOUT, |next| next.min(REQUEST_TIMEOUT));
        }
    }
}

/// Submits the job. `Err`: a signal came before, and the job is cancelled if the head has it.
async fn submit(
    context: &Context,
    client: &Client,
    submitting: impl Future<Output = Result<JobId, Failure>>,
    interrupts: &mut Interrupts,
) -> Result<Result<JobId, Signal>, Failure> {
    let mut submitting = std::pin::pin!(submitting);
    let signal = tokio::select! {
        job = &mut submitting => return Ok(Ok(job?)),
        signal = interrupts.next() => signal,
    };
    let cancel = async {
        let job = submitting.await?;
        context.output.say(&format!("cancelling job {job}"));
        client.act(job, None, JobAction::Cancel).await?;
        Ok(Err(signal))
    };
    tokio::select! {
        cancelled = cancel => cancelled,
        signal = interrupts.next() => {
            context.output.say("the head may have the job: `hostler jobs` lists it, and `hostler cancel` ends it");
            Ok(Err(signal))
        }
    }
}

fn waiting(job: JobId, reason: Option<&str>) -> String {
    format!("job {job} waits{}", reason.map(|reason| format!(": {reason}")).unwrap_or_default())
}

fn how_it_ended(job: &JobSummary) -> String {
    let message = job.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("job {} {}{message}", job.id, views::ending(job))
}

/// Time until the time limit of a running job.
fn left(job: &JobSummary, now: &Moment) -> Option<Duration> {
    let (limit, started) = job.time_limit_ms.zip(job.started_at).filter(|_| job.state == JobState::Running)?;
    Some(Duration::from_millis(limit.saturating_sub(now.now.ms_since(started))))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Probe {
        #[command(flatten)]
        jupyter: Jupyter,
    }

    fn parse(line: &str) -> Result<Jupyter, clap::Error> {
        Probe::try_parse_from(std::iter::once("probe").chain(line.split_whitespace())).map(|probe| probe.jupyter)
    }

    #[test]
    fn applications_options_and_arguments_are_parsed() {
        let jupyter = parse("notebook -c 4 -m 16G --no-browser -- --notebook-dir x").expect("valid");
        assert_eq!((jupyter.app, jupyter.flags.cpus), (Some(App::Notebook), Some(4)));
        assert_eq!(jupyter.args, ["--notebook-dir", "x"]);
        assert_eq!(parse("").expect("valid").app, None);
        parse("lab --attach 12 --no-browser --port 9000").expect("valid");
        for line in [
            "--attach 12 --requirements r.txt",
            "--attach 12 -c 2",
            "--attach 12 --detach",
            "--attach 12 -- x",
            "hub",
            "--port 9 --socket s",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn options_for_several_processes_are_refused() {
        for line in ["-a 0-3", "--pty", "-N 2", "-n 2", "--first-node"] {
            let failure = parse(line).expect(line).check().expect_err(line);
            assert!(failure.summary().contains("does not fit"), "{line}");
        }
        parse("-N 1 -n 1 -g 1 --sandbox").expect("valid").check().expect("one process");
    }
}
