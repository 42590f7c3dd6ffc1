//! Staging: from a launch to orders for a shepherd, with folder, environment and command line.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use hostler_core::agent::{RunLaunch, Why};
use hostler_model::{Digest, Engine, Environment, NodeName, PathFacts, RunId, SignalTarget, Work, os_string_of};
use hostler_project::{Requirements, detect};
use hostler_proto::link::Output;
use hostler_remote::step::COMMANDS_IN_IMAGE;
use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::{Files, Launch, Launcher, Members, Options, RunSignal, WindowSize};
use hostler_snapshot::{Baseline, LayoutOptions, StoreError, lay_out};

use crate::account::{Account, Accounts, Ids};
use crate::containers::sandbox::{self, Sandboxes};
use crate::containers::{self, Containers};
use crate::measure::metrics::Metrics;
use crate::provision::environment::{
    BuildError, Confined, EnvError, Environments, Lease, Runner, entry_command, entry_command_in_image, first_on_path,
};
use crate::provision::gpus::Gpus;
use crate::provision::images::{self, Images};
use crate::provision::program_directory::ProgramDirectory;
use crate::provision::program_in_image::{self, ProgramInImage};
use crate::provision::transfer::{Folder, Transfer, blocking};
use crate::provision::{driver, variables};
use crate::rights::act_as;
use crate::runs::directory::RunDirectory;
use crate::runs::leaves::Leaves;
use crate::runs::process_limits::ProcessLimits;
use crate::runs::shepherds::LINGER;
use crate::runs::surroundings::Surrounding;

/// Limit for the stored output of a build: ample for real builds, and too little to fill a disk.
const BUILD_LOG_BYTES: usize = 16 << 20;

/// Memory that the unpacking of an image may use, also if the job has less.
const UNPACK_BYTES: u64 = 256 << 20;

/// Exit status of a job that a limit ended before its program started: the status of a killed process.
const KILLED: i32 = 137;

/// Why the environment of a run could not be provided.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NoEnvironment {
    /// Reason for the run's end, for the report to the head.
    pub(crate) why: Why,
    message: String,
}

impl From<EnvError> for NoEnvironment {
    fn from(error: EnvError) -> Self {
        let why = match &error {
            EnvError::Build(BuildError::OutOfMemory { .. }) => Why::OutOfMemory(KILLED),
            EnvError::Build(BuildError::TimedOut { .. }) => Why::TimeLimit(KILLED),
            _ => Why::NotStarted,
        };
        let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        Self { why, message: format!("{:#}{hint}", anyhow::Error::from(error)) }
    }
}

impl From<images::Failure> for NoEnvironment {
    fn from(failure: images::Failure) -> Self {
        let why = match &failure {
            images::Failure::TimedOut(_) => Why::TimeLimit(KILLED),
            _ => Why::NotStarted,
        };
        Self { why, message: format!("{:#}", anyhow::Error::from(failure)) }
    }
}

/// Prepares runs, with what it needs of the node.
pub(crate) struct Stager {
    pub(crate) node: NodeName,
    pub(crate) launcher: Arc<Launcher>,
    /// Path of this executable, which starts the processes of multi-process runs.
    pub(crate) program: String,
    /// The same for jobs with an image.
    pub(crate) program_in_image: ProgramInImage,
    /// Directory of this executable, if jobs may have it on their `PATH`.
    pub(crate) program_directory: Option<ProgramDirectory>,
    pub(crate) leaves: Arc<Leaves>,
    pub(crate) processes: Arc<ProcessLimits>,
    pub(crate) gpus: Arc<Gpus>,
    /// Why jobs can use GPUs of other jobs; `None` if the kernel prevents it.
    pub(crate) open_gpus: Option<String>,
    pub(crate) transfer: Transfer,
    pub(crate) chunk_cap_bytes: u64,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) images: Arc<Images>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) containers: Arc<Containers>,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether other nodes may be on the same machine.
    pub(crate) is_shared: bool,
}

/// Pins of runs on their environments. An environment is pinned while it is obtained, so that no other run evicts it.
pub(crate) struct EnvironmentPins(pub(crate) Arc<Environments>);

impl Surrounding for EnvironmentPins {
    fn release(&self, launch: &RunLaunch) {
        let run = launch.run();
        if matches!(launch.spec().work, Work::Project { .. })
            && let Err(error) = self.0.release(&run.to_string())
        {
            tracing::warn!(%run, %error, "cannot release a run's environment");
        }
    }

    fn recover<'a>(&'a self, going_on: &'a [Arc<RunLaunch>]) -> BoxFuture<'a, ()> {
        let pins = going_on.iter().map(|launch| launch.run().to_string()).collect();
        if let Err(error) = self.0.retain_pins(&pins) {
            tracing::warn!(%error, "cannot release the environments of ended runs");
        }
        ready(()).boxed()
    }
}

/// Prepares the orders for a shepherd without starting anything. Calls `on_staged` when a captured folder is on this node.
///
/// # Errors
/// Fails with a message for the user if the run cannot start.
pub(crate) async fn prepare(
    stager: &Arc<Stager>,
    launch: &Arc<RunLaunch>,
    directory: &RunDirectory,
    cancel: &Arc<AtomicBool>,
    on_staged: impl FnOnce() + Send + 'static,
) -> anyhow::Result<Launch> {
    if let Some(gpu) = stager.gpus.lacks(&launch.placement.resources.gpus) {
        bail!("node {} no longer has GPU {gpu}; `hostler requeue` places the job again", stager.node);
    }
    stager.sandboxes.check(launch)?;
    let account = stager.accounts.of(&launch.job.user, launch.job.uid).await;
    let account = account.with_context(|| format!("node {} cannot run the job", stager.node))?;
    let (own_stager, own_launch) = (Arc::clone(stager), Arc::clone(launch));
    let mut preparation =
        Preparation { stager: own_stager, launch: own_launch, directory: directory.clone(), account, image: None };
    match &launch.spec().work {
        Work::Command { argv, directory: cwd, script } => {
            let mut argv = argv.clone();
            if let Some(script) = script {
                preparation.store_script(script).context("cannot store the job's script")?;
                argv[0] = preparation.directory.script().display().to_string();
            }
            if launch.spec().surroundings.image.is_none() {
                return preparation.command(&argv, cwd);
            }
            let (cwd, cancel) = (cwd.to_string(), Arc::clone(cancel));
            let work = move || {
                let began = Instant::now();
                preparation.obtain_image(Path::new(&os_string_of(&cwd)), &cancel, began)?;
                if let Some(image) =
                    preparation.image.as_mut().filter(|_| preparation.launch.spec().surroundings.entrypoint)
                {
                    argv = image.enter(argv)?;
                }
                Ok(after(began, preparation.command(&argv, &cwd)?))
            };
            tokio::task::spawn_blocking(work).await.context("preparing the job's image was interrupted")?
        }
        Work::Project { snapshot, entrypoint, args } => {
            let folder = fetch(&stager.transfer, *snapshot, launch.placement.files).await?;
            let project = Project { snapshot: *snapshot, entrypoint: entrypoint.clone(), args: args.clone() };
            let cancel = Arc::clone(cancel);
            let work = move || {
                preparation.lay_out(&folder)?;
                on_staged();
                preparation.project(&project, &cancel)
            };
            tokio::task::spawn_blocking(work).await.context("preparing the job's folder was interrupted")?
        }
    }
}

/// Downloads the chunks of a captured folder, and of the result of an earlier attempt. If the disk is full, removes chunks
/// of other folders and retries.
async fn fetch(transfer: &Transfer, snapshot: Digest, result: Option<Digest>) -> anyhow::Result<Folder> {
    let is_full = |error: &anyhow::Error| {
        error.chain().any(|cause| matches!(cause.downcast_ref(), Some(StoreError::DiskFull { .. })))
    };
    let make_room = || {
        let chunks = Arc::clone(&transfer.chunks);
        blocking(move || Ok(chunks.evict_to(0, &|_| false)?))
    };
    match transfer.fetch_folder(snapshot, result).await {
        Err(error) if is_full(&error) => {
            make_room().await?;
            let again = transfer.fetch_folder(snapshot, result).await;
            if again.is_err() {
                // Chunks of an incomplete download must not take the space of other folders.
                make_room().await?;
            }
            again
        }
        result => result,
    }
}

/// A captured folder, and the entry point to run in it.
struct Project {
    snapshot: Digest,
    entrypoint: String,
    args: Vec<String>,
}

/// A run to prepare, with its user.
struct Preparation {
    stager: Arc<Stager>,
    launch: Arc<RunLaunch>,
    directory: RunDirectory,
    /// The user's account; `None` for the agent's own user.
    account: Option<Arc<Account>>,
    /// The job's image, once it is there.
    image: Option<images::Obtained>,
}

impl Preparation {
    fn ids(&self) -> Option<&Ids> {
        self.account.as_ref().map(|account| &account.ids)
    }

    /// Environment variables, except those of a Python environment.
    fn variables(&self) -> Environment {
        let Self { stager, launch, account, .. } = self;
        let directory = stager.program_directory.as_ref();
        let image = self.image.as_ref().map(|image| image.config.env.as_slice());
        let mut all =
            variables::environment(launch, &stager.node, stager.is_shared, account.as_deref(), directory, image);
        all.extend(self.image.iter().filter_map(|image| Some(("HOSTLER_IMAGE_DIGEST".to_owned(), image.id.clone()?))));
        all
    }

    /// Orders for a command in a directory of this node, with the submitter's environment.
    fn command(&self, argv: &[String], cwd: &str) -> anyhow::Result<Launch> {
        let environment = self.variables();
        self.orders(argv, environment, os_string_of(cwd).into())
    }

    /// Stores the job's script in the run's directory, as a file of the user.
    fn store_script(&self, script: &str) -> io::Result<()> {
        let path = self.directory.script();
        self.directory.store(&path, os_string_of(script).as_bytes())?;
        if let Some(ids) = self.ids() {
            std::os::unix::fs::lchown(&path, Some(ids.uid), Some(ids.gid))?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o500))
    }

    /// Stages the captured folder with files owned by the user. The top directory changes its owner last, so processes
    /// of the user cannot interfere.
    fn lay_out(&self, folder: &Folder) -> anyhow::Result<()> {
        let (chunks, directory) = (&self.stager.transfer.chunks, &self.directory);
        let options = LayoutOptions { owner: self.ids().map(|ids| (ids.uid, ids.gid)), ..LayoutOptions::default() };
        let laid_out =
            lay_out(folder.start(), chunks, &directory.work(), &options).context("cannot stage the captured folder")?;
        directory.store(&directory.manifest(), &hostler_proto::encode(&folder.captured))?;
        // Files of an earlier attempt differ from the captured folder, although the run leaves them as they are.
        let baseline = if folder.is_captured() { laid_out.baseline } else { Baseline::default() };
        baseline.save(&directory.baseline())?;
        chunks.evict_to(self.stager.chunk_cap_bytes, &|_| false)?;
        Ok(())
    }

    /// Finds or builds the environment, and returns orders to start the entry point. Blocks.
    ///
    /// The user owns the folder by now, and other jobs of the same user may change it. The agent therefore reads the
    /// folder with the user's rights.
    fn project(&mut self, project: &Project, cancel: &AtomicBool) -> anyhow::Result<Launch> {
        let began = Instant::now();
        let work = self.directory.work();
        if self.launch.spec().surroundings.image.is_some() || self.launch.spec().surroundings.container.is_some() {
            self.obtain_image(&work, cancel, began)?;
            let entry = || entry_command_in_image(&work, &project.entrypoint, &project.args);
            let argv = act_as(self.ids(), entry)??;
            let mut variables = self.variables();
            variables.insert("HOSTLER_SNAPSHOT".into(), project.snapshot.to_string());
            variables.insert("PWD".into(), work.display().to_string());
            return Ok(after(began, self.orders(&argv, variables, work)?));
        }
        let mut variables = self.variables();
        let Self { stager, launch, .. } = &*self;
        let mut search_path = os_string_of(&variables["PATH"]);
        if launch.spec().surroundings.sandbox {
            search_path = stager.environments.search_path_in_sandbox(&search_path);
        }
        let leaf = |number| stager.leaves.leaf(&format!("{}-build-{number}", launch.run()));
        let runner = self.runner(self.limits(), &leaf, cancel, began);
        let found = act_as(self.ids(), || detect(&work, &project.entrypoint, &|| runner.goes_on()))?;
        let lease = match found.map_err(|error| NoEnvironment::from(EnvError::from(error)))? {
            None => None,
            Some(requirements) => {
                let requirements = requirements.with_variables(&launch.spec().environment);
                self.environment(&requirements, &search_path, &runner)?
            }
        };
        if cancel.load(Ordering::Relaxed) {
            bail!("the job was ended before its start");
        }
        let entry = || entry_command(&work, &project.entrypoint, &project.args, lease.as_ref(), &search_path);
        let entry = act_as(self.ids(), entry)??;
        variables.extend(entry.env);
        variables.insert("HOSTLER_SNAPSHOT".into(), project.snapshot.to_string());
        variables.insert("PWD".into(), work.display().to_string());
        let mut orders = self.orders(&entry.argv, variables, work)?;
        if let (Some(sandbox), Some(lease)) = (&mut orders.options.sandbox, &lease) {
            sandbox.read_only.push(lease.attempt.display().to_string());
        }
        // Also if nothing was built: the search for requirements may have taken long.
        Ok(after(began, orders))
    }

    /// Runs commands that prepare the job, within these limits.
    fn runner<'a>(
        &'a self,
        limits: Options,
        leaf: &'a (dyn Fn(u64) -> Option<LeafSpec> + Sync),
        cancel: &'a AtomicBool,
        began: Instant,
    ) -> Confined<'a> {
        let time_limit = self.launch.spec().time_limit_ms.map(Duration::from_millis);
        Confined { launcher: &self.stager.launcher, limits, leaf, cancel, began, time_limit }
    }

    /// Provides the job's image, if it has one. Blocks.
    fn obtain_image(&mut self, folder: &Path, cancel: &AtomicBool, began: Instant) -> anyhow::Result<()> {
        let Self { stager, launch, .. } = &*self;
        let Some(image) = &launch.spec().surroundings.image else { return Ok(()) };
        let leaf = |number| stager.leaves.leaf(&format!("{}-image-{number}", launch.run()));
        let mut limits = self.limits();
        limits.memory_limit_bytes = limits.memory_limit_bytes.map(|bytes| bytes.max(UNPACK_BYTES));
        let runner = self.runner(limits, &leaf, cancel, began);
        let mut log = SetupLog::open(&self.directory)?;
        let run = launch.run().to_string();
        let home = self.account.as_ref().map(|account| account.home.as_path());
        let own = stager.accounts.in_sandbox(None).map(|account| account.credentials());
        let has_login = stager.accounts.owns_files(&launch.job.user, launch.job.uid);
        let (user, program) = (self.ids(), &*stager.program);
        let wanted = images::Wanted { image, run: &run, folder, user, home, has_login, own, program };
        let obtained = stager.images.obtain(&wanted, &runner, &mut |bytes| log.write(bytes));
        self.image = Some(obtained.map_err(NoEnvironment::from)?);
        Ok(())
    }

    /// Provides the required environment and builds it if necessary. Pins the environment until the run is removed.
    fn environment(
        &self,
        requirements: &Requirements,
        search_path: &OsStr,
        runner: &Confined<'_>,
    ) -> anyhow::Result<Option<Lease>> {
        let mut log = SetupLog::open(&self.directory)?;
        let mut write = |bytes: &[u8]| log.write(bytes);
        let Self { stager, launch, .. } = self;
        let mut obtain = || {
            let cache = stager.environments.of(self.account.as_ref(), launch.spec().surroundings.sandbox)?;
            let usual = act_as(self.ids(), || first_on_path(&["python3", "python"], search_path)).unwrap_or_default();
            if cache.is_needless(requirements, usual.as_deref(), runner)? {
                return Ok(None);
            }
            let lease = cache.obtain(requirements, &mut write, runner)?;
            lease.pin(&launch.run().to_string())?;
            Ok(Some(lease))
        };
        let asked = Instant::now();
        let lease = obtain().map_err(|error: EnvError| {
            stager.metrics.no_environment();
            NoEnvironment::from(error)
        })?;
        if let Some(lease) = &lease {
            stager.metrics.environment(lease.built.then(|| asked.elapsed()));
            let how = if lease.built { "built" } else { "found in the cache" };
            write(format!("hostler: environment {} {how}\n", lease.key.as_str()).as_bytes());
        }
        Ok(lease)
    }

    /// Limits for all processes of the run, including builds of its environment.
    fn limits(&self) -> Options {
        let Self { stager, launch, .. } = self;
        Options {
            cpus: Some(launch.placement.resources.cpus.iter().collect()),
            memory_limit_bytes: Some(launch.placement.resources.memory_bytes),
            process_limit: Some(stager.processes.of_task(launch.placement.resources.cpus.len())),
            denied_devices: stager.gpus.denied(&launch.placement.resources.gpus),
            ..Options::default()
        }
    }

    fn orders(&self, argv: &[String], mut environment: Environment, cwd: PathBuf) -> anyhow::Result<Launch> {
        let Self { stager, launch, directory, account, image } = self;
        let gpus = &launch.placement.resources.gpus;
        let spec = launch.spec();
        // Apptainer shows all GPUs that the kernel does not deny.
        let has_own_devices = spec.surroundings.container.as_deref().is_some_and(|it| it.engine != Engine::Apptainer);
        let shows_only_own = has_own_devices || stager.open_gpus.is_none();
        environment.extend(stager.gpus.variables(gpus, shows_only_own));
        if image.is_some() && !stager.gpus.driver_files(gpus).is_empty() {
            for (name, directory) in [("LD_LIBRARY_PATH", driver::LIBRARIES), ("PATH", driver::PROGRAMS)] {
                append(environment.entry(name.to_owned()).or_default(), directory);
            }
        }
        let is_called_inside = image.is_some() && sandbox::starts_processes_inside(spec);
        if is_called_inside {
            let path = environment.entry("PATH".to_owned()).or_default();
            if variables::is_slurm_job(spec) && !path.is_empty() {
                *path = format!("{COMMANDS_IN_IMAGE}:{path}");
            }
            append(path, COMMANDS_IN_IMAGE);
            for name in program_in_image::OF_THE_LOADER {
                let value = environment.remove(name);
                environment.extend(value.map(|value| (program_in_image::set_aside(name), value)));
            }
        }
        let argv = stager.containers.wrap(launch, account.as_deref(), argv, &mut environment, &cwd, directory)?;
        let mut user = account.as_ref();
        if spec.surroundings.sandbox {
            sandbox::adapt(&mut environment);
            user = stager.accounts.in_sandbox(user);
        }
        let mut options = Options {
            has_journal: true,
            time_limit: spec.time_limit_ms.map(Duration::from_millis),
            limit_signal: spec.limit_signal.as_deref().map(|it| {
                (RunSignal { signal: it.signal.get(), to: members(it.to) }, Duration::from_millis(it.before_ms))
            }),
            has_steps: spec.first_node,
            grace: spec.grace_ms.map_or(Options::default().grace, |ms| Duration::from_millis(ms.into())),
            terminal: spec.pty.map(|size| WindowSize { rows: size.rows, columns: size.columns }),
            output_limit_bytes: Some(launch.job.output_cap_bytes()),
            files: files(launch, &stager.node),
            umask: spec.umask.unwrap_or(0o022).into(),
            credentials: user.map(|user| user.credentials()),
            may_gain_rights: spec
                .surroundings
                .container
                .as_deref()
                .is_some_and(|it| containers::gains_rights(it.engine)),
            leaf: stager.leaves.leaf(&launch.run().to_string()),
            linger: spec.pty.is_none().then_some(LINGER),
            sandbox: stager.sandboxes.of_run(launch, directory, user.map(Arc::as_ref), image.as_ref()),
            ..self.limits()
        };
        let mut program = vec![stager.program.clone()];
        if let Some(sandbox) = options.sandbox.as_mut().filter(|_| is_called_inside) {
            sandbox.shown.extend(stager.program_in_image.files()?);
            program = stager.program_in_image.command();
        }
        Ok(Launch {
            directory: directory.path().to_owned(),
            argv: ranked(program, launch, argv).iter().map(|word| os_string_of(word)).collect(),
            env: environment.iter().map(|(name, value)| (os_string_of(name), os_string_of(value))).collect(),
            cwd,
            options,
        })
    }
}

/// Subtracts the time since `began` from the time limit.
fn after(began: Instant, mut orders: Launch) -> Launch {
    let spent = began.elapsed();
    orders.options.time_spent = spent;
    if let Some(limit) = &mut orders.options.time_limit {
        *limit = limit.saturating_sub(spent);
    }
    orders
}

/// The output of what prepares a run, up to a limit.
struct SetupLog {
    file: File,
    room: usize,
}

impl SetupLog {
    fn open(directory: &RunDirectory) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(directory.output(Output::Setup));
        Ok(Self { file: file.context("cannot open the log of the job's preparation")?, room: BUILD_LOG_BYTES })
    }

    /// A failed write does not fail the build; if the disk is full, the build fails by itself.
    fn write(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(self.room);
        self.room -= kept;
        drop(self.file.write_all(&bytes[..kept]));
        if kept < bytes.len() && kept > 0 {
            drop(self.file.write_all(b"\nhostler: the rest of the build output is not kept\n"));
        }
    }
}

/// The processes of a run that a signal goes to.
pub(crate) const fn members(to: SignalTarget) -> Members {
    match to {
        SignalTarget::Program => Members::Program,
        SignalTarget::Group => Members::Group,
        SignalTarget::Steps => Members::Steps,
        SignalTarget::All => Members::All,
    }
}

/// The files of a run's streams, without patterns in their paths.
fn files(launch: &RunLaunch, node: &NodeName) -> Files {
    let spec = launch.spec();
    let Some(files) = &spec.files else { return Files::default() };
    let RunId { task, attempt, .. } = launch.run();
    let node_rank = launch.placement.gang.as_ref().map_or(0, |gang| gang.rank);
    if spec.first_node && node_rank > 0 {
        // The program runs on the first node. On a shared disk, this node would empty the files.
        return Files::default();
    }
    let facts = PathFacts {
        job: task.job,
        number: variables::task_number(launch),
        index: task.index,
        name: &spec.name,
        user: &launch.job.user,
        node: node.as_str(),
        node_rank,
        rank: u64::from(node_rank) * u64::from(spec.tasks_per_node),
        step: None,
        restarts: attempt.0.saturating_sub(1),
    };
    let expand = |path: &Option<String>| path.as_ref().map(|path| facts.expand(path));
    let stdout = expand(&files.stdout);
    Files {
        stdin: expand(&files.stdin),
        stderr: expand(&files.stderr).or_else(|| stdout.clone()),
        stdout,
        append: files.appends(attempt),
    }
}

/// Appends a directory to a list such as `PATH`, unless the list contains it.
fn append(list: &mut String, directory: &str) {
    if !list.split(':').any(|present| present == directory) {
        list.push_str(if list.is_empty() { "" } else { ":" });
        list.push_str(directory);
    }
}

/// The command line of a run. If the run has several processes on this node, labelled output or steps, this executable
/// starts the processes. `program`: the words that start it.
fn ranked(program: Vec<String>, launch: &RunLaunch, argv: Vec<String>) -> Vec<String> {
    let spec = launch.spec();
    let node_rank = launch.placement.gang.as_ref().map_or(0, |gang| gang.rank);
    if spec.first_node {
        let argv = if node_rank == 0 && spec.holder.is_none() { argv } else { Vec::new() };
        return program.into_iter().chain(["steps".to_owned(), "--".to_owned()]).chain(argv).collect();
    }
    if spec.tasks_per_node == 1 && !spec.label {
        return argv;
    }
    let mut all = program;
    all.extend([
        "ranks".to_owned(),
        format!("--count={}", spec.tasks_per_node),
        format!("--node-rank={node_rank}"),
        format!("--world-size={}", spec.world_size()),
    ]);
    all.extend(spec.label.then(|| "--label".to_owned()));
    all.push("--".to_owned());
    all.extend(argv);
    all
}
