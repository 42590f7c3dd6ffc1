//! `scontrol show config`: what Slurm's configuration would say about this cluster.

use hostler_proto::api::NodeCounts;

use super::super::{CLUSTER, Outcome, VERSION};
use super::Session;

/// Values that are the same in every cluster, by name.
const FIXED: &[(&str, &str)] = &[
    ("ClusterName", CLUSTER),
    ("FirstJobId", "1"),
    ("GresTypes", "gpu"),
    ("JobRequeue", "1"),
    ("Licenses", "(null)"),
    // The largest index of an array, plus one.
    ("MaxArraySize", "1000001"),
    ("MaxJobId", "999999999"),
    ("MinJobAge", "300 sec"),
    ("PreemptMode", "OFF"),
    ("PreemptType", "preempt/none"),
    ("SelectType", "select/cons_tres"),
    ("SelectTypeParameters", "CR_CORE_MEMORY"),
];

impl Session<'_> {
    pub(super) fn show_config(&self) -> Outcome {
        let info = self.ask("slurm_load_ctl_conf", async |client| client.info().await)?;
        let host = info.head.machine.as_ref().map_or_else(own_host, |machine| machine.name.clone());
        let clock = self.clock("slurm_load_ctl_conf")?;
        let text = document(&host, total(&info.nodes), &info.head.directory, &clock.write(clock.now));
        self.print(&text)
    }
}

/// The number of nodes in all states.
const fn total(counts: &NodeCounts) -> u32 {
    let NodeCounts { up, suspect, down, draining, drained, off, waking, stopping } = *counts;
    up + suspect + down + draining + drained + off + waking + stopping
}

/// The lines of the configuration, sorted by name.
fn document(host: &str, nodes: u32, directory: &str, now: &str) -> String {
    let mut all: Vec<(&str, String)> = FIXED.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    all.extend([
        ("MaxNodeCount", nodes.to_string()),
        ("SLURM_VERSION", VERSION.trim_start_matches("slurm ").to_owned()),
        ("SlurmctldHost[0]", host.to_owned()),
        ("StateSaveLocation", directory.to_owned()),
    ]);
    all.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    let lines: String = all.iter().map(|(name, value)| format!("{name:<23} = {value}\n")).collect();
    format!("Configuration data as of {now}\n{lines}\nSlurmctld(primary) at {host} is UP\n")
}

/// The name of this machine, without its domain.
pub(super) fn own_host() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_slurms_form() {
        let text = document("head", 2, "/var/lib/hostler", "2026-01-02T03:04:05");
        assert!(text.starts_with("Configuration data as of 2026-01-02T03:04:05\nClusterName             = hostler\n"));
        for line in [
            "MinJobAge               = 300 sec",
            "SLURM_VERSION           = 24.05.8",
            "SlurmctldHost[0]        = head",
            "SelectType              = select/cons_tres",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(text.ends_with("\n\nSlurmctld(primary) at head is UP\n"), "{text}");
    }
}
