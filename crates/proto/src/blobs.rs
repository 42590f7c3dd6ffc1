//! Requests for blobs; part of [`crate::api`].

use hostler_model::{Digest, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request and answer of `POST /blobs/missing`. The request lists hashes. The answer repeats the hashes whose blobs the
/// head lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DigestList {
    /// Hashes of blobs.
    pub digests: Vec<Digest>,
}

/// Request body of `POST /blobs/fetch`: the requested blobs, and the results that contain them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobRequest {
    /// Hashes of the requested blobs.
    pub digests: Vec<Digest>,
    /// Tasks whose results contain the blobs. Operators may read any blob, even with an empty list; other users may
    /// read only blobs of results in the list.
    #[serde(default)]
    pub results: Vec<TaskId>,
}
