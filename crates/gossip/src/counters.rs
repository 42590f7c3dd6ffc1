//! Counters of datagrams and events, for operators and tests.

/// Counters since the agent started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were accepted.
    pub accepted: u64,
    /// Datagrams that were refused, by reason.
    pub refused: Refused,
    /// Heartbeats and loads about nodes that are not members.
    pub about_strangers: u64,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Bytes that were sent, with IP and UDP headers.
    pub sent_bytes: u64,
    /// Datagrams that were not sent because the budget was used up.
    pub over_budget: u64,
    /// How often a member was declared silent.
    pub expired: u64,
    /// How long this node was suspended, in milliseconds, measured by the delay of its rounds.
    pub away_ms: u64,
}

/// Numbers of refused datagrams, by the first check that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// The datagram has the wrong length or protocol version, or cannot be decoded despite a valid tag.
    pub malformed: u64,
    /// The sender is not a member or is this node itself, or this node is not a member.
    pub stranger: u64,
    /// The source address is not the member's address.
    pub wrong_address: u64,
    /// The tag is invalid: it was made with another key or for another node, or the datagram was modified.
    pub wrong_tag: u64,
    /// The datagram has arrived before.
    pub repeated: u64,
    /// The datagram belongs to an earlier incarnation of the sender, or is too old for the replay window.
    pub too_late: u64,
}

impl Refused {
    /// Returns the number of all refused datagrams.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.malformed + self.stranger + self.wrong_address + self.wrong_tag + self.repeated + self.too_late
    }
}
