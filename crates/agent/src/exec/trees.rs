//! Trees that commands of this machine's users take along: what has changed in them since they were last described.
//!
//! A build calls thousands of times, and between two calls a few files change. So a tree that was taken along once is watched for a while, and
//! the next caller hears what it has to look at. Nothing depends on it: who hears nothing looks at everything, and nobody waits for it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_remote::Sought;
use hostler_remote::ship::{belongs_to_machine, is_left_out};
use hostler_snapshot::{News, Watch};
use nix::unistd::geteuid;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{interval, timeout};

use super::dispatch::Client;
use super::peer::Peer;
use super::{Exec, lock};
use crate::account::{Account, act_as};
use crate::link::random_bits;

/// Trees that are watched at once, and how many of them one user may have, so that nobody keeps all others out.
const MOST_TREES: usize = 16;
const MOST_OF_ONE: usize = 4;

/// The most directories of a tree. Of what the kernel grants to root, which is for all of root's programs, trees together get a quarter.
const MOST_DIRECTORIES: usize = 20_000;
const SHARE: usize = 4;
const GRANTED: &str = "/proc/sys/fs/inotify/max_user_watches";

/// How long a tree is watched that nobody takes along any more, and for how long one is left alone that cannot be watched.
const IDLE: Duration = Duration::from_secs(600);
const HOPELESS: Duration = Duration::from_secs(60);

/// How often what has changed is heard.
const LOOK: Duration = Duration::from_secs(1);

/// How long a caller waits for others who ask about the same tree.
const PATIENCE: Duration = Duration::from_millis(20);

/// Whose tree, and where.
type Key = (u32, PathBuf);

/// Trees that are watched.
pub(super) struct Trees {
    all: Mutex<HashMap<Key, Arc<Tree>>>,
    /// Whoever begins to watch: it takes a walk through the whole tree.
    beginning: Arc<Semaphore>,
}

struct Tree {
    /// Whose rights it is looked at with; `None` is the agent's own user.
    account: Option<Arc<Account>>,
    root: PathBuf,
    used: Mutex<Instant>,
    /// How many directories of it are watched.
    directories: Mutex<usize>,
    state: Arc<AsyncMutex<State>>,
}

enum State {
    /// It is not yet.
    New,
    Beginning,
    Watched(Box<Watch>),
    /// It cannot be, as it turned out then.
    Hopeless(Instant),
}

impl Default for Trees {
    fn default() -> Self {
        Self { all: Mutex::default(), beginning: Arc::new(Semaphore::new(1)) }
    }
}

/// What has changed in a tree since its caller remembers it.
pub(super) async fn news(exec: &Arc<Exec>, sought: &Sought, client: &Client) -> News {
    let caller = &client.caller;
    let Ok(account) = exec.node.accounts.of(&caller.name, Some(caller.uid)).await else { return News::default() };
    let root = sought.root();
    let is_own = account.is_some() || caller.uid == geteuid().as_raw();
    if !is_own || !is_plain(&root) || belongs_to_machine(&root) || !sees_the_same(&client.peer) {
        return News::default();
    }
    let identity = (sought.device, sought.inode);
    let Some(tree) = exec.trees.find((caller.uid, root), account, identity).await else { return News::default() };
    let Ok(mut state) = timeout(PATIENCE, Arc::clone(&tree.state).lock_owned()).await else { return News::default() };
    if let State::Hopeless(since) = &*state
        && since.elapsed() >= HOPELESS
    {
        *state = State::New;
    }
    match &*state {
        State::New => {
            *state = State::Beginning;
            drop(state);
            // Whoever asks looks at everything meanwhile.
            tokio::spawn(begin(Arc::clone(exec), tree, identity));
            News::default()
        }
        State::Watched(watch) if watch.identity() != identity => {
            *state = State::New;
            News::default()
        }
        State::Watched(_) => {
            let since = sought.since;
            heed(tree, state, move |watch| watch.news(since)).await
        }
        State::Beginning | State::Hopeless(_) => News::default(),
    }
}

/// Hears what has changed, for as long as it is polled, before too much of it waits; and forgets what nobody takes along any more.
pub(super) async fn listen(exec: &Arc<Exec>) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let (idle, trees) = exec.trees.sorted_out();
        if !idle.is_empty() {
            drop(spawn_blocking(move || drop(idle)).await);
        }
        for tree in trees {
            let Ok(state) = Arc::clone(&tree.state).try_lock_owned() else { continue };
            heed(tree, state, |watch| watch.hear().map(|()| News::default())).await;
        }
    }
}

/// Whether a path is absolute and names each directory on its way once.
fn is_plain(root: &Path) -> bool {
    let is_step = |part: &Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let steps: PathBuf = root.components().take_while(is_step).collect();
    root.is_absolute() && steps.as_os_str() == root.as_os_str()
}

/// Whether a program has the same disks at the same places as the agent.
fn sees_the_same(peer: &Peer) -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let Some(process) = peer.process() else { return false };
    let its = of(&process.id().pid.to_string());
    // Only now it is certain whose that was.
    its.is_some() && its == of("self") && peer.process().is_some()
}

/// Has something done to a watch; one that fails is none any more.
async fn heed(
    tree: Arc<Tree>,
    mut state: OwnedMutexGuard<State>,
    work: impl FnOnce(&mut Watch) -> io::Result<News> + Send + 'static,
) -> News {
    let heed = move || {
        let State::Watched(watch) = &mut *state else { return News::default() };
        let done = tree.act(|| work(watch));
        *lock(&tree.directories) = watch.directories();
        done.unwrap_or_else(|error| {
            tracing::debug!(root = %tree.root.display(), %error, "a tree is not watched any more");
            *state = State::New;
            News::default()
        })
    };
    spawn_blocking(heed).await.unwrap_or_default()
}

/// Begins to watch a tree. A large one takes its time.
async fn begin(exec: Arc<Exec>, tree: Arc<Tree>, identity: (u64, u64)) {
    let Ok(_turn) = Arc::clone(&exec.trees.beginning).acquire_owned().await else { return };
    let most = exec.trees.left().min(MOST_DIRECTORIES);
    let number = random_bits();
    let again = Arc::clone(&tree);
    let begun = spawn_blocking(move || {
        let watch = again.act(|| Watch::begin(&again.root, number, most, is_left_out))?;
        if watch.identity() == identity { Ok(watch) } else { Err(io::Error::other("it is another directory here")) }
    });
    let begun = begun.await.map_err(io::Error::other).and_then(|begun| begun);
    *tree.state.lock().await = match begun {
        Ok(watch) => {
            *lock(&tree.directories) = watch.directories();
            State::Watched(Box::new(watch))
        }
        Err(error) => {
            tracing::debug!(root = %tree.root.display(), %error, "a tree cannot be watched");
            State::Hopeless(Instant::now())
        }
    };
}

impl Trees {
    /// The tree of that key; `None` if the caller means another directory than the agent sees there.
    async fn find(&self, key: Key, account: Option<Arc<Account>>, identity: (u64, u64)) -> Option<Arc<Tree>> {
        if let Some(known) = lock(&self.all).get(&key) {
            *lock(&known.used) = Instant::now();
            return Some(Arc::clone(known));
        }
        let tree = Arc::new(Tree {
            account,
            root: key.1.clone(),
            used: Mutex::new(Instant::now()),
            directories: Mutex::new(0),
            state: Arc::new(AsyncMutex::new(State::New)),
        });
        let looked = Arc::clone(&tree);
        let look = move || looked.act(|| fs::symlink_metadata(&looked.root)).map(|found| (found.dev(), found.ino()));
        if spawn_blocking(look).await.ok()?.ok()? != identity {
            return None;
        }
        let (gone, tree) = {
            let mut all = lock(&self.all);
            let gone = make_room(&mut all, key.0);
            (gone, Arc::clone(all.entry(key).or_insert(tree)))
        };
        // There may be much to let go of.
        drop(spawn_blocking(move || drop(gone)));
        Some(tree)
    }

    /// Trees that nobody takes along any more, and the others.
    fn sorted_out(&self) -> (Vec<Arc<Tree>>, Vec<Arc<Tree>>) {
        let mut all = lock(&self.all);
        let idle = all.extract_if(|_, tree| lock(&tree.used).elapsed() >= IDLE).map(|(_, tree)| tree).collect();
        (idle, all.values().cloned().collect())
    }

    /// How many more directories may be watched.
    fn left(&self) -> usize {
        let granted = fs::read_to_string(GRANTED).ok().and_then(|text| text.trim().parse::<usize>().ok());
        let taken: usize = lock(&self.all).values().map(|tree| *lock(&tree.directories)).sum();
        (granted.unwrap_or(0) / SHARE).saturating_sub(taken)
    }
}

/// Makes room for another tree of a user: what goes is what was not used for longest, of their own trees if they have most.
fn make_room(all: &mut HashMap<Key, Arc<Tree>>, uid: u32) -> Option<Arc<Tree>> {
    let has_most = all.keys().filter(|key| key.0 == uid).count() >= MOST_OF_ONE;
    if !has_most && all.len() < MOST_TREES {
        return None;
    }
    let eligible = all.iter().filter(|(key, _)| !has_most || key.0 == uid);
    let oldest = eligible.min_by_key(|(_, tree)| *lock(&tree.used)).map(|(key, _)| key.clone());
    oldest.and_then(|key| all.remove(&key))
}

impl Tree {
    /// Does something with the rights of its user.
    fn act<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        act_as(self.account.as_ref().map(|account| &account.ids), work).and_then(|done| done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_say_where_they_lead_are_watched() {
        assert!(is_plain(Path::new("/src/tree")));
        for path in ["src", "/src/../etc", "/src/./tree", "/src//tree", "/src/tree/", ""] {
            assert!(!is_plain(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn nobody_keeps_all_others_out() {
        let tree = |age: u64| {
            Arc::new(Tree {
                account: None,
                root: PathBuf::new(),
                used: Mutex::new(
                    Instant::now().checked_sub(Duration::from_secs(age)).expect("the machine runs longer"),
                ),
                directories: Mutex::new(0),
                state: Arc::new(AsyncMutex::new(State::New)),
            })
        };
        let key = |uid, name: usize| (uid, PathBuf::from(name.to_string()));
        let mut all = HashMap::new();
        for number in 0..MOST_OF_ONE {
            assert!(make_room(&mut all, 1).is_none());
            all.insert(key(1, number), tree(100 - number as u64));
        }
        assert!(make_room(&mut all, 1).is_some(), "one of their own");
        assert!(!all.contains_key(&key(1, 0)), "the oldest");
        for number in all.len()..MOST_TREES {
            let uid = 2 + number as u32 / MOST_OF_ONE as u32;
            assert!(make_room(&mut all, uid).is_none(), "{number}");
            all.insert(key(uid, number), tree(50));
        }
        assert!(make_room(&mut all, 99).is_some());
        assert!(!all.contains_key(&key(1, 1)), "the oldest of all");
    }
}
