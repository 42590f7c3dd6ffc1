//! Requests for blobs; part of [`crate::api`].

use hostler_model::{Digest, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /blobs/missing`: the request lists hashes, and the answer lists those that the head lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DigestList {
    /// Content hashes.
    pub digests: Vec<Digest>,
}

/// `POST /blobs/fetch`: the requested blobs, and the results that contain them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobRequest {
    /// Content hashes.
    pub digests: Vec<Digest>,
    /// Tasks whose results contain the blobs. Operators need none; other users may read only blobs of these results.
    #[serde(default)]
    pub results: Vec<TaskId>,
}
