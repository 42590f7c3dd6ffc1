//! Checks that a new job and a changed job share: the specification alone, dependencies, partition, nodes, priority and quotas.

use hostler_model::{
    Ability, Dependency, JobSpec, LEAST_MEMORY_BYTES, MAX_SUBMIT_LINE, PartitionName, Reason, TaskId, Work,
    format_bytes, is_job_name, labels_problem,
};
use hostler_sched::NeverFits;

use super::ended::{Ended, any_job};
use super::requests::asked;
use crate::head::command::Refusal;
use crate::head::limits::MAX_DEPENDENCIES;
use crate::head::nodes::partition::{Owner, Partition};
use crate::head::nodes::partitions;
use crate::head::notifications::MAX_SUBSCRIPTIONS;
use crate::head::state::State;
use crate::head::users::quotas::{refuses_more_waiting, refuses_submission, refuses_tasks};

/// The largest number of tasks in an array.
const MAX_ARRAY_LEN: u64 = 1_000_001;

/// The largest number of ranges in an array. Each set of the job's tasks can have as many, and each change of the job may copy
/// them.
const MAX_RANGES: usize = 10_000;

/// The longest time between TERM and KILL that a job may ask for, in milliseconds. A program that ignores TERM holds its nodes
/// for this long after its time limit, or after somebody has cancelled it.
const MAX_GRACE_MS: u32 = 60 * 60 * 1000;

/// The largest number of processes per node.
const MAX_TASKS_PER_NODE: u32 = 4096;

/// Whose job is admitted, and at whose request.
pub(in crate::head) struct Admission<'a> {
    /// The owner of the job.
    pub(in crate::head) user: &'a str,
    /// The owner's uid, if known.
    pub(in crate::head) uid: Option<u32>,
    /// Whether an operator makes the request.
    pub(in crate::head) operator: bool,
    /// The specification that a change replaces; `None` for a new job.
    pub(in crate::head) before: Option<&'a JobSpec>,
}

impl Admission<'_> {
    /// Refuses a job that the cluster does not accept. `is_larger` says whether the job asks for other nodes or resources or more time
    /// than before; always true for a new job.
    pub(in crate::head) fn check(&self, state: &State, spec: &JobSpec, is_larger: bool) -> Result<(), Refusal> {
        if is_larger {
            self.check_nodes(state, spec)?;
        }
        let most = state.settings.user_priority;
        let has_new_priority = self.before.is_none_or(|before| before.priority != spec.priority);
        if !self.operator && has_new_priority && i64::from(spec.priority) > i64::from(most) {
            return Err(Refusal::PriorityTooHigh { priority: spec.priority, most });
        }
        if !self.operator
            && let Some(why) = refuses_more_waiting(state, self.user, spec, self.before)
        {
            return Err(Refusal::TooManyWaiting(why));
        }
        let over_quota = match self.before {
            None => refuses_submission(state, self.user, spec),
            // The tasks wait already.
            Some(_) if is_larger => refuses_tasks(state, self.user, spec, 0),
            Some(_) => None,
        };
        over_quota.map_or(Ok(()), Err)
    }

    /// Refuses a job that needs a sandbox or another ability, and cannot have it. Names the partition that demands a sandbox.
    fn check_abilities(&self, state: &State, owner: Owner, spec: &JobSpec) -> Result<(), Refusal> {
        let refuses = |partition: &PartitionName, why: String| {
            Err(Refusal::PartitionRefuses {
                partition: partition.clone(),
                why: format!("runs its jobs in a sandbox, {why}"),
            })
        };
        let demanding =
            spec.partition.as_ref().filter(|name| state.partitions.get(name).is_some_and(Partition::demands_sandbox));
        match (demanding, state.missing_ability(spec)) {
            (Some(name), Some((Ability::Sandbox, node, why))) => {
                return refuses(name, format!("which none of the job's nodes can do; node {node}: {why}"));
            }
            (_, Some((ability, node, why))) => {
                return Err(Refusal::NoAbility { ability, node: node.clone(), why: why.to_owned() });
            }
            (_, None) => {}
        }
        match demanding {
            Some(name) if owner == Owner::Root => {
                refuses(name, "and no job in a sandbox can belong to root".to_owned())
            }
            Some(_) => Ok(()),
            None => match state.needs_sandbox(owner, spec) {
                Some(name) => {
                    let remedy = match spec.surroundings.sandbox {
                        true => format!("without `--network {}`", spec.surroundings.network),
                        false => "with `--sandbox`".to_owned(),
                    };
                    refuses(
                        name,
                        format!("and no other partition has nodes for a job that names none; submit it {remedy}"),
                    )
                }
                None => Ok(()),
            },
        }
    }

    /// Refuses a job that its partition does not accept, or that no node can ever run.
    fn check_nodes(&self, state: &State, spec: &JobSpec) -> Result<(), Refusal> {
        let enters = self.before.is_none_or(|before| before.partition != spec.partition);
        partitions::admit(state, self.user, spec, enters)?;
        let owner = state.owner(self.user, self.uid);
        self.check_abilities(state, owner, spec)?;
        if spec.surroundings.sandbox && owner == Owner::Root {
            return Err(Refusal::Contradiction("a sandboxed job cannot belong to root; submit it as another user"));
        }
        if let Some(partition) = state.needs_sharing(owner, spec) {
            let why = "does not allow exclusive jobs, and no other partition has nodes for this job; submit it without `--exclusive`";
            return Err(Refusal::PartitionRefuses { partition: partition.clone(), why: why.to_owned() });
        }
        if state.all_refuse(owner, spec) {
            return Err(match owner {
                Owner::ThroughNode if self.user.starts_with("root@") => Refusal::NotForRootOfNode,
                Owner::ThroughNode => Refusal::NotThroughNodes(self.user.to_owned()),
                _ => Refusal::NotForRoot,
            });
        }
        match state.pool.admit(&asked(state, owner, spec)).map_err(|refusal| *refusal) {
            // The cluster has no nodes yet; a large enough node may join later.
            Ok(()) | Err(NeverFits::NoNodes) => Ok(()),
            Err(NeverFits::NoNodeAllowed) if spec.partition.is_none() && spec.constraint.is_none() => Ok(()),
            Err(NeverFits::NoNodeAllowed) => Err(Refusal::NoNodes(Reason::NoNodes {
                partition: spec.partition.clone(),
                constraint: spec.constraint.clone(),
                for_root: false,
                abilities: Vec::new(),
            })),
            Err(too_large) => Err(Refusal::NeverFits(Box::new(too_large))),
        }
    }
}

/// Refuses dependencies on jobs and tasks that do not exist.
pub(in crate::head) fn check_dependencies<'a>(
    state: &State,
    ended: &Ended,
    after: impl IntoIterator<Item = &'a Dependency>,
) -> Result<(), Refusal> {
    for dependency in after {
        let is_of_task = state.job_with_number(dependency.job).is_some_and(|job| job.id != dependency.job);
        if dependency.job.0 >= state.next_job().0 || dependency.job.0 == 0 || is_of_task {
            return Err(Refusal::NoSuchDependency(dependency.job));
        }
        // The head has deleted a forgotten job, and its tasks are unknown.
        if let (Some(index), Ok(job)) = (dependency.task, any_job(state, ended, dependency.job))
            && !job.spec.array.as_ref().is_some_and(|array| array.indices.contains(index))
        {
            return Err(Refusal::NoSuchTaskDependency(TaskId { job: dependency.job, index }));
        }
    }
    Ok(())
}

/// Checks the specification, regardless of the nodes: returns an error if it is invalid.
pub(in crate::head) fn check_spec(spec: &JobSpec) -> Result<(), Refusal> {
    let bad = |text: &str| Err(Refusal::BadSpec(text.to_owned()));
    if spec.request.cpus == 0 {
        return bad("a job needs at least one CPU");
    }
    if spec.nodes == 0 || spec.tasks_per_node == 0 {
        return bad("a job needs at least one node, and at least one process on each");
    }
    if spec.tasks_per_node > MAX_TASKS_PER_NODE {
        return bad("a job has at most 4096 processes on a node");
    }
    if spec.pty.is_some() && spec.world_size() > 1 {
        return Err(Refusal::Contradiction(
            "a job of several processes cannot have a terminal; request one process, or no terminal",
        ));
    }
    if spec.request.memory_bytes < LEAST_MEMORY_BYTES {
        let (asked, least) = (format_bytes(spec.request.memory_bytes), format_bytes(LEAST_MEMORY_BYTES));
        return Err(Refusal::BadSpec(format!("a job needs at least {least} of memory; this job asks for {asked}")));
    }
    if !is_job_name(&spec.name) {
        return bad("a job's name must have 1 to 255 characters and no control characters");
    }
    if spec.time_limit_ms == Some(0) {
        return bad("a time limit of zero is not allowed; omit the time limit to have none");
    }
    if spec.array.as_ref().is_some_and(|array| array.indices.is_empty() || array.indices.len() > MAX_ARRAY_LEN) {
        return bad("an array must have between one and a million tasks");
    }
    if let Some(many) = spec.array.as_ref().map(|array| array.indices.range_count()).filter(|many| *many > MAX_RANGES) {
        return Err(Refusal::BadSpec(format!(
            "an array may have at most {MAX_RANGES} ranges of indices without gaps, and this one has {many}; number the tasks one after \
             another, or submit several arrays"
        )));
    }
    if spec.grace_ms.is_some_and(|grace| grace > MAX_GRACE_MS) {
        return bad("a job may have at most one hour between the request to end and its kill");
    }
    if spec.subscriptions().len() > MAX_SUBSCRIPTIONS {
        return Err(Refusal::BadSpec(format!("a job has at most {MAX_SUBSCRIPTIONS} notifications")));
    }
    if let Some(problem) = spec.files.as_ref().and_then(|files| files.problem()) {
        return bad(problem);
    }
    let is_line = |line: &str| line.chars().count() <= MAX_SUBMIT_LINE && !line.contains(char::is_control);
    if spec.surroundings.submit_line.as_deref().is_some_and(|line| !is_line(line)) {
        return bad("`submit_line` must have at most 4096 characters, and no control characters");
    }
    if let Some(problem) = spec.labels.as_deref().and_then(labels_problem) {
        return Err(Refusal::BadSpec(problem));
    }
    if spec.holder.is_some() {
        let is_plain = spec.first_node && spec.array.is_none() && spec.pty.is_none() && spec.files.is_none();
        if !is_plain || !matches!(spec.work, Work::Command { script: None, .. }) {
            return Err(Refusal::Contradiction(
                "an allocation without a program is a command with `first_node`, without an array, a terminal, a script and files",
            ));
        }
    }
    if spec.constraint.as_ref().is_some_and(|constraint| !constraint.is_readable()) {
        return bad(
            "the constraint is too long or nested too deeply, together with the feature that `--runtime` demands; shorten the \
             `--constraint`",
        );
    }
    if spec.surroundings.container.is_some() && !spec.fits_container() {
        return Err(Refusal::Contradiction(
            "a job in a container of an engine has no sandbox, and one process on each node, without steps; omit `--sandbox`, \
             `--network`, `-n`, `--first-node` and `--label`, or `--runtime`",
        ));
    }
    if spec.surroundings.sandbox && !spec.fits_sandbox() {
        return Err(Refusal::Contradiction(
            "a sandboxed job has one node, or several with `--network job` or `host`, and a program of its own, which \
             starts its steps",
        ));
    }
    if !spec.surroundings.sandbox && !spec.surroundings.network.is_none() {
        return Err(Refusal::Contradiction("a job without a sandbox has the network of its nodes; add `--sandbox`"));
    }
    if spec.surroundings.quiet_machine && !spec.surroundings.exclusive {
        return Err(Refusal::Contradiction(
            "only a job that has its nodes to itself may change settings of their machines; add `--exclusive`",
        ));
    }
    if spec.surroundings.image.is_some() && !spec.surroundings.sandbox {
        return Err(Refusal::Contradiction("a job with an image has a sandbox; add `--sandbox`"));
    }
    let has_image = spec.surroundings.image.is_some() || spec.surroundings.container.is_some();
    if spec.surroundings.entrypoint && !(has_image && matches!(spec.work, Work::Command { script: None, .. })) {
        return Err(Refusal::Contradiction(
            "only a command with an image runs the image's entry point: a project has its own, and a script is a program",
        ));
    }
    if spec.files.is_some() && spec.pty.is_some() {
        return Err(Refusal::Contradiction("a job in a terminal reads and writes no files"));
    }
    if spec.after.len() > MAX_DEPENDENCIES {
        let many = spec.after.len();
        return Err(Refusal::BadSpec(format!(
            "a job may depend on at most {MAX_DEPENDENCIES} jobs, and this job depends on {many}; add intermediate jobs that each \
             depend on a part of these jobs"
        )));
    }
    if spec.after.iter().any(|it| it.alternative) && (spec.singleton || spec.after.iter().any(|it| !it.alternative)) {
        return Err(Refusal::Contradiction(
            "a job starts when one of several alternatives holds (all with `?`), or when all conditions hold (none with `?`, and always \
             for a singleton)",
        ));
    }
    match &spec.work {
        Work::Project { entrypoint, .. } if entrypoint.is_empty() => bad("the project's entry point is empty"),
        Work::Command { argv, .. } if !spec.surroundings.entrypoint && argv.first().is_none_or(String::is_empty) => {
            bad("the command is empty")
        }
        Work::Command { directory, .. } if !directory.starts_with('/') => {
            bad("the command's directory is not an absolute path")
        }
        Work::Project { .. } | Work::Command { .. } => Ok(()),
    }
}
