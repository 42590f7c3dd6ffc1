//! The interface of all drivers for power controllers.

use futures_util::future::BoxFuture;
use hostler_model::Supply;

use crate::Fault;

/// How to switch a machine off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Off {
    /// Requests a shutdown from the operating system, which may take a while or ignore the request.
    Gracefully,
    /// Cuts the power.
    ByForce,
}

/// A driver for one kind of controller. Each call is a single attempt: [`Controller`](crate::Controller) adds timeouts,
/// pauses, and the check of the current state before a verb.
///
/// A call may be cancelled by dropping it. Requests that were sent stay in effect.
pub trait Driver: Send + Sync {
    /// Reads the power state.
    ///
    /// # Errors
    /// The controller does not report a state, or reports a state other than on and off.
    fn status(&self) -> BoxFuture<'_, Result<Supply, Fault>>;

    /// Switches the machine on. The caller has just confirmed that it is off. Returns when the controller has accepted
    /// the request, not when the machine is on.
    ///
    /// # Errors
    /// The controller did not accept the request, or it is unknown whether it did.
    fn on(&self) -> BoxFuture<'_, Result<(), Fault>>;

    /// Switches the machine off in the given way only. The caller has just confirmed that it is on.
    ///
    /// # Errors
    /// Like [`Self::on`]; [`Unsupported`](crate::FaultKind::Unsupported) if the controller does not support this way.
    fn off(&self, how: Off) -> BoxFuture<'_, Result<(), Fault>>;

    /// The current power draw in watts. `None` if the controller cannot measure it.
    ///
    /// # Errors
    /// The controller does not respond.
    fn watts(&self) -> BoxFuture<'_, Result<Option<f64>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    /// Releases resources at the controller, such as a session. Later calls acquire them again.
    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
