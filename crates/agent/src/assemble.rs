//! Assembles the services of a node: each one gets what it needs of the others, and none gets the node.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use hostler_client::Client;
use hostler_model::{Advisory, BootId, Feature, Hardware, NodeFacts, NodeName, Resources};
use hostler_shepherd::cgroup::Controller;
use hostler_shepherd::{Launcher, cgroup};
use hostler_snapshot::ChunkStore;

use crate::account::Accounts;
use crate::activity::Activity;
use crate::config::Config;
use crate::containers::sandbox::{SandboxSettings, Sandboxes, Trial};
use crate::containers::{Containers, Engines};
use crate::exec;
use crate::forward::Forwarding;
use crate::gossip::{Gossiping, Setup};
use crate::job_network::Networks;
use crate::link::identity::Identity;
use crate::measure::certificate::{Measurements, NoiseLimits};
use crate::measure::gpu_use::GpuUse;
use crate::measure::metrics::Metrics;
use crate::measure::quiet::{Quiet, QuietRuns};
use crate::measure::usage::{self, UsageMeter};
use crate::node::Node;
use crate::provision::environment::{self, Environments};
use crate::provision::gpus::Gpus;
use crate::provision::images::Images;
use crate::provision::images::pull::ImageSettings;
use crate::provision::program_directory::{ProgramDirectory, is_found_on};
use crate::provision::program_in_image::ProgramInImage;
use crate::provision::stage::Stager;
use crate::provision::transfer::Transfer;
use crate::provision::variables::default_path;
use crate::runs::Services;
use crate::runs::directory::{RUNS, Runs};
use crate::runs::exit::RunEnds;
use crate::runs::last_job::LastJob;
use crate::runs::leaves::{Leaves, leaf_prefix};
use crate::runs::process_limits::ProcessLimits;
use crate::runs::shepherds::IdleShepherds;
use crate::runs::supervise::Supervisor;

/// Limit for each of the chunk and environment caches, in bytes. Above the limit, least recently used entries are
/// removed.
const CACHE_BYTES: u64 = 10 << 30;

/// The node, and what else it starts with.
pub(crate) struct Assembled {
    pub(crate) node: Arc<Node>,
    pub(crate) host: exec::Host,
    pub(crate) own: exec::Own,
    pub(crate) machine: usage::Machine,
}

/// What most services share.
struct Common {
    name: NodeName,
    directory: PathBuf,
    /// Path of this executable.
    program: String,
    /// Whether the machine has other uses besides this node.
    is_shared: bool,
    accounts: Arc<Accounts>,
    launcher: Arc<Launcher>,
    leaves: Arc<Leaves>,
    processes: Arc<ProcessLimits>,
    gpus: Arc<Gpus>,
    runs: Arc<Runs>,
    last_job: Arc<LastJob>,
    head: Arc<Client>,
    metrics: Arc<Metrics>,
    usage: Arc<UsageMeter>,
    activity: Arc<Activity>,
    gossiping: Option<Arc<Gossiping>>,
}

/// The node's caches.
struct Caches {
    environments: Arc<Environments>,
    images: Arc<Images>,
}

/// Makes the services of a node.
///
/// # Errors
/// If the system refuses an operation.
pub(crate) async fn assemble(
    config: Config,
    accounts: Arc<Accounts>,
    launcher: Launcher,
    identity: &Identity,
) -> anyhow::Result<Assembled> {
    let directory = config.directory;
    let (leaves, processes) = contain(&directory, &config.resources)?;
    let gpu_use = GpuUse::of(&config.gpus);
    let gpus = Arc::new(Gpus::new(config.gpus));
    let hardware =
        Hardware { topology: config.topology.within(&config.resources.cpus), gpus: gpus.given().cloned().collect() };
    let resources = Resources { gpus: gpus.given().map(|gpu| gpu.id.clone()).collect(), ..config.resources };
    let name = identity.name().clone();
    let setup = Setup { weights: config.weights, policy: config.policy, machines: config.machines, hellos: None };
    let common = Common {
        gossiping: gossip(&name, &resources, setup, &config.gossip, &directory),
        program: program()?,
        is_shared: config.shared_machine,
        launcher: Arc::new(launcher),
        leaves,
        processes,
        gpus,
        runs: Arc::new(Runs::open(directory.join(RUNS), accounts.has_several_users())?),
        last_job: Arc::new(LastJob::open(&directory, identity.cluster()?)?),
        accounts,
        head: Arc::new(Client::new(identity.head().clone())),
        metrics: Arc::new(Metrics::new(name.as_str())),
        usage: Arc::default(),
        activity: Arc::default(),
        name,
        directory,
    };
    let own = exec::Own::obtain(&common.directory).context("cannot create the node's key for remote commands")?;
    let sandbox = common.trial(&config.sandbox).sandbox().await;
    let networks = common.networks(&config.sandbox, &sandbox, &own, config.calls).await;
    let settings = environment::Settings {
        node: common.name.to_string(),
        install_python: config.install_python,
        uv: config.uv,
        ..environment::Settings::new(CACHE_BYTES)
    };
    let engines = Engines::find(&config.engines);
    let features = config.features.into_iter().chain(engines.features());
    let features: BTreeSet<Feature> = features.chain(environment::python_features(&settings)).collect();
    let boot = hostler_sys::boot_id().context("cannot read the boot id")?;
    let (root, cpus) = (&common.directory, resources.cpus.clone());
    let quiet = Arc::new(Quiet::new(config.quiet_machine, root, boot.clone(), cpus, !common.is_shared));
    let facts = NodeFacts {
        boot: BootId(boot),
        advisory: common.advisory(&sandbox, &quiet, &networks),
        call_key: (config.calls && common.gossiping.is_some()).then_some(own.key),
        runs_sandboxes: sandbox.is_ok(),
        runs_images: sandbox.is_ok(),
        quiets_machine: quiet.offered.is_ok(),
        connects_sandboxes: networks.is_ok(),
        resources,
        hardware,
        features,
        ..NodeFacts::default()
    };
    let networks = networks.ok();
    let caches = common.caches(config.environments, settings, &config.sandbox, config.images)?;
    let sandboxes = common.sandboxes(sandbox, config.sandbox, &caches);
    let containers = common.containers(engines);
    let quiet = QuietRuns { node: common.name.clone(), quiet, runs: Arc::clone(&common.runs) };
    let services = common.services(&facts, quiet, networks.clone(), &containers, &caches, config.noise_limits);
    let machine = common.machine(&facts, gpu_use);
    let host = common.host(&facts, networks, &sandboxes, config.sandboxed_calls);
    let node = Node {
        stager: common.stager(&facts, caches, sandboxes, containers)?,
        supervisor: common.supervisor(&facts, services),
        forwarding: Arc::new(Forwarding {
            head: Arc::clone(&common.head),
            accounts: Arc::clone(&common.accounts),
            runs: Arc::clone(&common.runs),
            accepted: Default::default(),
        }),
        name: common.name,
        facts,
        head: common.head,
        accounts: common.accounts,
        new_accounts: config.accounts,
        runs: common.runs,
        last_job: common.last_job,
        gossiping: common.gossiping,
        metrics: common.metrics,
        usage: common.usage,
        activity: common.activity,
        has_whole_machine: !common.is_shared,
    };
    Ok(Assembled { node: Arc::new(node), host, own, machine })
}

/// Starts load gossip on this node. Without gossip, the node still runs jobs.
fn gossip(
    name: &NodeName,
    resources: &Resources,
    setup: Setup,
    at: &[SocketAddr],
    directory: &Path,
) -> Option<Arc<Gossiping>> {
    if at.is_empty() {
        return None;
    }
    Gossiping::begin(name.clone(), resources.counts(), setup, at, Some(directory))
        .inspect_err(|error| tracing::warn!(%error, "this node does not gossip about its load"))
        .ok()
}

/// Finds the cgroups for jobs, and limits the processes of everything that agents with this tree start.
fn contain(directory: &Path, resources: &Resources) -> anyhow::Result<(Arc<Leaves>, Arc<ProcessLimits>)> {
    let tree = cgroup::Tree::find().map_err(|error| error.to_string());
    let processes = ProcessLimits::of_this_machine(resources.cpus.len(), tree.as_ref().ok());
    match tree.as_ref().map(|tree| tree.limit_processes(processes.of_all())) {
        // The node reports a missing controller with each job.
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::Unsupported => {
            tracing::warn!(%error, "cannot limit the processes of all jobs together");
        }
        Ok(_) => {}
        Err(reason) => {
            tracing::info!(%reason, "no cgroups for jobs; their processes are tracked by process ancestry");
        }
    }
    Ok((Arc::new(Leaves::new(tree, leaf_prefix(directory)?)), Arc::new(processes)))
}

impl Common {
    fn trial<'a>(&'a self, settings: &'a SandboxSettings) -> Trial<'a> {
        Trial { launcher: &self.launcher, directory: &self.directory, leaves: &self.leaves, settings }
    }

    /// The networks of jobs whose sandboxes this node connects with those on other nodes, or why it does not.
    async fn networks(
        &self,
        settings: &SandboxSettings,
        sandbox: &Result<(), String>,
        own: &exec::Own,
        calls: bool,
    ) -> Result<Arc<Networks>, String> {
        if sandbox.is_err() {
            return Err("this node runs no sandboxed jobs".to_owned());
        }
        let Some(gossiping) = self.gossiping.as_ref().filter(|_| calls) else {
            return Err("it needs connections between nodes, and this node accepts no remote commands".to_owned());
        };
        self.trial(settings).job_network().await?;
        Ok(Arc::new(Networks::new(Arc::clone(gossiping), own.credentials.clone())))
    }

    /// Limits that the kernel does not enforce here, and why.
    fn advisory(
        &self,
        sandbox: &Result<(), String>,
        quiet: &Quiet,
        networks: &Result<Arc<Networks>, String>,
    ) -> Advisory {
        Advisory {
            cpus: self.leaves.missing(Controller::Cpuset),
            memory: self.leaves.missing(Controller::Memory),
            gpus: self.gpus.shortcoming(self.leaves.missing(Controller::Devices)),
            users: self.accounts.shortcoming(),
            refuses_root: self.accounts.refuse_root(),
            sandbox: sandbox.clone().err(),
            quiet_machine: quiet.offered.clone().err(),
            job_network: networks.as_ref().err().cloned(),
        }
    }

    fn caches(
        &self,
        environments: Option<PathBuf>,
        settings: environment::Settings,
        sandbox: &SandboxSettings,
        images: ImageSettings,
    ) -> anyhow::Result<Caches> {
        let of_machine = sandbox.read_only.clone();
        let sandbox = environment::BuildSandbox { of_machine, own: self.accounts.in_sandbox(None).cloned() };
        let environments = environments.unwrap_or_else(|| self.directory.join("environments"));
        Ok(Caches {
            environments: Arc::new(Environments::open(&environments, settings, sandbox)?),
            images: Arc::new(Images::open(self.directory.join("images"), self.runs.root().to_owned(), images)?),
        })
    }

    fn sandboxes(&self, offered: Result<(), String>, settings: SandboxSettings, caches: &Caches) -> Arc<Sandboxes> {
        Arc::new(Sandboxes {
            node: self.name.clone(),
            offered,
            settings,
            program: self.program.clone(),
            accounts: Arc::clone(&self.accounts),
            gpus: Arc::clone(&self.gpus),
            runs: Arc::clone(&self.runs),
            images: Arc::clone(&caches.images),
            environments: Arc::clone(&caches.environments),
        })
    }

    fn containers(&self, engines: Engines) -> Arc<Containers> {
        Arc::new(Containers {
            node: self.name.clone(),
            engines,
            accounts: Arc::clone(&self.accounts),
            launcher: Arc::clone(&self.launcher),
            leaves: Arc::clone(&self.leaves),
            processes: Arc::clone(&self.processes),
            gpus: Arc::clone(&self.gpus),
        })
    }

    fn services(
        &self,
        facts: &NodeFacts,
        quiet: QuietRuns,
        networks: Option<Arc<Networks>>,
        containers: &Arc<Containers>,
        caches: &Caches,
        limits: NoiseLimits,
    ) -> Services {
        let measurements = Measurements::new(facts, limits, self.is_shared, Arc::clone(&self.runs));
        Services {
            runs: Arc::clone(&self.runs),
            last_job: Arc::clone(&self.last_job),
            environments: Arc::clone(&caches.environments),
            usage: Arc::clone(&self.usage),
            quiet,
            networks,
            containers: Arc::clone(containers),
            measurements: Arc::new(measurements),
        }
    }

    fn supervisor(&self, facts: &NodeFacts, services: Services) -> Arc<Supervisor> {
        Arc::new(Supervisor {
            boot: facts.boot.clone(),
            launcher: Arc::clone(&self.launcher),
            leaves: Arc::clone(&self.leaves),
            runs: Arc::clone(&self.runs),
            idle: IdleShepherds::default(),
            ends: RunEnds {
                node: self.name.clone(),
                runs: Arc::clone(&self.runs),
                surroundings: services.surroundings(),
            },
        })
    }

    fn machine(&self, facts: &NodeFacts, gpu_use: GpuUse) -> usage::Machine {
        usage::Machine {
            cpus: facts.resources.cpus.clone(),
            memory_bytes: facts.resources.memory_bytes,
            directory: self.directory.clone(),
            has_power: !self.is_shared,
            gpus: facts.resources.gpus.clone(),
            gpu_use,
        }
    }

    fn host(
        &self,
        facts: &NodeFacts,
        networks: Option<Arc<Networks>>,
        sandboxes: &Arc<Sandboxes>,
        demands_sandbox: bool,
    ) -> exec::Host {
        exec::Host {
            name: self.name.clone(),
            boot: facts.boot.clone(),
            resources: facts.resources.clone(),
            program: self.program.clone(),
            launcher: Arc::clone(&self.launcher),
            leaves: Arc::clone(&self.leaves),
            processes: Arc::clone(&self.processes),
            gpus: Arc::clone(&self.gpus),
            accounts: Arc::clone(&self.accounts),
            activity: Arc::clone(&self.activity),
            gossiping: self.gossiping.clone(),
            networks,
            sandboxes: Arc::clone(sandboxes),
            demands_sandbox,
        }
    }

    fn stager(
        &self,
        facts: &NodeFacts,
        caches: Caches,
        sandboxes: Arc<Sandboxes>,
        containers: Arc<Containers>,
    ) -> anyhow::Result<Arc<Stager>> {
        let program_in_image = ProgramInImage::prepare(&self.program, &self.directory);
        let chunks = ChunkStore::open(&self.directory.join("chunks"))?.sharing_files();
        Ok(Arc::new(Stager {
            node: self.name.clone(),
            launcher: Arc::clone(&self.launcher),
            program: self.program.clone(),
            program_in_image: program_in_image.context("cannot prepare this program for jobs with an image")?,
            program_directory: program_directory(&self.program),
            leaves: Arc::clone(&self.leaves),
            processes: Arc::clone(&self.processes),
            gpus: Arc::clone(&self.gpus),
            open_gpus: facts.advisory.gpus.clone(),
            transfer: Transfer {
                head: Arc::clone(&self.head),
                chunks: Arc::new(chunks),
                metrics: Arc::clone(&self.metrics),
                fails: Arc::default(),
            },
            chunk_cap_bytes: CACHE_BYTES,
            accounts: Arc::clone(&self.accounts),
            environments: caches.environments,
            images: caches.images,
            sandboxes,
            containers,
            metrics: Arc::clone(&self.metrics),
            is_shared: self.is_shared,
        }))
    }
}

/// The directory of this executable, unless other users can change it.
fn program_directory(program: &str) -> Option<ProgramDirectory> {
    let found = ProgramDirectory::of(Path::new(program));
    match &found {
        Some(directory) if directory.is_for_all => {}
        Some(ProgramDirectory { path, .. }) => {
            tracing::info!(%path, "jobs of other users do not find `hostler` on their PATH: its directory is private");
        }
        None if is_found_on(&default_path()) => {}
        None => {
            tracing::warn!(%program, "jobs do not find `hostler` on their PATH: other users can change its directory");
        }
    }
    found
}

/// Path of this executable. Read at startup, because an update may replace the file while the agent runs.
fn program() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("cannot find this program")?;
    path.into_os_string()
        .into_string()
        .map_err(|path| anyhow!("the path of this program is not UTF-8: {}", path.display()))
}
