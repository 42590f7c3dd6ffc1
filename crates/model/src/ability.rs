//! Abilities: what only some nodes can do, and only some jobs need.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{JobSpec, NodeFacts, SandboxNetwork};

/// Something that only some nodes can do, and that a job may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// The node runs sandboxed jobs.
    Sandbox,
    /// The node runs jobs with an image.
    Image,
    /// The node makes its machine quiet for a job.
    QuietMachine,
    /// The node connects sandboxes of the same job on several nodes.
    JobNetwork,
}

impl Ability {
    /// All abilities. An ability comes after those without which it has no use.
    pub const ALL: [Self; 4] = [Self::Sandbox, Self::Image, Self::QuietMachine, Self::JobNetwork];

    /// Returns what a node with the ability does, e.g. `runs images`.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Sandbox => "runs sandboxed jobs",
            Self::Image => "runs images",
            Self::QuietMachine => "makes its machine quiet",
            Self::JobNetwork => "connects the sandboxes of a job",
        }
    }

    /// Returns what is true of a node without the ability, e.g. `runs no images`.
    #[must_use]
    pub const fn negation(self) -> &'static str {
        match self {
            Self::Sandbox => "runs no sandboxed jobs",
            Self::Image => "runs no images",
            Self::QuietMachine => "does not make its machine quiet",
            Self::JobNetwork => "does not connect the sandboxes of a job",
        }
    }
}

impl NodeFacts {
    /// Returns whether the node has an ability.
    #[must_use]
    pub const fn can(&self, ability: Ability) -> bool {
        match ability {
            Ability::Sandbox => self.runs_sandboxes,
            Ability::Image => self.runs_images,
            Ability::QuietMachine => self.quiets_machine,
            Ability::JobNetwork => self.connects_sandboxes,
        }
    }

    /// Returns why the node lacks an ability, and what to do.
    #[must_use]
    pub fn why_not(&self, ability: Ability) -> &str {
        let why = match ability {
            Ability::Sandbox => &self.advisory.sandbox,
            // Every agent that knows images runs them where it runs sandboxed jobs.
            Ability::Image => &None,
            Ability::QuietMachine => &self.advisory.quiet_machine,
            Ability::JobNetwork => &self.advisory.job_network,
        };
        why.as_deref().unwrap_or("its agent is too old; upgrade Hostler there")
    }
}

impl<Count, Amounts> JobSpec<Count, Amounts> {
    /// Returns whether the job needs nodes with an ability.
    #[must_use]
    pub const fn needs(&self, ability: Ability) -> bool {
        match ability {
            Ability::Sandbox => self.surroundings.sandbox,
            Ability::Image => self.surroundings.image.is_some(),
            Ability::QuietMachine => self.surroundings.quiet_machine,
            // Also on one node: older agents do not know such a network.
            Ability::JobNetwork => matches!(self.surroundings.network, SandboxNetwork::Job),
        }
    }

    /// Returns whether a node with these facts has all abilities that the job needs.
    #[must_use]
    pub fn fits_abilities(&self, facts: &NodeFacts) -> bool {
        Ability::ALL.into_iter().all(|ability| facts.can(ability) || !self.needs(ability))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_older_agents_lack_later_abilities() {
        let old = r#"{"boot":"1","resources":{"cpus":"0","memory_bytes":1,"gpus":[]},"runs_sandboxes":true}"#;
        let facts: NodeFacts = serde_json::from_str(old).expect("readable");
        assert_eq!(Ability::ALL.map(|ability| facts.can(ability)), [true, false, false, false]);
        assert_eq!(facts.why_not(Ability::Image), "its agent is too old; upgrade Hostler there");
    }
}
