//! Asking someone who may never answer.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

/// A question that is being answered on a thread of its own.
///
/// A thread that hangs in a driver cannot be ended: it is left behind, and so is what it holds.
pub(crate) struct Asked<T> {
    answer: Receiver<T>,
}

impl<T: Send + 'static> Asked<T> {
    /// Asks. When no thread can be had, the answer never comes.
    pub(crate) fn new(question: impl FnOnce() -> T + Send + 'static) -> Self {
        // There is one answer, so giving it never blocks.
        let (give, answer) = sync_channel(1);
        let thread = thread::Builder::new().name("discovery".to_owned());
        thread.spawn(move || give.send(question())).ok();
        Self { answer }
    }

    /// The answer, unless it takes until `deadline`; `None` too when whoever answers has panicked.
    pub(crate) fn by(&self, deadline: Instant) -> Option<T> {
        self.answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }
}
