//! What came, what went and what was refused: for operators, and for tests.

/// Counts since the agent began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were believed.
    pub accepted: u64,
    /// Datagrams that were not.
    pub refused: Refused,
    /// Beats and loads about nodes that are no members.
    pub about_strangers: u64,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Bytes that were sent, with the headers of IP and UDP.
    pub sent_bytes: u64,
    /// Datagrams that were not sent since the budget of that second was spent.
    pub over_budget: u64,
    /// Members that were let go after their silence.
    pub expired: u64,
    /// For how long this node has been away itself, in milliseconds: what its rounds were late by.
    pub away_ms: u64,
}

/// Datagrams that were not believed, by the first reason that was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Too short, too long, another protocol version, or, with a right tag, not readable.
    pub malformed: u64,
    /// The sender is no member, or this node itself, or this node is no member.
    pub stranger: u64,
    /// The sender has another address.
    pub wrong_address: u64,
    /// Made with another key, for another node, or changed on the way.
    pub wrong_tag: u64,
    /// It has come before.
    pub repeated: u64,
    /// It is from an earlier life of the sender, or later than the replay window reaches.
    pub too_late: u64,
}

impl Refused {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.malformed + self.stranger + self.wrong_address + self.wrong_tag + self.repeated + self.too_late
    }
}
