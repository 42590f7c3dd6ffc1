//! The users of a world: their jobs and requests, and the steps that they take.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_core::head::{Answer, Command, SubmissionKey};
use hostler_model::{JobId, JobSpec};

use crate::cluster::rng::Rng;

/// The users' actions and pending requests.
#[derive(Default)]
pub(crate) struct Users {
    pub(crate) submissions: BTreeMap<SubmissionKey, Submission>,
    pub(crate) requests: BTreeMap<u64, Asked>,
    pub(crate) made: u64,
}

pub(crate) struct Submission {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) job: Option<JobId>,
}

/// A request to the head that has no answer yet.
pub(crate) struct Asked {
    pub(crate) command: Command,
}

/// A step of the users.
pub(crate) enum UserStep {
    /// A user makes a job and submits it.
    Submit,
    /// A request is sent, for the first time or again.
    ExecRequest { request: u64 },
    /// The request reaches the head's machine.
    Reach { request: u64 },
    /// Its answer arrives.
    Answered { request: u64, answer: Answer },
    /// A user changes a job.
    Act { job: JobId },
    /// An operator drains, resumes or removes a node.
    Operate,
    /// An operator changes a partition, or the features of a node.
    Arrange,
    /// An admin sets a quota.
    Limit { dice: Rng },
    /// Held jobs are released, and endless jobs are cancelled.
    TidyUp,
}

impl Users {
    /// Describes the pending requests.
    pub(crate) fn unanswered(&self) -> Option<String> {
        let request = self.requests.values().next()?;
        Some(format!("nobody has answered {:?}", request.command))
    }
}
