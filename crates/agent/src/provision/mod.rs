//! What a run needs before it starts.
//!
//! - [`stage`] and [`environment`]: folder, environment and command line; [`variables`]: environment variables.
//! - [`images`]: images of root directories, unpacked once, and how they come from registries.
//! - [`transfer`]: upload and download of chunks.
//! - [`gpus`] and [`driver`]: the GPUs of runs, and the files of their driver in an image.
//! - [`program_directory`] and [`program_in_image`]: this program, for jobs that call it.

pub(crate) mod driver;
pub mod environment;
pub(crate) mod gpus;
pub(crate) mod images;
pub(crate) mod program_directory;
pub(crate) mod program_in_image;
pub(crate) mod stage;
pub(crate) mod transfer;
pub(crate) mod variables;
