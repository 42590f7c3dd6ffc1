//! A bar that shows what holds the CPUs of a node.

use askama::Template;
use askama::filters::HtmlSafe;
use hostler_proto::api::NodeRunView;

use crate::url::Url;

/// Number of tasks that are named beside the bar. The node's page lists all.
const NAMED: usize = 4;

/// Maximum number of pieces of the bar. Tasks beyond are drawn as one piece.
const MOST_PIECES: usize = 48;

/// Number of colours in the style sheet.
const COLOURS: u64 = 6;

/// What holds the CPUs of a node, as a bar with text beside it.
#[derive(Debug, Clone, Template)]
#[template(path = "parts/held.html")]
pub(crate) struct Held {
    /// The bar in words.
    label: String,
    summary: String,
    pieces: Vec<Piece>,
    holders: Vec<Holder>,
    /// Number of tasks that are not named.
    more: usize,
}

impl HtmlSafe for Held {}

/// The CPUs of one task, in per cent of the bar.
#[derive(Debug, Clone, PartialEq)]
struct Piece {
    from: f64,
    width: f64,
    colour: u64,
}

#[derive(Debug, Clone)]
struct Holder {
    url: Url,
    label: String,
    cpus: u32,
    colour: u64,
}

impl Held {
    /// The bar of a node with this name and number of CPUs.
    pub(crate) fn new(node: &str, cpus: u32, free: u32, runs: &[NodeRunView]) -> Self {
        let named = runs.iter().take(NAMED).map(|run| Holder {
            url: Url::job(run.job),
            label: format!("{} {}", run.user, task(run)),
            cpus: run.cpus,
            colour: colour(run),
        });
        let summary = match (cpus, free) {
            (0, _) => "no CPUs".to_owned(),
            (_, 0) => format!("all {cpus} held"),
            (_, free) => format!("{free} of {cpus} free"),
        };
        let words: Vec<String> =
            runs.iter().take(NAMED).map(|run| format!("{} of {} {}", task(run), run.user, run.cpus)).collect();
        let more = runs.len().saturating_sub(NAMED);
        let and_more = if more > 0 { format!(", {more} more tasks") } else { String::new() };
        let held = if words.is_empty() { String::new() } else { format!("; {}{and_more}", words.join(", ")) };
        Self {
            label: format!("CPUs of {node}: {summary}{held}"),
            summary,
            pieces: pieces(cpus, runs),
            holders: named.collect(),
            more,
        }
    }
}

/// The name of a job with its index if it has one, e.g. `train (12_3)`.
fn task(run: &NodeRunView) -> String {
    match run.index {
        0 => format!("{} ({})", run.name, run.job),
        index => format!("{} ({}_{index})", run.name, run.job),
    }
}

/// Tasks of a job have the same colour.
const fn colour(run: &NodeRunView) -> u64 {
    run.job.0 % COLOURS
}

fn pieces(cpus: u32, runs: &[NodeRunView]) -> Vec<Piece> {
    // A node that returned may have fewer CPUs than its tasks hold.
    let held: u32 = runs.iter().map(|run| run.cpus).sum();
    let share = |cpus_before: u32| percent(cpus_before, cpus.max(held).max(1));
    let mut pieces: Vec<Piece> = Vec::new();
    let mut before = 0;
    for run in runs {
        let from = share(before);
        before += run.cpus;
        let colour = colour(run);
        let is_full = pieces.len() == MOST_PIECES;
        match pieces.last_mut() {
            Some(last) if last.colour == colour || is_full => last.width = share(before) - last.from,
            _ => pieces.push(Piece { from, width: share(before) - from, colour }),
        }
    }
    pieces
}

fn percent(part: u32, of: u32) -> f64 {
    (f64::from(part) * 10_000.0 / f64::from(of)).round() / 100.0
}

#[cfg(test)]
mod tests {
    use hostler_model::{Counted, JobId, JobState};

    use super::*;

    fn run(job: u64, index: u32, cpus: u32) -> NodeRunView {
        NodeRunView {
            job: JobId(job),
            index,
            name: "<b>train".to_owned(),
            user: "ada".to_owned(),
            state: JobState::Running,
            started_at: None,
            cpus,
            cpu_ids: String::new(),
            memory_bytes: 0,
            gpu_ids: Vec::new(),
            counted: Counted::NONE,
        }
    }

    #[test]
    fn bar_says_in_words_what_it_shows() {
        let html = Held::new("n1", 8, 2, &[run(7, 0, 2), run(8, 3, 4)]).render().expect("templates write to memory");
        assert!(html.contains("2 of 8 free; &#60;b&#62;train (7) of ada 2, &#60;b&#62;train (8_3) of ada 4"), "{html}");
        assert!(html.contains("x=\"25\" width=\"50\"") && html.contains("href=\"/jobs/8\"") && !html.contains("<b>"));
    }

    #[test]
    fn many_tasks_make_a_bounded_bar() {
        let runs: Vec<NodeRunView> = (0..500).map(|job| run(job, 0, 1)).collect();
        let held = Held::new("n1", 256, 0, &runs);
        assert_eq!((held.pieces.len(), held.holders.len(), held.more), (MOST_PIECES, NAMED, 496));
        let end = held.pieces.last().map(|piece| piece.from + piece.width).expect("pieces");
        assert!((end - 100.0).abs() < 0.1, "{end}");
        assert_eq!(pieces(4, &[run(6, 0, 1), run(6, 1, 1)]), [Piece { from: 0.0, width: 50.0, colour: 0 }]);
    }
}
