//! This node's copy of a caller's tree: a stack of immutable layers.
//!
//! The first layer is the complete tree as first received. Later changes become layers above it. A command runs over
//! the layers of its own tree and holds them while it runs, so later changes do not affect it.
//!
//! A new layer replaces the layers below it that are not much larger, as in a log-structured merge tree. Layer sizes
//! thus grow by a factor downwards. The stack stays small, and each changed file is written only a few times. When
//! the layers above the first one have become large, the complete tree is written as a new first layer.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hostler_model::Digest;
use hostler_proto::manifest::{Entry, EntryKind, Manifest, VERSION};
use hostler_remote::mirror::{Delta, Tree};
use hostler_snapshot::mirror::whiteout;
use hostler_snapshot::{ChunkStore, LayoutError, LayoutOptions, lay_out, remove_tree};

use super::memory::{HeldTree, bytes_of};
use crate::mutex::lock;

/// Number of remembered states of a tree. Concurrent commands may have different states.
const REMEMBERED: usize = 8;

/// Maximum number of layers of a tree. A name lookup searches all layers.
const MOST_LAYERS: usize = 12;

/// A new layer replaces the layer below it, unless the lower layer is larger by this factor.
const GROWTH: u64 = 2;

/// Weight of a file's content: writing this many bytes counts as much as creating one file.
const BYTES_OF_A_FILE: u64 = 16 << 10;

/// The complete tree is written again when the weight of its changes since the first layer exceeds the first layer's
/// weight divided by this number.
const OUTDATED: u64 = 3;

/// Memory for finding out whether the store lacks one chunk, in bytes: the chunk's places in lists and sets.
const LOOKUP_BYTES: usize = 128;

/// This node's copy of one tree.
pub(super) struct Mirror {
    pub(super) directory: PathBuf,
    pub(super) store: Arc<ChunkStore>,
    /// Owner of the tree's files.
    pub(super) owner: Option<(u32, u32)>,
    /// Lock that serializes transfers of the tree.
    pub(super) transfer_lock: tokio::sync::Mutex<()>,
    recent: Mutex<VecDeque<Arc<Generation>>>,
    names: AtomicU64,
}

/// One state of the tree, as a stack of layers.
pub(super) struct Generation {
    digest: Digest,
    pub(super) tree: Arc<HeldTree>,
    /// Layers, uppermost first.
    layers: Vec<Arc<Layer>>,
}

/// A directory of files, which is removed when no state of the tree uses it any longer.
struct Layer {
    mirror: PathBuf,
    name: String,
    /// The tree that results from this layer and all layers below.
    tree: Arc<HeldTree>,
    weight: u64,
}

/// The layers to keep, and the layer to write, for a new state of the tree.
pub(super) struct Plan {
    tree: Arc<HeldTree>,
    digest: Digest,
    delta: Delta,
    below: Vec<Arc<Layer>>,
}

/// A directory for one command. Dropping this value removes the directory.
pub(super) struct CallDirectory {
    pub(super) path: PathBuf,
    pub(super) name: String,
}

impl Mirror {
    pub(super) fn new(directory: PathBuf, store: Arc<ChunkStore>, owner: Option<(u32, u32)>) -> Self {
        Self {
            directory,
            store,
            owner,
            transfer_lock: tokio::sync::Mutex::default(),
            recent: Mutex::default(),
            names: AtomicU64::new(0),
        }
    }

    /// Returns the remembered state with this digest.
    pub(super) fn known(&self, digest: Digest) -> Option<Arc<Generation>> {
        lock(&self.recent).iter().find(|generation| generation.digest == digest).cloned()
    }

    /// Returns the most recent state.
    pub(super) fn latest(&self) -> Option<Arc<Generation>> {
        lock(&self.recent).back().cloned()
    }

    /// Forgets all states except the most recent one, and returns the forgotten states.
    pub(super) fn forget_older(&self) -> Vec<Arc<Generation>> {
        let mut recent = lock(&self.recent);
        let older = recent.len().saturating_sub(1);
        recent.drain(..older).collect()
    }

    /// Returns the user for whom the memory of the tree's descriptions is counted.
    pub(super) fn uid(&self) -> u32 {
        self.owner.map_or(0, |(uid, _)| uid)
    }

    /// Plans the layer to write for the state `tree`, and the layers that the new layer replaces.
    pub(super) fn plan(&self, tree: Arc<HeldTree>, digest: Digest) -> Plan {
        let latest = self.latest();
        let mut below = latest.as_ref().map_or(&[][..], |latest| &latest.layers);
        while let [top, under @ ..] = below {
            let delta = top.tree.difference(&tree);
            let is_outgrown = if under.is_empty() {
                weight(&delta) > top.weight / OUTDATED
            } else {
                top.weight <= GROWTH.saturating_mul(weight(&delta)) || below.len() >= MOST_LAYERS
            };
            if !is_outgrown {
                return Plan { tree, digest, delta, below: below.to_vec() };
            }
            below = under;
        }
        let delta = Tree::default().difference(&tree);
        Plan { tree, digest, delta, below: Vec::new() }
    }

    /// Returns the chunks of the planned layer that the store lacks, with their lengths. Blocks.
    pub(super) fn lacking(&self, plan: &Plan) -> Vec<(Digest, u32)> {
        let mut chunks = plan.chunks();
        let names: Vec<Digest> = chunks.iter().map(|(digest, _)| *digest).collect();
        let lacking: HashSet<Digest> = self.store.missing(&names).into_iter().collect();
        chunks.retain(|(digest, _)| lacking.contains(digest));
        chunks
    }

    /// Writes the planned layer. All chunks must be in the store. Blocks.
    ///
    /// # Errors
    /// Fails when the disk is full, for instance.
    pub(super) fn carry_out(&self, plan: Plan) -> Result<Arc<Generation>, LayoutError> {
        let Plan { tree, digest, delta, below } = plan;
        let (mirror, name) = (self.directory.clone(), self.next_name('l'));
        let layer = Layer { mirror, name, tree: Arc::clone(&tree), weight: weight(&delta) };
        let path = layer.path();
        let manifest = Manifest { version: VERSION, entries: delta.entries };
        let options = LayoutOptions { owner: self.owner, links_may_leave: true, ..LayoutOptions::default() };
        lay_out(&manifest, &self.store, &path, &options)?;
        for removed in &delta.removed {
            whiteout(&path, removed).map_err(|source| LayoutError::Io { path: path.clone(), source })?;
        }
        let layers = [Arc::new(layer)].into_iter().chain(below).collect();
        let generation = Arc::new(Generation { digest, tree, layers });
        let mut recent = lock(&self.recent);
        recent.push_back(Arc::clone(&generation));
        let forgotten = (recent.len() > REMEMBERED).then(|| recent.pop_front());
        drop(recent);
        // This may remove the layers of the forgotten state.
        drop(forgotten);
        Ok(generation)
    }

    /// Creates a directory for one command. `mode` is the mode of the tree's root.
    ///
    /// # Errors
    /// Fails when the directory cannot be created.
    pub(super) fn call_directory(&self, mode: u32) -> io::Result<CallDirectory> {
        use std::os::unix::fs::PermissionsExt;
        let name = self.next_name('c');
        let call = CallDirectory { path: self.directory.join(&name), name };
        fs::create_dir(&call.path)?;
        fs::create_dir(call.path.join("w"))?;
        let upper = call.path.join("u");
        fs::create_dir(&upper)?;
        if let Some((uid, gid)) = self.owner {
            std::os::unix::fs::chown(&upper, Some(uid), Some(gid))?;
        }
        fs::set_permissions(&upper, fs::Permissions::from_mode(mode & 0o1777))?;
        Ok(call)
    }

    fn next_name(&self, kind: char) -> String {
        format!("{kind}{}", self.names.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        lock(&self.recent).clear();
        remove_later(std::mem::take(&mut self.directory));
    }
}

impl Generation {
    /// Returns the layers' names in the mirror's directory, uppermost first.
    pub(super) fn layers(&self) -> Vec<String> {
        self.layers.iter().map(|layer| layer.name.clone()).collect()
    }
}

/// The cost of writing a layer, where creating one file costs 1.
fn weight(delta: &Delta) -> u64 {
    let of_entry = |entry: &Entry| match &entry.kind {
        EntryKind::File(content) => 1 + content.size / BYTES_OF_A_FILE,
        _ => 1,
    };
    delta.entries.iter().map(of_entry).fold(delta.removed.len() as u64, u64::saturating_add)
}

impl Plan {
    /// Returns the memory of the changes, and for finding out which chunks the store lacks, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let of_entry = |entry: &Entry| match &entry.kind {
            EntryKind::File(content) => bytes_of(entry) + (content.chunks.len() * LOOKUP_BYTES) as u64,
            _ => bytes_of(entry),
        };
        let of_removed = |path: &Vec<u8>| (size_of::<Vec<u8>>() + path.capacity()) as u64;
        let removed: u64 = self.delta.removed.iter().map(of_removed).sum();
        self.delta.entries.iter().map(of_entry).sum::<u64>() + removed
    }

    /// Returns the chunks of the planned layer without duplicates, in order, with their lengths.
    fn chunks(&self) -> Vec<(Digest, u32)> {
        let mut seen = HashSet::new();
        let contents = self.delta.entries.iter().filter_map(|entry| match &entry.kind {
            EntryKind::File(content) => Some(content),
            _ => None,
        });
        let chunks = contents.flat_map(|content| content.chunks.iter());
        chunks.filter(|chunk| seen.insert(chunk.digest)).map(|chunk| (chunk.digest, chunk.len)).collect()
    }
}

impl Layer {
    fn path(&self) -> PathBuf {
        self.mirror.join(&self.name)
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        remove_later(self.path());
    }
}

impl Drop for CallDirectory {
    fn drop(&mut self) {
        remove_later(std::mem::take(&mut self.path));
    }
}

impl AsRef<Path> for CallDirectory {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// Removes a directory in the background. The next agent removes anything left over.
pub(super) fn remove_later(path: PathBuf) {
    let remove = move || drop(remove_tree(&path));
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(remove)),
        Err(_) => remove(),
    }
}

#[cfg(test)]
mod tests {
    use hostler_proto::manifest::{Chunk, Content};
    use hostler_snapshot::mirror::Named;
    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    use super::super::memory::MemoryLimits;
    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
        mirror: Mirror,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a temporary directory");
            let store = ChunkStore::open(&folder.path().join("chunks")).expect("writable");
            let directory = folder.path().join("m");
            fs::create_dir(&directory).expect("writable");
            Self { folder, mirror: Mirror::new(directory, Arc::new(store), None) }
        }

        fn tree(&self, files: &[(String, String)]) -> Tree {
            let mut entries: Vec<Entry> = files
                .iter()
                .map(|(path, text)| {
                    let digest = self.mirror.store.add(text.as_bytes()).expect("writable");
                    let chunk = Chunk { digest, len: text.len() as u32 };
                    let content = Content { size: text.len() as u64, chunks: vec![chunk] };
                    Entry { path: path.clone().into(), mode: 0o644, modified_ns: 0, kind: EntryKind::File(content) }
                })
                .collect();
            entries.push(Entry { path: b"d".into(), mode: 0o755, modified_ns: 0, kind: EntryKind::Directory });
            entries.sort_by(|a, b| a.path.cmp(&b.path));
            Tree { mode: 0o755, entries: entries.into_iter().map(|entry| Arc::new(Named::new(entry))).collect() }
        }

        fn tell(&self, tree: &Tree) -> Arc<Generation> {
            self.mirror.carry_out(self.plan(tree)).expect("the disk has space")
        }

        fn plan(&self, tree: &Tree) -> Plan {
            let mut memory = MemoryLimits::of_node(0).reservation(0);
            memory.grow(1 << 20).expect("within the limit");
            self.mirror.plan(Arc::new(HeldTree::new(tree.clone(), memory, 0)), tree.digest())
        }

        /// Returns the files of a state as the kernel's overlay shows them.
        fn seen(&self, generation: &Generation) -> Vec<(String, String)> {
            let at = self.folder.path().join("at");
            fs::create_dir_all(&at).expect("writable");
            let call = self.mirror.call_directory(0o755).expect("writable");
            let in_mirror = |name: &String| self.mirror.directory.join(name).display().to_string();
            let lower = generation.layers().iter().map(in_mirror).collect::<Vec<_>>().join(":");
            let call = call.path.display();
            let options = format!("lowerdir={lower},upperdir={call}/u,workdir={call}/w");
            mount(Some("test"), &at, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
                .expect("root may mount");
            let mut files = Vec::new();
            for directory in ["", "d/"] {
                for entry in fs::read_dir(at.join(directory)).expect("the directory exists").flatten() {
                    let name = format!("{directory}{}", entry.file_name().display());
                    if entry.path().is_file() {
                        files.push((name, fs::read_to_string(entry.path()).expect("readable")));
                    }
                }
            }
            umount2(&at, MntFlags::empty()).expect("the mount is not in use");
            files.sort();
            files
        }
    }

    fn files(count: usize, edited: usize) -> Vec<(String, String)> {
        let name = |n: usize| if n.is_multiple_of(2) { format!("f{n:03}") } else { format!("d/f{n:03}") };
        (0..count).map(|n| (name(n), format!("text {n} {}", if n == edited { "edited" } else { "" }))).collect()
    }

    /// Needs root to mount overlays.
    #[test]
    fn every_generation_keeps_its_files() {
        let fixture = Fixture::new();
        let mut held = Vec::new();
        for round in 0..40 {
            let mut now = files(60, round);
            now.remove((round * 7) % 60);
            if round % 5 == 0 {
                now.push((format!("d/new{round}"), "new".to_owned()));
            }
            now.sort();
            let generation = fixture.tell(&fixture.tree(&now));
            assert!(generation.layers.len() <= MOST_LAYERS, "{}", generation.layers.len());
            held.push((now, generation));
        }
        for (told, generation) in &held {
            assert_eq!(&fixture.seen(generation), told);
        }
        let (_, last) = held.pop().expect("the list is not empty");
        drop(held);
        let kept = last.layers.len() + REMEMBERED;
        let left = fs::read_dir(&fixture.mirror.directory)
            .expect("the state exists")
            .flatten()
            .filter(|it| it.file_name().to_string_lossy().starts_with('l'));
        assert!(left.count() <= kept + MOST_LAYERS, "unused layers are removed");
        assert!(fixture.mirror.known(last.digest).is_some());
    }

    /// Like a build: each command adds a file, and all change the same file.
    #[test]
    fn file_is_laid_out_for_few_calls_only() {
        let fixture = Fixture::new();
        let mut now = files(600, 0);
        fixture.tell(&fixture.tree(&now));
        let (mut laid_out, mut most_layers) = (0, 0);
        for round in 0..180 {
            now.push((format!("g{round:03}.o"), format!("object {round}")));
            now[599] = ("d/f599".to_owned(), format!("log {round}"));
            let tree = fixture.tree(&now);
            let plan = fixture.plan(&tree);
            laid_out += plan.delta.entries.len();
            let generation = fixture.mirror.carry_out(plan).expect("the disk has space");
            most_layers = most_layers.max(generation.layers.len());
        }
        assert!(laid_out < 180 * 16, "{laid_out} files were laid out for 180 calls");
        assert!(most_layers <= 9, "{most_layers}");
    }

    #[test]
    fn large_file_is_not_laid_out_again_after_small_changes() {
        let fixture = Fixture::new();
        let large = "large".repeat(200_000);
        let tree =
            |text: &str| fixture.tree(&[("large".to_owned(), large.clone()), ("small".to_owned(), text.to_owned())]);
        fixture.tell(&tree("0"));
        for round in 1..40 {
            let next = tree(&round.to_string());
            let plan = fixture.plan(&next);
            assert!(plan.delta.entries.iter().all(|entry| entry.path != b"large"), "{round}");
            fixture.mirror.carry_out(plan).expect("the disk has space");
        }
    }

    #[test]
    fn only_chunks_of_changed_files_are_needed() {
        let fixture = Fixture::new();
        fixture.tell(&fixture.tree(&files(50, 99)));
        let next = fixture.tree(&files(50, 3));
        let plan = fixture.plan(&next);
        assert_eq!(plan.chunks().len(), 1);
        let same = fixture.plan(&fixture.tree(&files(50, 99)));
        assert!(same.chunks().is_empty());
    }
}
