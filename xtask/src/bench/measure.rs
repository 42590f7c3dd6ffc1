//! Fair comparisons: contenders take turns, and medians are compared.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::workspace::shown;

/// A named action to measure. Each call returns its own figure.
pub(crate) struct Contender<'a> {
    name: String,
    action: Box<dyn FnMut() -> Result<f64> + 'a>,
}

impl<'a> Contender<'a> {
    /// `action` runs once and returns its figure, in the unit of the comparison.
    pub(crate) fn new(name: impl Into<String>, action: impl FnMut() -> Result<f64> + 'a) -> Self {
        Self { name: name.into(), action: Box::new(action) }
    }

    /// Measures the duration of `command` in milliseconds.
    pub(crate) fn timed(name: impl Into<String>, command: impl Fn() -> Command + 'a) -> Self {
        Self::new(name, move || milliseconds(&mut command()))
    }
}

/// The figures of one contender.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    pub(crate) runs: usize,
}

impl Sample {
    /// # Panics
    /// If there are no figures.
    pub(crate) fn of(name: impl Into<String>, mut figures: Vec<f64>) -> Self {
        assert!(!figures.is_empty(), "a sample has at least one figure");
        figures.sort_by(f64::total_cmp);
        let runs = figures.len();
        let median = f64::midpoint(figures[(runs - 1) / 2], figures[runs / 2]);
        Self { name: name.into(), median, lowest: figures[0], highest: figures[runs - 1], runs }
    }
}

/// Runs every contender once to warm up, and then in `runs` rounds.
///
/// The order rotates with each round, so that no contender always runs after the same other one.
pub(crate) fn interleave(runs: usize, mut contenders: Vec<Contender<'_>>) -> Result<Vec<Sample>> {
    let count = contenders.len();
    let mut figures = vec![Vec::with_capacity(runs); count];
    for round in 0..=runs {
        for turn in 0..count {
            let index = (round + turn) % count;
            let Contender { name, action } = &mut contenders[index];
            let figure = action().with_context(|| format!("{name} failed in round {round}"))?;
            if round > 0 {
                figures[index].push(figure);
            }
        }
    }
    Ok(contenders.into_iter().zip(figures).map(|(contender, figures)| Sample::of(contender.name, figures)).collect())
}

/// Duration of `command` in milliseconds. Discards its output; if it fails, the error contains its stderr.
pub(crate) fn milliseconds(command: &mut Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let output = command.output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    let elapsed = started.elapsed();
    ensure!(
        output.status.success(),
        "`{}` failed ({}): {}",
        shown(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(elapsed.as_secs_f64() * 1e3)
}

/// Number of things per second, if `action` does `count` things.
pub(crate) fn rate(count: usize, action: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    action()?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Runs `action` `count` times on `threads` threads. Returns the first error.
pub(crate) fn spread(count: usize, threads: usize, action: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                action(index)?;
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("actions return their errors"))
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let sample = Sample::of("x", vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((sample.median, sample.lowest, sample.highest, sample.runs), (2.5, 1.0, 4.0, 4));
        assert!((Sample::of("x", vec![7.0]).median - 7.0).abs() < f64::EPSILON);
    }

    #[test]
    fn rounds_rotate_and_the_warm_up_is_not_counted() {
        let order = RefCell::new(String::new());
        let contender = |name: &'static str| {
            let order = &order;
            let mut calls = 0.0;
            Contender::new(name, move || {
                order.borrow_mut().push_str(name);
                calls += 1.0;
                Ok(calls)
            })
        };
        let samples = interleave(2, vec![contender("a"), contender("b")]).expect("nothing fails");
        assert_eq!(order.borrow().as_str(), "abbaab");
        assert!(samples.iter().all(|sample| sample.runs == 2 && sample.lowest > 1.0), "{samples:?}");
    }

    #[test]
    fn spread_runs_each_item_once() {
        let done = std::sync::Mutex::new(vec![0; 100]);
        spread(100, 4, |index| {
            done.lock().expect("no thread panics")[index] += 1;
            Ok(())
        })
        .expect("nothing fails");
        assert!(done.into_inner().expect("no thread panics").iter().all(|times| *times == 1));
    }

    #[test]
    fn error_of_a_failed_command_contains_its_stderr() {
        let error = milliseconds(Command::new("sh").args(["-c", "echo the reason >&2; exit 3"])).expect_err("exit 3");
        assert!(error.to_string().contains("the reason"), "{error}");
    }
}
