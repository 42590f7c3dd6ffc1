//! Activity on the machine that a shutdown would interrupt, and the block on new activity during a shutdown.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use hostler_model::{CpuSet, plural};
use tokio::process::Command;
use tokio::time::sleep;

use crate::gossip::Measure;
use crate::mutex::lock;

/// Duration of the CPU usage measurement.
const WATCH: Duration = Duration::from_secs(1);

/// Highest CPU usage at which a machine counts as idle, in hundredths of a CPU.
const IDLE_CPU_USE: u32 = 50;

/// How long after its last input a terminal counts as in use.
const TERMINAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Number of running remote commands, and whether new commands are blocked because of a planned shutdown.
#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<Now>);

#[derive(Debug, Default)]
struct Now {
    calls: usize,
    is_blocked: bool,
}

/// Guard of one remote command. While any guard exists, the machine is not switched off.
#[derive(Debug)]
pub(crate) struct CommandGuard(Arc<Activity>);

impl Activity {
    /// Registers a remote command; `None` if the machine is about to be switched off.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<CommandGuard> {
        let mut now = lock(&self.0);
        if now.is_blocked {
            return None;
        }
        now.calls += 1;
        Some(CommandGuard(Arc::clone(self)))
    }

    /// Blocks new remote commands, unless remote commands are running: then returns a sentence about the running
    /// commands.
    fn block_commands(&self) -> Option<String> {
        let mut now = lock(&self.0);
        if now.calls > 0 {
            return Some(format!("the node is running {} of `hostler exec`", plural(now.calls, "command")));
        }
        now.is_blocked = true;
        None
    }

    /// Allows new remote commands again after [`Activity::shutdown_obstacle`] has blocked them.
    pub(crate) fn allow_commands(&self) {
        lock(&self.0).is_blocked = false;
    }

    /// Returns a sentence about activity that prevents a shutdown. Without such activity, returns `None` and blocks new
    /// remote commands.
    pub(crate) async fn shutdown_obstacle(&self, whole_machine: Option<&CpuSet>) -> Option<String> {
        if let Some(busy) = self.block_commands() {
            return Some(busy);
        }
        let busy = match whole_machine {
            Some(cpus) => used_otherwise(cpus).await,
            None => None,
        };
        if busy.is_some() {
            self.allow_commands();
        }
        busy
    }
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        lock(&self.0.0).calls -= 1;
    }
}

/// Returns a sentence about a user at a terminal, or about busy `cpus`; `None` if the machine is idle.
async fn used_otherwise(cpus: &CpuSet) -> Option<String> {
    if let Some(terminal) = terminal_in_use(Path::new("/dev/pts"), SystemTime::now()) {
        return Some(format!("somebody is logged in at terminal {terminal}"));
    }
    let mut measure = Measure::of(cpus.clone());
    measure.take();
    sleep(WATCH).await;
    let busy = measure.take().recent;
    (busy > IDLE_CPU_USE).then(|| format!("processes outside jobs keep {}.{:02} CPUs busy", busy / 100, busy % 100))
}

/// Name of a terminal with recent input.
fn terminal_in_use(terminals: &Path, now: SystemTime) -> Option<String> {
    let entries = fs::read_dir(terminals).ok()?.flatten();
    let terminals = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut used = terminals.filter(|entry| {
        // The kernel updates a terminal's access time on input.
        let read = entry.metadata().map(|metadata| metadata.atime());
        read.is_ok_and(|read| since_epoch.saturating_sub(u64::try_from(read).unwrap_or(0)) < TERMINAL_TIMEOUT.as_secs())
    });
    used.next().and_then(|entry| entry.file_name().into_string().ok())
}

/// Asks the operating system to shut the machine down. Returns whether a shutdown command succeeded.
pub(crate) async fn power_off() -> bool {
    let ways: [&[&str]; 3] = [&["systemctl", "poweroff"], &["shutdown", "-h", "now"], &["poweroff"]];
    for way in ways {
        let outcome = Command::new(way[0]).args(&way[1..]).stdin(Stdio::null()).output().await;
        match outcome {
            Ok(output) if output.status.success() => {
                tracing::info!("shutting down on request of the head");
                return true;
            }
            Ok(output) => {
                tracing::warn!(command = way.join(" "), error = %String::from_utf8_lossy(&output.stderr).trim(), "cannot shut down");
            }
            Err(error) => tracing::debug!(command = way.join(" "), %error, "command not available"),
        }
    }
    tracing::error!("cannot shut the machine down: no suitable command works");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rest_requires_idleness_and_blocks_new_commands() {
        let activity = Arc::new(Activity::default());
        let going = activity.begin().expect("no shutdown is planned");
        assert!(activity.shutdown_obstacle(None).await.expect("a command runs").contains("1 command"));
        let second = activity.begin().expect("the machine stays on");
        drop((going, second));
        assert_eq!(activity.shutdown_obstacle(None).await, None);
        assert!(activity.begin().is_none());
        activity.allow_commands();
        assert!(activity.begin().is_some());
    }

    #[test]
    fn terminal_with_recent_input_counts_as_in_use() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::write(folder.path().join("ptmx"), "").expect("writable");
        assert_eq!(terminal_in_use(folder.path(), SystemTime::now()), None);
        fs::write(folder.path().join("3"), "").expect("writable");
        assert_eq!(terminal_in_use(folder.path(), SystemTime::now()), Some("3".to_owned()));
        assert_eq!(terminal_in_use(folder.path(), SystemTime::now() + 2 * TERMINAL_TIMEOUT), None);
    }
}
