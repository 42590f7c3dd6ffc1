//! Jobs in containers of Docker, Podman or Apptainer: the engine's program runs as the job's user, like any program of the
//! job, and starts the container.
//!
//! Processes of Podman and Apptainer stay in the job's control group, and end with it. Those of Docker are children of its
//! daemon. So a container has a name of its run, and the agent removes it before the run counts as ended, also after the
//! engine's program or the run's shepherd was killed.
//!
//! The names of variables are arguments of the engine, and their values are not: everybody can read arguments. Values that would
//! break the engine's own program are in a file for the container.

pub(crate) mod sandbox;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use hostler_core::agent::{RunLaunch, Why};
use hostler_model::{Container, Engine, Environment, Feature, NodeName, Resources, RunId, os_string_of, text_of};
use hostler_shepherd::{Launcher, Options};
use tokio::task::spawn_blocking;

use crate::account::{Account, Accounts};
use crate::provision::environment::{Confined, Ended, Runner, Step, first_on_path};
use crate::provision::gpus::{ContainerGpus, Gpus};
use crate::provision::variables;
use crate::runs::directory::RunDirectory;
use crate::runs::leaves::Leaves;
use crate::runs::outcome::RunOutcome;
use crate::runs::process_limits::ProcessLimits;
use crate::runs::surroundings::Surrounding;

/// Time for the removal of a container.
const REMOVAL: Duration = Duration::from_secs(30);

/// Memory that the removal may use, also if the job has less.
const REMOVAL_BYTES: u64 = 256 << 20;

/// Pauses before the removal is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Variables that the engine's program itself depends on. Only the container gets the user's values.
const OF_THE_CONTAINER: [&str; 5] = ["HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "TMPDIR"];

/// Variable by which NVIDIA's runtime of Docker gives GPUs to a container, also without `--gpus`.
const NVIDIA_GPUS: &str = "NVIDIA_VISIBLE_DEVICES";

/// Variables that describe the node and its logins. The container gets one only if the job itself sets it.
const OF_THE_NODE: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER", "XDG_RUNTIME_DIR"];

/// Apptainer passes variables with this prefix to the container, without the prefix.
const FOR_APPTAINER: &str = "APPTAINERENV_";

/// The engines that jobs may use, with the paths of their programs.
#[derive(Debug, Default)]
pub(crate) struct Engines(BTreeMap<Engine, String>);

impl Engines {
    /// Finds the programs of allowed engines on the agent's search path. Logs those that are missing.
    pub(crate) fn find(allowed: &BTreeSet<Engine>) -> Self {
        let find = |engine: &Engine| {
            let found = program_of(*engine);
            if found.is_none() {
                tracing::warn!(%engine, "jobs may use this container engine, but its program is not on the agent's PATH");
            }
            Some((*engine, found?))
        };
        Self(allowed.iter().filter_map(find).collect())
    }

    /// The features of nodes with these engines.
    pub(crate) fn features(&self) -> impl Iterator<Item = Feature> {
        self.0.keys().map(|engine| engine.feature())
    }
}

/// The containers of runs.
pub(crate) struct Containers {
    pub(crate) node: NodeName,
    pub(crate) engines: Engines,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) leaves: Arc<Leaves>,
    pub(crate) processes: Arc<ProcessLimits>,
    pub(crate) gpus: Arc<Gpus>,
}

/// The path of an engine's program on the agent's search path.
fn program_of(engine: Engine) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_else(variables::default_path);
    first_on_path(&[engine.as_str()], &path)?.into_os_string().into_string().ok()
}

/// What a container gets.
struct Contents<'a> {
    name: &'a str,
    argv: &'a [String],
    /// Whether `argv` are the arguments of the image's entry point, which starts in the image's own directory.
    uses_entrypoint: bool,
    folder: &'a str,
    /// Names of variables of the engine's program that the container gets.
    variables: &'a [&'a str],
    /// File with more variables, and whether `HOME` is one of them.
    file: Option<(&'a str, bool)>,
    /// Uid, gid and other groups of the user.
    user: (u32, u32, &'a [u32]),
    resources: &'a Resources,
    process_limit: u64,
    gpus: &'a ContainerGpus,
    has_terminal: bool,
}

impl Containers {
    /// Replaces the command line of a run with a container by that of its engine. `environment` has all variables of the run, and
    /// becomes that of the engine's program. Stores variables that only the container gets in `directory`.
    ///
    /// # Errors
    /// If the node does not allow the engine, or the engine cannot show the folder or pass a variable.
    pub(crate) fn wrap(
        &self,
        launch: &RunLaunch,
        account: Option<&Account>,
        argv: &[String],
        environment: &mut Environment,
        folder: &Path,
        directory: &RunDirectory,
    ) -> anyhow::Result<Vec<String>> {
        let Some(container) = launch.spec().surroundings.container.as_deref() else { return Ok(argv.to_vec()) };
        let engine = container.engine;
        let Some(program) = self.engines.0.get(&engine) else {
            bail!(
                "node {} does not let jobs use {engine}; its admin allows that with `engines` in agent.toml",
                self.node
            );
        };
        let folder = text_of(folder);
        ensure!(
            !folder.contains(['"', ',', ':']) && !folder.contains(char::is_control),
            "{engine} cannot show the folder {folder}, because of its name"
        );
        let own = &launch.spec().environment;
        let only_inside = set_apart(own, environment, account);
        let file = if only_inside.is_empty() || engine == Engine::Apptainer {
            None
        } else {
            let path = directory.container_variables();
            store_variables(&only_inside, directory, &path, account)?;
            Some((path.to_string_lossy().into_owned(), only_inside.contains_key("HOME")))
        };
        let is_passed = |name: &&str| {
            let is_for_container = own.contains_key(*name) || !OF_THE_NODE.contains(name);
            is_for_container && !only_inside.contains_key(*name) && *name != NVIDIA_GPUS
        };
        let all_names: Vec<String> = environment.keys().cloned().collect();
        let mut names: Vec<&str> = all_names.iter().map(String::as_str).filter(is_passed).collect();
        if launch.spec().world_size() > 1 {
            // Known when all nodes are ready.
            names.push("MASTER_PORT");
        }
        let user = match account {
            Some(account) => (account.ids.uid, account.ids.gid, account.ids.groups.as_slice()),
            None => (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw(), &[][..]),
        };
        let resources = &launch.placement.resources;
        let contents = Contents {
            name: &self.name_of(launch.run()),
            argv,
            uses_entrypoint: launch.spec().surroundings.entrypoint,
            folder: &folder,
            variables: &names,
            file: file.as_ref().map(|(path, has_home)| (path.as_str(), *has_home)),
            user,
            resources,
            process_limit: self.processes.of_task(resources.cpus.len()),
            gpus: &self.gpus.in_container(&resources.gpus),
            has_terminal: launch.spec().pty.is_some(),
        };
        let all = command_line(program, container, &contents);
        if engine == Engine::Apptainer {
            let passed = names.iter().filter_map(|name| Some((*name, environment.get(*name)?)));
            let inside = only_inside.iter().map(|(name, value)| (name.as_str(), value));
            let passed = passed.chain(inside).map(|(name, value)| (format!("{FOR_APPTAINER}{name}"), value.clone()));
            let passed: Vec<(String, String)> = passed.collect();
            environment.extend(passed);
        }
        Ok(all)
    }

    /// The name of a run's container, which no other agent on the machine uses.
    fn name_of(&self, run: RunId) -> String {
        format!("hostler-{}{run}", self.leaves.prefix())
    }

    /// Removes what is left of the container of a run.
    async fn end_container(&self, launch: &RunLaunch, engine: Engine) {
        let run = launch.run();
        let mut pauses = PAUSES.iter();
        while let Err(error) = self.remove(launch, engine).await {
            let Some(pause) = pauses.next() else {
                return tracing::warn!(%run, name = self.name_of(run), "cannot remove the container of a run: {error:#}");
            };
            tokio::time::sleep(*pause).await;
        }
    }

    /// Removes the container of a run, if it is there.
    async fn remove(&self, launch: &RunLaunch, engine: Engine) -> anyhow::Result<()> {
        // The admin may have taken the engine away meanwhile.
        let program = self.engines.0.get(&engine).cloned().or_else(|| program_of(engine));
        let program = program.with_context(|| format!("the program of {engine} is not on the agent's PATH"))?;
        let run = launch.run();
        let account = self.accounts.of_started(&launch.job.user, launch.job.uid).await?;
        let mut environment = variables::environment(launch, &self.node, false, account.as_deref(), None, None);
        set_apart(&launch.spec().environment, &mut environment, account.as_deref());
        let text = |word: &str| OsString::from(word);
        let mut argv = vec![program.into(), text("rm"), text("--force")];
        if engine == Engine::Podman {
            argv.push(text("--ignore"));
        }
        argv.push(self.name_of(run).into());
        let step = Step {
            argv,
            env: environment.iter().map(|(name, value)| (os_string_of(name), os_string_of(value))).collect(),
            cwd: "/".into(),
            credentials: account.as_ref().map(|account| account.credentials()),
            may_gain_rights: gains_rights(engine),
            ..Step::default()
        };
        let held = &launch.placement.resources;
        let limits = Options {
            cpus: Some(held.cpus.iter().collect()),
            memory_limit_bytes: Some(held.memory_bytes.max(REMOVAL_BYTES)),
            process_limit: Some(self.processes.of_task(held.cpus.len())),
            denied_devices: self.gpus.denied(&held.gpus),
            ..Options::default()
        };
        let (launcher, leaves) = (Arc::clone(&self.launcher), Arc::clone(&self.leaves));
        let remove = move || {
            let leaf = |number| leaves.leaf(&format!("{run}-container-{number}"));
            let runner = Confined {
                launcher: &launcher,
                limits,
                leaf: &leaf,
                cancel: &AtomicBool::new(false),
                began: Instant::now(),
                time_limit: Some(REMOVAL),
            };
            let mut output = Vec::new();
            let ended = runner.run(&step, &mut |bytes| {
                const MOST: usize = 500;
                output.extend_from_slice(&bytes[..bytes.len().min(MOST - output.len())]);
            });
            let told = String::from_utf8_lossy(&output).trim().to_owned();
            match ended {
                Ok(Ended::Exited(0)) => Ok(()),
                // It had removed itself.
                Ok(_) if told.contains("No such container") => Ok(()),
                other => bail!("{other:?}: {told}"),
            }
        };
        spawn_blocking(remove).await?
    }
}

impl Surrounding for Containers {
    fn end<'a>(&'a self, launch: &'a RunLaunch, outcome: &'a RunOutcome) -> BoxFuture<'a, ()> {
        match engine_to_clear(launch, outcome) {
            Some(engine) => self.end_container(launch, engine).boxed(),
            None => ready(()).boxed(),
        }
    }
}

/// The engine whose container may be left after the run.
fn engine_to_clear(launch: &RunLaunch, outcome: &RunOutcome) -> Option<Engine> {
    let engine = launch.spec().surroundings.container.as_deref()?.engine;
    let is_clear = match engine {
        _ if matches!(outcome, RunOutcome::NotStarted { .. }) => true,
        // Without its daemon, nothing of Apptainer outlives the run.
        Engine::Apptainer => true,
        // Podman's program has then removed the container.
        Engine::Podman => launch.spec().pty.is_none() && outcome.why() == Why::Exited(0),
        // Its program may end before its container, with any status.
        Engine::Docker => false,
    };
    (!is_clear).then_some(engine)
}

/// Variables with which the run's processes connect to each other, for the engine's program and the container.
pub(crate) fn meeting_port(launch: &RunLaunch, port: u16) -> Vec<(OsString, OsString)> {
    let engine = launch.spec().surroundings.container.as_deref().map(|container| container.engine);
    let mut all = variables::meeting_port(port);
    if engine == Some(Engine::Apptainer) {
        all.extend(variables::meeting_port(port).into_iter().map(|(name, value)| {
            let mut inside = OsString::from(FOR_APPTAINER);
            inside.push(name);
            (inside, value)
        }));
    }
    all
}

/// Gives the engine's program the usual values of [`OF_THE_CONTAINER`]. Returns those that the user has set.
fn set_apart(own: &Environment, environment: &mut Environment, account: Option<&Account>) -> Environment {
    let mut apart = Environment::new();
    for name in OF_THE_CONTAINER {
        let Some(value) = own.get(name) else { continue };
        apart.insert(name.to_owned(), value.clone());
        environment.remove(name);
        let usual = match (name, account) {
            ("PATH", _) => Some(variables::default_path()),
            ("HOME", Some(account)) => Some(account.home.clone().into_os_string()),
            (_, None) => std::env::var_os(name),
            _ => None,
        };
        environment.extend(usual.and_then(|value| Some((name.to_owned(), value.into_string().ok()?))));
    }
    apart
}

/// Writes variables to a file that only the user can read, for `--env-file`.
fn store_variables(
    variables: &Environment,
    directory: &RunDirectory,
    path: &Path,
    account: Option<&Account>,
) -> anyhow::Result<()> {
    if let Some((name, _)) = variables.iter().find(|(_, value)| value.contains(char::is_control)) {
        bail!("the variable {name} of a container cannot have a line break or another control character");
    }
    let lines: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let store = || {
        directory.store(path, os_string_of(&lines).as_bytes())?;
        account.map_or(Ok(()), |it| std::os::unix::fs::lchown(path, Some(it.ids.uid), Some(it.ids.gid)))
    };
    store().context("cannot store the container's variables")
}

/// The command line of an engine.
fn command_line(program: &str, container: &Container, it: &Contents<'_>) -> Vec<String> {
    let mut all = vec![program.to_owned()];
    let (engine, folder) = (container.engine, it.folder);
    let mut add = |words: &[&str]| all.extend(words.iter().map(|word| (*word).to_owned()));
    match engine {
        Engine::Docker | Engine::Podman => {
            add(&["run", "--rm", "--interactive", "--init", "--network=host", "--log-driver=none"]);
            add(&[&format!("--name={}", it.name), "--label=hostler"]);
            // The folder has no label of SELinux that containers may use.
            add(&["--security-opt=label=disable"]);
            if !it.uses_entrypoint {
                add(&[&format!("--workdir={folder}")]);
            }
            add(&[&format!("--mount=type=bind,source={folder},target={folder}")]);
            if it.has_terminal {
                // Without these keys, a user who types them would leave the container, and the job would end.
                add(&["--tty", "--detach-keys=ctrl-@,ctrl-@,ctrl-@,ctrl-@"]);
            }
        }
        Engine::Apptainer => {
            add(&[
                if it.uses_entrypoint { "run" } else { "exec" },
                "--cleanenv",
                "--no-home",
                &format!("--bind={folder}"),
            ]);
            if !it.uses_entrypoint {
                add(&[&format!("--pwd={folder}")]);
            }
        }
    }
    let (uid, gid, groups) = it.user;
    match engine {
        Engine::Docker => {
            add(&[&format!("--user={uid}:{gid}"), "--security-opt=no-new-privileges"]);
            groups.iter().for_each(|group| add(&[&format!("--group-add={group}")]));
            // Its daemon starts the container outside of the job's control group.
            let memory = it.resources.memory_bytes;
            add(&[&format!("--cpuset-cpus={}", it.resources.cpus), &format!("--pids-limit={}", it.process_limit)]);
            add(&[&format!("--memory={memory}"), &format!("--memory-swap={memory}")]);
            if !it.gpus.nvidia.is_empty() {
                add(&[&format!("--gpus=\"device={}\"", it.gpus.nvidia.join(","))]);
            }
        }
        Engine::Podman => {
            // In its user namespace, root is the job's user.
            add(&["--user=0:0", "--cgroups=disabled"]);
            it.gpus.nvidia.iter().for_each(|gpu| add(&[&format!("--device=nvidia.com/gpu={gpu}")]));
        }
        Engine::Apptainer => {
            if !it.gpus.nvidia.is_empty() {
                add(&["--nv"]);
            }
            if it.gpus.has_amd {
                add(&["--rocm"]);
            }
        }
    }
    let image = container.image.argument(engine);
    let mut argv = it.argv.iter().peekable();
    if engine == Engine::Apptainer {
        add(&[&image]);
    } else {
        it.gpus.devices.iter().for_each(|device| add(&[&format!("--device={device}")]));
        it.variables.iter().for_each(|name| add(&[&format!("--env={name}")]));
        if let Some((file, _)) = it.file {
            add(&[&format!("--env-file={file}")]);
        }
        if engine == Engine::Docker && !it.file.is_some_and(|(_, has_home)| has_home) {
            // Images do not know the user, whose home directory would be the root directory.
            add(&["--env=HOME=/tmp"]);
        }
        if engine == Engine::Docker {
            // If NVIDIA's runtime is the daemon's default, it gives the GPUs in this variable, which many images set to `all`.
            let gpus = if it.gpus.nvidia.is_empty() { "void".to_owned() } else { it.gpus.nvidia.join(",") };
            add(&[&format!("--env={NVIDIA_GPUS}={gpus}")]);
        }
        if let Some(program) = argv.next_if(|_| !it.uses_entrypoint) {
            add(&[&format!("--entrypoint={program}")]);
        }
        add(&[&image]);
    }
    all.extend(argv.cloned());
    all
}

/// Whether the engine needs set-user-id programs, such as `newuidmap`, to start a container of a user.
pub(crate) const fn gains_rights(engine: Engine) -> bool {
    matches!(engine, Engine::Podman | Engine::Apptainer)
}

#[cfg(test)]
mod tests {
    use hostler_model::CpuSet;

    use super::*;
    use crate::account::Ids;

    fn line(engine: Engine, gpus: &ContainerGpus, has_terminal: bool) -> String {
        line_of(engine, gpus, has_terminal, false)
    }

    fn line_of(engine: Engine, gpus: &ContainerGpus, has_terminal: bool, uses_entrypoint: bool) -> String {
        let argv = ["python3", "a b.py"].map(str::to_owned);
        let resources = Resources::new(CpuSet::first(2), 64 << 20);
        let contents = Contents {
            name: "hostler-7-1_0.1.1",
            argv: &argv,
            uses_entrypoint,
            folder: "/data/my folder",
            variables: &["HOSTLER_JOB_ID", "TERM"],
            file: None,
            user: (1000, 100, &[4, 24]),
            resources: &resources,
            process_limit: 8192,
            gpus,
            has_terminal,
        };
        let container = Container { engine, image: "docker://debian:12".parse().expect("an image") };
        command_line("/usr/bin/engine", &container, &contents).join("\n").replace('\n', " | ")
    }

    #[test]
    fn docker_runs_as_the_user_within_the_limits_of_the_job() {
        let expected = "/usr/bin/engine | run | --rm | --interactive | --init | --network=host | --log-driver=none | \
                        --name=hostler-7-1_0.1.1 | --label=hostler | --security-opt=label=disable | --workdir=/data/my folder | \
                        --mount=type=bind,source=/data/my folder,target=/data/my folder | --user=1000:100 | \
                        --security-opt=no-new-privileges | --group-add=4 | --group-add=24 | --cpuset-cpus=0-1 | --pids-limit=8192 | \
                        --memory=67108864 | --memory-swap=67108864 | --env=HOSTLER_JOB_ID | --env=TERM | --env=HOME=/tmp | \
                        --env=NVIDIA_VISIBLE_DEVICES=void | --entrypoint=python3 | debian:12 | a b.py";
        assert_eq!(line(Engine::Docker, &ContainerGpus::default(), false), expected);
    }

    #[test]
    fn podman_stays_in_the_control_group_of_the_job() {
        let all = line(Engine::Podman, &ContainerGpus::default(), true);
        assert!(all.contains(" | --tty | ") && all.contains(" | --user=0:0 | --cgroups=disabled | "), "{all}");
        assert!(!all.contains("--memory") && !all.contains("HOME"), "{all}");
        assert!(all.ends_with(" | --env=TERM | --entrypoint=python3 | debian:12 | a b.py"), "{all}");
    }

    #[test]
    fn apptainer_gets_its_variables_by_its_own_environment() {
        let all = line(Engine::Apptainer, &ContainerGpus::default(), false);
        let expected = "/usr/bin/engine | exec | --cleanenv | --no-home | --bind=/data/my folder | --pwd=/data/my folder | \
                        docker://debian:12 | python3 | a b.py";
        assert_eq!(all, expected);
    }

    #[test]
    fn gpus_of_the_job_are_given_in_the_way_of_each_engine() {
        let nvidia = ContainerGpus { nvidia: vec!["GPU-a".to_owned(), "GPU-b".to_owned()], ..ContainerGpus::default() };
        let docker = line(Engine::Docker, &nvidia, false);
        assert!(docker.contains(" | --gpus=\"device=GPU-a,GPU-b\" | "), "{docker}");
        assert!(docker.contains(" | --env=NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b | --entrypoint"), "{docker}");
        let podman = line(Engine::Podman, &nvidia, false);
        assert!(podman.contains(" | --device=nvidia.com/gpu=GPU-a | --device=nvidia.com/gpu=GPU-b | "), "{podman}");
        assert!(line(Engine::Apptainer, &nvidia, false).contains(" | --nv | "));
        let other = ContainerGpus { devices: vec!["/dev/kfd".to_owned()], has_amd: true, ..ContainerGpus::default() };
        assert!(line(Engine::Docker, &other, false).contains(" | --device=/dev/kfd | "));
        assert!(line(Engine::Apptainer, &other, false).contains(" | --rocm | "));
        let intel = ContainerGpus { has_amd: false, ..other };
        assert!(!line(Engine::Apptainer, &intel, false).contains("--rocm"));
    }

    #[test]
    fn entry_point_of_the_image_gets_the_words_as_arguments() {
        let run = |engine| line_of(engine, &ContainerGpus::default(), false, true);
        let docker = run(Engine::Docker);
        assert!(
            docker.ends_with(" | --env=HOME=/tmp | --env=NVIDIA_VISIBLE_DEVICES=void | debian:12 | python3 | a b.py"),
            "{docker}"
        );
        assert!(!docker.contains("--workdir") && !docker.contains("--entrypoint"), "{docker}");
        let expected = "/usr/bin/engine | run | --cleanenv | --no-home | --bind=/data/my folder | docker://debian:12 | \
                        python3 | a b.py";
        assert_eq!(run(Engine::Apptainer), expected);
    }

    #[test]
    fn values_that_would_break_the_program_of_the_engine_reach_only_the_container() {
        let own: Environment = [("HOME", "/inside"), ("LD_PRELOAD", "/inside.so"), ("PATH", "/inside/bin"), ("X", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let ids = Ids { uid: 1000, gid: 100, groups: Vec::new() };
        let account = Account { name: "ada".to_owned(), ids, home: "/home/ada".into(), shell: "/bin/sh".into() };
        let mut of_program = own.clone();
        let inside = set_apart(&own, &mut of_program, Some(&account));
        assert_eq!(inside.keys().map(String::as_str).collect::<Vec<_>>(), ["HOME", "LD_PRELOAD", "PATH"]);
        assert_eq!((inside["PATH"].as_str(), of_program["HOME"].as_str()), ("/inside/bin", "/home/ada"));
        assert_ne!(of_program["PATH"], inside["PATH"]);
        assert!(of_program.contains_key("X") && !of_program.contains_key("LD_PRELOAD"));
    }

    #[test]
    fn missing_engines_are_left_out() {
        let none = Engines::find(&BTreeSet::new());
        assert_eq!(none.features().count(), 0);
    }
}
