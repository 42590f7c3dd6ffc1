//! `srun`: runs a step in a job, or a job that consists of a step.

mod asked;
mod contained;
mod screen;
mod shape;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{Environment, JobId, TaskId, os_string_of};
use hostler_remote::StepClaim;
use hostler_remote::step::{Allocation, Link, Process, StepError, Surroundings};
use hostler_slurm::job_variables::THREAD_VARIABLES;
use hostler_slurm::pmi::{self, Server};
use hostler_slurm::state::State;
use hostler_slurm::step_variables::StepFacts;
use nix::libc;
use tokio::sync::mpsc::Receiver;

pub(crate) use self::asked::NAME;
use self::asked::{Asked, Input, SPEECH};
use self::screen::{Screen, array_task, summarize};
use self::shape::{NO_STEP, Shape, shape};
use super::allocating::{Wanted, describe, hold, is_of_a_job, variables};
use super::bad_value;
use super::container::only_for_jobs;
use super::rows::rows;
use super::test_only::test_only;
use super::{Ended, Outcome, print, tell};
use crate::context::{Context, block_on};
use crate::steps::outside::Outside;
use crate::steps::{self, Links, Plan, Task};

/// A job that takes steps from this process.
struct Job {
    /// Id of the job, a number of its own for each task of an array.
    raw_id: u64,
    allocation: Allocation,
    /// The connection with the first node, if this process holds the job.
    first_node: Option<Arc<Link>>,
    /// CPUs on each node.
    cpus: u32,
    /// Variables of the tasks besides those of this process.
    variables: Environment,
    /// Brings connections with the nodes, if this process does not belong to the job.
    outside: Option<Outside>,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let called = args.first().cloned();
    let asked = Asked::parse(args)?;
    if let Some(text) = &asked.says {
        return Ok(print(context, text));
    }
    let outcome = async move {
        Ok(match asked.job {
            _ if asked.test_only => would_start(context, &asked, called.as_ref()).await,
            Some(_) if asked.options.container.image.is_some() => Err(only_for_jobs()),
            None if !asked.inside.is_empty() => contained::run(context, &asked, called.as_ref()).await,
            Some(job) => inside(context, &asked, job).await,
            None => outside(context, asked, called.as_ref()).await,
        })
    };
    block_on(outcome)?
}

/// Runs a step of the job with this number.
async fn inside(context: &Context, asked: &Asked, raw_id: u64) -> Outcome {
    // Without an image, only options that name a container mean something.
    asked.options.container.reference("").map_err(bad_value)?;
    let job = match steps::allocation_of(array_task(raw_id).0, raw_id) {
        Ok(allocation) => {
            let cpus =
                ["HOSTLER_CPUS", "SLURM_CPUS_ON_NODE"].iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
            let cpus = cpus.unwrap_or(u32::MAX);
            Job { raw_id, allocation, first_node: None, cpus, variables: Environment::new(), outside: None }
        }
        Err(_) => beside(context, raw_id).await?,
    };
    let signals = signals(asked)?;
    step(context, asked, &job, signals).await
}

/// A running job that does not contain this process.
async fn beside(context: &Context, raw_id: u64) -> Result<Job, Ended> {
    let failed = |error: ClientError| {
        let refused = super::Refused::from(error);
        refused.told(format!("Unable to confirm allocation for job {raw_id}: {}", refused.text))
    };
    let client = context.watching_client()?;
    let filter = RecordFilter { jobs: vec![JobId(raw_id)], live: true, ..RecordFilter::default() };
    let records = client.records(&filter).await.map_err(failed)?;
    let mut all = records.iter().flat_map(|job| rows(job, false));
    let row = all.find(|row| row.raw_id() == raw_id && row.state() == State::Running).ok_or_else(|| {
        Ended::error(format!("Unable to confirm allocation for job {raw_id}: Invalid job id specified"))
            .and(format!("Check SLURM_JOB_ID environment variable. Expired or invalid job {raw_id}"))
    })?;
    let allocation = Outside::allocation(&row.nodes())?;
    let task = TaskId { job: row.job.id, index: row.index().unwrap_or_default() };
    let outside = Outside { client, task };
    // Only the owner gets there.
    let links = outside.connect(&allocation, [], None).await.map_err(failed)?;
    let job = Job {
        raw_id,
        allocation,
        first_node: links.into_values().next(),
        cpus: row.job.cpus,
        variables: Environment::new(),
        outside: Some(outside),
    };
    Ok(job)
}

/// Says when and where a job that consists of a step would start.
async fn would_start(context: &Context, asked: &Asked, called: Option<&OsString>) -> Outcome {
    let spec = describe(&asked.options, SPEECH, asked.argv(), &asked.name(), called)?;
    tell(context, NAME, &super::request::warnings(&asked.options));
    test_only(context, &context.watching_client()?, NAME, &asked.options, &spec).await?;
    Ok(0)
}

/// Runs a job that consists of a step.
async fn outside(context: &Context, mut asked: Asked, called: Option<&OsString>) -> Outcome {
    asked.check_relative()?;
    let options = asked.options.clone();
    if let Some((_, tasks)) = options.nodes_without_tasks() {
        asked.options.nodes = Some((tasks, tasks));
    }
    // A mistake in the file of the programs should not cost a job. With a list of nodes, the number of tasks is not known yet.
    if options.nodelist.is_none() {
        asked.programs(options.layout().ntasks as usize)?;
    }
    let spec = describe(&options, SPEECH, asked.argv(), &asked.name(), called)?;
    let wanted = Wanted { options, spec, immediate: asked.immediate, stays: false };
    let client = context.watching_client()?;
    let mut signals = signals(&asked)?;
    let mut held = match hold(context, &client, &wanted, SPEECH, &mut signals).await? {
        Ok(held) => held,
        Err(code) => return Ok(code),
    };
    let variables = variables(&mut held, &wanted.spec)?;
    let job = Job {
        raw_id: held.job.summary.id.0,
        allocation: held.allocation.clone(),
        first_node: Some(Arc::clone(&held.first_node)),
        cpus: held.job.on_each_node().cpus,
        variables,
        outside: None,
    };
    let outcome = step(context, &asked, &job, signals).await;
    let code = *outcome.as_ref().unwrap_or(&1);
    release(&client, held, code).await?;
    outcome
}

async fn release(client: &Client, held: steps::holding::Held, code: u8) -> Result<(), Ended> {
    Ok(held.release(client, code).await?)
}

fn signals(asked: &Asked) -> Result<Receiver<i32>, Ended> {
    Ok(if asked.pty { steps::with_window_changes()? } else { steps::signals()? })
}

/// Runs the step, and returns its exit code.
async fn step(context: &Context, asked: &Asked, job: &Job, mut signals: Receiver<i32>) -> Outcome {
    let names: Vec<String> = job.allocation.nodes.iter().map(|place| place.name.to_string()).collect();
    let shape = shape(asked, &names, job.cpus)
        .map_err(|ended| ended.instead(NO_STEP, &format!("{NO_STEP} for job {}", job.raw_id)))?;
    tell(context, NAME, shape.warning.as_slice());
    let programs = asked.programs(shape.places.len())?;
    let input = asked.input()?;
    let failed = |error: StepError| Ended::error(steps::failure(&error).summary());
    let used = shape.nodes.iter().map(|node| u32::try_from(*node).unwrap_or_default());
    let claiming = async {
        let links = match &job.outside {
            Some(outside) => {
                let error = |error| {
                    let refused = super::Refused::from(error);
                    refused.told(refused.text.to_owned())
                };
                outside.connect(&job.allocation, used, job.first_node.clone()).await.map_err(error)?
            }
            None => steps::connect(&job.allocation, used, job.first_node.clone()).await.map_err(failed)?,
        };
        let claimed = claim(context, asked, job, &shape, &links).await?;
        Ok::<_, Ended>((links, claimed))
    };
    let (links, claimed) = tokio::select! {
        claimed = claiming => claimed?,
        // Dropping the claim gives up the place in the queue.
        number = interrupted(&mut signals) => {
            return Err(Ended::plain(format!("{NAME}: Cancelled pending job step with signal {number}"))
                .and(format!("error: {NO_STEP} for job {}: Job/step already completing or completed", job.raw_id)));
        }
    };
    let nodes: Vec<String> = shape.nodes.iter().map(|node| names[*node].clone()).collect();
    let facts = StepFacts {
        raw_id: job.raw_id,
        step: claimed.step,
        job_nodes: &names,
        nodes: &nodes,
        places: &shape.places,
        cpus_per_task: asked.options.cpus_per_task,
        ntasks_per_node: asked.options.ntasks_per_node,
        launcher: &super::request::host(),
    };
    let terminal =
        asked.pty.then(|| crate::output::window_size().unwrap_or(hostler_model::WindowSize { rows: 24, columns: 80 }));
    let mut environment = asked.environment()?;
    if job.outside.is_some() {
        // Those of another job, which contains this process.
        environment.retain(|(name, _)| !is_of_a_job(&name.to_string_lossy()));
    }
    let threads = threads(asked, &shape, &environment);
    let launcher_address = launcher_address(&job.allocation);
    let manager = asked.mpi.then(|| Server::new(format!("{}.{}", job.raw_id, claimed.step), shape.places.clone()));
    let mut tasks = Vec::new();
    for (rank, argv) in programs.into_iter().enumerate() {
        let all = job
            .variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .filter(|(name, _)| !name.starts_with("HOSTLER_"));
        let of_manager = manager.iter().flat_map(|manager| manager.variables(rank));
        let of_place = threads.iter().cloned().chain(launcher_address.clone());
        let of_place = of_place.chain(asked.options.job_name.clone().map(|name| ("SLURM_JOB_NAME", name)));
        let all = all.chain(facts.shared()).chain(facts.of_task(rank)).chain(of_place).chain(of_manager);
        let variables = all.map(|(name, value)| (name.into(), os_string_of(&value))).collect();
        // Only the first task has the terminal; the others would fight over its keys.
        let terminal = terminal.filter(|_| rank == 0);
        let has_input = match input {
            Input::All => !asked.pty || rank == 0,
            Input::One(task) => task == rank,
            Input::None => false,
        };
        let node = u32::try_from(shape.nodes[shape.places[rank]]).unwrap_or_default();
        let messages = manager.as_ref().map(|_| pmi::DESCRIPTOR.to_owned());
        tasks.push(Task { node, process: Process { argv, variables, terminal, messages }, has_input });
    }
    let surroundings = Surroundings::new(&job.allocation, environment, directory(asked)?)
        .with_limits_of(|name| asked.options.propagates(name))
        .of_step(&claimed);
    let mut screen = Screen::new(context, asked, &facts, &nodes, manager)?;
    let plan = Plan { surroundings: &surroundings, tasks, wait: asked.wait };
    let raw = screen.begin_terminal()?;
    let ends = steps::run(&plan, &links, &mut screen, signals).await;
    drop(raw);
    screen.finish();
    let places: Vec<&str> = shape.places.iter().map(|place| nodes[*place].as_str()).collect();
    claimed.finish(steps::outcome(&ends)).await;
    if let Some(lost) = screen.lost_output() {
        return Err(lost);
    }
    Ok(summarize(context, &format!("{}.{}", job.raw_id, facts.step), &places, &ends))
}

/// Waits for a signal that ends the wait of a step.
async fn interrupted(signals: &mut Receiver<i32>) -> i32 {
    loop {
        match signals.recv().await {
            Some(libc::SIGWINCH | libc::SIGCONT) => {}
            Some(number) => return number,
            None => std::future::pending().await,
        }
    }
}

/// The number of threads of numeric libraries: the CPUs of a task, unless the user chose a number.
fn threads(asked: &Asked, shape: &Shape, chosen: &[(OsString, OsString)]) -> Vec<(&'static str, String)> {
    if asked.overlap || shape.cpus_per_task == 0 {
        return Vec::new();
    }
    let is_open = |name: &&str| chosen.iter().all(|(known, _)| known != *name);
    THREAD_VARIABLES.into_iter().filter(is_open).map(|name| (name, shape.cpus_per_task.to_string())).collect()
}

/// The variable with the address of this machine, as the job's first node sees it. Sends nothing: the kernel chooses the address.
fn launcher_address(allocation: &Allocation) -> Option<(&'static str, String)> {
    let first = allocation.nodes.first()?;
    let any: IpAddr =
        if first.address?.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((first.address?, first.port)).ok()?;
    Some(("SLURM_LAUNCH_NODE_IPADDR", socket.local_addr().ok()?.ip().to_string()))
}

/// Waits until the CPUs of the step are free.
async fn claim(
    context: &Context,
    asked: &Asked,
    job: &Job,
    shape: &Shape,
    links: &Links,
) -> Result<hostler_remote::step::Claimed, Ended> {
    let mut cpus = vec![0; job.allocation.nodes.len()];
    if !asked.overlap {
        for place in &shape.places {
            cpus[shape.nodes[*place]] += shape.cpus_per_task;
        }
    }
    let names = shape.nodes.iter().map(|node| job.allocation.nodes[*node].name.clone()).collect();
    let tasks = u32::try_from(shape.places.len()).unwrap_or(u32::MAX);
    let claim = links[&0].claim(StepClaim { name: asked.name(), nodes: names, tasks, cpus });
    tokio::pin!(claim);
    let soon = std::time::Duration::from_secs(1);
    let claimed = match tokio::time::timeout(soon, &mut claim).await {
        Ok(claimed) => claimed,
        Err(_) => {
            let text =
                format!("Job {} step creation temporarily disabled, retrying (Requested nodes are busy)", job.raw_id);
            tell(context, NAME, &[text]);
            let claimed = claim.await;
            if let Ok(claimed) = &claimed {
                tell(context, NAME, &[format!("Step created for StepId={}.{}", job.raw_id, claimed.step)]);
            }
            claimed
        }
    };
    claimed.map_err(|error| match error {
        StepError::Refused { .. } => {
            let text = "More processors requested than permitted";
            Ended::error(format!("{NO_STEP} for job {}: {text}", job.raw_id))
        }
        error => Ended::error(steps::failure(&error).summary()),
    })
}

/// The directory of the tasks.
fn directory(asked: &Asked) -> Result<PathBuf, Ended> {
    let own = std::env::current_dir().map_err(|error| Ended::error(format!("getcwd failed: {error}")))?;
    Ok(asked.options.chdir.as_ref().map_or(own.clone(), |path| own.join(path)))
}
