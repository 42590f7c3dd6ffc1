//! Measures the time to discover this machine's resources, and to choose CPUs on a large machine.
//!
//! `cargo run --release -p hostler-discovery --example cost [ROUNDS]`

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hostler_model::{CoreKind, Cpu, CpuSet, Topology};

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(1000), |text| text.parse())?;
    let look = || drop(black_box(hostler_discovery::machine()));
    print("machine()", median(rounds, look));

    let cpu = |id| Cpu { id, core: id % 128, package: id % 128 / 64, numa: id % 128 / 16, kind: CoreKind::Performance };
    let cpus: Vec<_> = (0..256).map(cpu).collect();
    print("Topology::new, 256 CPUs", median(rounds, || drop(black_box(Topology::new(&cpus)))));

    let topology = Topology::new(&cpus);
    let all: CpuSet = (0..256).collect();
    let scattered: CpuSet = (0..256).filter(|id| id % 3 != 0).collect();
    for (name, free, count) in [
        ("choose 4 of 256, all free", &all, 4),
        ("choose 64 of 256, all free", &all, 64),
        ("choose 4 of 256, a third taken", &scattered, 4),
        ("choose 100 of 256, a third taken", &scattered, 100),
    ] {
        print(name, median(rounds, || drop(black_box(topology.choose(free, count)))));
    }
    Ok(())
}

fn median(rounds: usize, mut what: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..rounds.max(1))
        .map(|_| {
            let began = Instant::now();
            what();
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn print(name: &str, time: Duration) {
    println!("{name:36} {:10.1} µs", time.as_secs_f64() * 1e6);
}
