//! Wake-on-LAN: a packet wakes the machine, and its agent shuts it down.
//!
//! No component confirms the state. A machine counts as on if its agent is connected or its probe address responds, and
//! otherwise as off. Without a probe, this is wrong if the agent has died. A packet to a running machine is harmless,
//! so a wrong guess costs only waiting time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hostler_model::NodeName;
use tokio::net::TcpStream;

use crate::wake_up::PORT;
use crate::{Driver, Fault, Off, Reach, Site, Supply, WakeOnLanConfig, WakeUp};

/// Number of probes before a machine counts as silent.
const PROBES: u32 = 3;
/// Timeout of each probe.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// Driver that wakes the machine with a packet, and shuts it down through its agent.
pub(crate) struct WakeOnLanDriver {
    node: NodeName,
    packet: WakeUp,
    relay: Option<NodeName>,
    probe: Option<String>,
    reach: Arc<dyn Reach>,
}

impl WakeOnLanDriver {
    pub(crate) fn new(node: &NodeName, config: &WakeOnLanConfig, site: &Site) -> Self {
        Self {
            node: node.clone(),
            packet: WakeUp { mac: config.mac, broadcast: config.broadcast, port: config.port.unwrap_or(PORT) },
            relay: config.relay.clone(),
            probe: config.probe.clone(),
            reach: Arc::clone(&site.reach),
        }
    }
}

impl Driver for WakeOnLanDriver {
    fn status(&self) -> BoxFuture<'_, Result<Supply, Fault>> {
        Box::pin(async {
            if self.reach.is_alive(&self.node) {
                return Ok(Supply::On);
            }
            match &self.probe {
                Some(probe) if answers(probe).await? => Ok(Supply::On),
                _ => Ok(Supply::Off),
            }
        })
    }

    fn on(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async {
            if let Some(relay) = &self.relay {
                return self.reach.relay(relay, &self.packet).await;
            }
            let packet = self.packet.clone();
            let sent = tokio::task::spawn_blocking(move || packet.send()).await.expect("sending does not panic");
            sent.map_err(|error| {
                Fault::unreachable(format!("the wake-up packet could not be sent: {error}")).hint(
                    "set `relay` to a node in the machine's segment, or `broadcast` to the segment's broadcast address",
                )
            })
        })
    }

    fn off(&self, how: Off) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async move {
            match how {
                Off::Gracefully => self.reach.shut_down(&self.node).await,
                Off::ByForce => Err(Fault::unsupported("Wake-on-LAN cannot cut a machine's power")
                    .hint("press the machine's power button, or switch its socket with `kind = \"command\"`")),
            }
        })
    }
}

/// Whether a machine responds at its probe address. A refused connection is a response too.
///
/// # Errors
/// The probe cannot be sent, so silence would mean nothing.
async fn answers(probe: &str) -> Result<bool, Fault> {
    for _ in 0..PROBES {
        match tokio::time::timeout(PROBE_LIMIT, TcpStream::connect(probe)).await {
            Ok(Ok(_)) => return Ok(true),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
            Ok(Err(error)) if is_silence(error.kind()) => {}
            Ok(Err(error)) => {
                return Err(Fault::confused(format!("the probe {probe} failed: {error}"))
                    .hint("write the probe as address and TCP port, e.g. `10.0.0.7:22`"));
            }
            Err(_) => {}
        }
    }
    Ok(false)
}

/// Whether an error means that no machine responded. An error of the local network has another cause.
fn is_silence(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::HostUnreachable | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn running_machine_responds_on_open_and_closed_ports() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let probe = listener.local_addr().expect("the socket is bound").to_string();
        assert_eq!(answers(&probe).await, Ok(true));
        drop(listener);
        assert_eq!(answers(&probe).await, Ok(true));
        assert!(answers("127.0.0.1").await.is_err());
    }
}
