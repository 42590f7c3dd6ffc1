//! Waiting for conditions, never for durations.

use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Looks at `condition` until it has a value.
///
/// # Panics
/// When it has none within `seconds`; `what` says what was waited for.
pub fn wait_until<T>(what: &str, seconds: u64, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {seconds} s");
        std::thread::sleep(LOOK_AGAIN);
    }
}
