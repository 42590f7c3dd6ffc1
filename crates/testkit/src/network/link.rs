//! What can befall a host's link to the switch.

use super::host::Host;

/// The table of packet rules that stands for a bad link.
const TABLE: &str = "inet bad_link";

impl Host {
    /// Loses every packet, both ways, without a word to either side. Connections stay open and silent.
    pub fn cut(&self) {
        self.lossy(100);
    }

    /// Loses this percentage of packets, both ways.
    pub fn lossy(&self, percent: u32) {
        let lot = if percent < 100 { format!("numgen random mod 100 < {percent}") } else { String::new() };
        let rule = |way: &str, device: &str| {
            format!("chain {way} {{ type filter hook {way} priority 0; {device} lo accept; {lot} drop; }}\n")
        };
        let (input, output) = (rule("input", "iif"), rule("output", "oif"));
        self.rules(&format!("table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{input}{output}}}"));
    }

    /// Lets every packet through again. The link's speed stays as it is.
    pub fn heal(&self) {
        self.rules(&format!("table {TABLE}\ndelete table {TABLE}"));
    }

    fn rules(&self, rules: &str) {
        self.shell(&format!("nft -f - <<'END'\n{rules}\nEND"));
    }

    /// Pulls the plug: the host itself sees that its link is down.
    pub fn unplug(&self) {
        self.at_switch(&format!("ip link set {} down", self.port()));
    }

    /// Puts the plug back.
    pub fn plug(&self) {
        self.at_switch(&format!("ip link set {} up", self.port()));
    }

    /// Lets at most this many megabits a second through, each way.
    pub fn slow(&self, megabits: u32) {
        let limit = |device: &str| {
            format!("tc qdisc replace dev {device} root tbf rate {megabits}mbit burst 64k latency 200ms")
        };
        self.shell(&limit("eth0"));
        self.at_switch(&limit(self.port()));
    }
}
