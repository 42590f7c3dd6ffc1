//! The time until a program runs on four nodes.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::floors;
use crate::bench::measure::{Contender, interleave, milliseconds};
use crate::bench::report::{Row, compare};
use crate::workspace::find_program;

const FLOOR: &str = "bash -c true";
const SUBJECT: &str = "hostler run -N 4: submit to all ranks running";

/// Records the start time of each rank.
const STAMP: &str = "date +%s%N > $0/$RANK";

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(cluster) = bench.cluster()? else { return Ok(Vec::new()) };
    let scratch = tempfile::tempdir()?;
    let round = Cell::new(0);
    let program = bench.hostler.as_deref().context("a cluster has a program")?.to_string_lossy();
    let begin = ["run", "--first-node", "-N", "4", "-m", "200M", "--"];
    let mut contenders = vec![
        Contender::timed(FLOOR, floors::bash),
        Contender::new(SUBJECT, || {
            round.set(round.get() + 1);
            until_all_run(&cluster, &scratch.path().join(round.get().to_string()))
        }),
        Contender::timed("hostler run -N 4 true: to the end", || cluster.command(&["run", "-N", "4", "--", "true"])),
        Contender::timed("hostler step --all true, job included", || {
            cluster.command(&[&begin[..], &[&program, "step", "--all", "true"]].concat())
        }),
    ];
    if find_program("mpirun").is_some() {
        contenders.push(Contender::new("mpirun true, job included", || {
            let mut command = cluster.command(&[&begin[..], &["mpirun", "true"]].concat());
            // Without these variables, mpirun refuses to run as root.
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            milliseconds(&mut command)
        }));
    } else {
        println!("  (mpirun is absent: it is not on PATH)");
    }
    let samples = interleave(bench.runs, contenders)?;
    Ok(compare(&samples, "ms", SUBJECT, &[]))
}

/// Milliseconds from the start of the client until the last of four ranks runs.
fn until_all_run(cluster: &Cluster, directory: &Path) -> Result<f64> {
    fs::create_dir(directory)?;
    let directory_text = directory.to_string_lossy();
    let begun = SystemTime::now().duration_since(UNIX_EPOCH)?;
    milliseconds(&mut cluster.command(&["run", "-N", "4", "--", "sh", "-c", STAMP, &directory_text]))?;
    let stamps: Vec<Duration> = fs::read_dir(directory)?
        .map(|entry| Ok(Duration::from_nanos(fs::read_to_string(entry?.path())?.trim().parse()?)))
        .collect::<Result<_>>()?;
    ensure!(stamps.len() == 4, "{} of 4 ranks ran", stamps.len());
    let last = stamps.into_iter().max().context("four ranks have started")?;
    Ok(last.saturating_sub(begun).as_secs_f64() * 1e3)
}
