//! Allocations without a program, held by this process.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hostler_client::Client;
use hostler_model::{AllocationHolder, Environment, JobId, JobState, Submission, os_string_of};
use hostler_proto::api::{JobAction, JobDetail, StepHostView};
use hostler_remote::Credentials;
use hostler_remote::step::{
    Allocation, HOSTFILE, Link, MACHINEFILE, Place, REMOTE_SHELL, VARIABLE, hostfile, launcher_variables, machinefile,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::ends::failure;
use crate::exit;
use crate::failure::{During, Failure};
use crate::xdg;

/// How long one request to the head may wait.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How soon a job usually starts if it need not wait for resources.
const START_TIMEOUT: Duration = Duration::from_millis(500);

/// How long to wait for the end of a job whose end the first node knows.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Name of the file with the nodes' addresses and the key of this client.
pub(super) const ALLOCATION: &str = "allocation";

/// Progress of a job towards its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The job waits for resources.
    Pending(JobId),
    /// The job has its resources; `waited` if it was pending before.
    Granted { job: JobId, waited: bool },
}

/// A job that is submitted and may wait for its resources.
pub(crate) struct Requested {
    pub(crate) job: JobId,
    pub(crate) credentials: Credentials,
}

/// A job whose resources this process holds.
pub(crate) struct Held {
    pub(crate) job: JobDetail,
    pub(crate) allocation: Allocation,
    /// The connection with the first node. It also carries steps.
    pub(crate) first_node: Arc<Link>,
    directory: Option<PathBuf>,
    release: Option<oneshot::Sender<i32>>,
    holding: JoinHandle<bool>,
}

/// Submits a job without a program. `stays`: the allocation does not end when this process disconnects.
pub(crate) async fn request(client: &Client, mut spec: Submission, stays: bool) -> Result<Requested, Failure> {
    let credentials = prepare(&mut spec, stays)?;
    Ok(Requested { job: client.submit_new(spec).await?, credentials })
}

/// Makes a submission one of a job without a program, and returns the credentials of its holder.
pub(crate) fn prepare(spec: &mut Submission, stays: bool) -> Result<Credentials, Failure> {
    let credentials = Credentials::generate().during(|| "cannot create a key for the allocation".to_owned())?;
    let certificate = credentials.fingerprint().during(|| "cannot create a certificate".to_owned())?;
    spec.first_node = true;
    spec.holder = Some(Box::new(AllocationHolder { certificate, stays }));
    Ok(credentials)
}

impl Requested {
    /// Waits until the job runs, and holds it from then on.
    pub(crate) async fn hold(self, client: &Client, mut tell: impl FnMut(Wait)) -> Result<Held, Failure> {
        let mut waited = false;
        let mut timeout = START_TIMEOUT;
        let job = loop {
            let job = client.job_when_running(self.job, timeout).await?;
            match job.summary.state {
                JobState::Running if !job.step_hosts.is_empty() => break job,
                state if state.is_ended() => return Err(not_started(&job)),
                JobState::Pending if !waited => {
                    waited = true;
                    tell(Wait::Pending(self.job));
                }
                _ => {}
            }
            timeout = REQUEST_TIMEOUT;
        };
        tell(Wait::Granted { job: self.job, waited });
        let allocation = Allocation {
            rank: None,
            directory: os_string_of(job.directory.as_deref().unwrap_or("/")).into(),
            temporary: None,
            nodes: job.step_hosts.iter().map(place).collect(),
            credentials: self.credentials,
            holder: None,
        };
        let first_node = Arc::new(Link::open(&allocation, 0).await.map_err(|error| failure(&error))?);
        let link = Arc::clone(&first_node);
        let (release, released) = oneshot::channel();
        let (holds, held) = oneshot::channel();
        let holding = tokio::spawn(async move {
            let code = async {
                // The host has answered.
                let _ = holds.send(());
                match released.await {
                    Ok(code) => code,
                    Err(_) => std::future::pending().await,
                }
            };
            link.hold(code).await.is_ok()
        });
        // An error shows when the allocation is used: the job has just ended.
        let _ = held.await;
        Ok(Held { job, allocation, first_node, directory: None, release: Some(release), holding })
    }
}

fn place(host: &StepHostView) -> Place {
    Place { name: host.node.clone(), address: host.address, port: host.port, certificate: host.certificate }
}

/// The failure of a job that ended before it ran.
fn not_started(job: &JobDetail) -> Failure {
    let message = job.tasks_shown.iter().find_map(|task| task.message.clone());
    let why = message.map(|message| format!(": {message}")).unwrap_or_default();
    let summary = &job.summary;
    Failure::new(format!("job {} ended as {} before it held its resources{why}", summary.id, summary.state))
        .exiting(exit::RUN_FAILED)
}

impl Held {
    /// Writes the files that steps read, and returns the variables of a command that may start steps.
    pub(crate) fn lay_out(&mut self) -> Result<Environment, Failure> {
        let directory = directory_of(self.job.summary.id)
            .ok_or_else(|| Failure::new("no directory for the key of the allocation: HOME is not set"))?;
        xdg::tell();
        let during = || format!("cannot write the files of the allocation in {}", directory.display());
        self.write(&directory).during(during)?;
        let path = directory.join(ALLOCATION).to_string_lossy().into_owned();
        let mut all: Environment = launcher_variables(&directory, &self.allocation.nodes)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        all.insert(VARIABLE.to_owned(), path);
        all.extend(self.description().into_iter().map(|(name, value)| (name.to_owned(), value)));
        self.directory = Some(directory);
        Ok(all)
    }

    fn write(&self, directory: &Path) -> io::Result<()> {
        // A job with this number of another cluster may have left its files.
        let _ = hostler_snapshot::remove_tree(directory);
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let slots = self.job.tasks_per_node;
        let nodes = &self.allocation.nodes;
        for (name, content) in [
            (HOSTFILE, hostfile(nodes, slots).into_bytes()),
            (MACHINEFILE, machinefile(nodes, slots).into_bytes()),
            (ALLOCATION, self.allocation.to_bytes()?),
        ] {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(name))?;
            file.write_all(&content)?;
        }
        symlink(std::env::current_exe()?, directory.join(REMOTE_SHELL))
    }

    /// Variables that describe the job to a command on this machine.
    fn description(&self) -> Vec<(&'static str, String)> {
        let (summary, held) = (&self.job.summary, self.job.on_each_node());
        let nodes = &self.allocation.nodes;
        let address = |node: &Place| node.address.map_or_else(|| node.name.to_string(), |address| address.to_string());
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let world_size = u64::from(self.job.tasks_per_node) * nodes.len() as u64;
        let mut all = vec![
            ("HOSTLER_JOB_ID", summary.id.to_string()),
            ("HOSTLER_JOB_NAME", summary.name.clone()),
            ("HOSTLER_ATTEMPT", summary.attempt.to_string()),
            ("HOSTLER_CPUS", held.cpus.to_string()),
            ("HOSTLER_MEMORY_BYTES", held.memory_bytes.to_string()),
            ("HOSTLER_USER", summary.user.clone()),
            ("HOSTLER_NODES", nodes.len().to_string()),
            ("HOSTLER_NODE_LIST", names.join(",")),
            ("HOSTLER_NODE_ADDRESSES", nodes.iter().map(address).collect::<Vec<_>>().join(",")),
            ("HOSTLER_TASKS_PER_NODE", self.job.tasks_per_node.to_string()),
            ("HOSTLER_WORLD_SIZE", world_size.to_string()),
        ];
        all.extend(summary.partition.as_ref().map(|partition| ("HOSTLER_PARTITION", partition.to_string())));
        all
    }

    /// Waits until the allocation ends without this process's doing.
    pub(crate) async fn revoked(&mut self) {
        if (&mut self.holding).await.unwrap_or(false) {
            std::future::pending::<()>().await;
        }
    }

    /// Leaves an allocation that stays, with its files, so that later steps find it.
    pub(crate) fn leave(mut self) {
        self.directory = None;
    }

    /// Ends the allocation with this exit code, and waits until the job has ended.
    pub(crate) async fn release(mut self, client: &Client, code: u8) -> Result<(), Failure> {
        let id = self.job.summary.id;
        let told = match self.release.take() {
            Some(release) if !self.holding.is_finished() => {
                let _ = release.send(code.into());
                (&mut self.holding).await.unwrap_or(false)
            }
            _ => false,
        };
        if !told {
            // The job may have ended by itself; then there is nothing to cancel.
            let _ = client.act(id, None, JobAction::Cancel).await;
        }
        client.job_when_ended(id, 1, END_TIMEOUT).await?;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = hostler_snapshot::remove_tree(directory);
        }
    }
}

/// The directory for the files of an allocation that this machine holds.
pub(super) fn directory_of(job: JobId) -> Option<PathBuf> {
    let state = xdg::directory("XDG_STATE_HOME", ".local/state");
    let base = xdg::runtime(&state.as_deref().unwrap_or(Path::new("no directory")).to_string_lossy()).or(state)?;
    Some(base.join("hostler/allocations").join(job.to_string()))
}
