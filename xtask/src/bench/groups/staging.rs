//! The time until a folder is stored on another machine: for new content, and for unchanged content.

#![expect(clippy::disallowed_methods, reason = "the benchmark owns the directories, and they are shallow")]

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::measure::{Contender, interleave, milliseconds};
use crate::bench::report::{Goal, Row, compare};
use crate::bench::ssh::SshServer;
use crate::workspace::find_program;

/// Size of every 200th file. The large files have about 80 of the folder's 100 MB.
const LARGE: usize = 8 << 20;
const PEER: &str = "rsync over ssh";
const SUBMIT: &str = "hostler submit";
const WHOLE_JOB: &str = "hostler submit and wait";

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let files = bench.scaled(2_000);
    let cluster = bench.cluster()?;
    let ssh = rsync_server();
    let scratch = tempfile::tempdir()?;
    let (tree, copy) = (scratch.path().join("tree"), scratch.path().join("copy"));
    let mut rows = first(bench, files, &tree, &copy, cluster.as_ref(), ssh.as_ref())?;
    rows.extend(again(bench, &tree, &copy, cluster.as_ref(), ssh.as_ref())?);
    Ok(rows)
}

/// Starts an SSH server for rsync, if both programs are installed.
fn rsync_server() -> Option<SshServer> {
    if find_program("rsync").is_none() {
        println!("  (rsync is absent: it is not on PATH)");
        return None;
    }
    SshServer::start().inspect_err(|error| println!("  (rsync is absent: {error:#})")).ok()
}

/// Measures the upload of new content, generated for each run.
fn first(
    bench: &Bench,
    files: usize,
    tree: &Path,
    copy: &Path,
    cluster: Option<&Cluster>,
    ssh: Option<&SshServer>,
) -> Result<Vec<Row>> {
    let seed = std::cell::Cell::new(1);
    let renew = || {
        seed.set(seed.get() + 1);
        make_tree(tree, files, seed.get())
    };
    let mut contenders = Vec::new();
    if let Some(ssh) = ssh {
        contenders.push(Contender::new(PEER, || {
            renew()?;
            if copy.exists() {
                fs::remove_dir_all(copy)?;
            }
            milliseconds(&mut ssh.rsync(tree, copy))
        }));
    }
    if let Some(cluster) = cluster {
        contenders.push(Contender::new(SUBMIT, || {
            renew()?;
            milliseconds(cluster.command(&["submit"]).arg(tree).arg("true"))
        }));
    }
    let samples = interleave(bench.long_runs(), contenders)?;
    Ok(named("first", compare(&samples, "ms", SUBMIT, &[(PEER, Goal::AtMost(1.0))])))
}

/// Measures the upload of an unchanged folder.
fn again(
    bench: &Bench,
    tree: &Path,
    copy: &Path,
    cluster: Option<&Cluster>,
    ssh: Option<&SshServer>,
) -> Result<Vec<Row>> {
    let mut contenders = Vec::new();
    if let Some(ssh) = ssh {
        contenders.push(Contender::timed(PEER, || ssh.rsync(tree, copy)));
    }
    if let Some(cluster) = cluster {
        contenders.push(Contender::new(SUBMIT, || milliseconds(cluster.command(&["submit"]).arg(tree).arg("true"))));
        contenders.push(Contender::new(WHOLE_JOB, || {
            let started = std::time::Instant::now();
            let id = cluster.submit(tree, &[])?;
            cluster.wait(&[id])?;
            Ok(started.elapsed().as_secs_f64() * 1e3)
        }));
    }
    let samples = interleave(bench.runs, contenders)?;
    Ok(named("unchanged", compare(&samples, "ms", SUBMIT, &[(PEER, Goal::AtMost(0.2))])))
}

fn named(which: &str, rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter().map(|row| Row { name: format!("{which}: {}", row.name), ..row }).collect()
}

/// Creates a folder with `files` files in 40 directories. Half of them resemble text. `seed` determines the content.
fn make_tree(tree: &Path, files: usize, seed: u64) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    let mut random = XorShift(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for index in 0..files {
        let directory = tree.join(format!("d{}", index % 40));
        fs::create_dir_all(&directory)?;
        let size = if index % 200 == 0 { LARGE } else { 200 + random.next() as usize % 19_800 };
        let content = if index % 2 == 1 { random.bytes(size) } else { random.text(size) };
        fs::write(directory.join(format!("f{index}")), content)?;
    }
    Ok(())
}

/// Marsaglia's xorshift: incompressible output that depends only on the seed.
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, size: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..size.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(size);
        bytes
    }

    fn text(&mut self, size: usize) -> Vec<u8> {
        let line = format!("line {:016x} of a text file\n", self.next());
        line.into_bytes().into_iter().cycle().take(size).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_content_depends_on_the_seed() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let read = |seed| {
            make_tree(scratch.path().join("t").as_path(), 10, seed).expect("it can be written");
            (0..10)
                .map(|index| fs::read(scratch.path().join(format!("t/d{index}/f{index}"))).expect("the file exists"))
                .collect::<Vec<_>>()
        };
        let (one, same, other) = (read(1), read(1), read(2));
        assert!(one == same && one != other);
        assert_eq!(one[0].len(), LARGE);
    }
}
