//! Compares this node's programs with the caller's.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hostler_model::Digest;
use hostler_remote::Command;
use hostler_remote::mirror::{Mark, is_program, places_of_program};

use crate::account::Ids;
use crate::mutex::lock;
use crate::rights::act_as;

/// Maximum number of remembered digests.
const MOST: usize = 1000;

/// Cached digests of programs.
#[derive(Clone, Default)]
pub(super) struct Programs(Arc<Mutex<HashMap<PathBuf, (Mark, Digest)>>>);

impl Programs {
    /// Finds the program that a command starts on this node, outside of the tree. Returns the program's path and
    /// digest. Blocks.
    pub(super) fn find(&self, command: &Command, root: &Path, ids: Option<&Ids>) -> Option<(PathBuf, Digest)> {
        let is_here = |path: &PathBuf| !path.starts_with(root) && is_program(path);
        act_as(ids, || {
            let path = places_of_program(command).into_iter().find(is_here)?;
            let (file, mark) = Mark::open(&path).ok()?;
            let known = lock(&self.0).get(&path).filter(|(known, _)| *known == mark).map(|(_, digest)| *digest);
            let digest = known.or_else(|| mark.digest(file).ok())?;
            let mut all = lock(&self.0);
            if all.len() >= MOST {
                all.clear();
            }
            all.insert(path.clone(), (mark, digest));
            Some((path, digest))
        })
        .ok()
        .flatten()
    }
}
