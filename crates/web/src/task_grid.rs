//! The tasks of an array as a picture: a cell for each, coloured by state, in the order of their indices.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use askama::Template;
use askama::filters::HtmlSafe;
use hostler_model::{IndexSet, JobId, JobState};
use hostler_proto::link::Output;

use crate::pages::output::END;
use crate::parts::{Badge, Tone};
use crate::url::Url;

/// Most tasks in the picture.
pub(crate) const MOST: u64 = 20_000;

/// Most cells that lead to the output of their task: failed tasks first, then those that run, then those that have ended.
const LINKS: usize = 300;

/// Width and height of a cell with its margin.
const CELL: u64 = 10;

#[derive(Template)]
#[template(path = "parts/task-grid.html")]
pub(crate) struct TaskGrid {
    width: u64,
    height: u64,
    /// Each state with tasks.
    states: Vec<States>,
    /// Lines between the cells.
    lines: String,
    links: Vec<Link>,
    /// Says in words what the cells show.
    label: String,
}

impl HtmlSafe for TaskGrid {}

/// The cells of the tasks in a state.
struct States {
    name: String,
    tone: Tone,
    count: u64,
    /// Outline of the cells.
    path: String,
}

/// A cell that leads to the output of its task.
struct Link {
    url: Url,
    title: String,
    x: u64,
    y: u64,
}

impl TaskGrid {
    /// Draws the tasks `all` of an array, which `indices` lists by state. Returns `None` without tasks, and for more than
    /// [`MOST`].
    pub(crate) fn new(id: JobId, all: &IndexSet, indices: &BTreeMap<JobState, IndexSet>) -> Option<Self> {
        let count = all.len();
        if count == 0 || count > MOST {
            return None;
        }
        // Wide pictures of many tasks stay readable, and those of few are not stretched.
        let per_row = [25, 50, 100, 125].into_iter().find(|row| count <= row * 10).unwrap_or(160);
        let at = |index: u32| all.position(index).map(|at| (at % per_row * CELL, at / per_row * CELL));
        let mut links = Vec::new();
        let mut states: Vec<States> = Vec::new();
        let mut by_interest: Vec<(&JobState, &IndexSet)> =
            indices.iter().filter(|(_, tasks)| !tasks.is_empty()).collect();
        by_interest.sort_by_key(|(state, _)| (!state.is_failure(), state.is_ended(), **state));
        for (state, tasks) in by_interest {
            let Badge { text: name, tone } = Badge::job(*state);
            let output = if state.is_failure() { Output::Stderr } else { Output::Stdout };
            let has_output = *state != JobState::Pending;
            let linked = tasks.iter().take(if has_output { LINKS - links.len() } else { 0 });
            links.extend(linked.filter_map(|index| {
                let (x, y) = at(index)?;
                let url = Url::job(id).then("tasks").then(index).then("output").then(output.as_str()).at(END);
                Some(Link { url, title: format!("task {index}: {name}"), x, y })
            }));
            let path = outline(tasks.iter().filter_map(at));
            states.push(States { name, tone, count: tasks.len(), path });
        }
        let (width, height) = (per_row.min(count) * CELL, count.div_ceil(per_row) * CELL);
        let mut lines = String::new();
        (1..=width / CELL)
            .for_each(|at| write!(lines, "M{} 0V{height}", at * CELL).expect("strings accept all writes"));
        (1..=height / CELL)
            .for_each(|at| write!(lines, "M0 {}H{width}", at * CELL).expect("strings accept all writes"));
        let counts: Vec<String> = states.iter().map(|it| format!("{} {}", it.count, it.name)).collect();
        Some(Self { width, height, lines, links, label: format!("Tasks: {}", counts.join(", ")), states })
    }
}

/// The outline of cells; those beside each other in a row are one rectangle.
fn outline(cells: impl Iterator<Item = (u64, u64)>) -> String {
    let mut path = String::new();
    let mut run: Option<(u64, u64, u64)> = None;
    let mut close = |(x, y, width): (u64, u64, u64)| {
        write!(path, "M{x} {y}h{width}v{CELL}h-{width}z").expect("strings accept all writes");
    };
    for (x, y) in cells {
        run = match run {
            Some((start, row, width)) if row == y && start + width == x => Some((start, row, width + CELL)),
            other => {
                other.into_iter().for_each(&mut close);
                Some((x, y, CELL))
            }
        };
    }
    run.into_iter().for_each(close);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> IndexSet {
        text.parse().expect("valid")
    }

    #[test]
    fn cells_of_a_row_are_joined_and_failed_tasks_are_linked_first() {
        let indices = BTreeMap::from([
            (JobState::Completed, set("0-9,11-399")),
            (JobState::Failed, set("10")),
            (JobState::Pending, set("400-499")),
        ]);
        let grid = TaskGrid::new(JobId(7), &set("0-499"), &indices).expect("a picture");
        assert_eq!((grid.width, grid.height), (500, 100));
        assert_eq!((grid.states[0].name.as_str(), grid.states[0].path.as_str()), ("failed", "M100 0h10v10h-10z"));
        assert_eq!(&*grid.links[0].url, "/jobs/7/tasks/10/output/stderr#end");
        assert_eq!(grid.links.len(), LINKS);
        assert!(grid.states[2].path.starts_with("M0 0h100v10h-100zM110 0h390"), "{}", grid.states[2].path);
        assert_eq!(grid.label, "Tasks: 1 failed, 100 pending, 399 completed");
    }

    #[test]
    fn pictures_of_10_000_tasks_stay_small() {
        // The worst case: no two cells beside each other have the same state.
        let every = |first: u32| (first..10_000).step_by(2).collect::<IndexSet>();
        let indices = BTreeMap::from([(JobState::Completed, every(0)), (JobState::Failed, every(1))]);
        let grid = TaskGrid::new(JobId(7), &set("0-9999"), &indices).expect("a picture");
        let html = grid.render().expect("templates write to memory");
        assert!(html.len() < 400_000, "{} bytes", html.len());
        assert!(TaskGrid::new(JobId(7), &set("0-30000"), &indices).is_none());
    }
}
