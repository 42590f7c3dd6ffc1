//! The users: they submit jobs, change them, and retry each request until the head answers.

use std::sync::Arc;

use hostler_core::head::{Answer, Caller, Command, Done, NotDone, Refusal, SubmissionKey};
use hostler_model::{
    ArraySpec, Attempt, Condition, CpuSet, Dependency, Digest, JobId, JobSpec, Request, Resources, Work,
};
use hostler_proto::api::{JobAction, JobChange};

use super::quotas;
use super::rng::Rng;
use super::world::head::{HeadStep, Input, ReplyTo};
use super::world::node::Node;
use super::world::time::{MS, SECOND};
use super::world::users::{Asked, Submission, UserStep};
use super::world::{ScheduledEvent, World};

const ANSWER_TIMEOUT: u64 = 3 * SECOND;

impl World {
    pub(super) fn plan_users(&mut self, calm: u64) {
        for _ in 0..self.rng.range(5, 16) {
            let at = self.rng.below(calm);
            self.user_later(at, UserStep::Submit);
        }
        self.plan_operators(calm);
    }

    /// In half of the worlds, plans a quota. Uses separate random numbers, so that the other parts of a world do not
    /// depend on them.
    pub(super) fn plan_quota(&mut self, calm: u64, mut dice: Rng) {
        if dice.chance(500) {
            let at = dice.below(calm);
            self.user_later(at, UserStep::Limit { dice });
        }
    }

    /// Stops all changes by users.
    pub(super) fn calm_users(&mut self) {
        self.user_later(0, UserStep::TidyUp);
    }

    pub(super) fn user_later(&mut self, in_us: u64, step: UserStep) {
        self.later(in_us, ScheduledEvent::User(step));
    }

    pub(super) fn user_step(&mut self, step: UserStep) {
        match step {
            UserStep::Submit => self.submit(),
            UserStep::ExecRequest { request } => self.ask(request),
            UserStep::Reach { request } => self.reach(request),
            UserStep::Answered { request, answer } => self.answered(request, answer),
            UserStep::Act { job } => self.act(job),
            UserStep::Operate => self.operate(),
            UserStep::Arrange => self.arrange(),
            UserStep::Limit { dice } => self.limit(dice),
            UserStep::TidyUp => self.tidy_up(),
        }
    }

    fn limit(&mut self, mut dice: Rng) {
        // The largest job of any user: on the largest node, or on all nodes at once.
        let largest = |of: fn(&Node) -> u64| {
            let all = || self.nodes.iter().map(of);
            let (most, least) = (all().max().unwrap_or(1), all().min().unwrap_or(1));
            most.max(least * self.nodes.len() as u64)
        };
        let largest = Resources::new(
            CpuSet::first(largest(|node| node.resources.cpus.len().into()) as u32),
            largest(|node| node.resources.memory_bytes),
        );
        for command in quotas::commands(&ada().user, &largest, &mut dice) {
            self.request(command);
        }
    }

    fn submit(&mut self) {
        let key = SubmissionKey(u128::from(self.rng.below(u64::MAX)));
        let mut spec = self.make_spec();
        self.choose_nodes(&mut spec);
        // A quota may be too small for several whole nodes.
        spec.surroundings.exclusive = spec.nodes == 1 && key.0.to_le_bytes()[2].is_multiple_of(8);
        let spec = Arc::new(spec);
        self.users.submissions.insert(key, Submission { spec: Arc::clone(&spec), job: None });
        let environment = key.0.is_multiple_of(2).then_some(Digest([key.0.to_le_bytes()[1] % 3; 32]));
        self.request(Command::Submit { caller: ada(), key, spec, environment, snapshot_is_complete: true });
    }

    /// Makes a job that fits at least one of the nodes.
    fn make_spec(&mut self) -> JobSpec {
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        let most = self.nodes[node].resources.counts();
        let request = self.make_request(&most);
        let array = self.rng.chance(250).then(|| {
            let (last, limit) = (self.rng.range(1, 7), self.rng.range(1, 4));
            let text = if self.rng.chance(500) { format!("0-{last}") } else { format!("0-{last}%{limit}") };
            text.parse().expect("a valid array")
        });
        let after = self.make_dependencies();
        let (request, nodes) = if self.rng.chance(250) { self.make_gang() } else { (request, 1) };
        JobSpec {
            nodes,
            first_node: nodes == 2,
            time_limit_ms: self.rng.chance(400).then(|| self.rng.range(100, 6_000)),
            array,
            after: after.into(),
            // Users may not raise the priority.
            priority: self.rng.below(3) as i32 - 2,
            hold: self.rng.chance(80),
            requeue: self.rng.chance(400),
            grace_ms: self.rng.chance(300).then(|| self.rng.below(2_000) as u32),
            ..JobSpec::new("simulated", Work::command(["work"], "/"), request)
        }
    }

    /// Makes a request for a multi-node job. Returns the request per node and the number of nodes.
    fn make_gang(&mut self) -> (Request, u32) {
        let all = self.nodes.iter().map(|node| node.resources.counts());
        let least = all.reduce(|least, other| least.zip(&other, u64::min));
        let request = self.make_request(&least.expect("a world has nodes"));
        (request, self.rng.range(1, self.nodes.len() as u64 + 1) as u32)
    }

    /// Makes a request of at most `most`.
    fn make_request(&mut self, most: &Request) -> Request {
        let counted: Vec<String> = most
            .counted
            .iter()
            .map(|(name, count)| (name, self.rng.range(0, count + 1)))
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name}={count}"))
            .collect();
        Request {
            cpus: self.rng.range(1, u64::from(most.cpus) + 1) as u32,
            memory_bytes: self.rng.range(1, (most.memory_bytes >> 28) + 1) << 28,
            gpus: self.rng.range(0, u64::from(most.gpus) + 1) as u32,
            counted: counted.join(",").parse().expect("the text lists names and counts"),
        }
    }

    fn make_dependencies(&mut self) -> Vec<Dependency> {
        let submissions = self.users.submissions.values();
        let known: Vec<(JobId, Option<ArraySpec>)> =
            submissions.filter_map(|it| Some((it.job?, it.spec.array.clone()))).collect();
        if known.is_empty() || !self.rng.chance(350) {
            return Vec::new();
        }
        let count = self.rng.range(1, 4);
        let alternative = count > 1 && self.rng.chance(300);
        (0..count).map(|_| Dependency { alternative, ..self.make_dependency(&known) }).collect()
    }

    fn make_dependency(&mut self, known: &[(JobId, Option<ArraySpec>)]) -> Dependency {
        let kinds = [
            Condition::After,
            Condition::AfterAny,
            Condition::AfterOk,
            Condition::AfterNotOk,
            Condition::AfterCorr,
            Condition::AfterCorr,
        ];
        let condition = *self.rng.pick(&kinds);
        // Arrays are rare, and more interesting.
        let (job, array) = [self.rng.pick(known).clone(), self.rng.pick(known).clone()]
            .into_iter()
            .max_by_key(|(_, array)| array.is_some())
            .expect("two jobs");
        let task = array.filter(|_| condition != Condition::AfterCorr && self.rng.chance(400));
        let task = task.and_then(|array| array.indices.next_from(self.rng.below(array.indices.len()) as u32));
        let delay_minutes = u32::from(condition == Condition::After && self.rng.chance(300));
        Dependency { condition, job, task, delay_minutes, alternative: false }
    }

    /// Changes a job.
    fn act(&mut self, job: JobId) {
        if self.is_calm {
            return;
        }
        let index = self.rng.chance(250).then(|| self.rng.below(4) as u32);
        let act = |action| Command::Act { caller: ada(), job, index, action };
        let command = match self.rng.below(9) {
            0 => act(JobAction::Cancel),
            1 => act(JobAction::Hold),
            2 => act(JobAction::Release),
            3 => act(JobAction::Requeue),
            4 => act(JobAction::RequeueAll),
            5 => act(JobAction::RequeueHeld { completed: false }),
            6 | 7 => Command::Change { caller: ada(), job, change: Box::new(self.make_change()) },
            _ => Command::Fetched {
                caller: ada(),
                job,
                indices: (0..4).collect(),
                attempt: self.rng.chance(300).then_some(Attempt(1)),
            },
        };
        self.request(command);
        self.plan_act(job);
    }

    /// Makes a change of a job, which may be refused.
    fn make_change(&mut self) -> JobChange {
        let none = JobChange::default();
        match self.rng.below(6) {
            0 => JobChange { priority: Some(self.rng.below(3) as i32 - 2), ..none },
            1 => JobChange { after: Some(self.make_dependencies()), ..none },
            2 => JobChange { cpus: Some(1), requeue: Some(self.rng.chance(500)), ..none },
            3 => JobChange { array_limit: Some(self.rng.below(3) as u32), ..none },
            _ => JobChange { time_limit_ms: Some(self.rng.below(4_000)), ..none },
        }
    }

    /// Sometimes schedules a change of a job. Each change may schedule another.
    fn plan_act(&mut self, job: JobId) {
        if self.rng.chance(450) {
            let at = if self.rng.chance(300) { self.rng.below(20 * MS) } else { self.rng.below(8 * SECOND) };
            self.user_later(at, UserStep::Act { job });
        }
    }

    fn tidy_up(&mut self) {
        let act = |job, index, action| Command::Act { caller: ada(), job, index, action };
        let mut wanted = Vec::new();
        for job in self.head.process.iter().flat_map(|process| process.state.jobs()) {
            if job.held || job.held_tasks.is_some() {
                wanted.push(act(job.id, None, JobAction::Release));
            }
            let forever = |run| self.nodes.iter().any(|node| node.runs_forever(run));
            let endless = job.active.values().filter(|active| active.ending.is_none() && forever(active.run));
            wanted.extend(endless.map(|active| act(job.id, Some(active.run.task.index), JobAction::Cancel)));
        }
        wanted.extend(self.resume_all());
        wanted.extend(self.repair_partitions());
        wanted.into_iter().for_each(|command| self.request(command));
        self.user_later(5 * SECOND, UserStep::TidyUp);
    }

    pub(super) fn request(&mut self, command: Command) {
        self.users.made += 1;
        let request = self.users.made;
        self.note(format_args!("request {request}: {}", brief(&command)));
        self.users.requests.insert(request, Asked { command });
        self.ask(request);
    }

    /// Sends a request, and repeats it later if no answer arrives.
    fn ask(&mut self, request: u64) {
        if !self.users.requests.contains_key(&request) {
            return;
        }
        let copies = if self.is_calm || self.rng.chance(900) { 1 } else { self.rng.below(3) };
        for _ in 0..copies {
            let latency = self.rng.skewed(2 * MS);
            self.user_later(latency, UserStep::Reach { request });
        }
        self.user_later(ANSWER_TIMEOUT, UserStep::ExecRequest { request });
    }

    fn reach(&mut self, request: u64) {
        let Some(asked) = self.users.requests.get(&request) else { return };
        if self.head.process.is_none() {
            return;
        }
        let environment = match &asked.command {
            Command::Submit { environment, .. } => environment.map(|digest| (digest, digest.0.to_vec().into())),
            _ => None,
        };
        let reply = Some(ReplyTo::User(request));
        let input = Input { environment, reply, ..Input::of(asked.command.clone()) };
        self.head_later(0, HeadStep::Command(Box::new(input)));
    }

    /// Sends the head's answer, which may be lost.
    pub(super) fn answer_user(&mut self, request: u64, answer: Answer) {
        if !self.is_calm && self.rng.chance(100) {
            return;
        }
        let latency = self.rng.skewed(2 * MS);
        self.user_later(latency, UserStep::Answered { request, answer });
    }

    fn answered(&mut self, request: u64, answer: Answer) {
        let Some(asked) = self.users.requests.get(&request) else { return };
        let command = asked.command.clone();
        match (&command, answer) {
            // The user retries after the timeout.
            (_, Err(NotDone::NotStored(_))) => return,
            // The head has not seen the required node yet, or the node is not in the partition now.
            (Command::Submit { .. }, Err(NotDone::Refused(Refusal::NeverFits(_) | Refusal::NoNodes(_)))) => return,
            (Command::Submit { .. }, Err(NotDone::Refused(Refusal::NoSuchPartition { .. }))) => return,
            (Command::Submit { key, .. }, Ok(Done { submitted: Some((job, _)) })) => self.acknowledged(*key, job),
            (Command::Submit { .. }, answer) => {
                self.books.record_violation(format!("a submission was answered with {answer:?}"));
            }
            (_, Err(NotDone::Refused(Refusal::NoSuchJob(job)))) => self.books.check_gone(job),
            (_, Ok(_) | Err(NotDone::Refused(_))) => {}
        }
        self.users.requests.remove(&request);
    }

    fn acknowledged(&mut self, key: SubmissionKey, job: JobId) {
        self.note(format_args!("job {job} is acknowledged"));
        let submission = self.users.submissions.get_mut(&key).expect("a user made this submission");
        submission.job = Some(job);
        let spec = Arc::clone(&submission.spec);
        self.books.acknowledge(key, job, &spec);
        self.plan_act(job);
    }
}

fn ada() -> Caller {
    Caller { user: "ada".to_owned(), uid: None, operator: false }
}

/// A short description of a request.
fn brief(command: &Command) -> String {
    match command {
        Command::Submit { .. } => "submit a job".to_owned(),
        Command::Act { job, index, action, .. } => format!("{action:?} job {job} {index:?}"),
        other => format!("{other:?}"),
    }
}
