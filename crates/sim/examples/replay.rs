//! Replays a trace in the Standard Workload Format under each policy and prints the figures.
//!
//! `cargo run --release -p hostler-sim --example replay -- TRACE.swf`

#![expect(clippy::print_stdout, reason = "the example prints its results")]

use std::error::Error;

use hostler_sched::Policy;
use hostler_sim::{ReplayOptions, Trace, replay};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: replay TRACE.swf")?;
    let trace = Trace::parse(&std::fs::read(path)?)?;
    for policy in Policy::ALL {
        let replay = replay(&trace, &ReplayOptions { policy, nodes: Vec::new() })?;
        println!("{policy}\n{}\n", replay.metrics);
    }
    Ok(())
}
