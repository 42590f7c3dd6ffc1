//! Checks that a new job and a changed job share: partition, nodes, priority and quotas.

use hostler_model::{Ability, JobSpec, PartitionName, Reason};
use hostler_sched::NeverFits;

use super::command::Refusal;
use super::partition::{Owner, Partition};
use super::partitions;
use super::quotas::{refuses_more_waiting, refuses_submission, refuses_tasks};
use super::schedule::asked;
use super::state::State;

/// Whose job is admitted, and at whose request.
pub(super) struct Admission<'a> {
    /// The owner of the job.
    pub(super) user: &'a str,
    /// The owner's uid, if known.
    pub(super) uid: Option<u32>,
    /// Whether an operator makes the request.
    pub(super) operator: bool,
    /// The specification that a change replaces; `None` for a new job.
    pub(super) before: Option<&'a JobSpec>,
}

impl Admission<'_> {
    /// Refuses a job that the cluster does not accept. `is_larger` says whether the job asks for other nodes or resources or more time
    /// than before; always true for a new job.
    pub(super) fn check(&self, state: &State, spec: &JobSpec, is_larger: bool) -> Result<(), Refusal> {
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
                    let remedy = match spec.sandbox {
                        true => format!("without `--network {}`", spec.network),
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
        if spec.sandbox && owner == Owner::Root {
            return Err(Refusal::Contradiction("a sandboxed job cannot belong to root; submit it as another user"));
        }
        if let Some(partition) = state.needs_sharing(owner, spec) {
            let why = "gives no job a node to itself, and no other partition has nodes for a job that names none; submit it without `--exclusive`";
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
