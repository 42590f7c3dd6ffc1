//! Limits the threads of the pool that wait for the file systems of one user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use crate::mutex::lock;

/// Maximum number of threads of one user. A thread that waits for a file server outlives its command.
const MOST_PER_USER: usize = 512;

/// The number of threads for each user; `None` is the agent's own user.
#[derive(Default)]
pub(super) struct Waits(Mutex<HashMap<Option<u32>, usize>>);

impl Waits {
    /// Runs `work` for a user on a thread of the pool. Returns `None` if it takes longer than `bound`, or if too many threads
    /// of this user are waiting already.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        uid: Option<u32>,
        bound: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Result<T, JoinError>> {
        let place = self.enter(uid)?;
        let work = move || {
            let _place = place;
            work()
        };
        timeout(bound, spawn_blocking(work)).await.ok()
    }

    fn enter(self: &Arc<Self>, uid: Option<u32>) -> Option<Place> {
        let mut counts = lock(&self.0);
        let count = counts.entry(uid).or_default();
        if *count >= MOST_PER_USER {
            return None;
        }
        *count += 1;
        Some(Place { waits: Arc::clone(self), uid })
    }
}

/// A thread that is counted until this is dropped.
struct Place {
    waits: Arc<Waits>,
    uid: Option<u32>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.waits.0);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_threads_of_one_user_leave_room_for_others() {
        let waits = Arc::<Waits>::default();
        let mut places: Vec<_> = (0..MOST_PER_USER).filter_map(|_| waits.enter(Some(1))).collect();
        assert_eq!(places.len(), MOST_PER_USER);
        assert!(waits.enter(Some(1)).is_none() && waits.enter(Some(2)).is_some() && waits.enter(None).is_some());
        places.pop();
        assert!(waits.enter(Some(1)).is_some());
        places.clear();
        assert!(lock(&waits.0).is_empty(), "nothing is kept about users without threads");
    }
}
