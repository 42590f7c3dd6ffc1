//! Refusals of commands.

use hostler_remote::{Refusal, RefusalKind};

/// A refusal after which another node may be tried.
pub(super) fn unsuitable(code: u8, message: impl Into<String>) -> Refusal {
    Refusal { kind: RefusalKind::Unsuitable, code, message: message.into(), hints: Vec::new(), lacks_directory: false }
}
