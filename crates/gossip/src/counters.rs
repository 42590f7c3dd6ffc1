//! Counters of datagrams and events, for operators and tests.

/// Counters since the agent started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accepted datagrams.
    pub accepted: u64,
    /// Refused datagrams.
    pub refused: Refused,
    /// Beats and loads of nodes that are not members.
    pub about_strangers: u64,
    /// Sent datagrams.
    pub sent: u64,
    /// Sent bytes, with IP and UDP headers.
    pub sent_bytes: u64,
    /// Datagrams that were not sent because the budget was spent.
    pub over_budget: u64,
    /// Members that were declared silent.
    pub expired: u64,
    /// How long this node was suspended, in milliseconds: the delay of its rounds.
    pub away_ms: u64,
}

/// Refused datagrams, by the first failed check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Wrong length, wrong protocol version, or unreadable despite a valid tag.
    pub malformed: u64,
    /// The sender is not a member or is this node itself, or this node is not a member.
    pub stranger: u64,
    /// The source address is not the sender's.
    pub wrong_address: u64,
    /// Tagged with another key, for another node, or modified.
    pub wrong_tag: u64,
    /// A repeated datagram.
    pub repeated: u64,
    /// From an earlier incarnation of the sender, or too old for the replay window.
    pub too_late: u64,
}

impl Refused {
    /// The sum.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.malformed + self.stranger + self.wrong_address + self.wrong_tag + self.repeated + self.too_late
    }
}
