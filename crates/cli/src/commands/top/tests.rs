//! Keys and answers in, screens and requests out. Screens are golden text in `snapshots`.

use hostler_model::{Attempt, Counted, JobId, JobState, Labels, NodeState, Role, WallTime};
use hostler_proto::api::{Amount, HeadInfo, JobDetail, NodeCounts, TaskCounts, TaskView, Why};
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::model::*;
use super::view::{Palette, draw};
use crate::output::text::Moment;
use hostler_proto::api::{Capacity, Info, JobAction, JobSummary, LiveCounts, NodeView};
use hostler_proto::link::Output;
use hostler_proto::users::Me;

/// 2026-03-01 12:00:00 UTC.
const NOW: WallTime = WallTime(1_772_366_400_000);

const MINUTE: i64 = 60_000;

fn moment() -> Moment {
    Moment { now: NOW, zone: TimeZone::UTC }
}

fn ago(minutes: i64) -> Option<WallTime> {
    Some(WallTime(NOW.0 - minutes * MINUTE))
}

fn job(id: u64, name: &str, state: JobState) -> JobSummary {
    JobSummary {
        id: JobId(id),
        name: name.to_owned(),
        user: "ada".to_owned(),
        state,
        reason: None,
        expected_start_at: None,
        message: None,
        node_problem: None,
        attempt: Attempt(1),
        nodes: Vec::new(),
        exit_code: None,
        command: None,
        partition: None,
        node_count: 1,
        cpus: 4,
        memory_bytes: 8 << 30,
        gpus: 0,
        counted: Counted::default(),
        priority: 0,
        time_limit_ms: None,
        array: None,
        labels: Labels::new(),
        tasks: TaskCounts::new([(state, 1)]),
        submitted_at: WallTime(NOW.0 - 90 * MINUTE),
        started_at: None,
        ended_at: None,
    }
}

fn jobs() -> Vec<JobSummary> {
    let node = |name: &str| vec![name.parse().expect(name)];
    vec![
        JobSummary {
            started_at: ago(75),
            time_limit_ms: Some(7_200_000),
            nodes: node("n1"),
            partition: Some("gpu".parse().expect("a name")),
            ..job(12, "train", JobState::Running)
        },
        JobSummary {
            reason: Some("needs 4 CPUs, and no node has that many free".to_owned()),
            expected_start_at: Some(WallTime(NOW.0 + 45 * MINUTE)),
            ..job(13, "evaluate", JobState::Pending)
        },
        JobSummary {
            array: Some("0-9".parse().expect("an array")),
            tasks: TaskCounts::new([(JobState::Pending, 7), (JobState::Running, 1), (JobState::Completed, 2)]),
            started_at: ago(3),
            nodes: node("n2"),
            user: "bob".to_owned(),
            ..job(14, "sweep", JobState::Running)
        },
        JobSummary {
            started_at: ago(60),
            ended_at: ago(58),
            exit_code: Some(3),
            nodes: node("n2"),
            ..job(9, "hostile \u{1b}[2J\u{202e}name\nline", JobState::Failed)
        },
        JobSummary {
            started_at: ago(80),
            ended_at: ago(70),
            exit_code: Some(0),
            nodes: node("n1"),
            ..job(8, "prepare", JobState::Completed)
        },
    ]
}

fn node(name: &str, state: NodeState, cpus_free: u32) -> NodeView {
    NodeView {
        name: name.parse().expect(name),
        state,
        power: "on".to_owned(),
        cpus: 16,
        cpus_free,
        memory_bytes: 64 << 30,
        memory_free_bytes: u64::from(cpus_free) * (4 << 30),
        gpus: 0,
        gpus_free: 0,
        counted: Counted::default(),
        counted_free: Counted::default(),
        tasks: (16 - cpus_free) / 4,
        address: None,
        agent_pid: 7,
        version: "0.1.0".to_owned(),
        advisory: Default::default(),
        shares_cpus: false,
        reason: None,
        partitions: Vec::new(),
        features: Default::default(),
        weight: 0,
        since: ago(130),
        why: None,
        kept_for: None,
        holders: None,
        measured: None,
    }
}

fn info() -> Info {
    Info {
        head: HeadInfo {
            pid: 1,
            version: "0.1.0".to_owned(),
            api: 1,
            epoch: 1,
            embedded: false,
            address: "head:7760".to_owned(),
            authority: None,
            directory: "/x".to_owned(),
            refusing: None,
            results_bytes: None,
            results_cap_bytes: 0,
            warning: None,
            machine: None,
        },
        nodes: NodeCounts { up: 3, down: 1, off: 2, ..NodeCounts::default() },
        pace: None,
        tasks: LiveCounts { pending: 8, starting: 0, running: 2, completing: 0 },
        capacity: Capacity { cpus: Amount { total: 48, free: 40 }, ..Capacity::default() },
    }
}

fn me(role: Role) -> Event {
    Event::Who(Me { user: "ada".to_owned(), uid: 1000, role, identified: true, now: WallTime(0) })
}

fn started() -> State {
    let mut state = State::new(false);
    update(&mut state, me(Role::User));
    let picture = Picture { info: Some(info()), jobs: Some((jobs(), 5)), ..Picture::default() };
    update(&mut state, Event::Picture(Box::new(picture), NOW));
    state
}

fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    keys.chars().flat_map(|c| update(state, Event::Key(if c == '\n' { Key::Enter } else { Key::Char(c) }))).collect()
}

fn detail(id: u64) -> (JobDetail, Why) {
    let summary = jobs().into_iter().find(|job| job.id == JobId(id)).expect("a job of the list");
    let task = TaskView {
        index: 0,
        state: summary.state,
        attempt: Attempt(1),
        node: summary.nodes.first().cloned(),
        gpu_ids: Vec::new(),
        exit_code: summary.exit_code,
        message: None,
        started_at: summary.started_at,
        ended_at: summary.ended_at,
        stages: hostler_proto::api::Stages::default(),
        result: None,
        fetched: false,
        usage: None,
        steps: Vec::new(),
        certificate: None,
        parts: Vec::new(),
    };
    let why = Why {
        id: JobId(id),
        state: summary.state,
        reason: None,
        lines: summary.reason.iter().cloned().collect(),
        expected_start_at: (summary.state == JobState::Pending).then_some(WallTime(NOW.0 + 45 * MINUTE)),
    };
    let detail = JobDetail {
        summary,
        indices: None,
        requeue: false,
        constraint: None,
        after: Vec::new(),
        notify: Vec::new(),
        command: "python train.py --epochs 3".to_owned(),
        snapshot: None,
        directory: None,
        tasks_per_node: 1,
        surroundings: hostler_model::Surroundings::default(),
        held: None,
        allocation: false,
        step_hosts: Vec::new(),
        script: false,
        files: None,
        limits: Vec::new(),
        energy: None,
        terminal: false,
        unfetched: 0,
        kept_until: None,
        tasks_shown: vec![task],
        tasks_next: None,
    };
    (detail, why)
}

fn opened(state: &mut State, id: u64) {
    let picture = Picture { info: Some(info()), job: Some(detail(id)), ..Picture::default() };
    update(state, Event::Picture(Box::new(picture), NOW));
}

/// The screen as text, and whether any cell has a colour.
fn screen_of(state: &mut State, (width, height): (u16, u16), palette: Palette) -> (String, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| draw(state, &moment(), palette, frame)).expect("memory");
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let has_colour = buffer.content().iter().any(|cell| cell.fg != ratatui::style::Color::Reset);
    (text, has_colour)
}

fn screen(state: &mut State) -> String {
    screen_of(state, (80, 24), Palette::Colours).0
}

#[test]
fn screens_have_golden_text() {
    let mut state = started();
    insta::assert_snapshot!("queue", screen(&mut state));
    update(&mut state, Event::Key(Key::Char('a')));
    insta::assert_snapshot!("queue_of_everyone_wide", screen_of(&mut state, (140, 14), Palette::Colours).0);
    press(&mut state, "?");
    insta::assert_snapshot!("help", screen(&mut state));
    press(&mut state, "x2");
    let nodes = vec![
        node("n10", NodeState::Up, 16),
        NodeView { why: Some("switched off".to_owned()), power: "off".to_owned(), ..node("n3", NodeState::Off, 16) },
        node("n2", NodeState::Up, 8),
        NodeView { why: Some("no message from its agent".to_owned()), ..node("n1", NodeState::Down, 4) },
    ];
    update(&mut state, Event::Picture(Box::new(Picture { nodes: Some(nodes), ..Picture::default() }), NOW));
    insta::assert_snapshot!("nodes", screen(&mut state));
    press(&mut state, "1");
    update(&mut state, Event::Key(Key::Enter));
    opened(&mut state, 14);
    update(&mut state, Event::Key(Key::Back));
    state.jobs.selected = Some(JobId(12));
    press(&mut state, "\n");
    opened(&mut state, 12);
    let task = state.want().output.expect("a task runs").0;
    let output = b"epoch 1\rloss 0.5\n\x1b[32mepoch 2\x1b[0m\nevil \x1b]0;title\x07 \xe2\x80\xae end\n".to_vec();
    update(&mut state, Event::Output(task, Output::Stdout, output));
    insta::assert_snapshot!("job", screen(&mut state));
    press(&mut state, "c");
    insta::assert_snapshot!("question", screen(&mut state));
}

#[test]
fn waiting_job_shows_its_reason_and_expected_start() {
    let mut state = started();
    state.jobs.selected = Some(JobId(13));
    press(&mut state, "\n");
    assert_eq!(state.want().job, Some(JobId(13)));
    opened(&mut state, 13);
    let text = screen(&mut state);
    assert!(text.contains("needs 4 CPUs, and no node has that many free"), "{text}");
    assert!(text.contains("2026-03-01 12:45:00 at the latest"), "{text}");
}

#[test]
fn no_screen_contains_control_characters_or_fails_at_any_size() {
    let mut state = started();
    state.is_everyone = true;
    press(&mut state, "/hostile \u{202e}");
    for size in [(1, 1), (39, 24), (80, 7), (40, 8), (80, 24), (300, 100)] {
        for _ in 0..2 {
            let (text, _) = screen_of(&mut state, size, Palette::Colours);
            let is_bad = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
            assert!(!text.contains(is_bad), "{text:?}");
            state.shows_help = !state.shows_help;
        }
    }
    assert!(screen_of(&mut state, (30, 5), Palette::None).0.contains("too small"));
}

#[test]
fn only_y_confirms_an_action() {
    for no in [Key::Enter, Key::Char('n'), Key::Back, Key::Char(' '), Key::Char('c'), Key::Down] {
        let mut state = started();
        state.jobs.selected = Some(JobId(12));
        assert_eq!(press(&mut state, "c"), []);
        assert!(state.question.is_some());
        assert_eq!(update(&mut state, Event::Key(no)), []);
        assert_eq!(state.question, None);
    }
    for (key, action) in
        [("c", JobAction::Cancel), ("h", JobAction::Hold), ("r", JobAction::Release), ("R", JobAction::Requeue)]
    {
        let mut state = started();
        state.jobs.selected = Some(JobId(12));
        assert_eq!(press(&mut state, &format!("{key}y")), [Effect::Act(Action::Job(JobId(12), action))]);
    }
    let mut state = State { read_only: true, ..started() };
    assert_eq!(press(&mut state, "c"), []);
    assert!(state.question.is_none() && screen(&mut state).contains("--read-only"));
}

#[test]
fn wide_screens_show_bars_load_and_jobs() {
    let run = |job: u64, name: &str| {
        serde_json::json!({
            "job": job, "index": 0, "name": name, "user": "ada", "state": "running", "started_at": null, "cpus": 2,
            "cpu_ids": "0-1", "memory_bytes": 1,
        })
    };
    let holders = serde_json::json!([run(12, "train"), run(12, "train"), run(14, "sweep")]);
    let measured = serde_json::json!({ "at": 0, "values": { "load": 3.5 } });
    let used = NodeView {
        holders: Some(serde_json::from_value(holders).expect("tasks")),
        measured: Some(serde_json::from_value(measured).expect("figures")),
        ..node("n1", NodeState::Up, 8)
    };
    let mut state = started();
    press(&mut state, "2");
    let picture = Picture { nodes: Some(vec![used]), ..Picture::default() };
    update(&mut state, Event::Picture(Box::new(picture), NOW));
    let wide = screen_of(&mut state, (200, 20), Palette::Colours).0;
    assert!(
        wide.contains("[|||||     ] 8/16") && wide.contains(" 3.5 ") && wide.contains("12 train, 14 sweep"),
        "{wide}"
    );
    let narrow = screen(&mut state);
    assert!(narrow.contains("8/16") && !narrow.contains('|') && !narrow.contains("LOAD"), "{narrow}");
}

#[test]
fn operators_drain_and_resume_nodes() {
    let nodes = || Picture { nodes: Some(vec![node("n1", NodeState::Up, 16)]), ..Picture::default() };
    let mut state = started();
    press(&mut state, "2");
    update(&mut state, Event::Picture(Box::new(nodes()), NOW));
    assert_eq!(press(&mut state, "d"), []);
    assert!(screen(&mut state).contains("only operators"), "{}", screen(&mut state));
    update(&mut state, me(Role::Operator));
    let name: hostler_model::NodeName = "n1".parse().expect("a name");
    assert_eq!(press(&mut state, "dy"), [Effect::Act(Action::Drain(name.clone()))]);
    assert_eq!(press(&mut state, "uy"), [Effect::Act(Action::Resume(name))]);
}

#[test]
fn lists_start_with_own_jobs_and_filters_reach_the_head() {
    let mut state = started();
    let filters = state.want().jobs;
    assert!(filters.iter().all(|filter| filter.user.as_deref() == Some("ada")) && filters.len() == 2);
    press(&mut state, "a");
    assert!(state.want().jobs.iter().all(|filter| filter.user.is_none()));
    press(&mut state, "ae/user:bob state:failed,timeout tra\n");
    let filters = state.want().jobs;
    assert_eq!(filters[0].user.as_deref(), Some("bob"));
    assert_eq!(filters[0].states, [JobState::Failed, JobState::Timeout]);
    assert_eq!(state.jobs.shown().len(), 1, "only the name of job 12 contains the word");
    update(&mut state, Event::Key(Key::Back));
    assert_eq!(state.jobs.shown().len(), 5);
    let mut nobody = State::new(false);
    assert_eq!(nobody.want().jobs, []);
    press(&mut nobody, "a");
    assert!(!nobody.want().jobs.is_empty());
}

#[test]
fn selection_follows_its_row_and_lists_are_sorted() {
    let mut state = started();
    let ids = |state: &State| state.jobs.shown().iter().map(|job| job.id.0).collect::<Vec<_>>();
    assert_eq!(ids(&state), [14, 12, 13, 9, 8], "running, waiting, ended");
    press(&mut state, "jjj");
    assert_eq!(state.jobs.selected, Some(JobId(9)));
    let fewer = jobs().into_iter().filter(|job| job.id != JobId(12)).collect();
    update(&mut state, Event::Picture(Box::new(Picture { jobs: Some((fewer, 4)), ..Picture::default() }), NOW));
    assert_eq!(state.jobs.selected, Some(JobId(9)), "rows above have changed");
    press(&mut state, "S");
    assert_eq!(ids(&state), [9, 8, 13, 14]);
    press(&mut state, "gs");
    assert_eq!(state.jobs.sort.column.title(), "TIME");
    assert_eq!(press(&mut state, "q"), [Effect::Quit]);
}

#[test]
fn head_that_does_not_answer_leaves_the_last_picture() {
    let mut state = started();
    update(&mut state, Event::Away("cannot reach the head".to_owned()));
    let text = screen(&mut state);
    assert!(text.contains("head away, as of 12:00:00 UTC") && text.contains("train"), "{text}");
    assert!(text.contains("cannot reach the head"), "{text}");
    update(&mut state, Event::Picture(Box::default(), NOW));
    assert!(!screen(&mut state).contains("head away"));
}

#[test]
fn colours_can_be_turned_off() {
    let mut state = started();
    assert!(screen_of(&mut state, (80, 24), Palette::Colours).1);
    assert!(!screen_of(&mut state, (80, 24), Palette::None).1);
}

#[test]
fn output_of_a_task_that_is_no_longer_shown_is_dropped() {
    let mut state = started();
    state.jobs.selected = Some(JobId(12));
    press(&mut state, "\n");
    opened(&mut state, 12);
    let (task, stdout) = state.want().output.expect("a task runs");
    update(&mut state, Event::Output(task, stdout, b"first\n".to_vec()));
    press(&mut state, "o");
    assert_eq!(state.want().output, Some((task, Output::Stderr)));
    update(&mut state, Event::Output(task, stdout, b"late\n".to_vec()));
    assert!(screen(&mut state).contains("no output"));
    update(&mut state, Event::Output(task, Output::Stderr, b"error\n".to_vec()));
    assert!(screen(&mut state).contains("error"));
    update(&mut state, Event::OutputAgain(task, Output::Stderr));
    assert!(screen(&mut state).contains("no output"));
    press(&mut state, "q");
    assert_eq!((state.screen, state.want().output), (Screen::Queue, None));
}
