//! The agent's process: carries out the effects of the agent's state machine, and recovers the runs of an earlier
//! agent. Mirrors the daemon's engine, supervision and recovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_core::agent::{Effect, Event, Exit, Found, RunLaunch, State, Uncollected, Why, update};
use hostler_core::link::Dialler;
use hostler_model::{Digest, RunId};
use hostler_proto::link::{AgentMessage, RunResult, Usage};

use super::disk::content;
use super::rules::Rule;
use super::world::World;
use super::world::node::{Agent, AgentStep, Control, Directory, NodeStep};
use super::world::time::{MS, SECOND};

/// The upper bound of the random pause between two upload attempts.
const UPLOAD_PAUSE: u64 = 300 * MS;

impl World {
    /// Starts an agent unless one is already running.
    pub(super) fn start_agent(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        if machine.agent.is_some() {
            return;
        }
        machine.agent_lives += 1;
        let life = machine.agent_lives;
        machine.agent = Some(Agent {
            life,
            state: State::default(),
            line: None,
            dialler: Dialler::default(),
            controls: BTreeMap::new(),
        });
        self.note(format_args!("agent {life} starts on n{node}"));
        self.recover(node);
        let delay = self.rng.below(20 * MS);
        self.agent_later(node, delay, AgentStep::Dial);
    }

    /// Kills the agent; its node and the shepherds continue.
    pub(super) fn crash_agent(&mut self, node: usize) {
        if self.frozen_nodes[node].is_some() || self.nodes[node].agent.take().is_none() {
            return;
        }
        self.note(format_args!("the agent of n{node} is killed"));
        self.close_agent_connections(node);
        let pause = self.rng.skewed(SECOND);
        self.node_later(node, pause, NodeStep::StartAgent);
    }

    /// Recovers every run found on the disk.
    fn recover(&mut self, node: usize) {
        let runs: Vec<RunId> = self.nodes[node].directories.keys().copied().collect();
        for run in runs {
            let launch = hostler_proto::decode::<RunLaunch>(&self.nodes[node].directories[&run].launch);
            let Ok(launch) = launch.map(Arc::new) else {
                return self.books.record_violation(format!("the launch of {run} on n{node} cannot be read"));
            };
            let found = self.look(node, run);
            self.note(format_args!("n{node} finds {run}: {found:?}"));
            if found == Found::Shepherd {
                let control = Control { is_watched: true, ..Control::default() };
                self.agent(node).controls.insert(run, control);
            }
            self.agent_event(node, Event::Recovered { launch, found });
        }
    }

    /// Returns what is left of a run.
    fn look(&self, node: usize, run: RunId) -> Found {
        let machine = &self.nodes[node];
        let directory = &machine.directories[&run];
        if let Some(end) = &directory.end {
            return Found::Over(hostler_proto::decode(end).expect("ends are stored atomically"));
        }
        if let Some(exit) = &directory.exit {
            return Found::Exit(exit.clone());
        }
        match directory.claim {
            None => {
                let is_of_this_boot = directory.boot == machine.boot() || self.breaks(Rule::NothingTwiceAfterBoot);
                Found::Launch { is_of_this_boot }
            }
            Some(then) if then != machine.boot() => lost("its node was restarted while it ran"),
            Some(_) if !machine.shepherds.contains_key(&run) => lost("its node lost the process that looked after it"),
            Some(_) if self.breaks(Rule::AdoptShepherds) => Found::Launch { is_of_this_boot: true },
            Some(_) => Found::Shepherd,
        }
    }

    pub(super) fn agent(&mut self, node: usize) -> &mut Agent {
        self.nodes[node].agent.as_mut().expect("only a running agent executes steps")
    }

    pub(super) fn agent_later(&mut self, node: usize, in_us: u64, step: AgentStep) {
        let life = self.agent(node).life;
        self.node_later(node, in_us, NodeStep::Agent { life, step });
    }

    pub(super) fn agent_step(&mut self, node: usize, life: u64, step: AgentStep) {
        if self.nodes[node].agent.as_ref().is_none_or(|agent| agent.life != life) {
            return;
        }
        match step {
            AgentStep::Dial => self.dial_head(node),
            AgentStep::LinkWakes { connection } => self.link_wakes(node, connection),
            AgentStep::FilesFetched { run } => self.agent_event(node, Event::Staged { run }),
            AgentStep::Staged { launch } => self.staged(node, &launch),
            AgentStep::NotStarted { run, why } => {
                let exit = Exit {
                    why: Why::NotStarted,
                    message: Some(why.to_owned()),
                    usage: Usage::default(),
                    steps: Vec::new(),
                    certificate: None,
                };
                self.agent_event(node, Event::Exited { run, exit });
            }
            AgentStep::Launched { run } => self.launched(node, run),
            AgentStep::Terminate { run, grace_ms } => self.terminate(node, run, grace_ms, Why::Asked),
            AgentStep::Exited { run } => self.exited(node, run),
            AgentStep::Captured { run } => self.captured(node, run),
            AgentStep::Upload { run } => self.upload(node, run),
            AgentStep::Uploaded { run } => self.uploaded(node, run),
            AgentStep::Remove { run } => {
                self.nodes[node].directories.remove(&run);
            }
        }
    }

    /// Passes an event to the state machine and carries out the effects.
    pub(super) fn agent_event(&mut self, node: usize, event: Event) {
        let effects = update(&mut self.agent(node).state, event);
        for effect in effects {
            self.agent_performs(node, effect);
        }
    }

    fn agent_performs(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Start(launch) => self.stage(node, launch),
            Effect::Begin { run, .. } => self.begin(node, run),
            Effect::End { run, grace_ms, .. } => self.end(node, run, grace_ms),
            Effect::Collect { launch } => {
                self.agent(node).controls.remove(&launch.run());
                let delay = self.rng.skewed(10 * MS);
                self.agent_later(node, delay, AgentStep::Captured { run: launch.run() });
            }
            Effect::StoreEnd { run, end } => {
                let now_us = self.now_us;
                let machine = &mut self.nodes[node];
                let is_full = machine.is_full;
                if let Some(directory) = machine.directories.get_mut(&run)
                    && !is_full
                {
                    directory.store_end(hostler_proto::encode(&end), now_us);
                }
            }
            Effect::Remove { launch } => {
                let run = launch.run();
                self.agent(node).controls.remove(&run);
                let delay = self.rng.skewed(MS);
                self.agent_later(node, delay, AgentStep::Remove { run });
            }
            Effect::Send(message) => self.agent_says(node, message),
            Effect::Rest { ask } => self.agent_says(node, AgentMessage::Resting { ask, busy: None, is_leaving: false }),
            Effect::ChangeLimit { run, time_limit_ms } => {
                let launch = self.agent(node).state.run(run).map(|held| Arc::clone(&held.launch));
                let grace_ms = launch.and_then(|launch| launch.spec().grace_ms).unwrap_or(10_000);
                self.change_limit(node, run, time_limit_ms, grace_ms.into());
            }
            Effect::Signal { .. }
            | Effect::Stream(_)
            | Effect::Watch { .. }
            | Effect::Accounts { .. }
            | Effect::AskForPeers
            | Effect::Rise
            | Effect::PowerOff
            | Effect::WakeUp { .. }
            | Effect::Stop => {}
        }
    }

    fn stage(&mut self, node: usize, launch: Arc<RunLaunch>) {
        let run = launch.run();
        let now_us = self.now_us;
        self.agent(node).controls.insert(run, Control::default());
        let machine = &mut self.nodes[node];
        if machine.is_full {
            return self.not_started(node, run, "the node has no disk space for the directory of the run");
        }
        let directory = Directory::new(&launch, machine.boot(), now_us);
        machine.directories.insert(run, directory);
        let takes = if self.rng.chance(700) { self.rng.below(2 * MS) } else { self.rng.skewed(SECOND) };
        self.agent_later(node, takes / 2, AgentStep::FilesFetched { run });
        self.agent_later(node, takes, AgentStep::Staged { launch });
    }

    fn staged(&mut self, node: usize, launch: &Arc<RunLaunch>) {
        let run = launch.run();
        let fails = self.rng.chance(30);
        let Some(control) = self.agent(node).controls.get(&run).copied() else { return };
        if control.cancel {
            return self.not_started(node, run, "the run was ended before its start");
        }
        if launch.placement.gang.is_some() && !control.has_begun && !self.breaks(Rule::BeginTogether) {
            self.agent(node).controls.insert(run, Control { waits: true, ..control });
            let port = self.rng.range(1_024, 65_536) as u16;
            return self.agent_event(node, Event::Ready { run, port, endpoint: None });
        }
        if fails || !self.launch_shepherd(node, launch) {
            return self.not_started(node, run, "the node cannot start the run");
        }
        let delay = self.rng.below(MS);
        self.agent_later(node, delay, AgentStep::Launched { run });
    }

    /// Starts the process of a run, because all of its nodes are ready.
    fn begin(&mut self, node: usize, run: RunId) {
        let delay = self.rng.below(MS);
        let agent = self.agent(node);
        let (Some(control), Some(held)) = (agent.controls.get_mut(&run), agent.state.run(run)) else { return };
        let launch = Arc::clone(&held.launch);
        control.has_begun = true;
        if std::mem::take(&mut control.waits) {
            self.agent_later(node, delay, AgentStep::Staged { launch });
        }
    }

    /// Marks a run as launched and starts to watch its shepherd.
    fn launched(&mut self, node: usize, run: RunId) {
        self.agent_event(node, Event::Started { run });
        if let Some(control) = self.agent(node).controls.get_mut(&run) {
            control.is_watched = true;
            if let Some(grace_ms) = control.grace_ms {
                self.agent_later(node, 0, AgentStep::Terminate { run, grace_ms });
            }
        }
        if !self.nodes[node].shepherds.contains_key(&run) {
            self.handle_exit(node, run);
        }
    }

    /// Reports to the state machine, after the current step, that a run did not start.
    fn not_started(&mut self, node: usize, run: RunId, why: &'static str) {
        self.agent_later(node, 0, AgentStep::NotStarted { run, why });
    }

    fn end(&mut self, node: usize, run: RunId, grace_ms: u64) {
        let delay = self.rng.below(MS);
        if self.breaks(Rule::EndsAreObeyed) {
            return;
        }
        let Some(control) = self.agent(node).controls.get_mut(&run) else { return };
        control.cancel = true;
        control.grace_ms = Some(control.grace_ms.map_or(grace_ms, |earlier| earlier.min(grace_ms)));
        if control.is_watched {
            self.agent_later(node, delay, AgentStep::Terminate { run, grace_ms });
        } else if std::mem::take(&mut control.waits) {
            self.not_started(node, run, "the run was ended before its start");
        }
    }

    /// Handles the end of a shepherd's connection, with or without an exit message.
    pub(super) fn handle_exit(&mut self, node: usize, run: RunId) {
        let delay = self.rng.skewed(MS);
        let Some(agent) = &self.nodes[node].agent else { return };
        if agent.controls.get(&run).is_some_and(|control| control.is_watched) {
            self.agent_later(node, delay, AgentStep::Exited { run });
        }
    }

    /// Determines the end of a run from the disk and the kernel.
    fn exited(&mut self, node: usize, run: RunId) {
        let machine = &self.nodes[node];
        let Some(directory) = machine.directories.get(&run) else { return };
        let exit = match &directory.exit {
            Some(exit) => exit.clone(),
            None if machine.shepherds.contains_key(&run) => return,
            None => lost_exit("the node lost the shepherd of the run"),
        };
        self.agent_event(node, Event::Exited { run, exit });
    }

    /// Handles a captured result. A small result is part of the report; a large result is uploaded first.
    fn captured(&mut self, node: usize, run: RunId) {
        if !self.is_calm && self.rng.chance(15) {
            let result = Err(Uncollected { reason: "the folder of the run is gone".to_owned(), rest: None });
            return self.agent_event(node, Event::Collected { run, result });
        }
        if content::is_large(run) {
            return self.upload(node, run);
        }
        let blobs = content::left_by(run);
        let manifest = content::name_of(&blobs[0]);
        let result = RunResult { manifest, inline: blobs.into_iter().map(Into::into).collect() };
        self.agent_event(node, Event::Collected { run, result: Ok((result, None)) });
    }

    /// Uploads the chunks that the head lacks.
    fn upload(&mut self, node: usize, run: RunId) {
        let now_us = self.now_us;
        let can = self.is_reachable(node) && self.frozen_head.is_none() && !self.head.disk.is_full();
        if !can {
            let pause = self.rng.below(UPLOAD_PAUSE) + MS;
            return self.agent_later(node, pause, AgentStep::Upload { run });
        }
        let blobs = content::left_by(run);
        let names: Vec<Digest> = blobs.iter().map(|blob| content::name_of(blob)).collect();
        let missing = self.head.disk.missing(&names, now_us);
        for (name, bytes) in names.into_iter().zip(blobs).filter(|(name, _)| missing.contains(name)) {
            // The upload breaks off. The chunks that have arrived stay on the head.
            if self.rng.chance(50) {
                let pause = self.rng.below(UPLOAD_PAUSE);
                return self.agent_later(node, pause, AgentStep::Upload { run });
            }
            self.head.disk.upload(name, bytes, now_us);
        }
        let takes = self.rng.skewed(10 * MS);
        self.agent_later(node, takes, AgentStep::Uploaded { run });
    }

    /// Reports a complete upload, which the head makes durable; uploads again if chunks are missing.
    fn uploaded(&mut self, node: usize, run: RunId) {
        let now_us = self.now_us;
        let manifest = content::name_of(&content::left_by(run)[0]);
        let can = self.is_reachable(node) && self.frozen_head.is_none();
        if !can || !self.head.disk.is_complete(&manifest, &[], now_us) {
            let pause = self.rng.below(UPLOAD_PAUSE);
            return self.agent_later(node, pause, AgentStep::Upload { run });
        }
        let result = RunResult { manifest, inline: Vec::new() };
        self.agent_event(node, Event::Collected { run, result: Ok((result, None)) });
    }
}

fn lost(why: &str) -> Found {
    Found::Exit(lost_exit(why))
}

fn lost_exit(why: &str) -> Exit {
    Exit {
        why: Why::Lost,
        message: Some(why.to_owned()),
        usage: Usage::default(),
        steps: Vec::new(),
        certificate: None,
    }
}
