//! Messages for the outbox: what users and operators learn from events.
//!
//! An event writes its messages in its own transaction, as [`Record::Message`]. The head daemon delivers them. Only
//! durable events write messages, so the numbers of messages follow from the log alone.

use std::collections::BTreeSet;

use hostler_model::{JobId, JobOccasion, JobState, NodeName, TaskId, Timestamp};
use hostler_proto::notify::{Alert, Happening, JobNews, Message, News, Recipient};

use super::event::{Effect, Event, Record};
use super::jobs::job::{Job, WaitLimit};
use super::nodes::node::Node;
use super::power::Power;
use super::state::State;
use super::step::Step;

/// The largest number of subscriptions of a job.
pub(super) const MAX_SUBSCRIPTIONS: usize = 8;

/// The largest number of nodes that a message about a start names.
const MAX_NODES: usize = 16;

/// Whether operators learn that a node is down. They learn it once, and not of nodes that the head switches off.
pub(super) fn reports_down(state: &State, node: &Node) -> bool {
    let is_planned = state.power.node(&node.name).is_some_and(Power::is_away_by_order);
    !node.is_reported_down && !is_planned
}

/// Decides a change of an alert; a repeated one changes nothing.
pub(super) fn decide_alert(state: &State, alert: Alert, text: Option<&str>) -> Vec<Event> {
    let is_raised = state.alerts.contains(&alert);
    match text {
        Some(text) if !is_raised => vec![Event::AlertRaised { alert, text: text.to_owned() }],
        None if is_raised => vec![Event::AlertEnded { alert }],
        Some(_) | None => Vec::new(),
    }
}

impl State {
    /// Returns the alerts that are raised.
    #[must_use]
    pub const fn alerts(&self) -> &BTreeSet<Alert> {
        &self.alerts
    }

    /// Returns the jobs whose owners want to know at this time that the jobs still wait.
    pub(super) fn long_waits(&self, now: Timestamp) -> Vec<JobId> {
        self.wait_limits.iter().take_while(|(at, _)| *at <= now).map(|(_, job)| *job).collect()
    }
}

impl Step<'_> {
    /// Writes messages for the subscriptions of a job that name this event.
    pub(super) fn tell_owner(&mut self, id: JobId, occasion: JobOccasion) {
        if self.job(id).spec.subscriptions().is_empty() {
            return;
        }
        let job = self.job(id).clone();
        let is_failure =
            occasion == JobOccasion::End && !matches!(job.state(), JobState::Completed | JobState::Cancelled);
        for subscription in job.spec.subscriptions() {
            if subscription.wants(occasion) || is_failure && subscription.failure {
                let event = if is_failure { JobOccasion::Failure } else { occasion };
                let (to, address) = (subscription.to.clone(), subscription.address.clone());
                let to = Recipient::User { user: job.user.clone(), to, address };
                let until = self.state.job_kept_until(&job).filter(|_| job.awaits_fetch());
                let kept_until = until.map(|until| self.now.wall_at(until));
                self.write(to, Happening::Job(JobNews { kept_until, ..news_of(&job, event) }));
            }
        }
    }

    /// Tells the owner that a job still waits, and sets the time of the next such message.
    pub(super) fn report_long_wait(&mut self, id: JobId) {
        // The same tick may have ended the job, e.g. with the node of a job that it depends on.
        let Some(job) = self.state.job(id).cloned() else { return };
        let Some(WaitLimit { submitted, until }) = job.wait.as_deref().copied() else { return };
        let waited_ms = until.ms_since(submitted);
        let is_waiting = job.started_at.is_none() && job.active.is_empty() && !job.pending.is_empty();
        let due = |it: &&hostler_model::Subscription| is_waiting && it.wait_ms == Some(waited_ms);
        for subscription in job.spec.subscriptions().iter().filter(due) {
            let (to, address) = (subscription.to.clone(), subscription.address.clone());
            let to = Recipient::User { user: job.user.clone(), to, address };
            self.write(to, Happening::Job(news_of(&job, JobOccasion::Wait)));
        }
        let next = job.spec.subscriptions().iter().filter_map(|it| it.wait_ms).filter(|ms| *ms > waited_ms).min();
        self.state.set_wait_limit(id, next.map(|ms| submitted.plus_ms(ms)));
    }

    /// Tells operators that a node is down, or that it is back.
    pub(super) fn report_node(&mut self, name: &NodeName, is_down: bool) {
        self.state.change_node(name, |node| node.is_reported_down = is_down);
        let runs: Vec<TaskId> = self.state.nodes[name].runs.keys().map(|run| run.task).collect();
        let (node, tasks) = (name.clone(), runs.len() as u64);
        self.changes.effects.push(Effect::ReportNode { node: node.clone(), is_down, tasks: runs });
        let what = if is_down { Happening::NodeDown { node, tasks } } else { Happening::NodeBack { node } };
        self.write(Recipient::Operators, what);
    }

    pub(super) fn change_alert(&mut self, alert: Alert, text: Option<&str>) {
        match text {
            Some(_) => self.state.alerts.insert(alert),
            None => self.state.alerts.remove(&alert),
        };
        self.write(Recipient::Operators, Happening::Alert { alert, text: text.map(str::to_owned) });
    }

    fn write(&mut self, to: Recipient, what: Happening) {
        self.state.messages += 1;
        let news = vec![News { at: self.now.wall, what }];
        let message = Message { to, news, omitted: 0, tries: 0, given_up: None };
        self.changes.records.push(Record::Message { number: self.state.messages, message: Box::new(message) });
        self.changes.effects.push(Effect::Deliver);
    }
}

fn news_of(job: &Job, event: JobOccasion) -> JobNews {
    let is_array = job.spec.array.is_some();
    let mut endings = std::collections::BTreeMap::<JobState, u64>::new();
    for (ending, indices) in &job.endings {
        *endings.entry(ending.state).or_default() += indices.len();
    }
    endings.retain(|_, count| *count > 0);
    let ending = job.endings.iter().find(|(_, indices)| !indices.is_empty()).map(|(ending, _)| ending);
    let nodes: BTreeSet<&NodeName> = job.active.values().flat_map(super::jobs::job::Active::nodes).collect();
    let is_start = event == JobOccasion::Start;
    JobNews {
        job: job.id,
        name: job.spec.name.to_string(),
        user: job.user.clone(),
        event,
        state: job.state(),
        tasks: job.len(),
        endings: if is_array { endings.into_iter().collect() } else { Vec::new() },
        exit_code: ending.filter(|_| !is_array).and_then(|ending| ending.exit_code),
        nodes: nodes.into_iter().filter(|_| is_start).take(MAX_NODES).cloned().collect(),
        submitted_at: job.submitted_at,
        started_at: job.started_at,
        kept_until: None,
    }
}
