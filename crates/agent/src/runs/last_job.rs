//! Remembers the highest job number that this node has run, after the runs are gone. The node tells it to the head, so that a
//! head restored from a backup does not use these numbers again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use hostler_core::agent::RunLaunch;
use hostler_model::{Digest, JobId};

use crate::mutex::lock;
use crate::runs::surroundings::Surrounding;

/// A file with the number of a job and the fingerprint of its cluster's authority. The number has 20 digits, so that each
/// write replaces the whole content.
pub(crate) struct LastJob {
    file: File,
    cluster: Digest,
    last: Mutex<Option<JobId>>,
}

impl LastJob {
    /// Opens or creates the file in the agent's directory. A damaged file and that of another cluster count as empty.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(directory: &Path, cluster: Digest) -> io::Result<Self> {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(directory.join("last-job"))?;
        let text = io::read_to_string(&file).unwrap_or_default();
        let last = text
            .trim()
            .split_once(' ')
            .filter(|(_, of)| of.parse::<Digest>() == Ok(cluster))
            .and_then(|(last, _)| last.parse().ok());
        Ok(Self { file, cluster, last: Mutex::new(last.map(JobId)) })
    }

    /// Returns the latest job; none if the node never had a run.
    pub(crate) fn get(&self) -> Option<JobId> {
        *lock(&self.last)
    }

    fn note(&self, job: JobId) -> io::Result<()> {
        let mut last = lock(&self.last);
        if last.is_none_or(|last| last < job) {
            *last = Some(job);
            // Not synchronised: the number counts only if the head is restored, and a later job writes it again.
            self.file.write_all_at(format!("{:020} {}\n", job.0, self.cluster).as_bytes(), 0)?;
        }
        drop(last);
        Ok(())
    }
}

impl Surrounding for LastJob {
    fn begin<'a>(&'a self, launch: &'a RunLaunch) -> BoxFuture<'a, anyhow::Result<()>> {
        if let Err(error) = self.note(launch.run().task.job) {
            tracing::warn!(%error, "cannot store the number of the latest job");
        }
        ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_job_outlives_the_agent_and_never_decreases() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let of = |cluster| LastJob::open(directory.path(), Digest([cluster; 32])).expect("writable");
        let open = || of(1);
        assert_eq!(open().get(), None);
        open().note(JobId(12)).expect("writable");
        open().note(JobId(7)).expect("writable");
        assert_eq!(open().get(), Some(JobId(12)));
        assert_eq!(of(2).get(), None, "the node has joined another cluster");
        std::fs::write(directory.path().join("last-job"), "damaged").expect("writable");
        assert_eq!(open().get(), None);
    }
}
