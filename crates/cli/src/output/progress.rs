//! Progress bars, on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, or nothing when nobody watches. Dropping it clears it.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    pub(crate) fn shown(label: &str, total_bytes: u64) -> Self {
        let style =
            ProgressStyle::with_template("{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}")
                .expect("the template is valid");
        let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(label.to_owned());
        Self { bar }
    }

    /// So much is done now, of so much.
    pub(crate) fn at(&self, done_bytes: u64, total_bytes: u64) {
        self.bar.set_length(total_bytes);
        self.bar.set_position(done_bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
