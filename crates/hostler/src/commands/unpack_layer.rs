//! `hostler unpack-layer`, for agents: unpacks a layer of an image in a process of its own.

use std::path::PathBuf;

use clap::Args;
use hostler_agent::{LayerLimits, LayerOrder, Sha256, unpack_layer};
use hostler_cli::exit;
use hostler_cli::failure::{Failure, Outcome};

/// Unpack a layer of an image from standard input, or verify it
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct UnpackLayer {
    /// Position of the layer in the file, in bytes
    #[arg(long)]
    offset: u64,

    /// Size of the layer in the file, in bytes
    #[arg(long)]
    length: u64,

    /// Digest of the layer in the file
    #[arg(long)]
    digest: Option<Sha256>,

    /// Digest of the uncompressed layer
    #[arg(long)]
    diff_id: Sha256,

    /// Maximum size of all files, in bytes
    #[arg(long)]
    max_bytes: u64,

    /// Maximum number of entries
    #[arg(long)]
    max_entries: u64,

    /// Directory to unpack into; without it, the layer is only verified
    #[arg(long)]
    into: Option<PathBuf>,
}

impl UnpackLayer {
    pub(crate) fn run(self) -> Outcome {
        let Self { offset, length, digest, diff_id, max_bytes, max_entries, into } = self;
        let order = LayerOrder { offset, length, digest, diff_id };
        let limits = LayerLimits { bytes: max_bytes, entries: max_entries };
        unpack_layer(&order, into.as_deref(), limits).map_err(|error| Failure::new(format!("{error:#}")))?;
        Ok(exit::OK)
    }
}
