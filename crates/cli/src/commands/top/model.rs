//! The state of `hostler top`, and how events change it. Pure: keys and answers of the head go in, requests come out.

use hostler_client::JobFilter;
use hostler_model::{JobId, JobState, NodeName, Role, TaskId, WallTime};
use hostler_proto::api::{Info, JobAction, JobDetail, JobOrder, JobSummary, NodeView, Why};
use hostler_proto::link::Output;
use hostler_proto::users::Me;

use super::filter::Filter;
use super::lists::{JobColumn, List, NodeColumn, Sort};
use super::tail::Tail;

/// Maximum number of jobs that have not ended, in the queue. More are found with a filter at the head.
const LIVE_JOBS: u32 = 500;

/// Maximum number of ended jobs in the queue.
const ENDED_JOBS: u32 = 100;

/// Maximum length of a filter.
const FILTER_LEN: usize = 200;

/// A key, as far as the program knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Back,
    Erase,
    Tab,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-L.
    Redraw,
    /// Ctrl-Z.
    Suspend,
}

/// Something that happened.
#[derive(Debug)]
pub(super) enum Event {
    Key(Key),
    /// Who uses the program.
    Who(Me),
    /// The head has answered at this time.
    Picture(Box<Picture>, WallTime),
    /// The head does not answer, for this reason.
    Away(String),
    /// More output of a task.
    Output(TaskId, Output, Vec<u8>),
    /// The output of a task starts again, with a new attempt.
    OutputAgain(TaskId, Output),
    /// An action has succeeded or failed.
    Acted(Result<String, String>),
}

/// What the shell must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Act(Action),
    Redraw,
    Suspend,
    Quit,
}

/// An action that changes something at the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Job(JobId, JobAction),
    Drain(NodeName),
    Resume(NodeName),
}

/// What the screen shows, and the head must be asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Want {
    /// One list of jobs for each filter.
    pub(super) jobs: Vec<JobFilter>,
    pub(super) nodes: bool,
    pub(super) job: Option<JobId>,
    pub(super) output: Option<(TaskId, Output)>,
}

/// Answers of the head to a [`Want`].
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) info: Option<Info>,
    pub(super) jobs: Option<(Vec<JobSummary>, u64)>,
    pub(super) nodes: Option<Vec<NodeView>>,
    pub(super) job: Option<(JobDetail, Why)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    Queue,
    Nodes,
    Job(JobId),
}

/// A question before an action. Only `y` confirms.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) text: String,
    pub(super) action: Action,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) detail: Option<(JobDetail, Why)>,
    /// Index of the task whose output is shown; chosen when the job is known.
    pub(super) task: Option<u32>,
    pub(super) output: Output,
    pub(super) tail: Tail,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) screen: Screen,
    pub(super) read_only: bool,
    pub(super) me: Option<Me>,
    pub(super) info: Option<Info>,
    /// Time of the last answer, by the head's clock.
    pub(super) as_of: Option<WallTime>,
    /// Why the head does not answer.
    pub(super) away: Option<String>,
    pub(super) is_everyone: bool,
    pub(super) shows_ended: bool,
    pub(super) jobs: List<JobSummary, JobId, JobColumn>,
    /// The number of jobs that match at the head.
    pub(super) jobs_total: u64,
    pub(super) nodes: List<NodeView, NodeName, NodeColumn>,
    pub(super) job: Job,
    /// The filter while it is typed.
    pub(super) typing: Option<String>,
    pub(super) question: Option<Question>,
    pub(super) shows_help: bool,
    /// The outcome of the last action, or a refusal of the last key.
    pub(super) message: Option<Result<String, String>>,
    /// Rows of the list or of the output on the screen.
    pub(super) page: usize,
}

impl State {
    pub(super) fn new(read_only: bool) -> Self {
        Self {
            screen: Screen::Queue,
            read_only,
            me: None,
            info: None,
            as_of: None,
            away: None,
            is_everyone: false,
            shows_ended: true,
            jobs: List {
                all: Vec::new(),
                is_known: false,
                selected: None,
                sort: Sort::new(JobColumn::State),
                filter: Filter::default(),
            },
            jobs_total: 0,
            nodes: List {
                all: Vec::new(),
                is_known: false,
                selected: None,
                sort: Sort::new(NodeColumn::Name),
                filter: Filter::default(),
            },
            job: Job::none(),
            typing: None,
            question: None,
            shows_help: false,
            message: None,
            page: 20,
        }
    }

    /// What the present screen needs.
    pub(super) fn want(&self) -> Want {
        let mut want = Want::default();
        match self.screen {
            Screen::Queue => want.jobs = self.job_filters(),
            Screen::Nodes => want.nodes = true,
            Screen::Job(id) => {
                want.job = Some(id);
                want.output = self.job.task.map(|index| (TaskId { job: id, index }, self.job.output));
            }
        }
        want
    }

    /// The lists that make up the queue. Nothing before the user is known, unless all jobs are shown.
    fn job_filters(&self) -> Vec<JobFilter> {
        let filter = &self.jobs.filter;
        let user = filter.user.clone().or_else(|| {
            let me = self.me.as_ref().filter(|_| !self.is_everyone)?;
            Some(me.user.clone())
        });
        if user.is_none() && !self.is_everyone {
            return Vec::new();
        }
        let of = |states: Vec<JobState>, limit| JobFilter {
            states,
            user: user.clone(),
            limit: Some(limit),
            ..JobFilter::default()
        };
        if !filter.states.is_empty() {
            return vec![JobFilter { any_task: true, ..of(filter.states.clone(), LIVE_JOBS) }];
        }
        let mut all = vec![JobFilter { order: JobOrder::Queue, ..of(JobState::LIVE.to_vec(), LIVE_JOBS) }];
        all.extend(self.shows_ended.then(|| of(JobState::ENDED.to_vec(), ENDED_JOBS)));
        all
    }

    pub(super) fn is_operator(&self) -> bool {
        self.me.as_ref().is_some_and(|me| me.role >= Role::Operator)
    }

    /// The job that a key acts on.
    fn job_at_hand(&self) -> Option<JobSummary> {
        match self.screen {
            Screen::Queue => {
                let selected = self.jobs.selected?;
                self.jobs.all.iter().find(|job| job.id == selected).cloned()
            }
            Screen::Job(_) => self.job.detail.as_ref().map(|(detail, _)| detail.summary.clone()),
            Screen::Nodes => None,
        }
    }
}

impl Job {
    fn none() -> Self {
        Self { detail: None, task: None, output: Output::Stdout, tail: Tail::default() }
    }
}

/// Changes the state by an event. Returns what the shell must do; the shell also compares [`State::want`].
pub(super) fn update(state: &mut State, event: Event) -> Vec<Effect> {
    match event {
        Event::Key(key) => return press(state, key),
        Event::Who(me) => state.me = Some(me),
        Event::Picture(picture, at) => {
            (state.as_of, state.away) = (Some(at), None);
            show(state, *picture);
        }
        Event::Away(why) => state.away = Some(why),
        Event::Output(task, output, bytes) if is_shown(state, task, output) => state.job.tail.push(&bytes),
        Event::OutputAgain(task, output) if is_shown(state, task, output) => state.job.tail.clear(),
        // The user has left the task.
        Event::Output(..) | Event::OutputAgain(..) => {}
        Event::Acted(outcome) => state.message = Some(outcome),
    }
    Vec::new()
}

fn is_shown(state: &State, task: TaskId, output: Output) -> bool {
    state.want().output == Some((task, output))
}

/// Takes answers of the head over. An answer that the screen no longer needs changes nothing.
fn show(state: &mut State, picture: Picture) {
    let Picture { info, jobs, nodes, job } = picture;
    state.info = info.or(state.info.take());
    if let Some((all, total)) = jobs {
        (state.jobs.all, state.jobs.is_known, state.jobs_total) = (all, true, total);
        state.jobs.selected = kept(state.jobs.selected.take(), &job_ids(state));
    }
    if let Some(all) = nodes {
        (state.nodes.all, state.nodes.is_known) = (all, true);
        state.nodes.selected = kept(state.nodes.selected.take(), &node_names(state));
    }
    if let Some((detail, why)) = job
        && state.screen == Screen::Job(detail.summary.id)
    {
        if state.job.task.is_none() {
            state.job.task = usual_task(&detail);
        }
        state.job.detail = Some((detail, why));
    }
}

/// The selected row if it still exists, else the first row.
fn kept<I: PartialEq + Clone>(selected: Option<I>, rows: &[I]) -> Option<I> {
    selected.filter(|selected| rows.contains(selected)).or_else(|| rows.first().cloned())
}

/// The task whose output is interesting: the first that failed, else one that runs, else the first that has run.
fn usual_task(detail: &JobDetail) -> Option<u32> {
    let tasks = &detail.tasks_shown;
    let is_bad = |state: JobState| state.is_ended() && state != JobState::Completed;
    let of = |is_it: &dyn Fn(JobState) -> bool| tasks.iter().find(|task| is_it(task.state)).map(|task| task.index);
    of(&is_bad)
        .or_else(|| of(&|state| state == JobState::Running))
        .or_else(|| of(&|state| state != JobState::Pending))
        .or(
            // A job that is not an array has one task, with the index 0.
            detail.summary.array.is_none().then_some(0),
        )
}

fn press(state: &mut State, key: Key) -> Vec<Effect> {
    match key {
        Key::Interrupt => return vec![Effect::Quit],
        Key::Suspend => return vec![Effect::Suspend],
        Key::Redraw => return vec![Effect::Redraw],
        _ => {}
    }
    if let Some(question) = state.question.take() {
        // Everything but `y` means no.
        return match key {
            Key::Char('y' | 'Y') => vec![Effect::Act(question.action)],
            _ => Vec::new(),
        };
    }
    if state.shows_help {
        state.shows_help = false;
        return Vec::new();
    }
    if let Some(text) = state.typing.take() {
        type_filter(state, text, key);
        return Vec::new();
    }
    state.message = None;
    match key {
        Key::Char('q') if matches!(state.screen, Screen::Job(_)) => back(state),
        Key::Char('q') => return vec![Effect::Quit],
        Key::Char('?') => state.shows_help = true,
        Key::Char('1') => state.screen = Screen::Queue,
        Key::Char('2') => state.screen = Screen::Nodes,
        Key::Tab => {
            state.screen = if state.screen == Screen::Queue { Screen::Nodes } else { Screen::Queue };
        }
        Key::Back => back(state),
        key => match state.screen {
            Screen::Queue => in_queue(state, key),
            Screen::Nodes => in_nodes(state, key),
            Screen::Job(id) => in_job(state, id, key),
        },
    }
    Vec::new()
}

fn back(state: &mut State) {
    match state.screen {
        Screen::Job(_) => state.screen = Screen::Queue,
        Screen::Queue => state.jobs.filter = Filter::default(),
        Screen::Nodes => state.nodes.filter = Filter::default(),
    }
}

/// A key while a filter is typed. The list follows each key.
fn type_filter(state: &mut State, mut text: String, key: Key) {
    match key {
        Key::Enter => return set_filter(state, &text),
        Key::Back => return set_filter(state, ""),
        Key::Erase => drop(text.pop()),
        Key::Char(c) if text.len() < FILTER_LEN => text.push(c),
        _ => {}
    }
    set_filter(state, &text);
    state.typing = Some(text);
}

fn set_filter(state: &mut State, text: &str) {
    let filter = Filter::parse(text);
    match state.screen {
        Screen::Nodes => {
            state.nodes.filter = filter;
            state.nodes.selected = kept(state.nodes.selected.take(), &node_names(state));
        }
        Screen::Queue | Screen::Job(_) => {
            state.jobs.filter = filter;
            state.jobs.selected = kept(state.jobs.selected.take(), &job_ids(state));
        }
    }
}

fn job_ids(state: &State) -> Vec<JobId> {
    state.jobs.shown().iter().map(|job| job.id).collect()
}

fn node_names(state: &State) -> Vec<NodeName> {
    state.nodes.shown().iter().map(|node| node.name.clone()).collect()
}

fn in_queue(state: &mut State, key: Key) {
    match key {
        Key::Char('/') => state.typing = Some(state.jobs.filter.text.clone()),
        Key::Char('a') => state.is_everyone = !state.is_everyone,
        Key::Char('e') => state.shows_ended = !state.shows_ended,
        Key::Char('s') => state.jobs.sort.next(&JobColumn::ALL),
        Key::Char('S') => state.jobs.sort.reverse(),
        Key::Enter | Key::Char('o' | 'w') => {
            if let Some(id) = state.jobs.selected {
                open(state, id);
            }
        }
        key => match action_of(key) {
            Some(action) => ask(state, action),
            None => state.jobs.selected = moved(state.jobs.selected.take(), &job_ids(state), key, state.page),
        },
    }
}

fn in_nodes(state: &mut State, key: Key) {
    match key {
        Key::Char('/') => state.typing = Some(state.nodes.filter.text.clone()),
        Key::Char('s') => state.nodes.sort.next(&NodeColumn::ALL),
        Key::Char('S') => state.nodes.sort.reverse(),
        Key::Enter => {
            if let Some(name) = state.nodes.selected.clone() {
                state.jobs.filter = Filter::parse(name.as_str());
                (state.screen, state.is_everyone) = (Screen::Queue, true);
            }
        }
        Key::Char('d') => ask_node(state, "Drain", "it gets no new tasks", Action::Drain),
        Key::Char('u') => ask_node(state, "Resume", "it gets tasks again", Action::Resume),
        key => state.nodes.selected = moved(state.nodes.selected.take(), &node_names(state), key, state.page),
    }
}

fn in_job(state: &mut State, id: JobId, key: Key) {
    let page = state.page;
    match key {
        Key::Char('o') => {
            state.job.output = match state.job.output {
                Output::Stdout => Output::Stderr,
                Output::Stderr => Output::Setup,
                Output::Setup => Output::Stdout,
            };
            state.job.tail.clear();
        }
        Key::Char('f') => state.job.tail.follow(),
        Key::Char('[') => step_task(state, false),
        Key::Char(']') => step_task(state, true),
        Key::Up | Key::Char('k') => state.job.tail.scroll_up(1, page),
        Key::Down | Key::Char('j') => state.job.tail.scroll_down(1),
        Key::PageUp | Key::Char('b') => state.job.tail.scroll_up(page, page),
        Key::PageDown | Key::Char(' ') => state.job.tail.scroll_down(page),
        Key::Home | Key::Char('g') => state.job.tail.scroll_up(usize::MAX, page),
        Key::End | Key::Char('G') => state.job.tail.follow(),
        key => {
            if let Some(action) = action_of(key) {
                ask(state, action);
            }
        }
    }
    debug_assert_eq!(state.screen, Screen::Job(id), "keys of a job do not leave it");
}

/// Shows the output of the next or previous task of an array.
fn step_task(state: &mut State, forward: bool) {
    let Some((detail, _)) = &state.job.detail else { return };
    let mut indices: Vec<u32> = detail.tasks_shown.iter().map(|task| task.index).collect();
    indices.sort_unstable();
    let current = state.job.task.unwrap_or(0);
    let next = match forward {
        true => indices.iter().find(|index| **index > current),
        false => indices.iter().rev().find(|index| **index < current),
    };
    if let Some(next) = next {
        state.job.task = Some(*next);
        state.job.tail.clear();
    }
}

fn open(state: &mut State, id: JobId) {
    (state.screen, state.job) = (Screen::Job(id), Job::none());
}

/// The action of a key that means the same in the queue and on a job's page.
fn action_of(key: Key) -> Option<JobAction> {
    match key {
        Key::Char('c') => Some(JobAction::Cancel),
        Key::Char('h') => Some(JobAction::Hold),
        Key::Char('r') => Some(JobAction::Release),
        Key::Char('R') => Some(JobAction::Requeue),
        _ => None,
    }
}

/// Asks before an action on the job at hand.
fn ask(state: &mut State, action: JobAction) {
    let Some(job) = state.job_at_hand() else { return };
    if state.read_only {
        return refuse(state);
    }
    let (verb, effect) = match action {
        JobAction::Cancel => ("Cancel", "running tasks end"),
        JobAction::Hold | JobAction::HoldForOwner => ("Hold", "waiting tasks do not start"),
        JobAction::Release => ("Release", "waiting tasks may start"),
        JobAction::Requeue => ("Requeue", "its tasks run again from the start, except completed ones"),
        JobAction::RequeueHeld { .. } => ("Requeue", "its tasks are held"),
        JobAction::RequeueAll => ("Requeue", "all its tasks run again from the start"),
        JobAction::RequeueDependent => ("Requeue", "it waits for its dependencies again"),
    };
    let what = format!("{verb} job {} of {} ({})? Then {effect}.", job.id, job.user, job.name);
    state.question = Some(Question { text: what, action: Action::Job(job.id, action) });
}

fn ask_node(state: &mut State, verb: &str, effect: &str, action: fn(NodeName) -> Action) {
    let Some(name) = state.nodes.selected.clone() else { return };
    if state.read_only {
        return refuse(state);
    }
    if !state.is_operator() {
        state.message = Some(Err("only operators may drain and resume nodes".to_owned()));
        return;
    }
    state.question = Some(Question { text: format!("{verb} node {name}? Then {effect}."), action: action(name) });
}

fn refuse(state: &mut State) {
    state.message = Some(Err("started with --read-only: nothing can be changed here".to_owned()));
}

/// The selected row after a key that moves it.
fn moved<I: PartialEq + Clone>(selected: Option<I>, rows: &[I], key: Key, page: usize) -> Option<I> {
    let last = rows.len().checked_sub(1)?;
    let at = selected.and_then(|selected| rows.iter().position(|row| *row == selected)).unwrap_or(0);
    let to = match key {
        Key::Up | Key::Char('k') => at.saturating_sub(1),
        Key::Down | Key::Char('j') => (at + 1).min(last),
        Key::PageUp | Key::Char('b') => at.saturating_sub(page),
        Key::PageDown | Key::Char(' ') => (at + page).min(last),
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => last,
        _ => at,
    };
    rows.get(to).cloned()
}
