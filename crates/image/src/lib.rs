//! Images of root file systems: what an image on the disk consists of, and how its layers become a directory.
//!
//! - [`source`]: finds configuration and layers of an image in an OCI layout, in an archive that `docker save` has written, or in
//!   what a registry has sent.
//! - [`layer`]: unpacks one layer into a directory.
//! - [`digest`]: SHA-256 digests, by which images and layers are known.
//!
//! An image may be hostile. Everything that is read into memory has a limit, and each path of a layer is resolved
//! below the target directory. The caller opens images with the rights of the user who names them, and unpacks layers
//! in a process without other rights.
//!
//! **Not included:** connections to registries, signatures, and images for other processors.

#![warn(missing_docs)]

mod compression;
pub mod digest;
pub mod layer;
pub mod source;

pub use compression::Compression;
pub use digest::{Hasher, Sha256};
pub use layer::{Applied, LayerError, LayerOrder, Limits};
pub use source::{Blob, Config, Document, Image, ImageError, Layer, MAX_JSON_BYTES, Remote, read_small};
