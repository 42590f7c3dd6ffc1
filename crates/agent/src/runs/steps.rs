//! Prepares a run for steps: generates this node's key, chooses its port, and writes the files that step launchers read.
//!
//! The node generates a key for each run. The key never leaves the node. The head sends the node's port and certificate
//! to the other nodes. The files belong to the job's user, in a directory that no other user can enter.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hostler_client::Client;
use hostler_core::agent::RunLaunch;
use hostler_model::{AllocationHolder, NodeName};
use hostler_proto::link::{MAX_STEP_RECORDS, Peer, StepEndpoint, StepRecord};
use hostler_remote::Credentials;
use hostler_remote::step::{
    Allocation, COMMANDS_IN_IMAGE, HOSTFILE, Holder, MACHINEFILE, Place, RECORDS, REMOTE_SHELL, RUNNING, RunningSteps,
    TEMPORARY, VARIABLE, hostfile, launcher_variables, machinefile,
};
use hostler_shepherd::Launch;
use nix::libc;
use nix::unistd::geteuid;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::job_network;
use crate::runs::control::Control;
use crate::runs::directory::RunDirectory;
use crate::runs::temporary;

/// Name of the file with the nodes' addresses and this node's key, for launching steps.
const ALLOCATION: &str = "allocation";

/// Name of the file that the run sees as `/etc/hosts`, if names of its nodes do not resolve.
const HOSTS: &str = "hosts";

/// How long the names of nodes may take to resolve, and how long the answer counts.
const RESOLVE_TIME: Duration = Duration::from_secs(1);
const RESOLVED_FOR: Duration = Duration::from_secs(60);

/// How much an agent reads of a file about steps, in bytes.
const MAX_BYTES: u64 = 512 << 10;

/// The most nodes that a record of a step names.
const MAX_STEP_NODES: usize = 1_000;

/// The longest name of a step, in characters.
const MAX_NAME_CHARACTERS: usize = 100;

/// The steps of a run that have ended. The job's user can write anything to the file, so invalid lines are left out.
pub(crate) fn records(directory: &RunDirectory) -> Vec<StepRecord> {
    let text = read(directory, RECORDS);
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<StepRecord>(line).ok());
    lines.take(MAX_STEP_RECORDS).map(bounded).collect()
}

/// What the host on this node runs: nothing, if the user has made the file invalid.
pub(crate) fn running(directory: &RunDirectory) -> RunningSteps {
    serde_json::from_slice(&read(directory, RUNNING)).unwrap_or_default()
}

/// The steps of a run, by number: all that run, and the last ones that have ended; at most [`MAX_STEP_RECORDS`].
fn merged(running: BTreeMap<u32, StepRecord>, mut ended: Vec<StepRecord>) -> Vec<StepRecord> {
    let mut steps = running;
    // Between its record and its removal from the other file, a step is in both.
    ended.iter().for_each(|record| drop(steps.remove(&record.step)));
    ended.sort_by_key(|record| record.step);
    let room = MAX_STEP_RECORDS.saturating_sub(steps.len());
    let last = ended.split_off(ended.len().saturating_sub(room));
    steps.extend(last.into_iter().map(|record| (record.step, record)));
    steps.into_values().take(MAX_STEP_RECORDS).map(bounded).collect()
}

/// Sends the steps of a run to the head.
pub(crate) async fn send(
    head: &Client,
    stream: &str,
    control: &Control,
    directory: RunDirectory,
) -> anyhow::Result<()> {
    let steps = control.of_step_host(move || merged(running(&directory).steps, records(&directory))).await?;
    let text = serde_json::to_vec(&steps)?;
    let mut uplink = head.send_stream(stream, 0, text.len() as u64);
    uplink.send(text.into()).await?;
    Ok(uplink.finish().await?)
}

/// Reads a file in the directory of the run's steps, up to [`MAX_BYTES`]. A missing file counts as empty.
fn read(directory: &RunDirectory, name: &str) -> Vec<u8> {
    let path = directory.steps().join(name);
    // Neither a link of the user's nor a pipe must lead the agent elsewhere.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let Some(file) = opened.ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file())) else {
        return Vec::new();
    };
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text).map(|_| text).unwrap_or_default()
}

fn bounded(mut step: StepRecord) -> StepRecord {
    step.name = step.name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARACTERS).collect();
    step.nodes.truncate(MAX_STEP_NODES);
    step
}

/// This node's port, certificate and key for the run's steps.
pub(crate) struct Own {
    pub(crate) endpoint: StepEndpoint,
    credentials: Credentials,
}

impl Own {
    /// Generates a key, and chooses a free port.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let credentials = Credentials::generate().context("cannot generate a key for the job's steps")?;
        let certificate = credentials.fingerprint()?;
        Ok(Self { endpoint: StepEndpoint { port: free_port().context("no port is free")?, certificate }, credentials })
    }

    /// Writes the files for launching steps, and adds their paths to the environment in `orders`.
    ///
    /// `program` is the path of this executable. `endpoints` has the port and certificate of every node of the run. If
    /// `names_resolve` is false, the run sees an `/etc/hosts` with its nodes.
    pub(crate) fn lay_out(
        self,
        (node, program): (&NodeName, &str),
        launch: &RunLaunch,
        directory: &RunDirectory,
        endpoints: &[StepEndpoint],
        names_resolve: bool,
        orders: &mut Launch,
    ) -> anyhow::Result<()> {
        let alone = [Peer { name: node.clone(), address: Some(Ipv4Addr::LOCALHOST.into()) }];
        let (rank, peers) = launch.placement.gang.as_ref().map_or((0, &alone[..]), |gang| (gang.rank, &gang.nodes[..]));
        if endpoints.len() != peers.len() {
            bail!(
                "the head sent no addresses for the job's steps; if the head runs an older version than the nodes, update it"
            );
        }
        if endpoints.get(rank as usize) != Some(&self.endpoint) {
            bail!("the agent was restarted while the job started; submit the job again");
        }
        let place = |((rank, peer), endpoint): ((u32, &Peer), &StepEndpoint)| Place {
            name: peer.name.clone(),
            address: job_network::address(launch, rank, peer),
            port: endpoint.port,
            certificate: endpoint.certificate,
        };
        let nodes: Vec<Place> = (0..).zip(peers).zip(endpoints).map(place).collect();
        let slots = launch.spec().tasks_per_node;
        let has_image = launch.spec().surroundings.image.is_some();
        let own_name = || PathBuf::from(COMMANDS_IN_IMAGE).join(REMOTE_SHELL);
        let remote_shell = if has_image { own_name() } else { PathBuf::from(program) };
        let steps = directory.steps();
        if let Some(text) = hosts_file(&nodes).filter(|_| !names_resolve) {
            // Root mounts it, so the user must not be able to replace it.
            let path = directory.path().join(HOSTS);
            hostler_sys::replace_file_unflushed(&path, text.as_bytes(), 0o644)
                .with_context(|| format!("cannot write the names of the job's nodes to {}", path.display()))?;
            orders.options.hosts = Some(path.display().to_string());
        }
        let texts = [(HOSTFILE, hostfile(&nodes, slots)), (MACHINEFILE, machinefile(&nodes, slots))];
        let variables = launcher_variables(&steps, &nodes);
        let owner = orders.options.credentials.as_ref().map(|user| (user.uid, user.gid));
        let temporary = temporary_of(launch, directory, endpoints, owner)?;
        let holder = launch.spec().holder.as_deref();
        let allocation = Allocation {
            rank: Some(rank),
            directory: orders.cwd.clone(),
            temporary: temporary.clone(),
            nodes,
            credentials: self.credentials,
            holder: holder.map(|&AllocationHolder { certificate, stays }| Holder { certificate, stays }),
        };
        let give = |path: &Path| owner.map_or(Ok(()), |(uid, gid)| chown(path, Some(uid), Some(gid)));
        let write = || -> std::io::Result<()> {
            DirBuilder::new().mode(0o700).create(&steps)?;
            let files = texts.iter().map(|(name, text)| (*name, text.as_bytes()));
            let secret = allocation.to_bytes()?;
            for (name, content) in files.chain([(ALLOCATION, &secret[..])]) {
                let path = steps.join(name);
                directory.store(&path, content)?;
                give(&path)?;
            }
            symlink(remote_shell, steps.join(REMOTE_SHELL))?;
            // Last, because the user can replace the files from now on.
            give(&steps)
        };
        write().with_context(|| format!("cannot write the files for the job's steps in {}", steps.display()))?;
        if let Some(sandbox) = &mut orders.options.sandbox {
            sandbox.writable.push(steps.display().to_string());
        }
        orders.env.push((VARIABLE.into(), steps.join(ALLOCATION).into_os_string()));
        if let Some(path) = temporary {
            orders.env.retain(|(name, _)| name != TEMPORARY);
            orders.env.push((TEMPORARY.into(), path.into_os_string()));
        }
        for (name, value) in variables {
            // Variables that the job sets have precedence.
            if !orders.env.iter().any(|(known, _)| known == name) {
                orders.env.push((name.into(), value.into()));
            }
        }
        Ok(())
    }
}

/// Whether the names of a run's nodes resolve on this machine, or the run cannot see another `/etc/hosts`. Answers count for a while,
/// since a name server may be slow.
pub(crate) async fn names_resolve(node: &NodeName, launch: &RunLaunch, orders: &Launch) -> bool {
    static KNOWN: Mutex<BTreeMap<String, (Instant, bool)>> = Mutex::new(BTreeMap::new());
    if !geteuid().is_root() || orders.options.sandbox.is_some() {
        return true;
    }
    let gang = launch.placement.gang.as_ref();
    let names: Vec<String> = gang
        .map_or_else(|| vec![node.to_string()], |gang| gang.nodes.iter().map(|peer| peer.name.to_string()).collect());
    let key = names.join(",");
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, resolve)) = known().get(&key).filter(|(at, _)| at.elapsed() < RESOLVED_FOR) {
        return *resolve;
    }
    let look = spawn_blocking(move || names.iter().all(|name| (name.as_str(), 0).to_socket_addrs().is_ok()));
    let resolve = matches!(timeout(RESOLVE_TIME, look).await, Ok(Ok(true)));
    let mut known = known();
    known.retain(|_, (at, _)| at.elapsed() < RESOLVED_FOR);
    known.insert(key, (Instant::now(), resolve));
    resolve
}

/// The text of `/etc/hosts` for a run with nodes whose names do not resolve: that of the machine, and then the nodes. `None` if
/// the addresses are not known.
fn hosts_file(nodes: &[Place]) -> Option<String> {
    let line = |place: &Place| Some(format!("{} {}\n", place.address?, place.name));
    let lines = nodes.iter().map(line).collect::<Option<String>>()?;
    Some(format!("{}\n\n{lines}", fs::read_to_string("/etc/hosts").ok()?.trim_end()))
}

/// A port that is free at the moment.
pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port())
}

/// Creates the directory for the run's temporary files. Returns `None` if the job's environment sets one, or the
/// job has a sandbox.
///
/// The directory's name is the same on all nodes if possible, because some launchers copy the first node's environment.
/// The name contains the fingerprint of the first node's certificate, which is new for each run. If several nodes share
/// a machine, the rank is appended.
fn temporary_of(
    launch: &RunLaunch,
    directory: &RunDirectory,
    endpoints: &[StepEndpoint],
    owner: Option<(u32, u32)>,
) -> anyhow::Result<Option<PathBuf>> {
    // A sandbox has its own.
    if launch.spec().environment.contains_key(TEMPORARY) || launch.spec().surroundings.sandbox {
        return Ok(None);
    }
    let rank = launch.placement.gang.as_ref().map_or(0, |gang| gang.rank);
    let place = temporary::place(owner);
    let name = format!("hostler-run-{}", endpoints[0].certificate.short());
    let made = temporary::make(&place, &[name.clone(), format!("{name}-{rank}")], owner, &directory.temporary());
    let made = made.with_context(|| {
        format!(
            "cannot create a directory for the job's temporary files in {}; check its free space and permissions",
            place.display()
        )
    })?;
    Ok(Some(made))
}

#[cfg(test)]
mod tests {
    use hostler_model::WallTime;

    use super::*;

    fn step(number: u32, ended_at: Option<i64>) -> StepRecord {
        let text = format!("{{\"step\":{number},\"name\":\"a\",\"nodes\":[],\"tasks\":1,\"cpus\":1,\"started_at\":0}}");
        let step: StepRecord = serde_json::from_str(&text).expect("a step");
        StepRecord { ended_at: ended_at.map(WallTime), ..step }
    }

    #[test]
    fn running_steps_are_listed_before_ended_ones() {
        let most = u32::try_from(MAX_STEP_RECORDS).expect("a small number");
        // The last one has just ended, and is in both lists.
        let ended: Vec<StepRecord> = (0..=most).map(|number| step(number, Some(1))).collect();
        let running = [most, most + 1, most + 2].map(|number| (number, step(number, None)));
        let steps = merged(running.into(), ended);
        assert_eq!(steps.len(), MAX_STEP_RECORDS);
        let numbers: Vec<u32> = steps.iter().map(|step| step.step).collect();
        assert_eq!((numbers[0], numbers[numbers.len() - 1]), (3, most + 2));
        let is_running = |step: &&StepRecord| step.ended_at.is_none();
        assert_eq!(steps.iter().filter(is_running).map(|step| step.step).collect::<Vec<_>>(), [most + 1, most + 2]);
    }
}
