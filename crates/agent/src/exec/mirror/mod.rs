//! Runs commands with a mirrored source tree, for callers whose disk this node does not share.
//!
//! The node keeps a copy of the tree for later commands ([`layers`]) and receives only changes ([`receive`]). The memory
//! that the descriptions of trees take is limited ([`memory`]). The command sees the tree at the same path as on the
//! caller's machine ([`namespace`]). The command's own changes go to a separate directory. When the command has ended, the
//! node sends these changes to the caller ([`MirroredTree::send_results`]).

mod layers;
mod memory;
mod namespace;
mod program;
mod receive;
mod relay;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use hostler_model::NodeName;
use hostler_proto::manifest::EntryKind;
use hostler_remote::mirror::{MOST_BYTES, MOST_ENTRIES, Message, TreeChannel, belongs_to_machine, entries_in_parts};
use hostler_remote::{Channel, Command, Refusal, Report, TreeSpec};
use hostler_snapshot::mirror::{Upper, upper};
use hostler_snapshot::{ChunkStore, remove_tree, wire};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use self::layers::{CallDirectory, Generation, Mirror, remove_later};
use self::memory::{Exceeded, MemoryLimits, Reservation};
use self::receive::within;
pub(super) use self::relay::{answer_of, begin_anew};
use super::refusal::unsuitable;
use crate::account::{Account, Ids};
use crate::mutex::lock;
use crate::random::random_bits;

/// Maximum number of trees. The least recently used tree is removed first.
const MOST_MIRRORS: usize = 32;

/// Maximum number of trees per user, so that one user cannot displace all others.
const MOST_OF_ONE: usize = 24;

/// Maximum size of a user's chunk store, in bytes.
const STORE_BYTES: u64 = 4 << 30;

/// Timeout for a caller to accept a part of the command's changes. The caller writes them to its disk.
const RESULT_BOUND: Duration = Duration::from_secs(600);

/// Identifies a tree: the caller's node, the user's uid, and the tree's path.
type Key = (NodeName, u32, PathBuf);

/// This node's copies of callers' trees.
pub(super) struct Mirrors {
    directory: PathBuf,
    mirrors: Mutex<HashMap<Key, (Instant, Arc<Mirror>)>>,
    stores: Mutex<HashMap<u32, Arc<ChunkStore>>>,
    programs: program::Programs,
    memory: Arc<MemoryLimits>,
}

/// A command's tree, ready for use.
pub(super) struct MirroredTree {
    mirror: Arc<Mirror>,
    generation: Arc<Generation>,
    call: CallDirectory,
    namespace: OwnedFd,
    began_ns: i64,
}

/// Why a tree could not be prepared.
type Failed = Box<Refusal>;

impl Mirrors {
    /// Opens the trees in the agent's directory. Removes a previous agent's trees, but keeps the chunks of these trees.
    /// The node has `memory_bytes` of memory.
    pub(super) fn open(agent: &Path, memory_bytes: u64) -> Self {
        let directory = agent.join("mirrors");
        let (trees, old) = (directory.join("trees"), directory.join(format!("old-{:016x}", random_bits())));
        match fs::rename(&trees, &old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => drop(remove_tree(&trees)),
            Ok(()) | Err(_) => {}
        }
        let left = fs::read_dir(&directory).into_iter().flatten().flatten();
        left.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"old-"))
            .for_each(|entry| remove_later(entry.path()));
        let (mirrors, stores, programs) = (Mutex::default(), Mutex::default(), program::Programs::default());
        Self { directory, mirrors, stores, programs, memory: MemoryLimits::of_node(memory_bytes) }
    }

    /// Receives the parts of the caller's tree that this node lacks, and prepares the tree for one command.
    ///
    /// # Errors
    /// Fails when this node cannot prepare the tree. The error is the refusal to send to the caller.
    pub(super) async fn prepare(
        &self,
        channel: &mut Channel,
        command: &Command,
        spec: &TreeSpec,
        (from, node): (&NodeName, &NodeName),
        account: Option<&Arc<Account>>,
    ) -> Result<MirroredTree, Failed> {
        let cannot = |why: &str| Box::new(unsuitable(126, format!("node {node} cannot mirror the source tree: {why}")));
        if !nix::unistd::geteuid().is_root() {
            let mut refusal = cannot("the agent does not run as root, and only root may mount the tree");
            refusal
                .hints
                .push("without --mirror, the command uses the node's own directory of the same path".to_owned());
            return Err(refusal);
        }
        let root = spec.root();
        if belongs_to_machine(&root) {
            return Err(cannot(&format!("{} is a system directory", root.display())));
        }
        self.check_program(command, spec, node, account.map(|account| account.ids.clone())).await?;
        let owner = account.map(|account| (account.ids.uid, account.ids.gid));
        let failed = |error: io::Error| cannot(&error.to_string());
        let key = (from.clone(), owner.map_or(0, |(uid, _)| uid), root.clone());
        let mirror = self.mirror(key.clone(), owner).map_err(failed)?;
        let received = match mirror.known(spec.tree) {
            Some(generation) => Ok(generation),
            None => self.receive_tree(TreeChannel::before(channel), &mirror, spec.tree).await,
        };
        let generation = match received {
            Ok(generation) => generation,
            Err(error) if error.get_ref().is_some_and(|source| source.downcast_ref::<Exceeded>().is_some()) => {
                drop(mirror);
                // The next command then needs no memory for an earlier state of this tree.
                drop_aside(self.forget_if_idle(&key)).await;
                let mut refusal = failed(error);
                refusal.hints.push(
                    "wait until other commands with --mirror have ended, or mirror a smaller directory with --mirror=DIR"
                        .to_owned(),
                );
                return Err(refusal);
            }
            Err(error) => return Err(failed(error)),
        };
        let placed = {
            let (mirror, generation) = (Arc::clone(&mirror), Arc::clone(&generation));
            let user = account.map(|account| account.ids.clone());
            spawn_blocking(move || {
                let call = mirror.call_directory(generation.tree.mode)?;
                let layout = namespace::Layout {
                    mirror: mirror.directory.clone(),
                    layers: generation.layers(),
                    call: call.name.clone(),
                    root,
                    user,
                };
                Ok((namespace::make(layout)?, call))
            })
        };
        let (namespace, call) = placed.await.map_err(io::Error::other).and_then(|placed| placed).map_err(failed)?;
        Ok(MirroredTree { mirror, generation, call, namespace, began_ns: now_ns() })
    }

    async fn check_program(
        &self,
        command: &Command,
        spec: &TreeSpec,
        node: &NodeName,
        ids: Option<Ids>,
    ) -> Result<(), Failed> {
        let Some(wanted) = spec.program else { return Ok(()) };
        let programs = self.programs.clone();
        let (command, spec) = (command.clone(), spec.clone());
        let name = command.argv()[0].display().to_string();
        let found = spawn_blocking(move || programs.find(&command, &spec.root(), ids.as_ref())).await.ok().flatten();
        match found {
            Some((_, digest)) if digest == wanted => Ok(()),
            Some((path, _)) => {
                let message = format!("{} on node {node} differs from the caller's program", path.display());
                let mut refusal = unsuitable(126, message);
                refusal.hints.push(
                    "different programs may produce different output; to allow that, add --any-program".to_owned(),
                );
                Err(Box::new(refusal))
            }
            None => Err(Box::new(unsuitable(127, format!("node {node} has no {name}")))),
        }
    }

    fn mirror(&self, key: Key, owner: Option<(u32, u32)>) -> io::Result<Arc<Mirror>> {
        let mut mirrors = lock(&self.mirrors);
        if let Some((used, mirror)) = mirrors.get_mut(&key) {
            *used = Instant::now();
            return Ok(Arc::clone(mirror));
        }
        make_room(&mut mirrors, key.1)?;
        let store = self.store(key.1)?;
        let trees = self.directory.join("trees");
        make_private(&self.directory)?;
        make_private(&trees)?;
        let directory = tempfile_in(&trees)?;
        let mirror = Arc::new(Mirror::new(directory, store, owner));
        mirrors.insert(key, (Instant::now(), Arc::clone(&mirror)));
        Ok(mirror)
    }

    /// Returns the user's own chunk store. Users share no chunks, so they cannot detect each other's files.
    fn store(&self, uid: u32) -> io::Result<Arc<ChunkStore>> {
        let mut stores = lock(&self.stores);
        if let Some(store) = stores.get(&uid) {
            return Ok(Arc::clone(store));
        }
        make_private(&self.directory)?;
        let store = ChunkStore::open(&self.directory.join(format!("chunks-{uid}"))).map_err(io::Error::other)?;
        let store = Arc::new(store);
        stores.insert(uid, Arc::clone(&store));
        Ok(store)
    }

    /// Counts more memory for the description of a tree. If a limit is reached, forgets earlier states of this tree, and
    /// then idle trees, least recently used first.
    ///
    /// # Errors
    /// Fails with [`Exceeded`] if a limit is reached and nothing is left to forget.
    async fn count(&self, memory: &mut Reservation, bytes: u64, mirror: &Mirror) -> io::Result<()> {
        loop {
            let Err(exceeded) = memory.grow(bytes) else { return Ok(()) };
            let older = mirror.forget_older();
            if !older.is_empty() {
                drop_aside(older).await;
                continue;
            }
            let idle = take_idle(&mut lock(&self.mirrors), exceeded.uid);
            match idle {
                Some(idle) => drop_aside(idle).await,
                None => return Err(io::Error::other(exceeded)),
            }
        }
    }

    /// Removes and returns a tree that no command uses.
    fn forget_if_idle(&self, key: &Key) -> Option<Arc<Mirror>> {
        let mut mirrors = lock(&self.mirrors);
        let is_idle = mirrors.get(key).is_some_and(|(_, mirror)| Arc::strong_count(mirror) == 1);
        if is_idle { mirrors.remove(key).map(|(_, mirror)| mirror) } else { None }
    }
}

/// Drops descriptions of trees on a thread of the pool, because they may have many entries, and waits until their memory
/// is free.
async fn drop_aside<T: Send + 'static>(descriptions: T) {
    drop(spawn_blocking(move || drop(descriptions)).await);
}

/// Removes and returns the least recently used tree that no command uses. With `uid`, only a tree of this user.
fn take_idle<M>(mirrors: &mut HashMap<Key, (Instant, Arc<M>)>, uid: Option<u32>) -> Option<Arc<M>> {
    let idle = mirrors
        .iter()
        .filter(|(key, (_, mirror))| uid.is_none_or(|uid| key.1 == uid) && Arc::strong_count(mirror) == 1);
    let oldest = idle.min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone())?;
    mirrors.remove(&oldest).map(|(_, mirror)| mirror)
}

/// If this node, or the user `uid`, has the maximum number of trees, removes the least recently used idle tree.
fn make_room<M>(mirrors: &mut HashMap<Key, (Instant, Arc<M>)>, uid: u32) -> io::Result<()> {
    let has_most = mirrors.keys().filter(|key| key.1 == uid).count() >= MOST_OF_ONE;
    if mirrors.len() < MOST_MIRRORS && !has_most {
        return Ok(());
    }
    if take_idle(mirrors, has_most.then_some(uid)).is_some() {
        return Ok(());
    }
    let (count, whose) = if has_most { (MOST_OF_ONE, " of this user") } else { (MOST_MIRRORS, "") };
    Err(io::Error::other(format!("the node already has {count} trees{whose}, all in use")))
}

impl MirroredTree {
    /// Returns the mount namespace for the command.
    pub(super) fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Sends the command's changes to the caller. All processes of the command must have ended.
    pub(super) async fn send_results(self, channel: &mut Channel, report: &mut Report) {
        if let Err(error) = self.tell(channel).await {
            let message = format!("the command's changes could not be copied back: {error}");
            report.message = Some(report.message.take().map_or(message.clone(), |said| format!("{said}; {message}")));
        }
    }

    async fn tell(self, channel: &mut Channel) -> io::Result<()> {
        let Self { mirror, generation, call, namespace, began_ns } = self;
        let ended_ns = now_ns();
        drop(namespace);
        let mut talk = TreeChannel::after(channel);
        within(RESULT_BOUND, talk.say(&Message::Ran { began_ns, ended_ns })).await?;
        let (tell, mut told) = mpsc::channel(4);
        let read = spawn_blocking(move || {
            let most = (MOST_ENTRIES, MOST_BYTES);
            let written = upper(&call.path.join("u"), &|path| generation.tree.at(path), most)?;
            let sent = send_changes(&written, &mirror.store, &mut |message| tell.blocking_send(message).is_ok());
            // Everything is read; free the disk space.
            drop(call);
            let _ = mirror.store.evict_to(STORE_BYTES, &|_| false);
            sent
        });
        while let Some(message) = told.recv().await {
            within(RESULT_BOUND, talk.say(&message)).await?;
        }
        read.await.map_err(io::Error::other)??;
        within(RESULT_BOUND, talk.say(&Message::Done)).await?;
        within(RESULT_BOUND, talk.flush()).await
    }
}

/// Sends the changes. Also stores the chunks, because the caller's tree now contains them.
fn send_changes(written: &Upper, store: &ChunkStore, say: &mut dyn FnMut(Message) -> bool) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let paths = |paths: &[Vec<u8>]| paths.iter().cloned().map(Into::into).collect::<Vec<_>>();
    let (mut removed, mut emptied) = (paths(&written.removed), paths(&written.emptied));
    const AT_ONCE: usize = 1000;
    while !removed.is_empty() || !emptied.is_empty() {
        let rest = (removed.split_off(removed.len().min(AT_ONCE)), emptied.split_off(emptied.len().min(AT_ONCE)));
        if !say(Message::Gone { removed, emptied }) {
            return Err(gone());
        }
        (removed, emptied) = rest;
    }
    for part in entries_in_parts(written.entries.iter().cloned()) {
        let Message::Entries { entries, .. } = &part else { continue };
        let contents = entries.iter().filter_map(|entry| match &entry.kind {
            EntryKind::File(content) => Some(content.clone()),
            _ => None,
        });
        let chunks: Vec<_> = contents.flat_map(|content| content.chunks).collect();
        if !say(part) {
            return Err(gone());
        }
        for chunk in chunks {
            let bytes = written.sources.read_chunk(&chunk.digest).map_err(io::Error::other)?;
            let wire = wire::encode(&bytes);
            // If this fails, a later command requests the chunk from the caller.
            let _ = store.insert_wire(&chunk.digest, &wire);
            if !say(Message::Chunk(wire.into())) {
                return Err(gone());
            }
        }
    }
    Ok(())
}

/// This machine's clock, in nanoseconds since the epoch.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Creates a directory that only the agent can access.
fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Creates a new directory with a unique name.
fn tempfile_in(directory: &Path) -> io::Result<PathBuf> {
    loop {
        let path = directory.join(format!("{:08x}", random_bits() as u32));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_occupy_all_mirrors() {
        let key = |uid, number: usize| ("n1".parse().expect("a name"), uid, PathBuf::from(format!("/{number}")));
        let mut mirrors: HashMap<Key, (Instant, Arc<()>)> = HashMap::new();
        let mut in_use = Vec::new();
        let began = Instant::now();
        let mut take = |mirrors: &mut HashMap<Key, (Instant, Arc<()>)>, uid, number: usize| {
            make_room(mirrors, uid)?;
            let mirror = Arc::new(());
            in_use.push(Arc::clone(&mirror));
            mirrors.insert(key(uid, number), (began + Duration::from_secs(number as u64), mirror));
            Ok::<_, io::Error>(())
        };
        for number in 0..MOST_OF_ONE {
            take(&mut mirrors, 1, number).expect("the limit is not reached");
        }
        assert!(
            take(&mut mirrors, 1, 99).expect_err("the limit is reached").to_string().contains("24 trees of this user")
        );
        for number in MOST_OF_ONE..MOST_MIRRORS {
            take(&mut mirrors, 2, number).expect("other users can add trees");
        }
        assert!(take(&mut mirrors, 3, 99).expect_err("the limit is reached").to_string().contains("32 trees, all"));
        in_use.remove(5);
        in_use.remove(2);
        make_room(&mut mirrors, 1).expect("an idle tree can be removed");
        assert!(
            !mirrors.contains_key(&key(1, 2)) && mirrors.contains_key(&key(1, 5)),
            "only the oldest idle tree is removed"
        );
    }
}
