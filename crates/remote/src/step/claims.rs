//! What the steps of a job hold of its CPUs, and the numbers of the steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The CPUs of a job that no step holds.
#[derive(Debug)]
pub(super) struct Claims {
    next_step: AtomicU32,
    /// CPUs of the job on each node.
    cpus: u32,
    /// Free CPUs on each node, by rank.
    free: Vec<Arc<Semaphore>>,
}

/// CPUs that a step holds until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Claims {
    /// All CPUs are free: `cpus` on each of this many nodes.
    pub(super) fn new(nodes: usize, cpus: u32) -> Self {
        let free = (0..nodes).map(|_| Arc::new(Semaphore::new(cpus as usize))).collect();
        Self { next_step: AtomicU32::new(0), cpus, free }
    }

    /// Waits until these CPUs are free on the nodes, by rank, and returns the number of the step.
    ///
    /// # Errors
    /// If the job does not have as many; the text is for people.
    pub(super) async fn begin(&self, cpus: &[u32]) -> Result<(u32, Held), String> {
        if cpus.len() > self.free.len() {
            return Err(format!("the step needs {} nodes, and the job has {}", cpus.len(), self.free.len()));
        }
        if let Some(wanted) = cpus.iter().find(|wanted| **wanted > self.cpus) {
            return Err(format!("the step needs {wanted} CPUs on a node, and the job has {}", self.cpus));
        }
        let mut permits = Vec::new();
        // All steps take nodes in the same order, so that none waits for another in a circle.
        for (free, wanted) in self.free.iter().zip(cpus).filter(|(_, wanted)| **wanted > 0) {
            let permit = Arc::clone(free).acquire_many_owned(*wanted).await;
            permits.push(permit.map_err(|_| "the job ends".to_owned())?);
        }
        Ok((self.next_step.fetch_add(1, Ordering::Relaxed), Held { _permits: permits }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn steps_wait_until_cpus_are_free() {
        let claims = Claims::new(2, 2);
        let (first, held) = claims.begin(&[2, 1]).await.expect("all CPUs are free");
        assert!(timeout(Duration::from_millis(10), claims.begin(&[1])).await.is_err(), "the first node has none left");
        let (second, _held) = claims.begin(&[0, 1]).await.expect("the second node has one left");
        let (third, _) = claims.begin(&[]).await.expect("a step without CPUs begins at once");
        assert_eq!([first, second, third], [0, 1, 2]);
        drop(held);
        assert_eq!(claims.begin(&[2]).await.map(|(step, _)| step), Ok(3));
        assert!(claims.begin(&[3]).await.is_err() && claims.begin(&[1, 1, 1]).await.is_err());
    }
}
