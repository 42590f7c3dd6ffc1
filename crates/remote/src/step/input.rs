//! This process's standard input, for one or several processes of a step.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::sys::signal::{SigSet, Signal};
use tokio::sync::mpsc;

use crate::follow::{is_at_end, read_piece, standard};

/// Pieces that one process has not taken yet. A slow process delays the others by no more than this.
const AHEAD: usize = 4;

/// The standard input as one process of a step gets it.
#[derive(Debug)]
pub struct Pieces(mpsc::Receiver<Arc<[u8]>>);

impl Pieces {
    /// Returns the next piece; `None` at the end of the input.
    pub(super) async fn next(&mut self) -> Option<Arc<[u8]>> {
        self.0.recv().await
    }
}

/// Reads this process's standard input for `readers` processes, each of which gets all of it.
///
/// A thread reads, because a file or a terminal may block. It reads nothing until a process takes its pieces, and ends
/// with the last of them.
#[must_use]
pub fn standard_input(readers: usize) -> Vec<Pieces> {
    let (senders, pieces): (Vec<_>, Vec<_>) = (0..readers).map(|_| mpsc::channel(AHEAD)).unzip();
    if readers > 0 && !is_at_end(standard(0)) {
        std::thread::spawn(move || read(senders));
    }
    pieces.into_iter().map(Pieces).collect()
}

fn read(mut senders: Vec<mpsc::Sender<Arc<[u8]>>>) {
    // A read from a terminal in the background must fail instead of stopping this process.
    let mut readers = SigSet::empty();
    readers.add(Signal::SIGTTIN);
    let _ = readers.thread_block();
    let is_over = AtomicBool::new(false);
    while let Some(piece) = read_piece(&is_over) {
        let piece: Arc<[u8]> = piece.into();
        senders.retain(|sender| sender.blocking_send(Arc::clone(&piece)).is_ok());
        if senders.is_empty() {
            return;
        }
    }
}
