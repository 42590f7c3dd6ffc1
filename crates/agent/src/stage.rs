//! From a launch to a running process: folder, environment, command line, shepherd.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use hostler_core::agent::RunLaunch;
use hostler_model::{Digest, Environment, Work};
use hostler_proto::link::Output;
use hostler_proto::manifest::Manifest;
use hostler_shepherd::{Launch, Options, WindowSize};
use hostler_snapshot::{LayoutOptions, StoreError, lay_out};

use crate::directory::RunDirectory;
use crate::engine::Node;
use crate::environment::{detect, entry_command};
use crate::{supervise, transfer, variables};

/// How many processes and threads one run may have: enough for any honest program, too few to take a machine down.
const PROCESS_LIMIT: u64 = 8192;

/// What the shepherd is to start: made ready, not started.
///
/// # Errors
/// What stands in the way, for the person whose job it is.
pub(crate) async fn prepare(
    node: &Arc<Node>,
    launch: &Arc<RunLaunch>,
    directory: &RunDirectory,
    cancel: &Arc<AtomicBool>,
) -> anyhow::Result<Launch> {
    match &launch.spec.work {
        Work::Command { argv, directory: cwd } => Ok(command(node, launch, directory, argv, cwd)),
        Work::Project { snapshot, entrypoint, args } => {
            let manifest = fetch(node, *snapshot).await?;
            let (node, launch, directory) = (Arc::clone(node), Arc::clone(launch), directory.clone());
            let (snapshot, entrypoint, args) = (*snapshot, entrypoint.clone(), args.clone());
            let cancel = Arc::clone(cancel);
            let work = move || {
                let laid_out = lay_out(&manifest, &node.chunks, &directory.work(), &LayoutOptions::default())
                    .context("the captured folder cannot be laid out")?;
                std::fs::write(directory.manifest(), hostler_proto::encode(&manifest))?;
                laid_out.baseline.save(&directory.baseline())?;
                node.chunks.evict_to(node.chunk_cap_bytes, &|_| false)?;
                project(&node, &launch, &directory, &Project { snapshot, entrypoint, args }, &cancel)
            };
            tokio::task::spawn_blocking(work).await.context("making the folder ready was interrupted")?
        }
    }
}

/// Brings a captured folder's chunks to the node. When the disk is full, those of other folders make room.
async fn fetch(node: &Node, snapshot: Digest) -> anyhow::Result<Manifest> {
    let is_full = |error: &anyhow::Error| {
        error.chain().any(|cause| matches!(cause.downcast_ref(), Some(StoreError::DiskFull { .. })))
    };
    match transfer::fetch_snapshot(&node.head, &node.chunks, snapshot).await {
        Err(error) if is_full(&error) => {
            node.chunks.evict_to(0, &|_| false)?;
            let again = transfer::fetch_snapshot(&node.head, &node.chunks, snapshot).await;
            if again.is_err() {
                // What cannot be completed must not take the room of what can.
                node.chunks.evict_to(0, &|_| false)?;
            }
            again
        }
        result => result,
    }
}

/// What to run of a laid-out folder.
struct Project {
    snapshot: Digest,
    entrypoint: String,
    args: Vec<String>,
}

/// A command in a directory of this node, with its caller's environment.
pub(crate) fn command(node: &Node, launch: &RunLaunch, directory: &RunDirectory, argv: &[String], cwd: &str) -> Launch {
    let environment = variables::environment(launch, &node.name);
    build(node, launch, directory, argv.to_vec(), environment, PathBuf::from(cwd))
}

/// Finds or builds the folder's environment and says how its entry point is started. Blocks.
fn project(
    node: &Node,
    launch: &RunLaunch,
    directory: &RunDirectory,
    project: &Project,
    cancel: &AtomicBool,
) -> anyhow::Result<Launch> {
    let work = directory.work();
    let mut variables = variables::environment(launch, &node.name);
    let search_path = OsString::from(variables["PATH"].clone());
    let lease = match detect(&work, &project.entrypoint)? {
        None => None,
        Some(requirements) => {
            let mut log = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(directory.output(Output::Setup))
                .context("cannot open the log of the environment's build")?;
            // A log that cannot be written must not fail the build; the build will meet the same full disk.
            let mut write = |bytes: &[u8]| drop(log.write_all(bytes));
            let lease = node.environments.obtain(&requirements, &mut write, cancel).map_err(|error| {
                let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                anyhow::anyhow!("{error}{hint}")
            })?;
            lease.pin(&launch.run.to_string())?;
            let how = if lease.built { "built" } else { "ready, nothing to build" };
            write(format!("hostler: environment {} {how}\n", lease.key.as_str()).as_bytes());
            Some(lease)
        }
    };
    if cancel.load(Ordering::Relaxed) {
        bail!("ended before it had started");
    }
    let entry = entry_command(&work, &project.entrypoint, &project.args, lease.as_ref(), &search_path)?;
    variables.extend(entry.env);
    variables.insert("HOSTLER_SNAPSHOT".into(), project.snapshot.to_string());
    variables.insert("PWD".into(), work.display().to_string());
    Ok(build(node, launch, directory, entry.argv, variables, work))
}

/// The shepherd's orders.
fn build(
    node: &Node,
    launch: &RunLaunch,
    directory: &RunDirectory,
    argv: Vec<String>,
    environment: Environment,
    cwd: PathBuf,
) -> Launch {
    let spec = &launch.spec;
    let options = Options {
        has_journal: true,
        time_limit: spec.time_limit_ms.map(Duration::from_millis),
        grace: spec.grace_ms.map_or(Options::default().grace, Duration::from_millis),
        terminal: spec.pty.map(|size| WindowSize { rows: size.rows, columns: size.columns }),
        umask: spec.umask.unwrap_or(0o022),
        cpus: Some(launch.resources.cpus.iter().collect()),
        memory_limit_bytes: Some(launch.resources.memory_bytes),
        process_limit: Some(PROCESS_LIMIT),
        leaf: node
            .cgroups
            .as_ref()
            .ok()
            .and_then(|tree| tree.leaf(&format!("{}{}", node.leaf_prefix, launch.run)).ok()),
        linger: spec.pty.is_none().then_some(supervise::LINGER),
        ..Options::default()
    };
    Launch {
        directory: directory.path().to_owned(),
        argv: ranked(node, launch, argv).into_iter().map(OsString::from).collect(),
        env: environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        cwd,
        options,
    }
}

/// The command line of a run that has several processes on this node, or wants its output labelled: our own program starts them.
fn ranked(node: &Node, launch: &RunLaunch, argv: Vec<String>) -> Vec<String> {
    let spec = &launch.spec;
    if spec.tasks_per_node == 1 && !spec.label {
        return argv;
    }
    let node_rank = launch.gang.as_ref().map_or(0, |gang| gang.rank);
    let mut all = vec![
        node.program.clone(),
        "ranks".to_owned(),
        format!("--count={}", spec.tasks_per_node),
        format!("--node-rank={node_rank}"),
        format!("--world-size={}", spec.world_size()),
    ];
    all.extend(spec.label.then(|| "--label".to_owned()));
    all.push("--".to_owned());
    all.extend(argv);
    all
}
