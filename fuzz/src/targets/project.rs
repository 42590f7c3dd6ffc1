//! The environment files of a captured project, which the agent reads before it runs any user code.

use std::fs;
use std::path::Path;

use hostler_project::detect;

use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "project", about: "requirements, pyproject.toml, uv.lock and inline metadata", run, seeds };

/// The files of a project. In the input, a zero byte separates files, and the first byte of each file selects its
/// name.
const FILES: [&str; 5] = ["requirements.txt", "pyproject.toml", "uv.lock", "main.py", "more.txt"];

fn run(bytes: &[u8]) {
    thread_local! {
        static ROOM: tempfile::TempDir = tempfile::tempdir_in(memory()).expect("a temporary directory");
    }
    ROOM.with(|room| {
        for name in FILES {
            let _ = fs::remove_file(room.path().join(name));
        }
        for file in bytes.split(|byte| *byte == 0) {
            let Some((which, content)) = file.split_first() else { continue };
            let name = FILES[usize::from(*which) % FILES.len()];
            fs::write(room.path().join(name), content).expect("the directory is writable");
        }
        let detect = || detect(room.path(), "main.py", &|| Ok(()));
        if let Ok(Some(found)) = detect() {
            let again = detect().expect("same files").expect("same project");
            assert_eq!((found.kind(), found.fingerprint()), (again.kind(), again.fingerprint()));
        }
    });
}

fn memory() -> &'static Path {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared } else { Path::new("/tmp") }
}

fn seeds() -> Vec<Vec<u8>> {
    let requirements = "\u{5}numpy==2.1 # exact\n-r more.txt\n-e .\n./pkg\n--index-url https://x\na \\\n b\n\0\u{4}-r requirements.txt\n-c more.txt\n";
    let pyproject = "\u{1}[project]\nname = \"x\"\ndependencies = [\"numpy>=2\"]\n[tool.uv.sources]\ny = { path = \"../y\" }\n\0\u{2}version = 1\n[[package]]\nname = \"x\"\nsource = { virtual = \".\" }\n";
    let script = "\u{3}# /// script\n# dependencies = [\"rich\"]\n# ///\nprint(1)\n";
    [requirements, pyproject, script].map(|text| text.as_bytes().to_vec()).to_vec()
}
