//! The users who try to break promises. Each has a login of its own, and uses `hostler` as students do.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hostler_client::{Client, JobFilter};
use hostler_model::{JobId, JobState, UserName};
use hostler_proto::api::{JobAction, JobDetail};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::Instant;

use super::report::Finding;
use crate::failure::{During, Failure};

/// Name of all jobs of the check.
const JOB_NAME: &str = "classroom-check";

/// The program of all jobs.
const PROBE: &str = "probe.sh";

/// How long jobs may take to end after they were cancelled.
const ENDING: Duration = Duration::from_secs(60);

/// Writes the project that the testers submit. Returns its folder.
pub(super) fn project(directory: &Path) -> Result<PathBuf, Failure> {
    let folder = directory.join("project");
    let probe = folder.join(PROBE);
    let write = || {
        fs::create_dir(&folder)?;
        fs::write(&probe, include_str!("probe.sh"))?;
        fs::set_permissions(&probe, Permissions::from_mode(0o755))
    };
    write().during(|| format!("cannot write {}", probe.display()))?;
    Ok(folder)
}

/// A user with a login. The login is in a directory of its own, apart from those of the caller.
#[derive(Debug)]
pub(super) struct Tester {
    pub(super) name: UserName,
    /// Address of the head.
    pub(super) address: String,
    /// Time limit of jobs for which no other is given.
    time: String,
    home: PathBuf,
}

/// What a command printed, and its exit code.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Said {
    /// The head's code for a refusal, from the JSON on standard error.
    pub(super) fn refusal(&self) -> Option<String> {
        let error: Value = self.stderr.lines().find_map(|line| serde_json::from_str(line).ok())?;
        Some(error["error"]["code"].as_str()?.to_owned())
    }

    /// The error in words.
    pub(super) fn error(&self) -> String {
        let json = self.stderr.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
        let message = json.and_then(|error| Some(error["error"]["message"].as_str()?.to_owned()));
        message.unwrap_or_else(|| self.stderr.trim().to_owned())
    }
}

impl Tester {
    /// A user who is not logged in yet, whose files are in a new directory.
    pub(super) fn new(name: &UserName, home: PathBuf, time: &str) -> Result<Self, Failure> {
        DirBuilder::new().mode(0o700).create(&home).during(|| format!("cannot create {}", home.display()))?;
        Ok(Self { name: name.clone(), address: String::new(), time: time.to_owned(), home })
    }

    /// Logs in with a login code, which an admin may make.
    pub(super) async fn log_in(&mut self, admin: &Client) -> Result<(), Failure> {
        let code = admin.invite_user(&self.name).await?.code;
        let said = self.run_with_input(&["login", "-", "--json"], &code).await?;
        let login: Option<Value> = serde_json::from_str(&said.stdout).ok();
        let address = login.and_then(|login| Some(login["address"].as_str()?.to_owned()));
        self.address = address.ok_or_else(|| {
            Failure::new(format!("cannot log in as {}: {}", self.name, said.error()))
                .hint("the head's first address must be reachable from here; see `hostler info`")
        })?;
        Ok(())
    }

    /// Runs `hostler` as this user.
    pub(super) async fn run(&self, arguments: &[&str]) -> Result<Said, Failure> {
        self.run_with_input(arguments, "").await
    }

    async fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<Said, Failure> {
        let failed = || "cannot run hostler".to_owned();
        let program = std::env::current_exe().during(failed)?;
        let mut command = Command::new(program);
        // Signals of the terminal are for the check alone, which ends this process itself.
        command.args(arguments).process_group(0).kill_on_drop(true);
        command.env_clear().env("HOME", &self.home).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.envs((!self.address.is_empty()).then_some(("HOSTLER_HEAD", &self.address)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().during(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that reads nothing has closed the pipe.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.during(failed)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Ok(Said { code, stdout: text(&output.stdout), stderr: text(&output.stderr) })
    }

    /// Submits a job that runs the probe with these arguments. The outer error is one of this machine, the inner one of the head.
    pub(super) async fn submit(
        &self,
        project: &Path,
        options: &[&str],
        arguments: &[&str],
    ) -> Result<Result<JobId, Said>, Failure> {
        let project = project.to_string_lossy();
        let mut words = vec!["submit", &project, PROBE, "--json", "--name", JOB_NAME];
        for [option, value] in [["-c", "1"], ["-t", &self.time]] {
            words.extend((!options.contains(&option)).then_some([option, value]).into_iter().flatten());
        }
        let said = self.run(&[&words, options, &["--"], arguments].concat()).await?;
        let id = || serde_json::from_str::<Value>(&said.stdout).ok()?.get("id")?.to_string().parse().ok();
        Ok(match id() {
            Some(id) if said.code == 0 => Ok(id),
            _ => Err(said),
        })
    }
}

/// Ends the logins and all jobs of the check. Says whether the jobs ended; fails if that is unknown, or a login remains.
pub(super) async fn tidy_up(admin: &Client, testers: &[Tester]) -> Result<Finding, Failure> {
    let mut all = Ok(Finding::Kept);
    for tester in testers {
        // First, so that the head accepts no more jobs of a submission that was interrupted.
        let logged_out = tester.log_out().await;
        let ended = end_jobs(admin, &tester.name).await;
        all = match (all, logged_out.and(ended)) {
            (Ok(one), Ok(other)) => Ok(one.and(other)),
            (Err(failure), _) | (Ok(_), Err(failure)) => Err(failure),
        };
    }
    all
}

impl Tester {
    async fn log_out(&self) -> Result<(), Failure> {
        let logins = self.home.join(".config/hostler/logins");
        if !fs::read_dir(logins).is_ok_and(|mut logins| logins.next().is_some()) {
            return Ok(());
        }
        let said = self.run(&["logout", "--json"]).await?;
        match said.code {
            0 => Ok(()),
            _ => Err(Failure::new(format!("cannot log out {}: {}", self.name, said.error()))
                .hint("the login ends by itself after twelve hours")),
        }
    }
}

/// Ends the jobs of a tester. Looks again afterwards for one that the head was just accepting.
async fn end_jobs(admin: &Client, user: &UserName) -> Result<Finding, Failure> {
    let states = JobState::LIVE.to_vec();
    let filter = JobFilter { user: Some(user.to_string()), states, ..JobFilter::default() };
    let mut finding = Finding::Kept;
    for _ in 0..2 {
        let jobs: Vec<JobId> =
            admin.jobs(&filter).await?.jobs.into_iter().filter(|job| job.name == JOB_NAME).map(|job| job.id).collect();
        for job in &jobs {
            // The job may have ended meanwhile.
            let _ = admin.act(*job, None, JobAction::Cancel).await;
        }
        let deadline = Instant::now() + ENDING;
        for job in jobs {
            let state = when_ended(admin, job, deadline).await?.summary.state;
            finding = finding.and(Finding::of(state.is_ended(), || {
                format!("job {job} of {user} does not end; its state is {state}")
            }));
        }
    }
    Ok(finding)
}

/// Waits for the end of a job, until the deadline.
pub(super) async fn when_ended(admin: &Client, job: JobId, deadline: Instant) -> Result<JobDetail, Failure> {
    loop {
        // The head bounds the time of one request.
        let left = deadline.saturating_duration_since(Instant::now());
        let detail = admin.job_when_ended(job, 1, left).await?;
        if detail.summary.state.is_ended() || Instant::now() >= deadline {
            return Ok(detail);
        }
    }
}
