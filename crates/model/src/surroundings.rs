//! What surrounds the tasks of a job on their nodes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Container, ImageRef, SandboxNetwork};

/// What surrounds each task of a job: other jobs on its nodes, their machines, and the walls, network and root directory that it
/// gets.
///
/// The specification of a job, its details and its record have this struct, and their formats have its fields beside their own:
/// a new field needs no change there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Surroundings {
    /// Whether each task has its nodes to itself, with all their resources. `request` is then the least that a node must have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Whether the nodes change settings of their machines while a task runs, to disturb it less. For exclusive jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet_machine: bool,
    /// Whether each task runs in a sandbox: without the files of others and rights, and with its folder as the only lasting
    /// place that it may write to. For jobs on one node, or with the network of their nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sandbox: bool,
    /// The network of the sandbox. Jobs without a sandbox have that of their nodes.
    #[serde(default, skip_serializing_if = "SandboxNetwork::is_none")]
    pub network: SandboxNetwork,
    /// The image that the root directory of the sandbox comes from; the programs of the node when absent. Only the job's user
    /// and operators see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ImageRef>)]
    pub image: Option<Box<ImageRef>>,
    /// The container that each task runs in, instead of a sandbox. Only the job's user and operators see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Container>)]
    pub container: Option<Box<Container>>,
    /// Whether the job ends as out of memory if the kernel killed any of its processes for memory, even if its program went on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oom_fails: bool,
    /// Whether the image's entry point runs, with the words of the command as its arguments. Without words, it gets those that
    /// the image names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub entrypoint: bool,
    /// The command line that submitted the job, at most 4096 characters without control characters. Only shown, and only to the
    /// job's user and operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = r"^[^\x00-\x1f\x7f-\x9f]{0,4096}$")]
    // One word if there is none: a waiting job has little room.
    pub submit_line: Option<Box<String>>,
}

/// The largest size of a command line that submitted a job, in characters.
pub const MAX_SUBMIT_LINE: usize = 4096;
