//! Steps in running jobs that do not contain this process. The head brings the connections to the nodes, for the job's owner only.

use std::sync::Arc;
use std::time::Instant;

use hostler_client::{Client, ClientError, Tunnel};
use hostler_model::{Digest, NodeName, TaskId};
use hostler_proto::forward::{Destination, MAX_MESSAGE_BYTES, STEP_HOST};
use hostler_remote::Credentials;
use hostler_remote::step::{AGAIN, Allocation, Link, Place, REACH_BOUND};
use tokio::time::sleep;

use super::Links;
use crate::failure::{During, Failure};

/// A task of a job, for a client that runs outside the job.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) client: Client,
    pub(crate) task: TaskId,
}

impl Outside {
    /// The allocation of the task, with these nodes. It has no addresses, since [`Self::connect`] needs none.
    pub(crate) fn allocation(nodes: &[&str]) -> Result<Allocation, Failure> {
        let place = |name: NodeName| Place { name, address: None, port: 0, certificate: Digest([0; 32]) };
        Ok(Allocation {
            rank: None,
            // No directory of this machine is below this one.
            directory: "/dev/null".into(),
            temporary: None,
            nodes: nodes.iter().filter_map(|name| name.parse().ok()).map(place).collect(),
            credentials: Credentials::generate().during(|| "cannot create a key".to_owned())?,
            holder: None,
        })
    }

    /// Connects with the nodes of these ranks, and with the first one unless `first` is the connection with it.
    pub(crate) async fn connect(
        &self,
        allocation: &Allocation,
        ranks: impl IntoIterator<Item = u32>,
        first: Option<Arc<Link>>,
    ) -> Result<Links, ClientError> {
        let until = Instant::now() + REACH_BOUND;
        let mut links: Links = first.map(|link| (0, link)).into_iter().collect();
        for rank in std::iter::once(0).chain(ranks) {
            if let Some(place) = allocation.nodes.get(rank as usize).filter(|_| !links.contains_key(&rank)) {
                let tunnel = self.reach(rank, until).await?;
                let (near, mut far) = tokio::io::duplex(MAX_MESSAGE_BYTES);
                // It ends with the link; the link reports a connection that breaks.
                tokio::spawn(async move { tunnel.carry(&mut far).await });
                links.insert(rank, Arc::new(Link::over(place.name.to_string(), "the head's address".to_owned(), near)));
            }
        }
        Ok(links)
    }

    /// Connects with the step host of a node. It may still be starting, because the nodes of a task do not start at once.
    async fn reach(&self, rank: u32, until: Instant) -> Result<Tunnel, ClientError> {
        let host = Destination::Socket(STEP_HOST.to_owned());
        loop {
            match self.client.forward(self.task, rank, &host).await {
                Err(error) if error.code() == Some("no_listener") && Instant::now() < until => sleep(AGAIN).await,
                reached => return reached,
            }
        }
    }
}
