//! External files that only tools read, i.e. workload traces and recorded machines, and the resource limits of a
//! node's configuration.

use hostler_discovery::{Caps, Fixture, Machine, Source};
use hostler_sim::Trace;

use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "traces", about: "workload traces, recorded machines and caps", run, seeds };

/// The first byte selects the format.
fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    if kind % 3 == 0 {
        drop(Trace::parse(bytes));
        return;
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if kind % 3 == 2 {
        offered(text);
    } else if let Ok(fixture) = Fixture::parse(text) {
        let machine = Machine::of(&Source::fixture(fixture));
        let _ = (machine.resources(), machine.topology());
    }
}

/// Applies caps and counted resources to a small machine: the result never exceeds the machine.
fn offered(text: &str) {
    let Ok(caps) = toml::from_str::<Caps>(text) else { return };
    let machine = Machine::of(&Source::fixture(small()));
    let most = machine.resources();
    let capped = machine.capped(&caps).resources();
    assert!(most.cpus.is_superset(&capped.cpus) && capped.memory_bytes <= most.memory_bytes);
}

fn small() -> Fixture {
    let mut fixture = Fixture::default();
    fixture.insert("/sys/devices/system/cpu/online", "0-3\n");
    fixture.insert("/sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
    fixture.insert("/proc/meminfo", "MemTotal:       16000000 kB\nMemAvailable:   8000000 kB\n");
    fixture.insert("/proc/self/status", "Cpus_allowed_list:\t0-3\n");
    fixture
}

fn seeds() -> Vec<Vec<u8>> {
    let trace = "; MaxProcs: 64\n1 0 5 100 4 -1 -1 4 200 1024 1 1 1 -1 1 -1 -1 -1\n";
    let mut fixture = small();
    fixture.insert("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
    fixture.insert("/proc/self/cgroup", "0::/user.slice\n");
    fixture.insert("/sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
    fixture.insert_device("/dev/nvidia0", 195, 0);
    let texts: [(u8, &str); 4] = [
        (0, trace),
        (1, &fixture.to_toml()),
        (2, "cpus = 2\nmemory_bytes = 5000000\ngpus = ['gpu-2A', '0']\n"),
        (2, "cpus = 2\nmemory_bytes = 1\n"),
    ];
    texts.into_iter().map(|(kind, text)| [&[kind], text.as_bytes()].concat()).collect()
}
