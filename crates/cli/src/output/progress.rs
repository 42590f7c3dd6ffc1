//! Progress bars on stderr.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::Output;

/// A transfer without data for this long is shown as stalled.
const STALLED: Duration = Duration::from_secs(5);

/// A progress bar, or nothing if stderr is not a terminal. Dropping the value clears the bar.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The last position, and when the position changed.
    moved: Arc<Mutex<(u64, Instant)>>,
}

impl Progress {
    pub(crate) fn hidden() -> Self {
        Self::with(ProgressBar::hidden(), fresh())
    }

    pub(crate) fn shown(label: &str, total_bytes: u64) -> Self {
        let moved = fresh();
        let since = Arc::clone(&moved);
        let rest = move |state: &ProgressState, f: &mut dyn fmt::Write| {
            let (_, at) = *since.lock().unwrap_or_else(PoisonError::into_inner);
            // A failed write only makes the bar invisible.
            let _ = f.write_str(&rest(at.elapsed(), state.eta(), state.pos()));
        };
        let style = ProgressStyle::with_template(
            "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {rest}",
        )
        .expect("the template is valid");
        let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> ").with_key("rest", rest));
        bar.set_message(label.to_owned());
        // Redraw every second to update the stall time.
        bar.enable_steady_tick(Duration::from_secs(1));
        Self::with(bar, moved)
    }

    fn with(bar: ProgressBar, moved: Arc<Mutex<(u64, Instant)>>) -> Self {
        Self { bar, moved }
    }

    /// Sets position and length.
    pub(crate) fn at(&self, done_bytes: u64, total_bytes: u64) {
        {
            let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
            if moved.0 != done_bytes {
                *moved = (done_bytes, Instant::now());
            }
        }
        self.bar.set_length(total_bytes);
        self.bar.set_position(done_bytes);
    }
}

fn fresh() -> Arc<Mutex<(u64, Instant)>> {
    Arc::new(Mutex::new((0, Instant::now())))
}

/// The text after the bar: the remaining time, or how long no data has arrived.
fn rest(silence: Duration, eta: Duration, done_bytes: u64) -> String {
    match silence {
        long if long >= STALLED => format!("no data for {} s", long.as_secs()),
        _ if done_bytes == 0 || eta.is_zero() => String::new(),
        _ => format!("ETA {}", hostler_model::format_duration(Duration::from_secs(eta.as_secs().max(1)))),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The progress bar of the current step of a command, if the step has one.
pub(crate) struct Step<'a> {
    output: &'a Output,
    bar: Mutex<Option<(String, Progress)>>,
}

impl<'a> Step<'a> {
    pub(crate) fn new(output: &'a Output) -> Self {
        Self { output, bar: Mutex::default() }
    }

    /// Shows how far the step with this label is.
    pub(crate) fn at(&self, label: &str, done_bytes: u64, total_bytes: u64) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if bar.as_ref().is_none_or(|(of, _)| *of != label) {
            *bar = Some((label.to_owned(), self.output.progress(label, total_bytes)));
        }
        if let Some((_, bar)) = &*bar {
            bar.at(done_bytes, total_bytes);
        }
    }

    /// Clears the bar.
    pub(crate) fn end(&self) {
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Clears the bar and prints a message.
    pub(crate) fn say(&self, text: &str) {
        self.end();
        self.output.say(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_shows_stall_time_or_remaining_time() {
        let said = |silence, eta, done| rest(Duration::from_secs(silence), Duration::from_secs(eta), done);
        assert_eq!(said(12, 90, 1), "no data for 12 s");
        assert_eq!(said(12, 0, 0), "no data for 12 s");
        assert_eq!(said(1, 90, 1), "ETA 1m30s");
        assert_eq!(said(1, 90, 0), "", "no estimate yet");
    }

    #[test]
    fn bar_records_when_its_position_changed() {
        let progress = Progress::shown("uploading", 10);
        let since = |progress: &Progress| progress.moved.lock().expect("the lock is not poisoned").1;
        let begin = since(&progress);
        progress.at(0, 10);
        assert_eq!(since(&progress), begin, "the position is unchanged");
        progress.at(5, 10);
        assert!(since(&progress) > begin);
    }
}
