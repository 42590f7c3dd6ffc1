//! Benchmark of launches: runs `/bin/true` in sequence in several ways, compared with a plain `posix_spawn` and wait.
//!
//! `cargo run --release -p hostler-shepherd --example launches [RUNS]`
//!
//! All ways alternate within one process, so that changes of the machine's load affect all of them equally.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hostler_shepherd::cgroup::{LeafSpec, Tree};
use hostler_shepherd::journal::begin;
use hostler_shepherd::{CallOptions, Credentials, Event, Launch, Launcher, Options, Sandbox, Shepherd};

/// Consecutive runs of each method before the next method's turn.
const TURN: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let launcher = Launcher::start()?;
    let runs: usize = std::env::args().nth(1).map_or(Ok(1000), |text| text.parse())?;
    let scratch = tempfile::tempdir()?;
    let leaves = Tree::find();
    let leaf = leaves.as_ref().ok().and_then(|tree| tree.leaf(&format!("bench-{}", std::process::id())).ok());

    let mut ways = vec![
        Way::new("posix_spawn and wait", Kind::Spawn),
        Way::new("a shepherd each", Kind::Fresh { leaf: None, durable: false }),
        Way::new("a shepherd each, durable", Kind::Fresh { leaf: None, durable: true }),
        Way::new("a lingering shepherd", Kind::Linger(Reuse::default())),
    ];
    if leaf.is_some() {
        ways.push(Way::new("a shepherd and a leaf each", Kind::Fresh { leaf: leaf.clone(), durable: false }));
        let beside = Reuse { leaf: leaf.clone(), ..Reuse::default() };
        ways.push(Way::new("a lingering shepherd beside its leaf", Kind::Linger(beside.clone())));
        let one = Reuse { one_directory: true, ..beside };
        ways.push(Way::new("  in one directory", Kind::Linger(one.clone())));
        ways.push(Way::new("  calls", Kind::Linger(Reuse { is_call: true, ..one.clone() })));
        ways.push(Way::new("  in one directory, on CPU 0", Kind::Linger(Reuse { cpu: Some(0), ..one.clone() })));
        if nix::unistd::geteuid().is_root() {
            let nobody = Credentials { name: "nobody".into(), uid: 65534, gid: 65534, groups: vec![65534] };
            let folder = scratch.path().join("folder");
            std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o711))?;
            std::fs::create_dir(&folder)?;
            std::os::unix::fs::chown(&folder, Some(nobody.uid), Some(nobody.gid))?;
            let user = Reuse { user: Some(nobody), ..one };
            ways.push(Way::new("  in one directory, as another user", Kind::Linger(user.clone())));
            let sandbox = Reuse { sandbox: Some(folder), ..user };
            ways.push(Way::new("  the same in a sandbox", Kind::Linger(sandbox)));
        }
    }
    for turn in 0..runs.div_ceil(TURN) {
        for (index, way) in ways.iter_mut().enumerate() {
            let directories = directories(&scratch.path().join(format!("{turn}-{index}")))?;
            let began = Instant::now();
            way.kind.take_turn(&launcher, &directories)?;
            way.spent += began.elapsed();
            way.runs += TURN;
        }
    }
    let floor = ways[0].each();
    for way in &ways {
        let each = way.each();
        println!(
            "{:38} {:8.0} runs/s {:8.1} µs each {:+8.1} µs {:6.2} x",
            way.name,
            1.0 / each.as_secs_f64(),
            each.as_secs_f64() * 1e6,
            (each.as_secs_f64() - floor.as_secs_f64()) * 1e6,
            each.as_secs_f64() / floor.as_secs_f64(),
        );
    }
    Ok(())
}

struct Way {
    name: &'static str,
    kind: Kind,
    spent: Duration,
    runs: usize,
}

impl Way {
    fn new(name: &'static str, kind: Kind) -> Way {
        Way { name, kind, spent: Duration::ZERO, runs: 0 }
    }

    fn each(&self) -> Duration {
        self.spent / self.runs as u32
    }
}

enum Kind {
    Spawn,
    Fresh { leaf: Option<LeafSpec>, durable: bool },
    Linger(Reuse),
}

/// Common settings of the runs of a lingering shepherd.
#[derive(Clone, Default)]
struct Reuse {
    leaf: Option<LeafSpec>,
    one_directory: bool,
    cpu: Option<u32>,
    user: Option<Credentials>,
    is_call: bool,
    /// The folder of runs in a sandbox.
    sandbox: Option<PathBuf>,
}

impl Kind {
    fn take_turn(&self, launcher: &Launcher, directories: &[std::path::PathBuf]) -> Result<(), Box<dyn Error>> {
        match self {
            Kind::Spawn => {
                for _ in directories {
                    std::process::Command::new("/bin/true").env_clear().status()?;
                }
            }
            Kind::Fresh { leaf, durable } => {
                for directory in directories {
                    let options = Options { leaf: leaf.clone(), durable: *durable, ..Options::default() };
                    let mut shepherd = launcher.launch(&launch(directory, options))?;
                    shepherd.wait()?;
                    if leaf.is_some() {
                        // The next run uses the same leaf name, so wait until the leaf is removed.
                        gone(&shepherd)?;
                    }
                }
            }
            Kind::Linger(Reuse { leaf, one_directory, cpu, user, is_call, sandbox }) => {
                let options = || Options {
                    leaf: leaf.clone(),
                    cpus: cpu.map(|cpu| vec![cpu]),
                    credentials: user.clone(),
                    linger: Some(Duration::from_secs(60)),
                    call: is_call.then(CallOptions::default),
                    sandbox: sandbox.as_ref().map(|_| Sandbox::default()),
                    ..Options::default()
                };
                let null = File::options().read(true).write(true).open("/dev/null")?;
                let launch = |directory: &Path| {
                    let launch = launch(directory, options());
                    Launch { cwd: sandbox.clone().unwrap_or(launch.cwd.clone()), ..launch }
                };
                let first = launch(&directories[0]);
                let mut shepherd =
                    if *is_call { launcher.call(&first, [null.as_fd(); 3], None)? } else { launcher.launch(&first)? };
                shepherd.wait()?;
                for directory in &directories[1..] {
                    let directory = if *one_directory { &directories[0] } else { directory };
                    if *is_call {
                        shepherd.call_next(&launch(directory), &[null.as_fd(); 3])?;
                    } else {
                        begin(directory, "", &())?;
                        shepherd.launch_next(&launch(directory))?;
                    }
                    while !matches!(shepherd.next_event()?, Event::Finished(_)) {}
                }
            }
        }
        Ok(())
    }
}

fn launch(directory: &Path, options: Options) -> Launch {
    Launch { options, ..Launch::new(directory, ["/bin/true"]) }
}

fn gone(shepherd: &Shepherd) -> Result<(), Box<dyn Error>> {
    let wait = nix::poll::PollTimeout::NONE;
    nix::poll::poll(&mut [nix::poll::PollFd::new(shepherd.as_fd(), nix::poll::PollFlags::POLLIN)], wait)?;
    Ok(())
}

/// Creates a directory for each run of a turn. This is not timed, because the agent does it.
fn directories(parent: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    let directories: Vec<_> = (0..TURN).map(|n| parent.join(n.to_string())).collect();
    directories.iter().try_for_each(std::fs::create_dir_all)?;
    Ok(directories)
}
