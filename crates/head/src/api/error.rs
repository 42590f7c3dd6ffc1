//! API errors for users: what happened, why, and what to do.

use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hostler_core::head::{Refusal, UsersRefusal};
use hostler_model::{PartitionName, TaskId};
use hostler_proto::api::ErrorBody;
use hostler_store::StoreError;

use crate::archive::ArchiveError;
use crate::blobs::LibraryError;
use crate::engine::EngineError;
use crate::notify::local_time;

/// Error code of a response, in its extensions for the audit log.
#[derive(Debug, Clone)]
pub(crate) struct ErrorCode(pub(crate) String);

/// Code of the error of a head that stops.
const STOPPING: &str = "stopping";

/// An error response.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    /// Creates an error without hints.
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { code: code.to_owned(), message: message.into(), hints: Vec::new() } }
    }

    /// One error for several of the same request; `None` if there are none.
    pub(crate) fn all(errors: Vec<Self>) -> Option<Self> {
        errors.into_iter().reduce(|mut all, other| {
            all.body.message = format!("{}; {}", all.body.message, other.body.message);
            all.body.hints.extend(other.body.hints);
            all.body.hints.dedup();
            all
        })
    }

    /// Whether the head stops, so that the request may have been carried out or not.
    pub(crate) fn is_stopping(&self) -> bool {
        self.body.code == STOPPING
    }

    /// The error as one of several answers.
    pub(crate) fn into_body(self) -> ErrorBody {
        self.body
    }

    /// Adds a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hints.push(hint.into());
        self
    }

    /// Creates the error for a malformed request.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// Creates the error for a body whose client sends too slowly. Clients send the request again.
    pub(crate) fn stalled() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "stalled", hostler_listen::Stalled.to_string())
    }

    /// Creates the error for a request that the head refuses because it accepts no new work at the moment.
    pub(crate) fn refusing(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "refusing", why).hint("running jobs continue; try again later")
    }

    /// Creates the error for a full disk on the head.
    pub(crate) fn disk_full(why: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", why)
            .hint("free space on the head's disk; running jobs continue")
    }

    /// Creates the error for a result that the head has deleted to free disk space.
    pub(crate) fn dropped(task: TaskId) -> Self {
        let why = format!(
            "the result of task {task} was fetched before; the head has deleted it and its output to free disk space"
        );
        Self::new(StatusCode::GONE, "result_dropped", why).hint("use the fetched copy: stdout.log, stderr.log")
    }

    /// Creates the error for a failure inside the head, and logs the details.
    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!("request failed: {error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("the head failed: {error}"))
            .hint("see the head's log")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = ErrorCode(self.body.code.clone());
        (self.status, Extension(code), Json(self.body)).into_response()
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Refused(refusal) => refusal.into(),
            EngineError::NotStored(_) => Self::new(StatusCode::INSUFFICIENT_STORAGE, "not_stored", error.to_string())
                .hint("nothing was changed; try again when the head's disk works")
                .hint("running jobs continue"),
            EngineError::NotRead(error) => error.into(),
            EngineError::Stopping => Self::new(StatusCode::SERVICE_UNAVAILABLE, STOPPING, error.to_string())
                .hint("try again when the head is back"),
        }
    }
}

impl From<ArchiveError> for ApiError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Store(error) => error.into(),
            ArchiveError::Damaged(_) | ArchiveError::Thread(_) => Self::internal(error),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = match &refusal {
            Refusal::NoSuchJob(_) | Refusal::Deleted { .. } | Refusal::NoSuchTask { .. } | Refusal::NoSuchNode(_) => {
                StatusCode::NOT_FOUND
            }
            Refusal::NoSuchPartition { .. } | Refusal::NoPower(_) => StatusCode::NOT_FOUND,
            Refusal::PartitionExists(_) | Refusal::PartitionInUse { .. } => StatusCode::CONFLICT,
            Refusal::PartitionRefuses { .. } => StatusCode::FORBIDDEN,
            Refusal::Users(UsersRefusal::NoSuchUser(_)) => StatusCode::NOT_FOUND,
            Refusal::Users(UsersRefusal::Blocked { .. }) => StatusCode::FORBIDDEN,
            // 422 is for requests that the API's description rules out. A valid request in conflict with the state is 409.
            Refusal::BadSpec(_) | Refusal::Users(UsersRefusal::BadReason) => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Users(_) => StatusCode::CONFLICT,
            Refusal::NotYours { .. } | Refusal::NotAllowed(_) | Refusal::KeyRefusal(_) => StatusCode::FORBIDDEN,
            Refusal::SnapshotMissing
            | Refusal::WrongState { .. }
            | Refusal::WrongTaskState { .. }
            | Refusal::NodeInUse { .. }
            | Refusal::Stale => StatusCode::CONFLICT,
            Refusal::OnlyCompleted(_) | Refusal::ResultsNotFetched { .. } | Refusal::NeverStarts { .. } => {
                StatusCode::CONFLICT
            }
            Refusal::OverQuota { .. } | Refusal::TooManyWaiting(_) => StatusCode::FORBIDDEN,
            Refusal::PriorityTooHigh { .. } | Refusal::SystemAccount { .. } => StatusCode::FORBIDDEN,
            Refusal::NotForRoot | Refusal::NotForRootOfNode | Refusal::NotThroughNodes(_) => StatusCode::FORBIDDEN,
            Refusal::NameTaken(_) | Refusal::NodePresent(_) | Refusal::NameOfUser { .. } => StatusCode::CONFLICT,
            Refusal::NeverFits(_)
            | Refusal::NoAbility { .. }
            | Refusal::NoSuchDependency(_)
            | Refusal::NoSuchTaskDependency(_)
            | Refusal::BadSetting(_) => StatusCode::CONFLICT,
            Refusal::NoNodes(_) | Refusal::BadPartition(_) | Refusal::Contradiction(_) => StatusCode::CONFLICT,
        };
        let hint = match &refusal {
            Refusal::NoPower(_) => Some("add the node's controller to power.toml; the guide on power has examples".to_owned()),
            Refusal::NotForRoot => Some(
                "submit the job as another user with an account on the nodes, or start the agents with `hostler agent run --root-jobs`"
                    .to_owned(),
            ),
            Refusal::NotThroughNodes(_) => Some(
                "submit the job as another user, or on the head's machine, or after `hostler login --head ADDRESS`; an admin can \
                 allow such jobs with `hostler configure setting roles-through-nodes yes`"
                    .to_owned(),
            ),
            Refusal::NoAbility { ability, .. } => {
                Some(format!("`hostler node show NAME` shows why a node {}", ability.negation()))
            }
            Refusal::NeverFits(_) => Some("request less; `hostler nodes` shows the available resources".to_owned()),
            Refusal::NoSuchPartition { there, .. } if there.is_empty() => {
                Some("there are no partitions; an operator can add one with `hostler configure partition add`".to_owned())
            }
            Refusal::NoSuchPartition { there, .. } => {
                let there: Vec<&str> = there.iter().map(PartitionName::as_str).collect();
                Some(format!("existing partitions: {}", there.join(", ")))
            }
            Refusal::PartitionExists(name) => {
                Some(format!("`hostler configure partition set {name}` changes the existing partition"))
            }
            Refusal::PartitionRefuses { partition, .. } => Some(format!(
                "`hostler configure partition show {partition}` shows its users and limits; `-p` selects another partition, `-t` sets a time limit"
            )),
            Refusal::PartitionInUse { partition, .. } => Some(format!(
                "`hostler configure partition set {partition} --state closed` lets waiting jobs start and accepts no new jobs"
            )),
            Refusal::NoNodes(_) => {
                Some("`hostler node show NAME` shows a node's resources and partitions".to_owned())
            }
            Refusal::OverQuota { group: Some(group), .. } => Some(format!(
                "all members of group {group} share this quota; an operator can list it with `hostler configure group \
                 list`, and an admin can change it"
            )),
            Refusal::OverQuota { group: None, .. } => {
                Some("`hostler configure user show NAME` shows your quota; an admin can change it".to_owned())
            }
            Refusal::TooManyWaiting(_) => Some(
                "submit again when some waiting jobs have started, or submit one array; an operator can change \
                the settings `waiting-jobs` and `waiting-bytes`"
                    .to_owned(),
            ),
            Refusal::SystemAccount { user, .. } => Some(format!(
                "submit the job as a person; an admin can allow this account with `hostler configure user add {user}`, or all \
                 system accounts with `hostler configure setting system-accounts yes`"
            )),
            Refusal::PriorityTooHigh { priority, most } => Some(format!(
                "use a priority of at most {most}, or ask an operator to raise the limit with \
                 `hostler configure setting user-priority {priority}`"
            )),
            Refusal::SnapshotMissing => Some("upload the chunks, commit the snapshot, then submit again".to_owned()),
            Refusal::Deleted { at, .. } => Some(format!(
                "the head deleted it at {}, because its disk was needed or the time of the setting `unfetched-retention` was over",
                local_time(*at)
            )),
            Refusal::NoSuchJob(_) => Some("`hostler jobs --all` also lists jobs that have ended".to_owned()),
            Refusal::NoSuchTask { job, .. } => Some(format!("`hostler job {job}` shows the job's tasks")),
            Refusal::NoSuchDependency(_) => Some("a job can depend only on jobs that were submitted before it".to_owned()),
            Refusal::NoSuchTaskDependency(task) => {
                Some(format!("`hostler job {}` shows the tasks of an array; a job without an array is named by its id alone", task.job))
            }
            Refusal::NotYours { owner, .. } => Some(format!("ask {owner}, or an operator of the cluster")),
            Refusal::NotAllowed(_) => Some("ask an operator of the cluster".to_owned()),
            Refusal::WrongState { job, .. } | Refusal::WrongTaskState { job, .. } => Some(format!("`hostler job {job}` shows the job's state")),
            Refusal::NeverStarts { dependency, .. } => {
                Some(format!("`hostler job {}` shows how that job ended", dependency.job))
            }
            Refusal::OnlyCompleted(job) => {
                Some(format!("`hostler requeue --completed {job}` also runs completed tasks again"))
            }
            Refusal::ResultsNotFetched { job, owner, .. } => {
                Some(format!("after `hostler fetch {job}` by {owner}, the job can be requeued; a new submission keeps both results"))
            }
            Refusal::NoSuchNode(_) => Some("`hostler nodes` lists all nodes".to_owned()),
            Refusal::NodeInUse { .. } => {
                Some("wait until the node's tasks have ended, or until `lost-after` has passed since the node's last message".to_owned())
            }
            Refusal::BadSetting(_) => {
                Some("`hostler configure setting` lists the settings and their allowed values; `--reset` restores a default".to_owned())
            }
            Refusal::NameOfUser { .. } => {
                Some("choose another name with `--name`, and create a join code for it with `hostler node invite`".to_owned())
            }
            Refusal::NodePresent(node) => Some(format!(
                "choose another name with `--name`, or replace the node with a code from `hostler node invite {node}`"
            )),
            Refusal::NameTaken(node) => Some(format!(
                "choose another name with `--name`; to replace the node, create a join code with `hostler node invite {node}`"
            )),
            Refusal::Users(UsersRefusal::NoSuchUser(_)) => {
                Some("`hostler configure user list` lists the users; `hostler configure user add` adds one".to_owned())
            }
            Refusal::Users(UsersRefusal::Blocked { .. }) => {
                Some("ask an admin of the cluster, who can unblock you".to_owned())
            }
            Refusal::Users(UsersRefusal::UnknownUid(name)) => Some(format!(
                "`id -u {name}` on a node shows the uid; pass it to `hostler configure user block {name} --uid N`"
            )),
            Refusal::NotForRootOfNode | Refusal::BadPartition(_) | Refusal::Contradiction(_) => None,
            Refusal::Users(_) | Refusal::BadSpec(_) => None,
            Refusal::KeyRefusal(_) | Refusal::Stale => None,
        };
        let error = Self::new(status, refusal.code(), refusal.to_string());
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

impl From<LibraryError> for ApiError {
    fn from(error: LibraryError) -> Self {
        use hostler_snapshot::StoreError as Chunks;
        let message = error.to_string();
        match error {
            LibraryError::Missing(_) => Self::new(StatusCode::NOT_FOUND, "no_such_blob", message)
                .hint("upload the blob again; the head deletes unused blobs after an hour"),
            LibraryError::Incomplete { .. } => Self::new(StatusCode::CONFLICT, "chunks_missing", message)
                .hint("upload the missing chunks; POST /api/v1/blobs/missing lists them"),
            LibraryError::NotAManifest(_) | LibraryError::BadManifest(_) => {
                Self::new(StatusCode::CONFLICT, "bad_manifest", message)
            }
            LibraryError::Chunks(Chunks::DiskFull { .. }) => Self::disk_full(message),
            LibraryError::Chunks(Chunks::Refused { source, .. }) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_chunk", format!("{message}: {source}"))
            }
            LibraryError::Chunks(Chunks::Missing(_) | Chunks::Corrupt { .. } | Chunks::Io { .. }) => {
                Self::internal(message)
            }
            LibraryError::Table(error) => error.into(),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        if error.is_disk_full() { Self::disk_full(error.to_string()) } else { Self::internal(error) }
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        rejected(rejection.status(), &rejection.body_text())
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        rejected(rejection.status(), &rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        rejected(StatusCode::BAD_REQUEST, &rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        rejected(StatusCode::BAD_REQUEST, &rejection.body_text())
    }
}

fn rejected(status: StatusCode, text: &str) -> ApiError {
    ApiError::new(status, "bad_request", text)
}
