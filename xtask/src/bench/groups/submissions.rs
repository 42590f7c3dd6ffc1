//! Submissions per second that are durably acknowledged, and complete jobs per second.
//!
//! There are three measurements: acknowledgements only (the jobs are held), complete jobs submitted one after another,
//! and the same from 16 clients at once. Each submission is a separate process, as in a user's shell loop. So there are
//! two floors: starting as many processes, and writing as many synced records to the same disk.

use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::floors;
use crate::bench::measure::{Contender, interleave, milliseconds, rate, spread};
use crate::bench::peers::{self, Peer};
use crate::bench::report::{Goal, Row, compare};

const CLIENTS: usize = 16;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.scaled(1_000);
    let cluster = bench.cluster()?;
    let project = cluster.as_ref().map(Cluster::empty_project).transpose()?;
    let ours = cluster.as_ref().zip(project.as_deref());
    let scratch = tempfile::tempdir()?;
    let mut rows = acknowledged(bench, count, scratch.path(), ours)?;
    rows.extend(finished(bench, count, 1, ours)?);
    rows.extend(finished(bench, count, CLIENTS, ours)?);
    Ok(rows)
}

/// Measures submissions until they are acknowledged as durable. No job starts.
fn acknowledged(bench: &Bench, count: usize, scratch: &Path, ours: Option<(&Cluster, &Path)>) -> Result<Vec<Row>> {
    let (floor, alone, together) = ("write and fsync", "hostler submit, 1 client", "hostler submit, 16 clients");
    let mut contenders = vec![
        Contender::new(floor, || rate(count, || floors::fsync_loop(scratch, count))),
        Contender::new("spawn loop, 1 thread", || rate(count, || floors::spawn_loop(count, 1))),
    ];
    if let Some((cluster, project)) = ours {
        for (name, clients) in [(alone, 1), (together, CLIENTS)] {
            contenders.push(Contender::new(name, move || {
                let (figure, ids) = submit_many(cluster, project, count, clients, &["--hold"])?;
                cluster.cancel(&ids)?;
                Ok(figure)
            }));
        }
    }
    let samples = interleave(bench.long_runs(), contenders)?;
    let mut rows = compare(&samples, "/s", "", &[]);
    for sample in &samples {
        let goal = match sample.name.as_str() {
            name if name == alone => Goal::AtLeast(400.0),
            name if name == together => Goal::AtLeast(1_500.0),
            _ => continue,
        };
        rows.push(Row::alone(sample, "/s").with_goal(goal));
    }
    Ok(rows)
}

/// Measures submissions until the last job has ended.
fn finished(bench: &Bench, count: usize, clients: usize, ours: Option<(&Cluster, &Path)>) -> Result<Vec<Row>> {
    let suffix = match clients {
        1 => "one after another, finished".to_owned(),
        clients => format!("{clients} clients, finished"),
    };
    let floor = format!("spawn loop, {}", if clients == 1 { "1 thread" } else { "2 threads" });
    let subject = format!("hostler, {suffix}");
    let mut contenders = vec![Contender::new(&floor, || rate(count, || floors::spawn_loop(count, clients.min(2))))];
    contenders.extend(peers::contenders(&bench.peers, |peer| {
        Contender::new(format!("{}, {suffix}", peer.name()), move || rate(count, || run_peer(peer, count, clients)))
    }));
    if let Some((cluster, project)) = ours {
        contenders.push(Contender::new(&subject, move || {
            rate(count, || {
                let (_, ids) = submit_many(cluster, project, count, clients, &[])?;
                cluster.wait(&ids)
            })
        }));
    }
    let samples = interleave(bench.long_runs(), contenders)?;
    Ok(compare(&samples, "/s", &subject, &[]))
}

/// Submits `count` jobs from `clients` concurrent clients. Returns the jobs per second, and their ids.
fn submit_many(
    cluster: &Cluster,
    project: &Path,
    count: usize,
    clients: usize,
    flags: &[&str],
) -> Result<(f64, Vec<String>)> {
    let ids = Mutex::new(Vec::with_capacity(count));
    let figure = rate(count, || {
        spread(count, clients, |_| {
            let id = cluster.submit(project, flags)?;
            ids.lock().expect("no thread panics").push(id);
            Ok(())
        })
    })?;
    Ok((figure, ids.into_inner().expect("no thread panics")))
}

fn run_peer(peer: Peer, count: usize, clients: usize) -> Result<()> {
    let submitted = spread(count, clients, |_| milliseconds(&mut peer.submit_one()).map(drop));
    if submitted.is_err() {
        milliseconds(&mut peer.cancel_all())
            .context("a submission failed, and the submitted jobs cannot be cancelled")?;
    }
    submitted?;
    milliseconds(&mut peer.wait_all()).map(drop)
}
