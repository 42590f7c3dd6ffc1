//! Why a delivery failed, and what follows. The texts name no address, because users see them.

use std::time::Duration;

/// A failed delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) scope: Scope,
    pub(super) text: String,
    /// The delay that the receiver asks for.
    pub(super) retry_after: Option<Duration>,
}

/// What a failure concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The destination: other messages would fail too.
    Destination,
    /// Only this message. A later attempt may succeed.
    Message,
    /// Only this message, and every later attempt would fail.
    Permanent,
    /// The destination, for good.
    Gone,
}

impl Fault {
    pub(super) fn new(scope: Scope, text: impl Into<String>) -> Self {
        Self { scope, text: text.into(), retry_after: None }
    }

    /// The one error for a name that does not exist, an address that is not allowed, and a server that refuses the
    /// connection. Different errors would let users explore the network.
    pub(super) fn unreachable() -> Self {
        Self::new(Scope::Destination, "cannot connect to the receiver")
    }

    pub(super) fn timeout(limit: Duration) -> Self {
        Self::new(Scope::Destination, format!("the receiver did not answer within {} s", limit.as_secs_f32()))
    }
}
