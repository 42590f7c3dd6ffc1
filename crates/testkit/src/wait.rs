//! Waits for conditions instead of fixed times.

use std::time::{Duration, Instant};

/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls `condition` until it returns a value.
///
/// # Panics
/// If `condition` returns `None` for `seconds`. The message contains `what`, e.g. `the head to listen`.
pub fn wait_until<T>(what: &str, seconds: u64, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {seconds} s for {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
