//! Draws the state of `hostler top`. Pure: the clock and the palette are arguments.
//!
//! All text of jobs, nodes and outputs goes through [`clean`] or [`super::tail`], so that it cannot control the terminal.

use hostler_model::{JobState, NodeName, NodeState, escaped, plural};
use hostler_proto::api::{JobDetail, Why};
use hostler_proto::link::Output;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState, Wrap};

use super::lists::{JobColumn, NodeColumn, Sort, where_cell};
use super::model::{Screen, State};
use crate::output::text::Moment;
use crate::output::views::usage;

/// Smallest screen that can be used.
const LEAST: (u16, u16) = (40, 8);

/// Rows of facts in the view of a job.
const FACTS: u16 = 9;

/// How the screen may be coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Palette {
    /// The terminal's sixteen colours.
    Colours,
    /// Bold and reversed text only.
    None,
}

impl Palette {
    fn of(self, colour: Color) -> Style {
        match self {
            Self::Colours => Style::new().fg(colour),
            Self::None => Style::new(),
        }
    }

    fn job(self, state: JobState) -> Style {
        match state {
            JobState::Running => self.of(Color::Green),
            JobState::Starting | JobState::Completing => self.of(Color::Cyan),
            JobState::Pending => self.of(Color::Yellow),
            JobState::Completed => Style::new(),
            _ if state.is_failure() => self.of(Color::Red),
            _ => Style::new().add_modifier(Modifier::DIM),
        }
    }

    fn node(self, state: NodeState) -> Style {
        match state {
            NodeState::Up => self.of(Color::Green),
            NodeState::Suspect | NodeState::Waking | NodeState::Stopping => self.of(Color::Yellow),
            NodeState::Down => self.of(Color::Red),
            NodeState::Draining | NodeState::Drained => self.of(Color::Magenta),
            NodeState::Off | NodeState::Removed => Style::new().add_modifier(Modifier::DIM),
        }
    }
}

/// Draws everything, and notes how many rows a page has.
pub(super) fn draw(state: &mut State, moment: &Moment, palette: Palette, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("this window is too small; hostler top needs {} columns and {} rows", LEAST.0, LEAST.1);
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    let [top, counts, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(area);
    frame.render_widget(title(state, moment, palette, top.width), top);
    frame.render_widget(Line::from(summary(state)), counts);
    match state.screen {
        Screen::Queue => queue(state, moment, palette, frame, middle),
        Screen::Nodes => nodes(state, moment, palette, frame, middle),
        Screen::Job(_) => job(state, moment, palette, frame, middle),
    }
    frame.render_widget(foot(state, palette), bottom);
    if state.shows_help {
        window(frame, "Keys (any key closes)", &HELP.join("\n"), middle);
    }
    if let Some(question) = &state.question {
        let text = format!("{}\n\ny: yes    any other key: no (default)", clean(&question.text));
        window(frame, "Confirm", &text, middle);
    }
}

const HELP: [&str; 14] = [
    "1, 2, Tab        queue, nodes",
    "arrows, j, k     move; also Page Up, Page Down, g, G",
    "Enter            open the job; in nodes: jobs of the node",
    "/                filter: words, user:NAME, state:failed,timeout",
    "a                jobs of everyone, or mine",
    "e                show or hide ended jobs",
    "s, S             order by the next column, reverse",
    "c, h, r, R       cancel, hold, release, requeue the job",
    "d, u             drain, resume the node (operators)",
    "o                in a job: stdout, stderr, setup",
    "[, ]             in a job: previous, next task",
    "f                in a job: follow the output",
    "Esc              back; in a list: clear the filter",
    "q, Ctrl-Z        quit (back from a job), suspend",
];

/// The first line: where we are, and how old the picture is.
fn title(state: &State, moment: &Moment, palette: Palette, width: u16) -> Line<'static> {
    let mut left = vec![Span::styled(" hostler top ", Style::new().add_modifier(Modifier::REVERSED)), Span::raw(" ")];
    for (name, is_here) in [
        ("1 Queue", state.screen == Screen::Queue),
        ("2 Nodes", state.screen == Screen::Nodes),
        ("Job", matches!(state.screen, Screen::Job(_))),
    ] {
        if is_here {
            left.push(Span::styled(name, Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)));
        } else if name != "Job" {
            left.push(Span::raw(name));
        }
        left.push(Span::raw("  "));
    }
    if state.read_only {
        left.push(Span::raw("read-only  "));
    }
    let as_of = state.as_of.map(|at| format!("as of {}", moment.clock(at)));
    let right = match (&state.away, as_of) {
        (Some(_), Some(as_of)) => {
            Span::styled(format!("head away, {as_of} "), palette.of(Color::Red).add_modifier(Modifier::BOLD))
        }
        (Some(_), None) => {
            Span::styled("no answer from the head ", palette.of(Color::Red).add_modifier(Modifier::BOLD))
        }
        (None, Some(as_of)) => Span::raw(format!("{as_of} ")),
        (None, None) => Span::raw("asking the head "),
    };
    let mut line = Line::from(left);
    let gap = usize::from(width).saturating_sub(line.width() + right.width());
    line.push_span(Span::raw(" ".repeat(gap)));
    line.push_span(right);
    line
}

/// The second line: the cluster in numbers.
fn summary(state: &State) -> String {
    let Some(info) = &state.info else { return String::new() };
    let (nodes, tasks) = (&info.nodes, &info.tasks);
    let mut parts = vec![format!("nodes: {} up", nodes.up)];
    let others = [
        (nodes.suspect, "silent"),
        (nodes.down, "down"),
        (nodes.draining + nodes.drained, "drained"),
        (nodes.off, "off"),
        (nodes.waking + nodes.stopping, "switching"),
    ];
    parts.extend(others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    let held = |amount: &hostler_proto::api::Amount| amount.total.saturating_sub(amount.free);
    let mut text =
        format!(" {}   tasks: {} running", parts.join(", "), tasks.starting + tasks.running + tasks.completing);
    text.push_str(&format!(
        ", {} waiting   CPUs: {}/{}",
        tasks.pending,
        held(&info.capacity.cpus),
        info.capacity.cpus.total
    ));
    if info.capacity.gpus.total > 0 {
        text.push_str(&format!("   GPUs: {}/{}", held(&info.capacity.gpus), info.capacity.gpus.total));
    }
    if let Some(refusing) = &info.head.refusing {
        text.push_str(&format!("   {}", clean(refusing)));
    }
    text
}

/// The last line: what is typed, what happened, or the main keys.
fn foot(state: &State, palette: Palette) -> Line<'static> {
    if let Some(text) = &state.typing {
        return Line::from(format!("/{}▏  Enter keeps the filter, Esc clears it", clean(text)));
    }
    match (&state.message, &state.away) {
        (Some(Ok(text)), _) => Line::from(clean(text)),
        (Some(Err(text)), _) => Line::styled(clean(text), palette.of(Color::Red).add_modifier(Modifier::BOLD)),
        (None, Some(why)) => Line::from(clean(why)),
        (None, None) => Line::from(match state.screen {
            Screen::Queue => "Enter open  / filter  a everyone  e ended  s sort  c cancel  ? help  q quit",
            Screen::Nodes => "Enter jobs  / filter  s sort  d drain  u resume  ? help  q quit",
            Screen::Job(_) => "o output  f follow  [ ] task  c cancel  h hold  R requeue  ? help  q back",
        }),
    }
}

/// A line above a list: what it contains.
fn caption(what: &str, filter: &str, sort: &str, is_reversed: bool) -> String {
    let filter = if filter.is_empty() { String::new() } else { format!(", filter: {}", clean(filter)) };
    let order = if is_reversed { ", reversed" } else { "" };
    format!(" {what}{filter}, by {}{order}", sort.to_lowercase())
}

fn queue(state: &mut State, moment: &Moment, palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    let [head, body, note] = list_areas(area);
    state.page = usize::from(body.height.saturating_sub(1)).max(1);
    let shown = state.jobs.shown();
    let whose = match (&state.jobs.filter.user, state.is_everyone, &state.me) {
        (Some(user), ..) => format!("jobs of {}", clean(user)),
        (None, true, _) => "jobs of everyone".to_owned(),
        (None, false, Some(me)) => format!("jobs of {}", clean(&me.user)),
        (None, false, None) => "jobs".to_owned(),
    };
    let total = state.jobs_total;
    let loaded = state.jobs.all.len() as u64;
    let count =
        if total > loaded { format!("{} of {total} {whose}", shown.len()) } else { format!("{} {whose}", shown.len()) };
    let Sort { column, is_reversed } = state.jobs.sort;
    let mut text = caption(&count, &state.jobs.filter.text, column.title(), is_reversed);
    if total > loaded {
        text.push_str(" (newest only; use user: or state: to see others)");
    }
    frame.render_widget(Line::styled(text, Style::new().add_modifier(Modifier::DIM)), head);
    let has_users = state.is_everyone || state.jobs.filter.user.is_some();
    let columns = JobColumn::fitting(body.width, has_users, state.jobs.all.iter().any(|job| job.gpus > 0));
    let is_right =
        |column: &JobColumn| matches!(column, JobColumn::Id | JobColumn::Cpus | JobColumn::Memory | JobColumn::Gpus);
    let rows = shown.iter().map(|job| {
        Row::new(columns.iter().map(|column| {
            let text = clean(&column.cell(job, moment));
            let line = if is_right(column) { Line::from(text).right_aligned() } else { Line::from(text) };
            let style = if *column == JobColumn::State { palette.job(job.state) } else { Style::new() };
            Cell::from(line).style(style)
        }))
    });
    let widths = widths(columns.iter().map(|column| column.width(body.width)));
    let titles = columns.iter().map(|column| {
        let line = Line::from(column.title());
        if is_right(column) { line.right_aligned() } else { line }
    });
    let table = Table::new(rows, widths).header(Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD)));
    let selected = state.jobs.selected.and_then(|id| shown.iter().position(|job| job.id == id));
    render(table, selected, frame, body);
    if let Some(job) = selected.map(|at| shown[at]) {
        note_below(frame, note, &job.name, &where_cell(job, moment));
    }
    if shown.is_empty() && state.jobs.is_known {
        empty(frame, body, "no jobs here; a shows jobs of everyone, Esc clears the filter");
    }
}

fn nodes(state: &mut State, moment: &Moment, palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    let [head, body, note] = list_areas(area);
    state.page = usize::from(body.height.saturating_sub(1)).max(1);
    let shown = state.nodes.shown();
    let Sort { column, is_reversed } = state.nodes.sort;
    let what = format!("{} of {}", shown.len(), plural(state.nodes.all.len(), "node"));
    let text = caption(&what, &state.nodes.filter.text, column.title(), is_reversed);
    frame.render_widget(Line::styled(text, Style::new().add_modifier(Modifier::DIM)), head);
    let columns = NodeColumn::fitting(body.width, state.nodes.all.iter().any(|node| node.gpus > 0));
    let rows = shown.iter().map(|node| {
        Row::new(columns.iter().map(|column| {
            let style = if *column == NodeColumn::State { palette.node(node.state) } else { Style::new() };
            Cell::from(clean(&column.cell(node, moment, body.width))).style(style)
        }))
    });
    let titles = Row::new(columns.iter().map(|column| column.title()));
    let table = Table::new(rows, widths(columns.iter().map(|column| column.width(body.width))))
        .header(titles.style(Style::new().add_modifier(Modifier::BOLD)));
    let selected = state.nodes.selected.as_ref().and_then(|name| shown.iter().position(|node| node.name == *name));
    render(table, selected, frame, body);
    if let Some(node) = selected.map(|at| shown[at]) {
        note_below(frame, note, node.name.as_str(), &NodeColumn::Why.cell(node, moment, body.width));
    }
    if shown.is_empty() && state.nodes.is_known {
        empty(frame, body, "no nodes here; Esc clears the filter");
    }
}

/// The caption, the table, and the note about the selected row.
fn list_areas(area: Rect) -> [Rect; 3] {
    Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(area)
}

/// Shows in full what the table may have cut: the name of the selected row, and its reason.
fn note_below(frame: &mut Frame<'_>, area: Rect, name: &str, reason: &str) {
    let text = if reason.is_empty() { clean(name) } else { format!("{}: {}", clean(name), clean(reason)) };
    frame.render_widget(Line::styled(format!(" {text}"), Style::new().add_modifier(Modifier::DIM)), area);
}

/// Fixed widths, of which the last column takes the rest.
fn widths(all: impl ExactSizeIterator<Item = u16>) -> Vec<Constraint> {
    let last = all.len() - 1;
    all.enumerate().map(|(at, width)| if at == last { Constraint::Min(8) } else { Constraint::Length(width) }).collect()
}

fn render(table: Table<'_>, selected: Option<usize>, frame: &mut Frame<'_>, area: Rect) {
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut at = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut at);
}

fn empty(frame: &mut Frame<'_>, area: Rect, text: &'static str) {
    let middle = Rect { y: area.y + area.height / 3, height: 1, ..area };
    frame.render_widget(Line::from(text).centered(), middle);
}

fn job(state: &mut State, moment: &Moment, palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    let facts_height = FACTS.min(area.height / 2);
    let [facts, bar, body] =
        Layout::vertical([Constraint::Length(facts_height), Constraint::Length(1), Constraint::Min(1)]).areas(area);
    state.page = usize::from(body.height).max(1);
    let Some((detail, why)) = &state.job.detail else {
        return frame.render_widget(Line::from(" asking the head"), facts);
    };
    let lines = facts_of(detail, why, moment, palette);
    frame.render_widget(Paragraph::new(lines), facts);
    let what = match state.job.output {
        Output::Stdout => "stdout",
        Output::Stderr => "stderr",
        Output::Setup => "setup",
    };
    let task = match (detail.summary.array.is_some(), state.job.task) {
        (true, Some(index)) => format!(" of task {}_{index}", detail.summary.id),
        _ => String::new(),
    };
    let follows = if state.job.tail.is_following() { "following" } else { "f follows" };
    let text = format!(" ── {what}{task}, {follows} ");
    let rest = usize::from(bar.width).saturating_sub(text.chars().count());
    frame.render_widget(Line::from(format!("{text}{}", "─".repeat(rest))), bar);
    let lines: Vec<Line<'_>> = state.job.tail.screen(state.page).into_iter().map(Line::from).collect();
    if lines.is_empty() {
        let text = if state.job.task.is_none() { "no task has started" } else { "no output" };
        return frame.render_widget(Line::styled(format!(" {text}"), Style::new().add_modifier(Modifier::DIM)), body);
    }
    frame.render_widget(Paragraph::new(lines), body);
}

fn facts_of(detail: &JobDetail, why: &Why, moment: &Moment, palette: Palette) -> Vec<Line<'static>> {
    let job = &detail.summary;
    let mut lines = Vec::new();
    let mut add = |key: &str, value: String| {
        lines.push(Line::from(vec![
            Span::styled(format!(" {key:<10}"), Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(value),
        ]));
    };
    add("job", format!("{}  {}  of {}", job.id, clean(&job.name), clean(&job.user)));
    let code = job.exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"));
    add("state", format!("{}{code}, {}", job.state, JobColumn::Time.cell(job, moment)));
    let message = detail.tasks_shown.iter().find_map(|task| task.message.as_ref());
    if let Some(why) = why.lines.first().filter(|_| job.state == JobState::Pending) {
        add("waits", clean(why));
    } else if let Some(message) = message {
        add("message", clean(message));
    }
    if let Some(at) = why.expected_start_at {
        add("starts", format!("at {} at the latest", clean(&moment.date(at))));
    }
    if job.array.is_some() {
        add("tasks", format!("{} of {}", job.tasks.in_words(JobState::ALL), job.tasks.total));
    }
    let nodes: Vec<&str> = job.nodes.iter().map(NodeName::as_str).collect();
    let partition = job.partition.as_ref().map_or_else(String::new, |partition| format!(", partition {partition}"));
    let on = if nodes.is_empty() { String::new() } else { format!(", on {}", nodes.join(" ")) };
    add("needs", format!("{}{partition}{on}", job.request()));
    if !detail.command.is_empty() {
        add("command", clean(&detail.command));
    }
    add("submitted", moment.date(job.submitted_at));
    if let Some(end) = job.ended_at {
        add("ended", moment.date(end));
    }
    if let Some(used) = detail.tasks_shown.first().and_then(|task| task.usage.as_ref()).filter(|_| job.array.is_none())
    {
        add("used", usage(used));
    }
    if let Some(line) = lines.get_mut(1) {
        line.spans[1].style = palette.job(job.state);
    }
    lines
}

/// A window over the middle of the screen.
fn window(frame: &mut Frame<'_>, title: &str, text: &str, area: Rect) {
    let width = (text.lines().map(|line| line.chars().count()).max().unwrap_or(0).max(title.len()) + 4)
        .min(usize::from(area.width).saturating_sub(2)) as u16;
    let inner = usize::from(width.saturating_sub(4)).max(1);
    let rows: usize = text.lines().map(|line| line.chars().count().div_ceil(inner).max(1)).sum();
    let height = (rows as u16 + 2).min(area.height);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let block = Block::bordered().title(format!(" {title} ")).padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(text.to_owned()).wrap(Wrap { trim: false }).block(block), place);
}

/// Escapes characters that could control the terminal.
fn clean(text: &str) -> String {
    escaped(text).into_owned()
}
