//! Samples the memory and descriptors of the daemons every few seconds.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::world::{NODES, World};

/// A sample of one daemon.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) pid: u32,
    pub(crate) rss_kib: u64,
    pub(crate) descriptors: u64,
}

/// All samples of each daemon since [`Watch::mark`]. The head is the first daemon.
pub(crate) type Looks = Vec<Vec<Look>>;

pub(crate) struct Watch {
    looks: Arc<Mutex<Looks>>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    pub(crate) fn start(world: &Arc<World>) -> Self {
        let looks = Arc::new(Mutex::new(vec![Vec::new(); NODES.len() + 1]));
        let over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (world, looks, over) = (Arc::clone(world), Arc::clone(&looks), Arc::clone(&over));
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for (index, daemon) in [None].into_iter().chain((0..NODES.len()).map(Some)).enumerate() {
                        let look = world.pid(daemon).and_then(look_at);
                        looks.lock().expect("the lock is not poisoned")[index].extend(look);
                    }
                    thread::sleep(Duration::from_secs(2));
                }
            })
        };
        Self { looks, over, thread }
    }

    /// Discards all samples.
    pub(crate) fn mark(&self) {
        self.looks.lock().expect("the lock is not poisoned").iter_mut().for_each(Vec::clear);
    }

    pub(crate) fn stop(self) -> Looks {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sampling thread does not panic");
        std::mem::take(&mut self.looks.lock().expect("the lock is not poisoned"))
    }
}

/// Samples the memory and descriptors of a process, if it exists.
pub(crate) fn look_at(pid: u32) -> Option<Look> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let rss_kib = rss.trim().trim_end_matches(" kB").parse().ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some(Look { pid, rss_kib, descriptors })
}
