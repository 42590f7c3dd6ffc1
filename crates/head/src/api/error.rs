//! Errors as users read them: what happened, why, and what to do.

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

/// The word of a refusal, among its answer's extensions.
#[derive(Debug, Clone)]
pub(crate) struct ErrorCode(pub(crate) String);

/// An answer that says no.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    /// An error without hints.
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { code: code.to_owned(), message: message.into(), hints: Vec::new() } }
    }

    /// The same with one more thing to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hints.push(hint.into());
        self
    }

    /// The request makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// Nothing new is accepted at the moment.
    pub(crate) fn refusing(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "refusing", why).hint("running jobs go on; try again later")
    }

    /// The disk has no room.
    pub(crate) fn disk_full(why: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", why)
            .hint("make room on the head's disk; jobs that run already go on")
    }

    /// The result is not on the head any more.
    pub(crate) fn dropped(task: TaskId) -> Self {
        let why = format!(
            "the result of task {task} was fetched before and has been dropped to make room, its output with it"
        );
        Self::new(StatusCode::GONE, "result_dropped", why).hint("it is where it was fetched to: stdout.log, stderr.log")
    }

    /// A failure of the head itself, which its log explains.
    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!("request failed: {error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("the head failed: {error}"))
            .hint("the head's log says more")
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
                .hint("nothing has happened; try again when the head's disk works")
                .hint("running jobs go on"),
            EngineError::NotRead(error) => error.into(),
            EngineError::Stopping => Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string())
                .hint("try again when it is back"),
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
            Refusal::NoSuchJob(_) | Refusal::NoSuchTask { .. } | Refusal::NoSuchNode(_) => StatusCode::NOT_FOUND,
            Refusal::NoSuchPartition { .. } | Refusal::NoPower(_) => StatusCode::NOT_FOUND,
            Refusal::PartitionExists(_) | Refusal::PartitionInUse { .. } => StatusCode::CONFLICT,
            Refusal::PartitionRefuses { .. } => StatusCode::FORBIDDEN,
            Refusal::Users(UsersRefusal::NoSuchUser(_)) => StatusCode::NOT_FOUND,
            Refusal::Users(UsersRefusal::Twice(_) | UsersRefusal::TooMany(_)) => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Users(UsersRefusal::Blocked { .. }) => StatusCode::FORBIDDEN,
            Refusal::Users(UsersRefusal::UnknownUid(_) | UsersRefusal::BadReason) => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Users(_) => StatusCode::CONFLICT,
            Refusal::NotYours { .. } | Refusal::Unwelcome(_) => StatusCode::FORBIDDEN,
            Refusal::SnapshotMissing | Refusal::WrongState { .. } | Refusal::NodeInUse { .. } | Refusal::Stale => {
                StatusCode::CONFLICT
            }
            Refusal::OverQuota(_) | Refusal::TooMuchWaits(_) => StatusCode::FORBIDDEN,
            Refusal::NotForRoot | Refusal::NotForRootOfNode | Refusal::NotThroughNodes(_) => StatusCode::FORBIDDEN,
            Refusal::NameTaken(_) => StatusCode::CONFLICT,
            Refusal::NeverFits(_) | Refusal::NoSuchDependency(_) | Refusal::BadSpec(_) | Refusal::BadSetting(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Refusal::NoNodes(_) | Refusal::BadPartition(_) => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let hint = match &refusal {
            Refusal::NoPower(_) => Some("say there how its machine is switched; the guide on power has an example for each kind".to_owned()),
            Refusal::NotForRoot => Some(
                "submit it as another user, who needs an account on the nodes; or start their agents with `hostler agent run --root-jobs`"
                    .to_owned(),
            ),
            Refusal::NotThroughNodes(_) => Some(
                "submit it as another user, on the head's machine, or after `hostler login` with `--head` and the head's address; an admin can \
                 allow it with `hostler configure setting roles-through-nodes yes`"
                    .to_owned(),
            ),
            Refusal::NeverFits(_) => Some("ask for less, or see what there is with `hostler nodes`".to_owned()),
            Refusal::NoSuchPartition { there, .. } if there.is_empty() => {
                Some("there are none; an operator makes one with `hostler configure partition add`".to_owned())
            }
            Refusal::NoSuchPartition { there, .. } => {
                let there: Vec<&str> = there.iter().map(PartitionName::as_str).collect();
                Some(format!("there are {}", there.join(", ")))
            }
            Refusal::PartitionExists(name) => {
                Some(format!("`hostler configure partition set {name}` changes what it is"))
            }
            Refusal::PartitionRefuses { partition, .. } => Some(format!(
                "`hostler configure partition show {partition}` shows its limits; `-p` names another, `-t` a time limit"
            )),
            Refusal::PartitionInUse { partition, .. } => Some(format!(
                "`hostler configure partition set {partition} --state closed` lets them start and takes no others"
            )),
            Refusal::NoNodes(_) => {
                Some("`hostler node show` and a name shows what a node has and which partitions it is in".to_owned())
            }
            Refusal::OverQuota(_) => {
                Some("`hostler configure user show` with your name shows your quota; an admin can change it".to_owned())
            }
            Refusal::TooMuchWaits(_) => Some(
                "submit it when some of them have started, or make one array of them; an operator can change the settings `waiting-jobs` and `waiting-bytes`"
                    .to_owned(),
            ),
            Refusal::SnapshotMissing => Some("upload its chunks and commit the snapshot, then submit again".to_owned()),
            Refusal::NoSuchJob(_) => Some("`hostler jobs` lists the jobs that are known".to_owned()),
            Refusal::NoSuchTask { job, .. } => Some(format!("`hostler job {job}` shows its array")),
            Refusal::NoSuchDependency(_) => Some("depend on a job that was submitted before".to_owned()),
            Refusal::NotYours { owner, .. } => Some(format!("ask {owner}, or an operator of the cluster")),
            Refusal::WrongState { job, .. } => Some(format!("`hostler job {job}` shows where it stands")),
            Refusal::NoSuchNode(_) => Some("`hostler nodes` lists the nodes that are known".to_owned()),
            Refusal::NodeInUse { .. } => {
                Some("its tasks end, or are given up a minute after it was last heard".to_owned())
            }
            Refusal::BadSetting(_) => {
                Some("`hostler configure setting` lists the settings and what they may be; with `--reset` one is what it is by default".to_owned())
            }
            Refusal::NameTaken(node) => Some(format!(
                "choose another name with `--name`; a code that is to replace it is made by `hostler node invite {node}`"
            )),
            Refusal::Users(UsersRefusal::NoSuchUser(_)) => {
                Some("`hostler configure user list` shows who is known, `… user add` adds someone".to_owned())
            }
            Refusal::Users(UsersRefusal::Blocked { .. }) => {
                Some("ask an admin of the cluster, who can let you in again".to_owned())
            }
            Refusal::Users(UsersRefusal::UnknownUid(name)) => Some(format!(
                "`id -u {name}` on a node shows it; name it with `hostler configure user block {name} --uid N`"
            )),
            Refusal::NotForRootOfNode
            | Refusal::BadPartition(_) => None,
            Refusal::Users(_) | Refusal::BadSpec(_) | Refusal::Unwelcome(_) | Refusal::Stale => None,
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
                .hint("blobs that no job refers to are removed after an hour; upload it again"),
            LibraryError::Incomplete { .. } => Self::new(StatusCode::CONFLICT, "chunks_missing", message)
                .hint("ask which with POST /api/v1/blobs/missing and upload those"),
            LibraryError::NotAManifest(_) | LibraryError::BadManifest(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_manifest", message)
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
