//! Manifests of folders and results, as blobs from an untrusted writer.

use hostler_proto::manifest::{EntryKind, Manifest, ResultManifest};
use hostler_snapshot::{Baseline, check, show};

use super::values;
use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "manifest", about: "manifests of folders and results, and their checks", run, seeds };

/// The first byte selects the format.
fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => {
            if let Ok(manifest) = hostler_proto::decode::<Manifest>(bytes) {
                accept(&manifest);
            }
        }
        1 => {
            if let Ok(result) = hostler_proto::decode::<ResultManifest>(bytes) {
                accept(&result.tree);
                let _ = hostler_head::fuzzing::inline_result(vec![bytes.to_vec(), values::CONTENT.to_vec()]);
            }
        }
        _ => baseline(bytes),
    }
}

/// Checks independently of the checker that no entry of an accepted manifest leaves the folder.
fn accept(manifest: &Manifest) {
    assert_eq!(hostler_proto::decode::<Manifest>(&hostler_proto::encode(manifest)).as_ref().ok(), Some(manifest));
    if check::check(manifest).is_err() {
        return;
    }
    for entry in &manifest.entries {
        assert!(!show(&entry.path).contains('\n'));
        let odd = |name: &[u8]| name.is_empty() || name == b"." || name == b".." || name.contains(&0);
        assert!(!entry.path.split(|byte| *byte == b'/').any(odd), "{}", show(&entry.path));
        match &entry.kind {
            EntryKind::File(content) => {
                assert_eq!(content.size, content.chunks.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>());
            }
            EntryKind::Symlink { target } => assert!(!target.starts_with(b"/") && !target.contains(&0)),
            EntryKind::Directory => {}
        }
    }
}

/// Loads a baseline. The node writes this file itself, but a power failure may damage it.
fn baseline(bytes: &[u8]) {
    thread_local! {
        static FILE: tempfile::NamedTempFile = tempfile::NamedTempFile::new().expect("a temporary file");
    }
    FILE.with(|file| {
        std::fs::write(file.path(), bytes).expect("the file is writable");
        let _ = Baseline::load(file.path());
    });
}

fn seeds() -> Vec<Vec<u8>> {
    let folder = hostler_proto::encode(&values::folder());
    let result = hostler_proto::encode(&values::result().0);
    vec![[vec![0], folder].concat(), [vec![1], result].concat(), vec![2, 0x92, 1, 0x90]]
}
