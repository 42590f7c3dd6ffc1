//! How each event changes the agent's state, and the effects that follow.

use std::sync::Arc;

use hostler_model::{Ending, JobState, RunId};
use hostler_proto::link::{
    AgentMessage, EndCause, Fate, HeadMessage, Launch, RunEnd, RunReport, RunResult, StepEndpoint, Usage,
};

use super::state::{Effect, Event, Exit, Found, Run, RunLaunch, Stage, State, Uncollected, Why};

/// Applies one event and returns the effects, in order. Ignores events about runs that the agent no longer has.
pub fn update(state: &mut State, event: Event) -> Vec<Effect> {
    let mut effects = Vec::new();
    match event {
        Event::Connected => state.connected = true,
        Event::Disconnected => state.connected = false,
        Event::Received(message) => receive(state, message, &mut effects),
        Event::Recovered { launch, found } => recover(state, launch, found, &mut effects),
        Event::Staged { run } => staged(state, run, &mut effects),
        Event::Ready { run, port, endpoint } => advance(state, run, Stage::Ready { port, endpoint }, &mut effects),
        Event::Started { run } => advance(state, run, Stage::Running, &mut effects),
        Event::Exited { run, exit } => exited(state, run, exit, &mut effects),
        Event::CannotPowerOff => state.is_leaving = false,
        Event::Collected { run, result } => collected(state, run, result, &mut effects),
    }
    effects
}

fn receive(state: &mut State, message: HeadMessage, effects: &mut Vec<Effect>) {
    match message {
        HeadMessage::Launch(launch) => accept(state, launch, effects),
        HeadMessage::Begin { run, port, endpoints } => begin(state, run, port, endpoints, effects),
        HeadMessage::End { run, cause, grace_ms } => end(state, run, cause, grace_ms, effects),
        HeadMessage::Forget { run } => forget(state, run, effects),
        HeadMessage::Resend { run } => {
            if let Some(held) = state.runs.get_mut(&run)
                && let Stage::Over(end) = &held.stage
            {
                held.stage = Stage::Recollecting(end.clone());
                effects.push(Effect::Collect { launch: Arc::clone(&held.launch) });
            }
        }
        HeadMessage::TimeLimit { run, time_limit_ms } => change_limit(state, run, time_limit_ms, effects),
        HeadMessage::Signal { run, signal, to, step } => {
            effects.push(Effect::Signal { run, signal, to, step });
        }
        HeadMessage::Stream(request) => effects.push(Effect::Stream(request)),
        HeadMessage::Watch { stream, run } => effects.push(Effect::Watch { stream, run }),
        HeadMessage::Accounts { accounts, blocked, guarded, system } => {
            effects.push(Effect::Accounts { accounts, blocked, guarded, system });
        }
        HeadMessage::PeersChanged => effects.push(Effect::AskForPeers),
        HeadMessage::Rest { ask } => rest(state, ask, effects),
        HeadMessage::Rise => effects.push(Effect::Rise),
        HeadMessage::PowerOff if state.runs.is_empty() => {
            state.is_leaving = true;
            effects.push(Effect::PowerOff);
        }
        // Ignored while the agent has runs that the head does not know yet.
        HeadMessage::PowerOff => {}
        HeadMessage::WakeUp { mac, broadcast, port } => effects.push(Effect::WakeUp { mac, broadcast, port }),
        HeadMessage::Shutdown => effects.push(Effect::Stop),
    }
}

/// Answers the head's request to rest. The node counts as busy while the head lacks the recorded end or the results of
/// a run.
fn rest(state: &State, ask: u64, effects: &mut Vec<Effect>) {
    let busy = |why: String| Effect::Send(AgentMessage::Resting { ask, busy: Some(why), is_leaving: state.is_leaving });
    effects.push(match state.runs.keys().next() {
        None if state.is_leaving => busy("the machine is shutting down".to_owned()),
        None => Effect::Rest { ask },
        Some(run) => busy(format!("run {run} is still on the node")),
    });
}

/// Accepts new runs; ignores a launch of a run that the agent already has.
fn accept(state: &mut State, launch: Launch, effects: &mut Vec<Effect>) {
    let job = Arc::new(launch.job);
    for placement in launch.runs {
        let run = placement.run;
        if state.runs.contains_key(&run) {
            continue;
        }
        let launch = Arc::new(RunLaunch { job: Arc::clone(&job), placement });
        let held =
            Run { launch: Arc::clone(&launch), stage: Stage::Staging, ending: None, new_limit: None, forgotten: false };
        state.runs.insert(run, held);
        effects.push(Effect::Start(launch));
        report(state, run, effects);
    }
}

/// Starts a run after all of its nodes are ready. Idempotent: the shell acts only on the first `Begin`.
fn begin(state: &State, run: RunId, port: u16, endpoints: Vec<StepEndpoint>, effects: &mut Vec<Effect>) {
    if let Some(Run { stage: Stage::Ready { .. }, ending: None, forgotten: false, .. }) = state.runs.get(&run) {
        effects.push(Effect::Begin { run, port, endpoints });
    }
}

fn end(state: &mut State, run: RunId, cause: EndCause, grace_ms: u64, effects: &mut Vec<Effect>) {
    let Some(held) = state.runs.get_mut(&run) else { return };
    // The last cause counts: users may change their minds.
    held.ending = Some(cause);
    match held.stage {
        Stage::Staging | Stage::Building | Stage::Ready { .. } | Stage::Running => {
            effects.push(Effect::End { run, cause: Some(cause), grace_ms });
        }
        Stage::Collecting(_) | Stage::Recollecting(_) | Stage::Over(_) => {}
    }
}

/// Changes the time limit of a run: at once, or when its process has started.
fn change_limit(state: &mut State, run: RunId, time_limit_ms: Option<u64>, effects: &mut Vec<Effect>) {
    let Some(held) = state.runs.get_mut(&run) else { return };
    held.new_limit = Some(time_limit_ms);
    if held.stage == Stage::Running {
        effects.push(Effect::ChangeLimit { run, time_limit_ms });
    }
}

/// Handles the head's message that the agent may forget a run: kills the run if it is live, removes it if it has ended.
fn forget(state: &mut State, run: RunId, effects: &mut Vec<Effect>) {
    let Some(held) = state.runs.get_mut(&run) else { return };
    held.forgotten = true;
    match held.stage {
        Stage::Staging | Stage::Building | Stage::Ready { .. } | Stage::Running => {
            effects.push(Effect::End { run, cause: None, grace_ms: 0 });
        }
        // The run is removed when its collection ends.
        Stage::Collecting(_) | Stage::Recollecting(_) => {}
        Stage::Over(_) => remove(state, run, effects),
    }
}

fn recover(state: &mut State, launch: Arc<RunLaunch>, found: Found, effects: &mut Vec<Effect>) {
    let run = launch.run();
    let lost = |message, usage| Stage::Over(RunEnd { usage, ..RunEnd::without_result(Fate::Lost, message) });
    let mut stage = match found {
        Found::Launch { is_of_this_boot: true } => {
            effects.push(Effect::Start(Arc::clone(&launch)));
            Stage::Staging
        }
        // A power failure may have removed the shepherd's entry from the disk, so the run may have begun.
        Found::Launch { is_of_this_boot: false } => {
            let message = "its node was restarted, so it is unknown whether the job had started";
            lost(Some(message.to_owned()), Usage::default())
        }
        Found::Shepherd => Stage::Running,
        Found::Exit(exit) if exit.why == Why::Lost => lost(exit.message, exit.usage),
        Found::Exit(exit) => {
            effects.push(Effect::Collect { launch: Arc::clone(&launch) });
            Stage::Collecting(exit)
        }
        Found::Over(end) => Stage::Over(end),
    };
    if let Stage::Over(end) = &mut stage {
        cut(end);
    }
    state.runs.insert(run, Run { launch, stage, ending: None, new_limit: None, forgotten: false });
}

fn staged(state: &mut State, run: RunId, effects: &mut Vec<Effect>) {
    if state.runs.get(&run).is_some_and(|held| held.stage == Stage::Staging) {
        advance(state, run, Stage::Building, effects);
    }
}

fn advance(state: &mut State, run: RunId, stage: Stage, effects: &mut Vec<Effect>) {
    let Some(held) = state.runs.get_mut(&run) else { return };
    if matches!(held.stage, Stage::Staging | Stage::Building | Stage::Ready { .. }) {
        let new_limit = held.new_limit.filter(|_| stage == Stage::Running);
        held.stage = stage;
        effects.extend(new_limit.map(|time_limit_ms| Effect::ChangeLimit { run, time_limit_ms }));
        report(state, run, effects);
    }
}

fn exited(state: &mut State, run: RunId, exit: Exit, effects: &mut Vec<Effect>) {
    let Some(held) = state.runs.get_mut(&run) else { return };
    if !matches!(held.stage, Stage::Staging | Stage::Building | Stage::Ready { .. } | Stage::Running) {
        return;
    }
    if held.forgotten {
        remove(state, run, effects);
    } else if exit.why == Why::Lost || held.ending == Some(EndCause::Requeued) && held.stage != Stage::Running {
        // A requeued run that has begun may have written files that its user needs, such as checkpoints.
        over(state, run, &exit, None, None, effects);
    } else {
        effects.push(Effect::Collect { launch: Arc::clone(&held.launch) });
        held.stage = Stage::Collecting(exit);
        report(state, run, effects);
    }
}

fn collected(
    state: &mut State,
    run: RunId,
    result: Result<(RunResult, Option<String>), Uncollected>,
    effects: &mut Vec<Effect>,
) {
    let Some(held) = state.runs.get(&run) else { return };
    let stage = held.stage.clone();
    if !matches!(stage, Stage::Collecting(_) | Stage::Recollecting(_)) {
        return;
    }
    if held.forgotten {
        return remove(state, run, effects);
    }
    let (result, problems, is_whole) = match result {
        Ok((result, problems)) => (Some(result), problems, true),
        Err(Uncollected { reason, rest }) => {
            (rest, Some(format!("the run's results could not be collected: {reason}")), false)
        }
    };
    match stage {
        Stage::Collecting(exit) => {
            // A job whose results are lost has not completed, whatever its exit code.
            let why = if is_whole { exit.why } else { failed_to_collect(exit.why) };
            over(state, run, &Exit { why, ..exit }, result, problems, effects);
        }
        Stage::Recollecting(end) => {
            let fate = if is_whole || !end.is_completed() { end.fate } else { fate(Why::NotStarted, held.ending) };
            let message = join(end.message.clone(), problems);
            finish(state, run, RunEnd { fate, message, result, ..end }, true, effects);
        }
        Stage::Staging | Stage::Building | Stage::Ready { .. } | Stage::Running | Stage::Over(_) => {}
    }
}

/// Turns exit code 0 into a failure, because the results are lost.
fn failed_to_collect(why: Why) -> Why {
    if why == Why::Exited(0) { Why::NotStarted } else { why }
}

fn over(
    state: &mut State,
    run: RunId,
    exit: &Exit,
    result: Option<RunResult>,
    problems: Option<String>,
    effects: &mut Vec<Effect>,
) {
    let held = state.runs.get(&run).expect("the caller checked that the run exists");
    let message = join(exit.message.clone(), problems);
    let end = RunEnd {
        fate: fate(exit.why, held.ending),
        message,
        result,
        usage: exit.usage,
        steps: exit.steps.clone(),
        certificate: exit.certificate.clone(),
    };
    // A restarted agent derives the end from the exit record. These runs may have none, e.g. when the build of an environment
    // reached a limit.
    let stores = matches!(exit.why, Why::NotStarted | Why::Lost | Why::TimeLimit(_) | Why::OutOfMemory(_));
    finish(state, run, end, stores, effects);
}

/// Joins the message and the problems with a semicolon; `None` if both are absent.
fn join(message: Option<String>, problems: Option<String>) -> Option<String> {
    let all: Vec<String> = message.into_iter().chain(problems).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Cuts the message of an end: parts of it may be text of any length from the job's files, and the head refuses large
/// frames.
fn cut(end: &mut RunEnd) {
    const MAX_CHARS: usize = 2_000;
    if let Some(message) = &mut end.message
        && let Some((at, _)) = message.char_indices().nth(MAX_CHARS)
    {
        message.truncate(at);
        message.push('…');
    }
}

/// Sets the end of a run and reports it. Stores it on disk if `stores` is set.
fn finish(state: &mut State, run: RunId, mut end: RunEnd, stores: bool, effects: &mut Vec<Effect>) {
    cut(&mut end);
    let held = state.runs.get_mut(&run).expect("the caller checked that the run exists");
    held.stage = Stage::Over(end.clone());
    if stores {
        effects.push(Effect::StoreEnd { run, end });
    }
    report(state, run, effects);
}

/// Returns the fate of a run, from why its process ended and why the head asked the agent to end it.
fn fate(why: Why, asked: Option<EndCause>) -> Fate {
    let ended = |state, exit_code| Fate::Ended(Ending { state, exit_code });
    match (why, asked) {
        (Why::Lost, _) => Fate::Lost,
        (_, Some(EndCause::Requeued)) => Fate::Requeued,
        (Why::Asked(_) | Why::NotStarted, Some(EndCause::Finished)) => ended(JobState::Completed, Some(0)),
        (Why::Asked(code), _) => ended(JobState::Cancelled, Some(code)),
        (Why::NotStarted, Some(EndCause::Cancelled | EndCause::Broken)) => ended(JobState::Cancelled, None),
        (Why::NotStarted, None) => ended(JobState::Failed, None),
        (Why::Exited(0), _) => ended(JobState::Completed, Some(0)),
        (Why::Exited(code), _) => ended(JobState::Failed, Some(code)),
        (Why::TimeLimit(code), _) => ended(JobState::Timeout, Some(code)),
        (Why::OutOfMemory(code), _) => ended(JobState::OutOfMemory, Some(code)),
    }
}

fn remove(state: &mut State, run: RunId, effects: &mut Vec<Effect>) {
    if let Some(held) = state.runs.remove(&run) {
        effects.push(Effect::Remove { launch: held.launch });
    }
}

/// Sends the status of a run to the head if connected; otherwise the next hello contains it.
fn report(state: &State, run: RunId, effects: &mut Vec<Effect>) {
    if state.connected
        && let Some(held) = state.runs.get(&run)
    {
        let status = held.stage.status();
        effects.push(Effect::Send(AgentMessage::Report(RunReport { run, status })));
    }
}
