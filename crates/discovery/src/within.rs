//! Calls with a timeout that may never return.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

/// A call that runs on a thread of its own.
///
/// A thread that hangs in a driver cannot be stopped. The caller then abandons the thread together with its resources.
pub(crate) struct TimedCall<T> {
    answer: Receiver<T>,
}

impl<T: Send + 'static> TimedCall<T> {
    /// Starts the call. If no thread can be created, the result never arrives.
    pub(crate) fn new(question: impl FnOnce() -> T + Send + 'static) -> Self {
        // The channel holds the only result, so sending never blocks.
        let (give, answer) = sync_channel(1);
        let thread = thread::Builder::new().name("discovery".to_owned());
        thread.spawn(move || give.send(question())).ok();
        Self { answer }
    }

    /// The result; `None` if the call does not return before `deadline`, or panics.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<T> {
        self.answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }
}
