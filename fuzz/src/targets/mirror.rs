//! Trees that callers and nodes send for a command.

use hostler_remote::fuzzing;

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "mirror",
    about: "trees sent with commands, and the changes sent back",
    run,
    seeds: fuzzing::honest_conversations,
};

fn run(bytes: &[u8]) {
    fuzzing::tree(bytes);
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let root = folder.path().join("tree");
    std::fs::create_dir(&root).expect("the directory is writable");
    fuzzing::homecoming(bytes, &root);
    let outside = std::fs::read_dir(folder.path()).expect("the directory exists").count();
    assert_eq!(outside, 1, "a file was created outside the tree");
}
