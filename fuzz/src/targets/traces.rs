//! Files from elsewhere that only tools read: workload traces and recorded machines.

use hostler_discovery::{Fixture, Machine, Source};
use hostler_sim::Trace;

use crate::Target;

pub(crate) const TARGET: Target = Target { name: "traces", about: "workload traces and recorded machines", run, seeds };

/// The first byte says which is expected.
fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    if kind % 2 == 0 {
        drop(Trace::parse(bytes));
    } else if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(fixture) = Fixture::parse(text)
    {
        let machine = Machine::of(&Source::fixture(fixture));
        let _ = (machine.resources(), machine.topology());
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let trace = "; MaxProcs: 64\n1 0 5 100 4 -1 -1 4 200 1024 1 1 1 -1 1 -1 -1 -1\n";
    let mut fixture = Fixture::default();
    fixture.insert("/sys/devices/system/cpu/online", "0-3\n");
    fixture.insert("/sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
    fixture.insert("/proc/meminfo", "MemTotal:       16000000 kB\nMemAvailable:   8000000 kB\n");
    fixture.insert("/proc/self/status", "Cpus_allowed_list:\t0-3\n");
    fixture.insert("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
    fixture.insert("/proc/self/cgroup", "0::/user.slice\n");
    fixture.insert("/sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
    fixture.insert_device("/dev/nvidia0", 195, 0);
    vec![[vec![0], trace.into()].concat(), [vec![1], fixture.to_toml().into_bytes()].concat()]
}
