//! What every controller can be asked, whatever its language.

use futures_util::future::BoxFuture;
use hostler_model::Supply;

use crate::Fault;

/// How to switch a machine off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Off {
    /// Ask its operating system, which may take its time, or not do it.
    Gracefully,
    /// Take its power away.
    ByForce,
}

/// One controller's language. Each call is one try: limits, pauses and the question how things are before a verb are
/// [`Controller`](crate::Controller)'s.
///
/// A call may be dropped at any time; what had been sent by then stays sent.
pub trait Driver: Send + Sync {
    /// How things are.
    ///
    /// # Errors
    /// When the controller does not say, or says something else than on or off.
    fn status(&self) -> BoxFuture<'_, Result<Supply, Fault>>;

    /// Switches it on, which has just been found off. Returns when the controller has accepted that, not when it is done.
    ///
    /// # Errors
    /// When the controller has not accepted it, or it is not known whether it has.
    fn on(&self) -> BoxFuture<'_, Result<(), Fault>>;

    /// Switches it off, which has just been found on, in this way and no other.
    ///
    /// # Errors
    /// As for [`Self::on`]; [`Unsupported`](crate::FaultKind::Unsupported) when it cannot be done in this way.
    fn off(&self, how: Off) -> BoxFuture<'_, Result<(), Fault>>;

    /// What it draws now, in watts; nothing when that cannot be read.
    ///
    /// # Errors
    /// When the controller does not answer.
    fn watts(&self) -> BoxFuture<'_, Result<Option<f64>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    /// Gives back what is held at the controller, such as a session. It is not used afterwards, or begins anew.
    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
