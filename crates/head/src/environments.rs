//! Environments of jobs: the variables and the script, which the store keeps outside of the head's memory. The store
//! keeps each distinct environment once, and the head adds it to a job's launch.
//!
//! Most jobs start soon after their submission, and consecutive jobs mostly share an environment. A cache of the latest
//! environments therefore saves most reads from disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hostler_model::{Digest, Environment, JobSpec};
use hostler_proto::DecodeError;
use hostler_proto::link::Launch;
use hostler_store::{Reader, StoreError};
use serde::{Deserialize, Serialize};

use crate::blobs::name_of;

/// Limit for the size of the cache. The latest environment stays even when it is larger.
const CACHE_BYTES: usize = 1 << 20;

/// What the store keeps of a job's specification.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    variables: Environment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    script: Option<String>,
}

impl Kept {
    /// Takes the variables and the script out of a specification. The specification keeps an empty script if it had one.
    fn take_from(spec: &mut JobSpec) -> Self {
        let variables = std::mem::take(&mut spec.environment);
        Self { variables, script: spec.work.script_mut().map(std::mem::take) }
    }

    fn put_into(self, spec: &mut JobSpec) {
        spec.environment = self.variables;
        if let (Some(empty), Some(script)) = (spec.work.script_mut(), self.script) {
            *empty = script;
        }
    }
}

/// Environments of jobs that run or wait.
pub(crate) struct Environments {
    history: Reader,
    /// The cache, with the most recently used environment first.
    cached: Mutex<VecDeque<(Digest, Bytes)>>,
}

/// Why a launch has no environment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("environment {0} is not in the head's store")]
    Missing(Digest),
    #[error("environment {0} is damaged in the head's store")]
    Damaged(Digest, #[source] DecodeError),
}

impl Environments {
    pub(crate) fn new(history: Reader) -> Self {
        Self { history, cached: Mutex::default() }
    }

    /// Moves variables and script of a specification into a form for the store. Returns the form with its digest; `None`
    /// if the specification has neither.
    pub(crate) fn pack(&self, spec: &mut JobSpec) -> Option<(Digest, Bytes)> {
        let kept = Kept::take_from(spec);
        if kept == Kept::default() {
            return None;
        }
        let bytes = Bytes::from(hostler_proto::encode(&kept));
        let digest = name_of(&bytes);
        Some((digest, self.put_in_cache(digest, bytes)))
    }

    /// Adds the environment to a launch, from the cache. Returns `false` if the environment is not cached.
    ///
    /// # Errors
    /// The environment is damaged.
    pub(crate) fn fill_at_once(&self, launch: &mut Launch) -> Result<bool, EnvironmentError> {
        let Some(digest) = launch.environment else { return Ok(true) };
        let found = self.cached().iter().find(|(cached, _)| *cached == digest).map(|(_, bytes)| bytes.clone());
        let Some(bytes) = found else { return Ok(false) };
        unpack(digest, &bytes, launch).map(|()| true)
    }

    /// Adds the environment to a launch. May read it from disk, which blocks.
    ///
    /// # Errors
    /// The environment is missing or damaged, or the store cannot be read.
    pub(crate) fn fill(&self, launch: &mut Launch) -> Result<(), EnvironmentError> {
        let Some(digest) = launch.environment else { return Ok(()) };
        let bytes = self.history.environment(&digest)?.ok_or(EnvironmentError::Missing(digest))?;
        unpack(digest, &self.put_in_cache(digest, bytes), launch)
    }

    /// Puts variables and script back into a specification.
    ///
    /// # Errors
    /// The environment is missing or damaged, or the store cannot be read.
    pub(crate) async fn restore(&self, digest: Digest, spec: &mut JobSpec) -> Result<(), EnvironmentError> {
        let history = self.history.clone();
        let read = tokio::task::spawn_blocking(move || history.environment(&digest)).await;
        let bytes = read.map_err(|_| EnvironmentError::Missing(digest))??.ok_or(EnvironmentError::Missing(digest))?;
        decode(digest, &bytes)?.put_into(spec);
        Ok(())
    }

    fn put_in_cache(&self, digest: Digest, bytes: Bytes) -> Bytes {
        let mut cached = self.cached();
        if let Some(at) = cached.iter().position(|(other, _)| *other == digest) {
            let known = cached.remove(at).expect("just found");
            cached.push_front(known.clone());
            return known.1;
        }
        cached.push_front((digest, bytes.clone()));
        let size = |cached: &VecDeque<(Digest, Bytes)>| cached.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        while cached.len() > 1 && size(&cached) > CACHE_BYTES {
            cached.pop_back();
        }
        bytes
    }

    fn cached(&self) -> MutexGuard<'_, VecDeque<(Digest, Bytes)>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unpack(digest: Digest, bytes: &[u8], launch: &mut Launch) -> Result<(), EnvironmentError> {
    decode(digest, bytes)?.put_into(Arc::make_mut(&mut launch.job.spec));
    launch.environment = None;
    Ok(())
}

fn decode(digest: Digest, bytes: &[u8]) -> Result<Kept, EnvironmentError> {
    hostler_proto::decode(bytes).map_err(|error| EnvironmentError::Damaged(digest, error))
}

#[cfg(test)]
mod tests {
    use hostler_model::{JobId, JobSpec, Request, Work};
    use hostler_proto::link::JobLaunch;
    use hostler_store::{Batch, Change, MemoryStore, Store};

    use super::*;

    fn spec() -> JobSpec {
        JobSpec::new("test", Work::command(["true"], "/"), Request::new(1, 1))
    }

    fn with(value: &str) -> JobSpec {
        JobSpec { environment: environment(value), ..spec() }
    }

    fn launch(environment: Option<Digest>) -> Launch {
        let spec = Arc::new(spec());
        let job =
            JobLaunch { id: JobId(1), user: "ada".to_owned(), uid: None, spec, array_len: 1, output_cap_bytes: None };
        Launch { job, runs: Vec::new(), environment }
    }

    fn environment(value: &str) -> Environment {
        Environment::from([("NAME".to_owned(), value.to_owned())])
    }

    #[test]
    fn cached_environment_needs_no_disk_and_evicted_one_is_read_from_the_store() {
        let mut store = MemoryStore::new();
        let environments = Environments::new(store.reader());
        let (digest, bytes) = environments.pack(&mut with("first")).expect("the environment is not empty");
        assert_eq!(environments.pack(&mut spec()), None);
        let mut at_once = launch(Some(digest));
        assert!(environments.fill_at_once(&mut at_once).expect("the environment is valid"));
        assert_eq!((&at_once.job.spec.environment, at_once.environment), (&environment("first"), None));

        // Enough environments to evict the first one.
        for number in 0..20 {
            environments.pack(&mut with(&format!("{number}{}", "x".repeat(100_000))));
        }
        let mut later = launch(Some(digest));
        assert!(!environments.fill_at_once(&mut later).expect("no error without a cached environment"));
        assert!(matches!(environments.fill(&mut later), Err(EnvironmentError::Missing(missing)) if missing == digest));
        let keep = Change::Environment { job: JobId(1), digest, bytes };
        store.commit(&Batch::of_changes(vec![keep])).expect("memory is available");
        environments.fill(&mut later).expect("the store has the environment");
        assert_eq!(later.job.spec.environment, environment("first"));
        assert!(environments.cached().len() <= 11);
    }
}
