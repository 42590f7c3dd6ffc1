//! Trees that commands of this machine's users take along: what has changed in them since they were last described.
//!
//! A build calls thousands of times, and between two calls a few files change. So a tree that was taken along once is watched for a while, and
//! the next caller hears what it has to look at. Nothing depends on it: who hears nothing looks at everything.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_calls::ship::is_left_out;
use hostler_calls::{Sought, fresh};
use hostler_snapshot::{News, Watch};
use nix::unistd::geteuid;
use tokio::task::spawn_blocking;

use super::ask::Asker;
use super::{Calling, lock};
use crate::account::{Account, act_as};
use crate::link::random_bits;

/// Trees that are watched at once: the kernel grants a number of watches to each user, and root's are for all.
const MOST_TREES: usize = 16;

/// How long a tree is watched that nobody takes along any more, and for how long one is left alone that cannot be watched.
const IDLE: Duration = Duration::from_secs(600);
const HOPELESS: Duration = Duration::from_secs(60);

/// Whose tree, and where.
type Key = (u32, PathBuf);

/// Trees that are watched.
#[derive(Default)]
pub(super) struct Trees(Mutex<HashMap<Key, Arc<Tree>>>);

struct Tree {
    /// Whose rights it is looked at with; `None` is the agent's own user.
    account: Option<Arc<Account>>,
    used: Mutex<Instant>,
    state: Mutex<State>,
}

enum State {
    Beginning,
    Watched(Box<Watch>),
    /// It cannot be, as it turned out then.
    Unwatched(Instant),
}

/// What has changed in a tree since its caller remembers it.
pub(super) async fn news(calling: &Arc<Calling>, sought: &Sought, asker: &Asker) -> News {
    let caller = &asker.caller;
    let account = calling.node.accounts.of(&caller.name, Some(caller.uid)).await;
    let Ok(account) = account else { return News::default() };
    if (account.is_none() && caller.uid != geteuid().as_raw()) || !sees_the_same(asker.pid) {
        return News::default();
    }
    let (calling, sought, uid) = (Arc::clone(calling), sought.clone(), caller.uid);
    let ask = move || calling.trees.news((uid, sought.root()), account, &sought);
    spawn_blocking(ask).await.unwrap_or_default()
}

/// Whether a program has the same disks at the same places as the agent.
fn sees_the_same(pid: Option<i32>) -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    pid.is_some_and(|pid| of(&pid.to_string()).is_some_and(|its| of("self") == Some(its)))
}

impl Trees {
    /// Whether there is anything to hear.
    pub(super) fn is_watching(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    /// Hears what has changed, before too much of it waits, and forgets what nobody takes along any more. Blocks.
    pub(super) fn hear(&self) {
        let trees: Vec<_> = {
            let mut all = lock(&self.0);
            all.retain(|_, tree| lock(&tree.used).elapsed() < IDLE);
            all.values().cloned().collect()
        };
        for tree in trees {
            tree.heed(|watch| watch.hear().map(|()| News::default()));
        }
    }

    fn news(&self, key: Key, account: Option<Arc<Account>>, sought: &Sought) -> News {
        let root = key.1.clone();
        let (tree, is_new) = self.tree(key, account);
        *lock(&tree.used) = Instant::now();
        let identity = (sought.device, sought.inode);
        if is_new || tree.may_begin_again() {
            // Whoever asked first looks at everything meanwhile.
            spawn_blocking(move || tree.begin(&root, identity));
            return News::default();
        }
        tree.heed(|watch| {
            // The caller may see something else at that place.
            if watch.identity() == identity { watch.news(sought.since) } else { Ok(News::default()) }
        })
    }

    /// The tree of that key, and whether it is new.
    fn tree(&self, key: Key, account: Option<Arc<Account>>) -> (Arc<Tree>, bool) {
        let mut all = lock(&self.0);
        if let Some(known) = all.get(&key) {
            return (Arc::clone(known), false);
        }
        if all.len() >= MOST_TREES
            && let Some(oldest) = all.iter().min_by_key(|(_, tree)| *lock(&tree.used)).map(|(key, _)| key.clone())
        {
            all.remove(&oldest);
        }
        let tree = Tree { account, used: Mutex::new(Instant::now()), state: Mutex::new(State::Beginning) };
        let tree = Arc::new(tree);
        all.insert(key, Arc::clone(&tree));
        (tree, true)
    }
}

impl Tree {
    /// Has something done to the watch; one that fails is none any more.
    fn heed(&self, work: impl FnOnce(&mut Watch) -> std::io::Result<News>) -> News {
        let mut state = lock(&self.state);
        let State::Watched(watch) = &mut *state else { return News::default() };
        let ids = self.account.as_ref().map(|account| &account.ids);
        match act_as(ids, || work(watch)).and_then(|done| done) {
            Ok(news) => news,
            Err(error) => {
                tracing::debug!(%error, "a tree is not watched any more");
                *state = State::Unwatched(Instant::now());
                News::default()
            }
        }
    }

    fn may_begin_again(&self) -> bool {
        let mut state = lock(&self.state);
        let may = matches!(&*state, State::Unwatched(since) if since.elapsed() >= HOPELESS);
        if may {
            *state = State::Beginning;
        }
        may
    }

    /// Begins to watch. A large tree takes its time.
    fn begin(&self, root: &Path, identity: (u64, u64)) {
        let ids = self.account.as_ref().map(|account| &account.ids);
        let number = random_bits();
        let begun = act_as(ids, || {
            use std::os::unix::fs::MetadataExt;
            let found = fs::symlink_metadata(root)?;
            if (found.dev(), found.ino()) != identity || fresh::is_shared(root) {
                return Err(std::io::Error::other("it is another directory here, or others write there, too"));
            }
            Watch::begin(root, number, is_left_out)
        });
        *lock(&self.state) = match begun.and_then(|begun| begun) {
            Ok(watch) => State::Watched(Box::new(watch)),
            Err(error) => {
                tracing::debug!(root = %root.display(), %error, "a tree cannot be watched");
                State::Unwatched(Instant::now())
            }
        };
    }
}
