//! Faults of a host's link to the switch.

use super::host::Host;

/// Table of packet rules that simulate a bad link.
const TABLE: &str = "inet bad_link";

impl Host {
    /// Drops all packets in both directions without error messages. Connections stay open.
    pub fn cut(&self) {
        self.lossy(100);
    }

    /// Drops this percentage of packets, in both directions.
    pub fn lossy(&self, percent: u32) {
        let lot = if percent < 100 { format!("numgen random mod 100 < {percent}") } else { String::new() };
        let rule = |way: &str, device: &str| {
            format!("chain {way} {{ type filter hook {way} priority 0; {device} lo accept; {lot} drop; }}\n")
        };
        let (input, output) = (rule("input", "iif"), rule("output", "oif"));
        self.rules(&format!("table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{input}{output}}}"));
    }

    /// Stops dropping packets. The link's speed stays as it is.
    pub fn heal(&self) {
        self.rules(&format!("table {TABLE}\ndelete table {TABLE}"));
    }

    fn rules(&self, rules: &str) {
        self.shell(&format!("nft -f - <<'END'\n{rules}\nEND"));
    }

    /// Sets the host's link down, which the host notices.
    pub fn unplug(&self) {
        self.at_switch(&format!("ip link set {} down", self.port()));
    }

    /// Sets the host's link up.
    pub fn plug(&self) {
        self.at_switch(&format!("ip link set {} up", self.port()));
    }

    /// Limits the link to this number of megabits per second, in each direction.
    pub fn slow(&self, megabits: u32) {
        let limit = |device: &str| {
            format!("tc qdisc replace dev {device} root tbf rate {megabits}mbit burst 64k latency 200ms")
        };
        self.shell(&limit("eth0"));
        self.at_switch(&limit(self.port()));
    }
}
