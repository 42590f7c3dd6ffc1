//! Signals of this process that concern a step.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::{During, Failure};

/// Signals that are passed on to a step.
const PASSED_ON: [fn() -> SignalKind; 6] = [
    SignalKind::interrupt,
    SignalKind::terminate,
    SignalKind::hangup,
    SignalKind::quit,
    SignalKind::user_defined1,
    SignalKind::user_defined2,
];

/// Starts to receive the signals of this process, by number.
pub(crate) fn signals() -> Result<mpsc::Receiver<i32>, Failure> {
    receive(&PASSED_ON)
}

/// Like [`signals`], with the signal that the window has another size.
pub(crate) fn with_window_changes() -> Result<mpsc::Receiver<i32>, Failure> {
    receive(&[&PASSED_ON[..], &[SignalKind::window_change]].concat())
}

fn receive(kinds: &[fn() -> SignalKind]) -> Result<mpsc::Receiver<i32>, Failure> {
    let (sender, receiver) = mpsc::channel(16);
    for kind in kinds {
        let kind = *kind;
        let mut stream = signal(kind()).during(|| "cannot handle signals".to_owned())?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                // A full queue drops the signal; the kernel merges repeated signals too.
                let _ = sender.try_send(kind().as_raw_value());
            }
        });
    }
    Ok(receiver)
}
