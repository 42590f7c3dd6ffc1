//! Checks whether a manifest is safe to use. Every manifest from another machine is checked before every use.
//!
//! A manifest that passes lists every path once, below directories that it lists too, and its links stay inside the
//! folder. Laying it out into an empty directory then cannot touch anything outside.

use std::collections::{HashMap, HashSet};

use hostler_proto::manifest::{Content, Entry, EntryKind, Manifest, VERSION};

use crate::chunk::MAX_BYTES;
use crate::paths::{self, show, stays_inside};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// A newer version of Hostler wrote the manifest.
    #[error("the manifest has version {found}; this program reads up to {VERSION}")]
    Version { found: u16 },
    /// An entry is invalid.
    #[error("the manifest is invalid: {}: {why}", show(.path))]
    Entry {
        path: Vec<u8>,
        /// What is wrong with the entry, as a phrase.
        why: &'static str,
    },
}

/// Checks `manifest` in full; see the module's documentation.
///
/// # Errors
/// The first problem found.
pub fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    check_but_links(manifest)?;
    check_links(manifest)
}

/// Checks `manifest` except the targets of its links. Sufficient for a folder in which only its own user follows links.
///
/// # Errors
/// The first problem found.
pub fn check_but_links(manifest: &Manifest) -> Result<(), ManifestError> {
    if manifest.version > VERSION {
        return Err(ManifestError::Version { found: manifest.version });
    }
    check_entries(manifest.entries.iter().map(|entry| (entry, false)))
}

/// Checks entries as [`check_but_links`] does. The flag of an entry says that the entry itself was checked before; its
/// position is checked in any case.
///
/// # Errors
/// The first problem found.
pub fn check_entries<'e>(entries: impl IntoIterator<Item = (&'e Entry, bool)>) -> Result<(), ManifestError> {
    let mut directories: HashSet<&[u8]> = HashSet::new();
    let (mut last, mut inside): (&[u8], &[u8]) = (&[], &[]);
    for (entry, was_checked) in entries {
        let parent = paths::parent(&entry.path);
        // A directory comes before its entries.
        let is_listed = |parent| parent == inside || directories.contains(parent);
        let why = if let Some(fault) = (!was_checked).then(|| paths::fault(&entry.path)).flatten() {
            Some(fault)
        } else if entry.path.as_slice() <= last {
            Some("the entry is listed twice or out of order")
        } else if !parent.is_empty() && !is_listed(parent) {
            Some("the entry's parent is not listed as a directory")
        } else if was_checked {
            None
        } else {
            fault_of(entry)
        };
        if let Some(why) = why {
            return Err(ManifestError::Entry { path: entry.path.clone(), why });
        }
        if entry.kind == EntryKind::Directory {
            directories.insert(&entry.path);
        }
        (last, inside) = (&entry.path, parent);
    }
    Ok(())
}

fn check_links(manifest: &Manifest) -> Result<(), ManifestError> {
    let links = || {
        manifest.entries.iter().filter_map(|entry| match &entry.kind {
            EntryKind::Symlink { target } => Some((entry.path.as_slice(), target.as_slice())),
            _ => None,
        })
    };
    let by_path: HashMap<&[u8], &[u8]> = links().collect();
    let link_at = |path: &[u8]| by_path.get(path).copied();
    let mut effort = paths::EFFORT;
    for (path, target) in links() {
        if !stays_inside(path, target, &link_at, &mut effort) {
            let why = if effort == 0 {
                "following the folder's links takes too long"
            } else {
                "the link leads out of the folder"
            };
            return Err(ManifestError::Entry { path: path.to_vec(), why });
        }
    }
    Ok(())
}

fn fault_of(entry: &Entry) -> Option<&'static str> {
    if entry.mode > 0o7777 {
        return Some("the mode has bits other than permission bits");
    }
    match &entry.kind {
        EntryKind::Directory => None,
        EntryKind::File(content) => fault_of_content(content),
        EntryKind::Symlink { target } if target.is_empty() || target.len() > paths::MAX_PATH_BYTES => {
            Some("the link's target is empty or too long")
        }
        EntryKind::Symlink { target } if target.contains(&0) => Some("the link's target contains a zero byte"),
        EntryKind::Symlink { .. } => None,
    }
}

fn fault_of_content(content: &Content) -> Option<&'static str> {
    if content.chunks.iter().any(|chunk| chunk.len == 0 || chunk.len as usize > MAX_BYTES) {
        return Some("one of the file's chunks has an impossible length");
    }
    // No overflow: a manifest in memory has fewer than 2^44 chunks, of 2^20 bytes at most.
    let sum: u64 = content.chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
    (sum != content.size).then_some("the file's size is not the sum of its chunks")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn check_of_long_link_chains_is_bounded() {
        let link = |path: String, target: String| Entry {
            path: path.into_bytes(),
            mode: 0o777,
            modified_ns: 0,
            kind: EntryKind::Symlink { target: target.into_bytes() },
        };
        // Each link descends 680 directories and ascends again before it reaches the next link.
        let way = |next: u32| format!("{}{}a{next:02}", "x/".repeat(680), "../".repeat(680));
        let mut entries: Vec<Entry> = (0..39).map(|n| link(format!("a{n:02}"), way(n + 1))).collect();
        entries.extend((0..100_000).map(|n| link(format!("b{n:06}"), "a00".into())));
        let began = Instant::now();
        let error = check(&Manifest { version: VERSION, entries }).expect_err("the links exceed the effort");
        assert!(error.to_string().contains("takes too long"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60), "the check gave up after {:?}", began.elapsed());
    }
}
