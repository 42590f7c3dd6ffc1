//! The cluster's clock, for decisions, and the wall clock, for display.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A time on the cluster's clock, in milliseconds. The clock starts at zero when the cluster is created, stops while no
/// head runs, and never goes backwards. All deadlines and reservations use it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// A time after all others, e.g. for the end of a job without a time limit.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns this time plus `ms` milliseconds; saturates at [`Timestamp::NEVER`].
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to this time, zero when `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A time on the head's wall clock, in milliseconds since the Unix epoch. Only for display, for the begin times of
/// jobs and for the ends of join codes, since the clock may jump.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct WallTime(pub i64);

impl WallTime {
    /// Returns the milliseconds from `earlier` to this time, zero when `earlier` is later.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// A time that a client requests: milliseconds since the Unix epoch, or `in_ms`. A client's clock may be wrong, so the client sends
/// a duration as such, and the head adds its own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected milliseconds since the Unix epoch, or an object with `in_ms`")]
pub enum RequestedTime {
    /// A time in milliseconds since the Unix epoch.
    At(WallTime),
    /// A duration from now.
    In {
        /// Milliseconds from the time at which the head receives the request.
        in_ms: u64,
    },
}

impl RequestedTime {
    /// Returns the time, for a request that the head has received at `now`.
    #[must_use]
    pub const fn at(self, now: WallTime) -> WallTime {
        match self {
            Self::At(at) => at,
            Self::In { in_ms } => WallTime(now.0.saturating_add_unsigned(in_ms)),
        }
    }
}
