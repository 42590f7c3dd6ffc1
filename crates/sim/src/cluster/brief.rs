//! Short descriptions of events and messages for the trace.

use std::fmt::Write as _;

use hostler_core::head::{Event, PowerEvent, Start};
use hostler_model::{GpuId, IndexSet, JobId, JobSpec};
use hostler_proto::link::{AgentMessage, Fate, HeadMessage, RunStatus};

pub(super) fn brief(event: &Event) -> String {
    let task = |job: &JobId, index: &Option<u32>| match index {
        Some(index) => format!("task {job}_{index}"),
        None => format!("job {job}"),
    };
    let tasks = |job: &JobId, indices: &IndexSet| format!("results {indices} of job {job}");
    match event {
        Event::EpochStarted { epoch, .. } => format!("epoch {} begins", epoch.0),
        Event::Submitted { job, spec, .. } => format!("job {job} is submitted: {}", wish(spec)),
        Event::Cancelled { job, index } => format!("{} is cancelled", task(job, index)),
        Event::TasksCancelled { job, indices } => format!("tasks {indices} of job {job} are cancelled"),
        Event::Held { job, index, .. } => format!("{} is held", task(job, index)),
        Event::Released { job, index, .. } => format!("{} is released", task(job, index)),
        Event::Requeued { job, index, keeps_completed, .. } => {
            let kept = if *keeps_completed { ", except completed tasks" } else { "" };
            format!("{} is requeued{kept}", task(job, index))
        }
        Event::JobChanged { job, spec, .. } => format!("job {job} is changed: {}", wish(spec)),
        Event::Placed { starts } => {
            let starts: Vec<String> = starts
                .iter()
                .map(|Start { run, node, resources }| {
                    let gpus: Vec<&str> = resources.gpus.iter().map(GpuId::as_str).collect();
                    let gpus = if gpus.is_empty() { String::new() } else { format!(" with {}", gpus.join(" and ")) };
                    format!("run {run} on CPUs {} of {node}{gpus}", resources.cpus)
                })
                .collect();
            format!("placed: {}", starts.join(", "))
        }
        Event::Accepted { run, rank } => format!("run {run} has arrived on its node of rank {rank}"),
        Event::Ready { run, rank, .. } => format!("run {run} is ready on its node of rank {rank}"),
        Event::Running { run, rank, .. } => format!("run {run} runs on its node of rank {rank}"),
        Event::Completing { run, rank, .. } => {
            format!("run {run} has ended on its node of rank {rank}; results are collected")
        }
        Event::Ended { run, rank, end } => {
            let result = if end.result.is_some() { " with a result" } else { "" };
            format!("run {run} is over on its node of rank {rank}: {}{result}", how(end.fate))
        }
        Event::NodeSeen { node, facts } => format!("{node} is seen: {}", facts.boot.0),
        Event::NodeGivenUp { node, .. } => format!("{node} is given up with all its runs"),
        Event::NodeForgotten { node } => format!("{node} is taken off the list of nodes"),
        Event::NodeReported { node, is_down: true } => format!("operators learn that {node} is down"),
        Event::NodeReported { node, is_down: false } => format!("operators learn that {node} is back"),
        Event::NodeDrained { node, .. } => format!("{node} is drained"),
        Event::NodeResumed { node } => format!("{node} is resumed"),
        Event::NodeRemoved { node, .. } => format!("{node} is removed"),
        Event::NodeJoined { node, .. } => format!("{node} has joined"),
        Event::Fetched { job, indices, .. } => format!("{} were fetched", tasks(job, indices)),
        Event::EarlierFetched { job, attempt, indices, .. } => {
            format!("attempt {attempt} of {} was fetched", tasks(job, indices))
        }
        Event::ResultsDropped { job, indices, .. } => format!("{} are dropped to make room", tasks(job, indices)),
        Event::Forgotten { jobs, .. } => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("the retention of these jobs is over: {}", jobs.join(", "))
        }
        Event::Power(PowerEvent::Planned(_)) => "an operator applies a power plan".to_owned(),
        Event::Power(PowerEvent::Entered { node, stage, why }) => {
            format!("{node} enters the power stage {stage:?}: {why}")
        }
        Event::Power(PowerEvent::Drew { node, milliwatts, .. }) => match milliwatts {
            Some(milliwatts) => format!("{node} draws {} W", milliwatts / 1000),
            None => format!("the power draw of {node} cannot be measured"),
        },
        Event::Power(PowerEvent::Woken { node }) => {
            format!("the controller of {node} has accepted the order to switch the node on")
        }
        other => format!("{other:?}"),
    }
}

/// The resources that a job requests.
fn wish(spec: &JobSpec) -> String {
    let mut text = format!("{} CPUs on each of {} nodes", spec.request.cpus, spec.nodes);
    if let Some(array) = &spec.array {
        let _ = write!(text, ", tasks {array}");
    }
    for dependency in &spec.after {
        let _ = write!(text, ", {dependency}");
    }
    if spec.requeue {
        text.push_str(", to be requeued when a node is lost");
    }
    text
}

fn how(fate: Fate) -> String {
    match fate {
        Fate::Ended(ending) => match ending.exit_code {
            Some(code) => format!("{} with exit code {code}", ending.state),
            None => ending.state.to_string(),
        },
        Fate::Lost => "lost".to_owned(),
        Fate::Requeued => "ended for a requeue".to_owned(),
    }
}

/// A short description of a message from the head to an agent.
pub(super) fn brief_order(message: &HeadMessage) -> String {
    match message {
        HeadMessage::Launch(launch) => {
            let runs: Vec<String> = launch.runs.iter().map(|placement| placement.run.to_string()).collect();
            format!("launch {}", runs.join(", "))
        }
        HeadMessage::Begin { run, .. } => format!("begin {run}"),
        HeadMessage::TimeLimit { run, time_limit_ms } => format!("limit {run} to {time_limit_ms:?} ms"),
        HeadMessage::End { run, cause, .. } => format!("end {run} ({cause:?})"),
        HeadMessage::Forget { run } => format!("forget {run}"),
        HeadMessage::Signal { run, signal, .. } => format!("send {signal} to {run}"),
        HeadMessage::Resend { run } => format!("report {run} again"),
        other => format!("{other:?}"),
    }
}

/// A short description of a message from an agent to the head; `None` for a heartbeat.
pub(super) fn brief_report(message: &AgentMessage) -> Option<String> {
    Some(match message {
        AgentMessage::Heartbeat => return None,
        AgentMessage::Report(report) => {
            let run = report.run;
            match &report.status {
                RunStatus::Accepted => format!("{run} has arrived"),
                RunStatus::Staged => format!("{run} has its files"),
                RunStatus::Ready { .. } => format!("{run} is ready"),
                RunStatus::Running => format!("{run} runs"),
                RunStatus::Completing => format!("{run} has ended; results are collected"),
                RunStatus::Ended(end) => format!("{run} is over: {}", how(end.fate)),
            }
        }
        other => format!("{other:?}"),
    })
}
