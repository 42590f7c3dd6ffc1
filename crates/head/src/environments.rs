//! Environments of jobs: kept by content in the store, and brought back when a job is launched.
//!
//! Most jobs are launched soon after they were submitted, and jobs that are submitted one after the other mostly have the same
//! environment. So the last few are at hand, and a launch rarely asks the disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hostler_model::{Digest, Environment};
use hostler_proto::DecodeError;
use hostler_proto::link::Launch;
use hostler_store::{Reader, StoreError};

use crate::blobs::name_of;

/// The most bytes of environments at hand, though the last one always is.
const AT_HAND_BYTES: usize = 1 << 20;

/// The environments of jobs that run or may run.
pub(crate) struct Environments {
    history: Reader,
    /// Those that were used last, the last one first.
    at_hand: Mutex<VecDeque<(Digest, Bytes)>>,
}

/// Why there is no environment for a launch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not have it.
    #[error("environment {0} is not in the head's store")]
    Missing(Digest),
    /// The store has something else in its place.
    #[error("environment {0} is damaged in the head's store")]
    Damaged(Digest, #[source] DecodeError),
}

impl Environments {
    pub(crate) fn new(history: Reader) -> Self {
        Self { history, at_hand: Mutex::default() }
    }

    /// An environment as it is kept, with its name; nothing for an empty one.
    pub(crate) fn pack(&self, environment: &Environment) -> Option<(Digest, Bytes)> {
        if environment.is_empty() {
            return None;
        }
        let bytes = Bytes::from(hostler_proto::encode(environment));
        let digest = name_of(&bytes);
        Some((digest, self.put_at_hand(digest, bytes)))
    }

    /// Puts a launch's environment into its specification, if it is at hand or the launch needs none; says whether.
    ///
    /// # Errors
    /// When it is damaged.
    pub(crate) fn fill_at_once(&self, launch: &mut Launch) -> Result<bool, EnvironmentError> {
        let Some(digest) = launch.environment else { return Ok(true) };
        let found = self.at_hand().iter().find(|(at_hand, _)| *at_hand == digest).map(|(_, bytes)| bytes.clone());
        let Some(bytes) = found else { return Ok(false) };
        unpack(digest, &bytes, launch).map(|()| true)
    }

    /// Puts a launch's environment into its specification. Blocks on the disk.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn fill(&self, launch: &mut Launch) -> Result<(), EnvironmentError> {
        let Some(digest) = launch.environment else { return Ok(()) };
        let bytes = self.history.environment(&digest)?.ok_or(EnvironmentError::Missing(digest))?;
        unpack(digest, &self.put_at_hand(digest, bytes), launch)
    }

    fn put_at_hand(&self, digest: Digest, bytes: Bytes) -> Bytes {
        let mut at_hand = self.at_hand();
        if let Some(at) = at_hand.iter().position(|(other, _)| *other == digest) {
            let known = at_hand.remove(at).expect("just found");
            at_hand.push_front(known.clone());
            return known.1;
        }
        at_hand.push_front((digest, bytes.clone()));
        let size = |at_hand: &VecDeque<(Digest, Bytes)>| at_hand.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        while at_hand.len() > 1 && size(&at_hand) > AT_HAND_BYTES {
            at_hand.pop_back();
        }
        bytes
    }

    fn at_hand(&self) -> MutexGuard<'_, VecDeque<(Digest, Bytes)>> {
        self.at_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unpack(digest: Digest, bytes: &[u8], launch: &mut Launch) -> Result<(), EnvironmentError> {
    let environment = hostler_proto::decode(bytes).map_err(|error| EnvironmentError::Damaged(digest, error))?;
    Arc::make_mut(&mut launch.spec).environment = environment;
    launch.environment = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use hostler_model::{JobId, JobSpec, Request, Work};
    use hostler_store::{Batch, Change, MemoryStore, Store};

    use super::*;

    fn launch(environment: Option<Digest>) -> Launch {
        let spec = Arc::new(JobSpec::new("test", Work::command(["true"], "/"), Request::new(1, 1)));
        Launch {
            job: JobId(1),
            user: "ada".to_owned(),
            spec,
            array_len: 1,
            runs: Vec::new(),
            uid: None,
            output_cap_bytes: None,
            environment,
        }
    }

    fn environment(value: &str) -> Environment {
        Environment::from([("NAME".to_owned(), value.to_owned())])
    }

    #[test]
    fn environment_at_hand_needs_no_disk_and_another_is_read_from_the_store() {
        let mut store = MemoryStore::new();
        let environments = Environments::new(store.reader());
        let (digest, bytes) = environments.pack(&environment("first")).expect("it is not empty");
        assert_eq!(environments.pack(&Environment::new()), None);
        let mut at_once = launch(Some(digest));
        assert!(environments.fill_at_once(&mut at_once).expect("it is whole"));
        assert_eq!((&at_once.spec.environment, at_once.environment), (&environment("first"), None));

        // As much as pushes the first one out.
        for number in 0..20 {
            environments.pack(&environment(&format!("{number}{}", "x".repeat(100_000))));
        }
        let mut later = launch(Some(digest));
        assert!(!environments.fill_at_once(&mut later).expect("it is not at hand"));
        assert!(matches!(environments.fill(&mut later), Err(EnvironmentError::Missing(missing)) if missing == digest));
        let keep = Change::Environment { job: JobId(1), digest, bytes };
        store.commit(&Batch::of_changes(vec![keep])).expect("memory has room");
        environments.fill(&mut later).expect("it is kept");
        assert_eq!(later.spec.environment, environment("first"));
        assert!(environments.at_hand().len() <= 11);
    }
}
