//! Measures the compilation of a C program of many files with `make`: locally, with `dsh`, and with other programs that
//! distribute compilers.
//!
//! All nodes are on this machine, so nothing can be faster than `make` alone: the group measures the overhead. From it,
//! the group estimates the speed-up with more machines.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use crate::bench::cluster::{Cluster, Role};
use crate::bench::context::Bench;
use crate::bench::groups::exec::wait_for_peers;
use crate::bench::measure::{Contender, Sample, interleave, milliseconds};
use crate::bench::report::{Goal, Row};
use crate::workspace::shown;
use anyhow::{Context, Result, ensure};

/// Number of concurrent compilers in builds on several nodes: the number of the nodes' CPUs.
const JOBS: usize = 8;

/// Goal for the overhead over a local build, and over distcc.
const OVER_LOCAL: Goal = Goal::AtMost(1.1);
const BESIDE_DISTCC: Goal = Goal::AtMost(1.0);

/// Unit of CPU times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Numbers of machines in the estimate.
const MACHINES: [usize; 2] = [4, 16];

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(source) = &bench.source else {
        println!("  (skipped: needs --source with a configured C program, e.g. busybox after `make defconfig`)");
        return Ok(Vec::new());
    };
    let Some(cluster) = bench.cluster()? else { return Ok(Vec::new()) };
    wait_for_peers(&cluster)?;
    let folder = tempfile::tempdir()?;
    let tools = bench.hostler.as_deref().expect("there is a cluster").with_file_name("hostler-tools");
    ensure!(tools.exists(), "{} does not exist; build it together with hostler", tools.display());
    let dsh = folder.path().join("dsh");
    symlink(&tools, &dsh)?;
    let dsh = dsh.display().to_string();
    let mut ways = vec![
        Way::new(&cluster, source, folder.path(), "make here", "gcc", cpus()?)?,
        Way::new(&cluster, source, folder.path(), "make here, as many at once", "gcc", JOBS)?,
        Way::new(&cluster, source, folder.path(), "dsh", &format!("{dsh} gcc"), JOBS)?,
        Way::new(&cluster, source, folder.path(), "dsh --mirror", &format!("{dsh} --mirror gcc"), JOBS)?,
    ];
    match std::env::var("DISTCC_HOSTS") {
        Ok(_) => ways.push(Way::new(&cluster, source, folder.path(), "distcc", "distcc gcc", JOBS)?),
        Err(_) => println!("  (distcc is absent: DISTCC_HOSTS names no hosts)"),
    }
    let contenders = ways.iter().map(|way| Contender::new(way.name, || way.build()));
    let samples = interleave(bench.long_runs(), contenders.collect())?;
    let mut rows = compared(&samples);
    let objects = ways[0].objects()?;
    for way in ways.iter().filter(|way| is_ours(way.name)) {
        let same = way.objects()?;
        ensure!(
            same.len() == objects.len(),
            "{} built {} objects, but the local build {}",
            way.name,
            same.len(),
            objects.len()
        );
        let differ = objects.iter().filter(|(path, bytes)| same.get(*path) != Some(*bytes)).count();
        rows.push(Row::once(format!("{}: objects of {} that differ", way.name, objects.len()), differ as f64, ""));
    }
    for (name, flags) in [("dsh", ""), ("dsh --mirror", " --mirror")] {
        let compiler = format!("{dsh}{flags} --exclude n1 gcc");
        let away = Way::new(&cluster, source, folder.path(), name, &compiler, JOBS)?;
        rows.extend(worked_out(&away, &cluster, &samples[0])?);
    }
    Ok(rows)
}

fn is_ours(way: &str) -> bool {
    way.starts_with("dsh")
}

/// Compares all ways of building with a local `make`, and Hostler with distcc.
fn compared(samples: &[Sample]) -> Vec<Row> {
    let local = &samples[0];
    let distcc = samples.iter().find(|sample| sample.name == "distcc");
    let mut rows = vec![Row::alone(local, "s")];
    for sample in &samples[1..] {
        let is_ours = is_ours(&sample.name);
        let row = Row::beside(sample, "s", local);
        rows.push(if is_ours { row.with_goal(OVER_LOCAL) } else { row });
        if let Some(distcc) = distcc.filter(|_| is_ours) {
            rows.push(Row::beside(sample, "s", distcc).with_goal(BESIDE_DISTCC));
        }
    }
    rows
}

/// Estimates the speed-up with several machines like this one, from a build that compiles everything on another node.
/// The local machine does its own part, and all machines share the rest. The estimate is an upper bound: it ignores
/// that some work, such as the last link, waits for other work.
fn worked_out(away: &Way<'_>, cluster: &Cluster, local: &Sample) -> Result<Vec<Row>> {
    let daemons = cluster.daemons()?;
    let own = daemons.iter().find(|daemon| daemon.role == Role::Agent && is_of(daemon.pid, "n1"));
    let own = own.context("no agent of n1 runs")?;
    away.build()?;
    away.clean()?;
    let (machine, callers) = (busy()?, children()? + own.cpu_ticks());
    away.make()?;
    let callers = (children()? + own.cpu_ticks() - callers) / TICKS_PER_SECOND;
    let elsewhere = (busy()? - machine) / TICKS_PER_SECOND - callers;
    let mut rows = vec![
        Row::once(format!("{}, all elsewhere: CPU of the caller's machine", away.name), callers, "s"),
        Row::once(format!("{}, all elsewhere: CPU of the others", away.name), elsewhere, "s"),
    ];
    let cpus = cpus()? as f64;
    for machines in MACHINES {
        let seconds = (callers / cpus).max((callers + elsewhere) / (cpus * machines as f64));
        let name = format!("{}, worked out: speed-up by {machines} machines", away.name);
        rows.push(Row::once(name, local.median / seconds, "×"));
    }
    Ok(rows)
}

/// One way to compile, with its own copy of the source.
struct Way<'c> {
    cluster: &'c Cluster,
    name: &'static str,
    tree: PathBuf,
    compiler: String,
    jobs: usize,
}

impl<'c> Way<'c> {
    fn new(
        cluster: &'c Cluster,
        source: &Path,
        folder: &Path,
        name: &'static str,
        compiler: &str,
        jobs: usize,
    ) -> Result<Self> {
        // Names of equal length, because the compiler writes some paths into objects.
        let tree = folder.join(format!("{:02}", fs::read_dir(folder)?.count()));
        milliseconds(Command::new("cp").args(["-r", "--"]).args([source, &tree]))?;
        Ok(Self { cluster, name, tree, compiler: compiler.to_owned(), jobs })
    }

    /// Builds the program from scratch. Returns the time in seconds.
    fn build(&self) -> Result<f64> {
        self.clean()?;
        // Write pending data to disk now, so that this build does not wait for it.
        milliseconds(&mut Command::new("sync"))?;
        self.make()
    }

    fn clean(&self) -> Result<()> {
        milliseconds(self.in_tree().arg("clean")).map(drop)
    }

    fn make(&self) -> Result<f64> {
        let mut make = self.in_tree();
        make.arg(format!("-j{}", self.jobs)).arg(format!("CC={}", self.compiler)).arg("HOSTCC=gcc");
        Ok(milliseconds(&mut make)? / 1e3)
    }

    fn in_tree(&self) -> Command {
        let mut make = self.cluster.other("make");
        make.current_dir(&self.tree);
        for (name, value) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DISTCC_")) {
            make.env(name, value);
        }
        make
    }

    /// Contents of all objects, by path.
    fn objects(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let mut find = Command::new("find");
        find.current_dir(&self.tree).args([".", "-name", "*.o"]).stdin(Stdio::null());
        let found = find.output().with_context(|| format!("cannot start `{}`", shown(&find)))?;
        let paths = String::from_utf8(found.stdout)?;
        paths.lines().map(|path| Ok((path.into(), fs::read(self.tree.join(path))?))).collect()
    }
}

fn is_of(pid: u32, node: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).collect();
    words.windows(2).any(|pair| pair == [&b"--name"[..], node.as_bytes()])
}

fn cpus() -> Result<usize> {
    Ok(available_parallelism()?.get())
}

/// CPU time of all ended child processes, in ticks.
fn children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The 14th and 15th field after the name.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    Ok(fields.split(' ').skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum())
}

/// CPU time that this machine has used since boot, in ticks.
fn busy() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let fields: Vec<f64> = stat.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    // User, nice, system; interrupts, and those of software.
    Ok([0, 1, 2, 5, 6].into_iter().filter_map(|at| fields.get(at)).sum())
}
