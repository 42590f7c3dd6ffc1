//! Files that remember something about each path of a folder. They are only caches: a file that is missing, damaged or of
//! another version counts as empty.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Remembered values by path.
pub(crate) type ByPath<T> = HashMap<ByteBuf, T>;

#[derive(Serialize, Deserialize)]
struct IndexFile<F> {
    version: u16,
    files: F,
}

const VERSION: u16 = 2;

/// Replaces the file at `path` atomically.
pub(crate) fn save<T: Serialize>(path: &Path, files: &ByPath<T>) -> io::Result<()> {
    let encoded = hostler_proto::encode(&IndexFile { version: VERSION, files });
    hostler_sys::replace_file_unflushed(path, &encoded, 0o600)
}

pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> ByPath<T> {
    let decode = |bytes: Vec<u8>| hostler_proto::decode::<IndexFile<ByPath<T>>>(&bytes).ok();
    let file = fs::read(path).ok().and_then(decode).filter(|file| file.version == VERSION);
    file.map(|file| file.files).unwrap_or_default()
}
