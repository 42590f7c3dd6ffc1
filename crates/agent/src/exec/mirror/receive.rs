//! Receives the parts of a caller's tree that this node lacks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hostler_model::{Digest, format_bytes};
use hostler_proto::manifest::{Entry, EntryKind};
use hostler_remote::mirror::{
    Fault, MAX_DESCRIPTION_BYTES, MOST_BYTES, MOST_ENTRIES, Message, Partial, Tree, TreeChannel,
};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::Mirrors;
use super::layers::{Generation, Mirror};
use super::memory::{HeldTree, Reservation, bytes_of};

/// Maximum number of attempts to receive a tree that keeps changing.
const ATTEMPTS: usize = 8;

/// Memory that counts for receiving a tree in addition to its description, in bytes: buffers of messages, and chunks that
/// are not stored yet.
const RECEIVING_BYTES: u64 = 16 << 20;

/// Memory for the place of a received entry in a growing list, in bytes.
const PLACE_BYTES: usize = 2 * size_of::<Entry>();

/// Maximum size of the chunks per request, in bytes.
const BATCH_BYTES: u64 = 8 << 20;

/// Maximum number of chunks per request, which bounds the size of the request.
const BATCH_CHUNKS: usize = 100_000;

/// Disk space that must stay free, in bytes.
const ROOM_BYTES: u64 = 256 << 20;

/// Timeout for a caller's answer, and for a caller to accept a question.
const ANSWER_BOUND: Duration = Duration::from_secs(60);

/// Timeout for all entries of a description. A caller could otherwise send them one by one, for ever.
const DESCRIPTION_BOUND: Duration = Duration::from_secs(600);

/// Interval between heartbeats to a waiting caller.
const PATIENCE: Duration = Duration::from_secs(5);

/// Received entries, in order.
struct Told {
    entries: Vec<Entry>,
    /// Memory of the entries, in bytes.
    bytes: u64,
    /// Counts the tree's list of entries, and the received entries.
    memory: Reservation,
}

impl Told {
    /// Completes a partial tree.
    fn complete(self, known: Partial, digest: Digest, mode: u32) -> Result<HeldTree, Fault> {
        let tree = known.complete(digest, mode, self.entries)?;
        Ok(HeldTree::new(tree, self.memory, self.bytes))
    }
}

impl Mirrors {
    /// Receives the parts of a tree that the mirror lacks, and adds the tree to the mirror as a new state.
    ///
    /// # Errors
    /// Fails when the connection breaks, when a limit is exceeded, or when the disk is full, for instance.
    pub(super) async fn receive_tree(
        &self,
        mut talk: TreeChannel<'_>,
        mirror: &Arc<Mirror>,
        wanted: Digest,
    ) -> io::Result<Arc<Generation>> {
        let transfer_lock = mirror.transfer_lock.lock();
        tokio::pin!(transfer_lock);
        let _turn = loop {
            tokio::select! {
                turn = &mut transfer_lock => break turn,
                () = sleep(PATIENCE) => talk.hold().await?,
            }
        };
        if let Some(known) = mirror.known(wanted) {
            return Ok(known);
        }
        for _ in 0..ATTEMPTS {
            let mut memory = self.memory.reservation(mirror.uid());
            self.count(&mut memory, RECEIVING_BYTES, mirror).await?;
            within(ANSWER_BOUND, talk.say(&Message::Describe)).await?;
            let Message::Described { tree: digest, mode, tags } = hear(&mut talk).await? else { return Err(strange()) };
            if let Some(known) = mirror.known(digest) {
                return Ok(known);
            }
            let tree = self.describe(&mut talk, mirror, digest, mode, tags.into_vec()).await?;
            let planned = Arc::clone(mirror);
            let plan = spawn_blocking(move || planned.plan(tree, digest)).await.map_err(io::Error::other)?;
            self.count(&mut memory, plan.bytes(), mirror).await?;
            let stored = Arc::clone(mirror);
            let look = move || (stored.lacking(&plan), plan);
            let (lacking, plan) = spawn_blocking(look).await.map_err(io::Error::other)?;
            if !fetch(&mut talk, mirror, lacking).await? {
                continue;
            }
            let laid = Arc::clone(mirror);
            let lay = spawn_blocking(move || {
                let laid = laid.carry_out(plan);
                drop(memory);
                laid
            });
            tokio::pin!(lay);
            return loop {
                tokio::select! {
                    laid = &mut lay => break laid.map_err(io::Error::other)?.map_err(|error| {
                        io::Error::other(format!("{:#}", anyhow::Error::from(error)))
                    }),
                    () = sleep(PATIENCE) => talk.hold().await?,
                }
            };
        }
        Err(io::Error::other("the tree changes while it is copied"))
    }

    /// Receives the description of a tree.
    async fn describe(
        &self,
        talk: &mut TreeChannel<'_>,
        mirror: &Mirror,
        digest: Digest,
        mode: u32,
        tags: Vec<u8>,
    ) -> io::Result<Arc<HeldTree>> {
        // Holds the known entries until the new tree contains them, so that they stay counted.
        let base = mirror.latest().map(|latest| Arc::clone(&latest.tree));
        let known = base.as_ref().map_or_else(|| Tree::default().recognise(&tags), |base| base.recognise(&tags));
        let unknown = known.unknown();
        let told = if unknown.is_empty() {
            self.told(mirror, &tags).await?
        } else {
            within(ANSWER_BOUND, talk.say(&Message::Tell(Some(unknown)))).await?;
            within(DESCRIPTION_BOUND, self.entries(talk, mirror, &tags)).await?
        };
        let complete = move || {
            let tree = told.complete(known, digest, mode);
            drop(base);
            tree
        };
        if let Ok(tree) = spawn_blocking(complete).await.map_err(io::Error::other)? {
            return within_size_limit(tree);
        }
        // Either two entries had the same tag, which is very rare, or the description is invalid.
        within(ANSWER_BOUND, talk.say(&Message::Tell(None))).await?;
        let told = within(DESCRIPTION_BOUND, self.entries(talk, mirror, &tags)).await?;
        let complete = move || told.complete(Tree::default().recognise(&tags), digest, mode);
        spawn_blocking(complete).await.map_err(io::Error::other)?.map_err(io::Error::other).and_then(within_size_limit)
    }

    /// Counts the list of entries of a tree with these tags. Returns no entries.
    async fn told(&self, mirror: &Mirror, tags: &[u8]) -> io::Result<Told> {
        let mut memory = self.memory.reservation(mirror.uid());
        // A place in the list takes as many bytes as a tag.
        self.count(&mut memory, tags.len() as u64, mirror).await?;
        Ok(Told { entries: Vec::new(), bytes: 0, memory })
    }

    /// Receives entries of a tree with these tags.
    async fn entries(&self, talk: &mut TreeChannel<'_>, mirror: &Mirror, tags: &[u8]) -> io::Result<Told> {
        let mut told = self.told(mirror, tags).await?;
        let before = talk.heard_bytes();
        loop {
            let Message::Entries { entries, is_last } = hear(talk).await? else { return Err(strange()) };
            let is_too_long = talk.heard_bytes() - before > MAX_DESCRIPTION_BYTES as u64;
            if is_too_long || told.entries.len() + entries.len() > MOST_ENTRIES {
                return Err(io::Error::other("the tree has too many files"));
            }
            let bytes: u64 = entries.iter().map(bytes_of).sum();
            self.count(&mut told.memory, bytes + (entries.len() * PLACE_BYTES) as u64, mirror).await?;
            told.bytes += bytes;
            told.entries.extend(entries);
            if is_last {
                return Ok(told);
            }
        }
    }
}

/// Returns the tree if its size is within the limits.
fn within_size_limit(tree: HeldTree) -> io::Result<Arc<HeldTree>> {
    let sizes =
        tree.entries.iter().map(|entry| if let EntryKind::File(content) = &entry.kind { content.size } else { 0 });
    if sizes.fold(0, u64::saturating_add) > MOST_BYTES {
        return Err(io::Error::other(format!("the tree is larger than {}", format_bytes(MOST_BYTES))));
    }
    Ok(Arc::new(tree))
}

/// Receives the missing chunks, which are listed with their lengths. Returns `false` if the caller reports that the tree
/// has changed.
async fn fetch(talk: &mut TreeChannel<'_>, mirror: &Mirror, lacking: Vec<(Digest, u32)>) -> io::Result<bool> {
    check_room(mirror, lacking.iter().map(|(_, length)| u64::from(*length)).sum())?;
    let mut chunks = lacking.into_iter().peekable();
    while chunks.peek().is_some() {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_CHUNKS
            && let Some((digest, length)) = chunks.next_if(|_| bytes < BATCH_BYTES)
        {
            batch.push((digest, length));
            bytes += u64::from(length);
        }
        let names = batch.iter().map(|(digest, _)| *digest).collect();
        within(ANSWER_BOUND, talk.say(&Message::Send(names))).await?;
        let mut came = Vec::with_capacity(batch.len());
        for (digest, length) in batch {
            match hear(talk).await? {
                // The wire form of a chunk has at most one byte more than the chunk. Longer ones would fill the memory,
                // because a batch is stored when it is complete.
                Message::Chunk(wire) if wire.len() <= length as usize + 1 => came.push((digest, wire.into_vec())),
                Message::Changed => return Ok(false),
                _ => return Err(strange()),
            }
        }
        let store = Arc::clone(&mirror.store);
        let keep = move || came.iter().try_for_each(|(digest, wire)| store.insert_wire(digest, wire));
        spawn_blocking(keep).await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    }
    Ok(true)
}

/// Checks the disk space for the missing chunks and the files made of them.
fn check_room(mirror: &Mirror, bytes: u64) -> io::Result<()> {
    let free = mirror.store.free_bytes().map_err(io::Error::other)?;
    if 2 * bytes + ROOM_BYTES <= free {
        return Ok(());
    }
    let (needed, free) = (format_bytes(2 * bytes + ROOM_BYTES), format_bytes(free));
    Err(io::Error::other(format!("the node's disk is too full: {needed} must be free, and {free} are")))
}

async fn hear(talk: &mut TreeChannel<'_>) -> io::Result<Message> {
    within(ANSWER_BOUND, talk.hear()).await
}

/// Awaits a part of a conversation. Gives up a caller that takes longer than `bound`.
pub(super) async fn within<T>(bound: Duration, part: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(bound, part).await.unwrap_or_else(|_| {
        let message = format!("the caller did not answer within {} s", bound.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    })
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "unexpected message from the caller")
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use hostler_remote::mirror::entries_in_parts;
    use hostler_remote::{Channel, multiplex};
    use hostler_snapshot::mirror::Named;

    use super::super::memory::{Exceeded, MemoryLimits};
    use super::*;
    use crate::mutex::lock;

    /// The user of trees without an owner.
    const UID: u32 = 0;

    /// The two ends of a connection with one channel.
    fn channels() -> (Channel, Channel) {
        let (here, there) = tokio::io::duplex(1 << 16);
        let (ours, _, run_ours) = multiplex(here, None);
        let (theirs, _, run_theirs) = multiplex(there, None);
        tokio::spawn(run_ours);
        tokio::spawn(run_theirs);
        (ours.only_channel(), theirs.only_channel())
    }

    /// Trees whose descriptions may take these bytes in addition to the buffers of one reception.
    fn mirrors(folder: &Path, bytes: u64) -> Mirrors {
        let limit = RECEIVING_BYTES + bytes;
        Mirrors { memory: MemoryLimits::new(limit, limit), ..Mirrors::open(folder, 0) }
    }

    fn mirror(mirrors: &Mirrors, root: &str) -> Arc<Mirror> {
        let key = ("n1".parse().expect("a name"), UID, PathBuf::from(root));
        mirrors.mirror(key, None).expect("the disk has space")
    }

    fn directory(path: String) -> Entry {
        Entry { path: path.into_bytes(), mode: 0o755, modified_ns: 0, kind: EntryKind::Directory }
    }

    /// A tree of a thousand directories. Its description takes about 160 KiB.
    fn tree(prefix: &str) -> Tree {
        let entries = (0..1000).map(|number| Arc::new(Named::new(directory(format!("{prefix}{number:04}")))));
        Tree { mode: 0o755, entries: entries.collect() }
    }

    /// Answers questions about a tree, until the connection ends.
    async fn supply(channel: &mut Channel, tree: &Tree) -> io::Result<()> {
        let mut talk = TreeChannel::before(channel);
        loop {
            match talk.hear().await? {
                Message::Describe => {
                    let (digest, tags) = tree.digest_and_tags();
                    talk.say(&Message::Described { tree: digest, mode: tree.mode, tags: tags.into() }).await?;
                }
                Message::Tell(places) => {
                    let places = places.expect("the tags differ");
                    let told = places.iter().map(|place| tree.entries[*place as usize].entry().clone());
                    for part in entries_in_parts(told) {
                        talk.say(&part).await?;
                    }
                }
                _ => return Err(strange()),
            }
        }
    }

    async fn receive(mirrors: &Mirrors, mirror: &Arc<Mirror>, tree: &Tree) -> io::Result<Arc<Generation>> {
        let (mut ours, mut theirs) = channels();
        let talk = TreeChannel::before(&mut ours);
        tokio::select! {
            received = mirrors.receive_tree(talk, mirror, tree.digest()) => received,
            ended = supply(&mut theirs, tree) => panic!("the conversation ended early: {ended:?}"),
        }
    }

    fn is_exceeded(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|source| source.downcast_ref::<Exceeded>().is_some())
    }

    #[tokio::test]
    async fn idle_trees_are_forgotten_when_a_memory_limit_is_reached() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        // One tree fits, also while it is received, but not two.
        let mirrors = mirrors(folder.path(), 400 << 10);
        let (first, second) = (mirror(&mirrors, "/1"), mirror(&mirrors, "/2"));
        let held = receive(&mirrors, &first, &tree("a")).await.expect("one tree fits");
        let used = mirrors.memory.used_by(UID);
        assert!(used > 100 << 10 && used < 250 << 10, "only the description is still counted: {used}");
        let refused = receive(&mirrors, &second, &tree("b")).await.err().expect("the first tree is in use");
        assert!(is_exceeded(&refused), "{refused}");
        assert!(refused.to_string().contains("this user's mirrored trees take 16"), "{refused}");
        assert_eq!(mirrors.memory.used_by(UID), used, "a refused tree counts nothing");
        drop((first, held));
        receive(&mirrors, &second, &tree("b")).await.expect("the first tree is idle");
        assert_eq!(lock(&mirrors.mirrors).len(), 1, "the first tree is forgotten");
        drop(second);
        lock(&mirrors.mirrors).clear();
        assert_eq!(mirrors.memory.used_by(UID), 0);
    }

    #[tokio::test]
    async fn earlier_states_of_a_tree_are_forgotten_when_a_memory_limit_is_reached() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        // The latest state and a completely different one fit.
        let mirrors = mirrors(folder.path(), 600 << 10);
        let mirror = mirror(&mirrors, "/1");
        for prefix in ["a", "b", "c", "d", "e"] {
            receive(&mirrors, &mirror, &tree(prefix)).await.expect("earlier states are forgotten");
        }
        assert!(mirror.known(tree("e").digest()).is_some() && mirror.known(tree("a").digest()).is_none());
    }

    /// Sends entries for ever.
    async fn tell_without_end(channel: &mut Channel) -> io::Result<()> {
        let mut talk = TreeChannel::before(channel);
        assert_eq!(talk.hear().await?, Message::Describe);
        let tags = vec![1; 8].into();
        talk.say(&Message::Described { tree: Digest([1; 32]), mode: 0o755, tags }).await?;
        assert!(matches!(talk.hear().await?, Message::Tell(_)));
        let entries: Vec<_> = (0..100).map(|number| directory(number.to_string())).collect();
        loop {
            talk.say(&Message::Entries { entries: entries.clone(), is_last: false }).await?;
        }
    }

    #[tokio::test]
    async fn description_without_end_is_refused_at_the_memory_limit() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mirrors = mirrors(folder.path(), 1 << 20);
        let mirror = mirror(&mirrors, "/1");
        let (mut ours, mut theirs) = channels();
        let refused = tokio::select! {
            received = mirrors.receive_tree(TreeChannel::before(&mut ours), &mirror, Digest([1; 32])) => received.err(),
            ended = tell_without_end(&mut theirs) => panic!("the conversation ended early: {ended:?}"),
        };
        let refused = refused.expect("the description never ends");
        assert!(is_exceeded(&refused), "{refused}");
        assert_eq!(mirrors.memory.used_by(UID), 0, "a refused description counts nothing");
    }

    /// Describes a tree with one small file, and sends too many bytes for it.
    async fn send_a_long_chunk(channel: &mut Channel, tree: &Tree) -> io::Result<()> {
        let mut talk = TreeChannel::before(channel);
        assert_eq!(talk.hear().await?, Message::Describe);
        let (digest, tags) = tree.digest_and_tags();
        talk.say(&Message::Described { tree: digest, mode: tree.mode, tags: tags.into() }).await?;
        assert!(matches!(talk.hear().await?, Message::Tell(_)));
        talk.say(&Message::Entries { entries: vec![tree.entries[0].entry().clone()], is_last: true }).await?;
        assert!(matches!(talk.hear().await?, Message::Send(_)));
        talk.say(&Message::Chunk(vec![0; 7].into())).await?;
        talk.hear().await.map(drop)
    }

    #[tokio::test]
    async fn chunk_that_is_longer_than_described_is_refused() {
        use hostler_proto::manifest::{Chunk, Content};
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mirrors = mirrors(folder.path(), 1 << 20);
        let mirror = mirror(&mirrors, "/1");
        let content = Content { size: 5, chunks: vec![Chunk { digest: Digest([2; 32]), len: 5 }] };
        let file = Entry { path: b"f".to_vec(), mode: 0o644, modified_ns: 0, kind: EntryKind::File(content) };
        let tree = Tree { mode: 0o755, entries: vec![Arc::new(Named::new(file))] };
        let (mut ours, mut theirs) = channels();
        let refused = tokio::select! {
            received = mirrors.receive_tree(TreeChannel::before(&mut ours), &mirror, tree.digest()) => received.err(),
            ended = send_a_long_chunk(&mut theirs, &tree) => panic!("the conversation ended early: {ended:?}"),
        };
        let refused = refused.expect("the chunk is too long");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
    }
}
