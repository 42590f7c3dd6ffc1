//! Remarks about facts that are unknown, assumed or left out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A remark about the detection of a [`Machine`](crate::Machine).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The affected resource.
    pub about: Topic,
    /// One sentence without a full stop.
    pub text: String,
}

/// The resource that a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    Cpus,
    Memory,
    Gpus,
}

impl Note {
    pub(crate) fn new(about: Topic, text: impl Into<String>) -> Self {
        Self { about, text: text.into() }
    }
}

impl Topic {
    /// The name for display and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Memory => "memory",
            Self::Gpus => "gpus",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.about.as_str(), self.text)
    }
}
