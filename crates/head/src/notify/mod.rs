//! Notifications: delivers the messages of the outbox to the destinations in `notify.toml`.
//!
//! The core writes a message in the transaction of its event. This module reads new messages from the store and gives
//! each to the queue of its destination. Each destination has a task of its own, so a slow receiver delays no other, and
//! none delays the engine. A message is deleted after its receiver has accepted it; after a crash it is sent again,
//! with the same id.

mod address;
mod fault;
mod file;
mod http;
mod mail;
mod queue;
mod shapes;
mod text;
pub(crate) use text::time as local_time;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hostler_core::head::Command;
use hostler_model::{DestinationName, Subscription, WallTime};
use hostler_proto::notify::{
    Alert, DeadLetter, DestinationView, GivenUp, Happening, Message, News, Notifications, Recipient,
};
use hostler_store::{Batch, Change, Commit, MessageKey, Reader, Writer};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::fault::Fault;
use self::file::{Config, NotifyFile, Target, Timing, no_destination};
use self::queue::{Outcome, Queue, put};
use self::shapes::Envelope;
use crate::blobs::Library;
use crate::engine::Engine;

/// Interval between checks of the file for changes.
const LOOK: Duration = Duration::from_secs(2);

/// Interval between checks of the head's disk.
const CHECK_DISK: Duration = Duration::from_secs(30);

/// The number of messages that are read from the store at once.
const PAGE: usize = 500;

/// The largest number of dead letters. Beyond it, the oldest is dropped.
const MAX_DEAD: usize = 1_000;

/// Minimum time between two messages to Slack, which refuses more than one a second.
const SLACK_PAUSE: Duration = Duration::from_secs(1);

/// Delivers messages.
pub(crate) struct Notifier {
    path: PathBuf,
    history: Reader,
    writer: Writer,
    engine: Engine,
    library: Arc<Library>,
    /// Cancelled when the head stops.
    stop: CancellationToken,
    /// Distinguishes the ids of this cluster's messages from those of other clusters.
    cluster_id: String,
    /// The cluster's name, for people.
    cluster: String,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    file: NotifyFile,
    /// Why the file is ignored.
    trouble: Option<String>,
    destinations: BTreeMap<DestinationName, Arc<Destination>>,
    dead: BTreeMap<MessageKey, Message>,
    dropped: u64,
}

/// A destination with its queue. A task delivers its messages.
struct Destination {
    settings: Mutex<(Config, Timing)>,
    queue: Mutex<Queue>,
    changed: Notify,
    stop: CancellationToken,
}

impl Notifier {
    pub(crate) fn new(
        path: PathBuf,
        (engine, writer): (Engine, Writer),
        library: Arc<Library>,
        (cluster_id, cluster): (String, String),
        stop: CancellationToken,
    ) -> Self {
        let history = engine.archive().history().clone();
        Self { path, history, writer, engine, library, stop, cluster_id, cluster, known: Mutex::default() }
    }

    /// Checks the subscriptions of a new job. The error is for the user.
    pub(crate) fn admit(&self, subscriptions: &[Subscription]) -> Result<(), String> {
        let known = self.known();
        subscriptions.iter().try_for_each(|subscription| known.file.admit(subscription))
    }

    /// A warning for operators, if messages could not be delivered or the file is ignored.
    pub(crate) fn warning(&self) -> Option<String> {
        let known = self.known();
        if let Some(trouble) = &known.trouble {
            return Some(trouble.clone());
        }
        let what = match known.dead.len() {
            0 => return None,
            1 => "1 notification".to_owned(),
            count => format!("{count} notifications"),
        };
        Some(format!("{what} could not be delivered: see `hostler configure notify list`"))
    }

    /// Destinations and dead letters: all, or those of one user.
    pub(crate) fn view(&self, user: Option<&str>) -> Notifications {
        let known = self.known();
        let is_operator = user.is_none();
        let destinations = known.destinations.iter().map(|(name, destination)| {
            let queue = destination.queue();
            let settings = destination.settings();
            DestinationView {
                name: name.clone(),
                kind: settings.0.kind().to_owned(),
                domains: settings.0.domains().to_vec(),
                for_operators: known.file.operators.iter().any(|target| target.to == *name),
                waiting: queue.len() as u64,
                fault: queue.fault.clone(),
                disabled: queue.is_disabled,
            }
        });
        let is_shown = |message: &Message| match (&message.to, user) {
            (_, None) => true,
            (Recipient::User { user: owner, .. }, Some(user)) => owner == user,
            (_, Some(_)) => false,
        };
        Notifications {
            destinations: destinations.collect(),
            dead_letters: known
                .dead
                .iter()
                .filter(|(_, message)| is_shown(message))
                .map(|(key, message)| self.dead_letter(key, message))
                .collect(),
            dropped: known.dropped,
            trouble: known.trouble.clone().filter(|_| is_operator),
        }
    }

    fn dead_letter(&self, key: &MessageKey, message: &Message) -> DeadLetter {
        let GivenUp { why, at } =
            message.given_up.clone().unwrap_or_else(|| GivenUp { why: String::new(), at: WallTime(0) });
        let (to, user) = match &message.to {
            Recipient::User { user, to, .. } => (Some(to.clone()), Some(user.clone())),
            Recipient::OperatorsAt { to, .. } => (Some(to.clone()), None),
            Recipient::Operators => (None, None),
        };
        DeadLetter { id: self.id(key), to, user, summary: text::summary(message), why, at }
    }

    /// Deletes all dead letters. Returns how many there were.
    pub(crate) fn clear(&self) -> usize {
        let dead = std::mem::take(&mut self.known().dead);
        let count = dead.len();
        self.store(dead.into_keys().map(Change::DropMessage).collect());
        count
    }

    /// Delivers all dead letters again.
    pub(crate) fn retry(&self) -> usize {
        let dead = std::mem::take(&mut self.known().dead);
        let count = dead.len();
        for (key, message) in dead {
            let message = Message { tries: 0, given_up: None, ..message };
            self.store(vec![put(&key, &message)]);
            self.route(key, message, true);
        }
        count
    }

    /// Sends a test message at once, without the queue. The error is for the operator.
    pub(crate) async fn test(&self, to: &DestinationName, address: Option<&str>, by: &str) -> Result<(), String> {
        let unknown =
            |names| format!("{}; the head reads changes of the file within a few seconds", no_destination(to, names));
        let destination = {
            let known = self.known();
            known.destinations.get(to).cloned().ok_or_else(|| unknown(known.destinations.keys()))?
        };
        let (config, timing) = destination.settings().clone();
        let recipient = Recipient::OperatorsAt { to: to.clone(), address: address.map(str::to_owned) };
        let news = vec![News { at: wall_now(), what: Happening::Test { by: by.to_owned() } }];
        let message = Message { to: recipient, news, omitted: 0, tries: 0, given_up: None };
        let id = format!("{}-test-{}", self.cluster_id, wall_now().0);
        let sent = deliver(&config, &timing, &message, &id, &self.cluster).await;
        sent.map_err(|fault| format!("destination {to}: {}", fault.text))?;
        destination.queue().reset(Instant::now());
        destination.changed.notify_one();
        Ok(())
    }

    /// The id of a message: the same at each attempt, also after a restart.
    fn id(&self, key: &MessageKey) -> String {
        let part = if key.part.is_empty() { String::new() } else { format!("-{}", key.part) };
        format!("{}-{}{part}", self.cluster_id, key.number)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the outcome of deliveries. If the store cannot keep up, or fails, a message is sent again after a restart.
    fn store(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let done = Box::new(|stored: Result<(), hostler_store::StoreError>| {
            if let Err(error) = stored {
                tracing::warn!(%error, "cannot store which notifications were delivered; they may be sent again");
            }
        });
        if self.writer.try_commit(Commit { batch: Batch::of_changes(changes), done }).is_err() {
            tracing::warn!("the store is busy; some notifications may be sent again");
        }
    }

    /// Gives a message to the queue of its destination.
    fn route(&self, key: MessageKey, message: Message, is_old: bool) {
        let mut known = self.known();
        let to = match &message.to {
            Recipient::User { to, .. } | Recipient::OperatorsAt { to, .. } => to.clone(),
            Recipient::Operators => {
                let targets = known.file.operators.clone();
                drop(known);
                return self.route_to_operators(&key, &message, &targets, is_old);
            }
        };
        let Some(destination) = known.destinations.get(&to).cloned() else {
            let why = "the destination is not in notify.toml".to_owned();
            let message = Message { given_up: Some(GivenUp { why, at: wall_now() }), ..message };
            let changes = std::iter::once(put(&key, &message)).chain(known.bury(key, message)).collect();
            drop(known);
            return self.store(changes);
        };
        let timing = known.file.timing.clone();
        let mut queue = destination.queue();
        let outcome = queue.arrive(key, message, is_old, Instant::now(), &timing);
        known.dropped += outcome.dropped;
        drop(known);
        // Under the lock of the queue, so that the store sees the changes of a message in their order.
        self.store(outcome.changes);
        drop(queue);
        destination.changed.notify_one();
    }

    /// Replaces a message to operators by one for each of their destinations.
    fn route_to_operators(&self, key: &MessageKey, message: &Message, targets: &[Target], is_old: bool) {
        let copies: Vec<(MessageKey, Message)> = (0..)
            .zip(targets)
            .map(|(index, target): (usize, &Target)| {
                let to = Recipient::OperatorsAt { to: target.to.clone(), address: target.address.clone() };
                let part = format!("{}-{index}", target.to);
                (MessageKey { number: key.number, part }, Message { to, ..message.clone() })
            })
            .collect();
        let changes = copies.iter().map(|(key, message)| put(key, message));
        self.store(changes.chain([Change::DropMessage(key.clone())]).collect());
        copies.into_iter().for_each(|(key, message)| self.route(key, message, is_old));
    }

    /// Records the outcome of a delivery. The caller holds the lock of the queue.
    fn settle(&self, outcome: Outcome, known: &mut Known) {
        let mut changes = outcome.changes;
        for (key, message) in outcome.dead {
            tracing::warn!(id = self.id(&key), "a notification could not be delivered");
            changes.extend(known.bury(key, message));
        }
        self.store(changes);
    }
}

impl Known {
    /// Keeps a message as a dead letter. Returns the change that drops the oldest one, if there are too many.
    fn bury(&mut self, key: MessageKey, message: Message) -> Option<Change> {
        self.dead.insert(key, message);
        if self.dead.len() <= MAX_DEAD {
            return None;
        }
        let (oldest, _) = self.dead.pop_first()?;
        self.dropped += 1;
        Some(Change::DropMessage(oldest))
    }
}

impl Destination {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> MutexGuard<'_, (Config, Timing)> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Modification time, length and mode of the file.
type FileVersion = Option<(SystemTime, u64, u32)>;

/// Watches the file, the outbox and the disk until the head stops.
pub(crate) async fn keep(notifier: Arc<Notifier>) {
    let arrivals = notifier.engine.new_messages();
    let (mut looks, mut disk) = (interval(LOOK), interval(CHECK_DISK));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    disk.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    let mut last = MessageKey::default();
    // What the store holds at the start may have been sent by an earlier head.
    let mut is_old = true;
    let mut has_unread = true;
    loop {
        tokio::select! {
            _ = looks.tick() => look(&notifier, &mut seen),
            _ = disk.tick() => check_disk(&notifier).await,
            () = arrivals.notified() => has_unread = true,
            () = notifier.stop.cancelled() => return,
        }
        // At the start, messages stay in the store until the file is valid.
        let can_route = seen.is_some() && !(is_old && notifier.known().trouble.is_some());
        if !has_unread || !can_route {
            continue;
        }
        match read_outbox(&notifier, &mut last, is_old).await {
            Ok(()) => (is_old, has_unread) = (false, false),
            Err(error) => tracing::warn!("cannot read the outbox: {error}"),
        }
    }
}

/// Reads the messages after `last` and gives them to their queues.
async fn read_outbox(notifier: &Notifier, last: &mut MessageKey, is_old: bool) -> anyhow::Result<()> {
    loop {
        let (history, after) = (notifier.history.clone(), last.clone());
        let page = tokio::task::spawn_blocking(move || history.messages_after(&after, PAGE)).await??;
        for stored in &page {
            // A number may have several parts, which are never new ones.
            *last = MessageKey { number: stored.key.number, part: stored.key.part.clone() };
            let message: Message = match hostler_proto::decode(&stored.bytes) {
                Ok(message) => message,
                Err(error) => {
                    tracing::error!("a notification in the store is damaged: {error}");
                    continue;
                }
            };
            if message.given_up.is_some() {
                let dropped = notifier.known().bury(stored.key.clone(), message);
                notifier.store(dropped.into_iter().collect());
            } else if is_old || stored.key.part.is_empty() {
                notifier.route(stored.key.clone(), message, is_old);
            }
        }
        if page.len() < PAGE {
            return Ok(());
        }
    }
}

/// Reloads the file if it has changed.
fn look(notifier: &Arc<Notifier>, seen: &mut Option<FileVersion>) {
    use std::os::unix::fs::MetadataExt;
    let version = std::fs::metadata(&notifier.path).ok();
    let version: FileVersion = version.and_then(|it| Some((it.modified().ok()?, it.len(), it.mode())));
    if *seen == Some(version) {
        return;
    }
    *seen = Some(version);
    match NotifyFile::read(&notifier.path) {
        Ok(file) => follow(notifier, file),
        Err(error) => {
            tracing::error!("{error}; the previous settings stay in effect");
            notifier.known().trouble = Some(error.to_string());
        }
    }
}

/// Applies the file's content. Queues of unchanged destinations stay as they are.
fn follow(notifier: &Arc<Notifier>, file: NotifyFile) {
    let mut orphans = Vec::new();
    {
        let mut known = notifier.known();
        known.trouble = None;
        known.destinations.retain(|name, destination| {
            let is_kept = file.destinations.contains_key(name);
            if !is_kept {
                destination.stop.cancel();
                orphans.extend(destination.queue().drain());
            }
            is_kept
        });
        for (name, config) in &file.destinations {
            let settings = (config.clone(), file.timing.clone());
            if let Some(destination) = known.destinations.get(name) {
                let before = std::mem::replace(&mut *destination.settings(), settings.clone());
                if before != settings {
                    destination.queue().reset(Instant::now());
                    destination.changed.notify_one();
                }
                continue;
            }
            let destination = Arc::new(Destination {
                settings: Mutex::new(settings),
                queue: Mutex::default(),
                changed: Notify::new(),
                stop: notifier.stop.child_token(),
            });
            known.destinations.insert(name.clone(), Arc::clone(&destination));
            tokio::spawn(serve(Arc::clone(notifier), name.clone(), destination));
        }
        known.file = file;
    }
    // They become dead letters.
    orphans.into_iter().for_each(|(key, message)| notifier.route(key, message, true));
}

/// Delivers the messages of one destination until it is removed or the head stops.
async fn serve(notifier: Arc<Notifier>, name: DestinationName, destination: Arc<Destination>) {
    loop {
        let next = destination.queue().take(Instant::now());
        let Some((key, message)) = next else {
            let wake_at = destination.queue().wake_at();
            let due = async {
                match wake_at {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = destination.changed.notified() => {}
                () = destination.stop.cancelled() => return,
            }
            continue;
        };
        let (config, timing) = destination.settings().clone();
        let id = notifier.id(&key);
        let sent = tokio::select! {
            sent = deliver(&config, &timing, &message, &id, &notifier.cluster) => sent,
            () = destination.stop.cancelled() => return,
        };
        let now = Instant::now();
        let mut known = notifier.known();
        let mut queue = destination.queue();
        let outcome = match &sent {
            Ok(()) => {
                tracing::debug!(destination = %name, id, "notification delivered");
                queue.delivered(&key, now, &timing)
            }
            Err(fault) => {
                tracing::info!(destination = %name, id, tries = message.tries + 1, "notification failed: {}", fault.text);
                queue.failed(&key, fault, (now, wall_now()), &timing, jittered)
            }
        };
        if matches!(config, Config::Slack(_)) {
            queue.pause(now + SLACK_PAUSE);
        }
        notifier.settle(outcome, &mut known);
    }
}

/// Delivers one message within the time limit.
async fn deliver(config: &Config, timing: &Timing, message: &Message, id: &str, cluster: &str) -> Result<(), Fault> {
    let limit = timing.timeout.0;
    let now_s = wall_now().0 / 1_000;
    let request = shapes::request(config, message, Envelope { id, cluster, now_s })?;
    let address = match &message.to {
        Recipient::User { address, .. } | Recipient::OperatorsAt { address, .. } => address.as_deref(),
        Recipient::Operators => None,
    };
    let send = async {
        match (&request, config) {
            (Some(request), _) => http::send(request.call()).await,
            (None, Config::Mail(mail)) => mail::send(mail, address, message, id, cluster, limit).await,
            (None, _) => Ok(()),
        }
    };
    timeout(limit, send).await.unwrap_or_else(|_| Err(Fault::timeout(limit)))
}

/// Tells operators when the head's disk becomes full, and when it has space again.
async fn check_disk(notifier: &Notifier) {
    let library = Arc::clone(&notifier.library);
    // The call blocks while a disk hangs.
    let Ok((nearly, full)) = tokio::task::spawn_blocking(move || (library.nearly_full(), library.too_full())).await
    else {
        return;
    };
    let is_raised = |alert: Alert| notifier.engine.state().alerts().contains(&alert);
    for (alert, text) in [(Alert::DiskNearlyFull, nearly), (Alert::SubmissionsRefused, full)] {
        if is_raised(alert) != text.is_some() {
            // A store without space reports that itself; the next check tries again.
            let _ = notifier.engine.command(Command::Alert { alert, text }).await;
        }
    }
}

/// Varies a delay by up to a tenth, so that retries of several messages spread.
fn jittered(delay: Duration) -> Duration {
    let [byte] = hostler_sys::random::<1>();
    delay.mul_f64(0.9 + 0.2 * f64::from(byte) / 255.0)
}

fn wall_now() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
