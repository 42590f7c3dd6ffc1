//! The tasks of the head that execute power orders and read power meters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hostler_core::head::{Command, PowerCommand};
use hostler_model::{Gauge, NodeName, PowerVerb};
use hostler_power::Controller;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Switches;
use super::ahead::Ahead;
use super::order::Order;
use crate::blobs::Library;

/// Interval between checks of the file for changes.
const LOOK: Duration = Duration::from_secs(2);

/// Interval for reloading the local UTC offset, which changes with daylight saving time.
const CLOCK: Duration = Duration::from_secs(600);

/// Timeout for reading a controller's power meter. Switch orders wait during the reading.
const READING: Duration = Duration::from_secs(8);

/// After this many failed readings in a row, a controller counts as unable to measure.
const MAX_FAILED_READINGS: u32 = 3;

/// Timeout for closing controller sessions when the head stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// Executes orders and watches the file until the head stops.
pub(crate) async fn keep(
    switches: Arc<Switches>,
    library: Arc<Library>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    stop: CancellationToken,
) {
    let (mut looks, mut clocks) = (interval(LOOK), interval(CLOCK));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    let ahead = Ahead::default();
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some(order) = order else { return };
                if order.verb == PowerVerb::On {
                    ahead.read(&switches.engine, &library);
                }
                let switches = Arc::clone(&switches);
                tokio::spawn(async move { switches.carry_out(order).await });
            }
            _ = looks.tick() => switches.look(&mut seen, false).await,
            _ = clocks.tick() => switches.look(&mut seen, true).await,
            () = stop.cancelled() => break,
        }
    }
    let leaving: Vec<Arc<Controller>> =
        switches.known().values().filter_map(|switch| switch.controller.clone().ok()).collect();
    let all = futures_util::future::join_all(leaving.iter().map(|controller| controller.leave()));
    if timeout(FAREWELL, all).await.is_err() {
        tracing::info!("stopping without closing all controller sessions; they expire on their own");
    }
}

/// Reads the power meters of switched-on machines until the head stops.
pub(crate) async fn measure(switches: Arc<Switches>, stop: CancellationToken) {
    let mut misses: BTreeMap<NodeName, u32> = BTreeMap::new();
    let mut last = Instant::now();
    loop {
        let poll = Duration::from_millis(switches.engine.state().power.plan.policy.poll_ms);
        // The plan may change during the pause.
        tokio::select! {
            () = sleep(poll.min(LOOK)) => {}
            () = stop.cancelled() => return,
        }
        if last.elapsed() < poll {
            continue;
        }
        last = Instant::now();
        let read = switches.powered().into_iter().map(|(node, controller)| async move {
            let watts = timeout(READING, controller.watts()).await;
            (node, watts.map_err(|_| "timeout".to_owned()).and_then(|read| read.map_err(|fault| fault.to_string())))
        });
        let read = tokio::select! {
            read = futures_util::future::join_all(read) => read,
            () = stop.cancelled() => return,
        };
        for (node, watts) in read {
            let missed = misses.entry(node.clone()).or_default();
            let milliwatts = match watts {
                Ok(watts) => {
                    *missed = 0;
                    // Any real power draw fits, and none is negative.
                    watts.map(|watts| (watts * 1_000.0).round().clamp(0.0, 1e12) as u64)
                }
                Err(why) => {
                    tracing::debug!(%node, why, "cannot read a machine's power meter");
                    *missed += 1;
                    if *missed < MAX_FAILED_READINGS {
                        continue;
                    }
                    None
                }
            };
            let drew = PowerCommand::Drew { node, gauge: Gauge::Controller, milliwatts };
            switches.engine.post(Command::Power(drew), Vec::new()).await;
        }
    }
}
