//! What callers and nodes say of a tree that a command takes along.

use hostler_remote::fuzzing;

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "mirror",
    about: "trees that commands take along, and what comes back",
    run,
    seeds: fuzzing::honest_conversations,
};

fn run(bytes: &[u8]) {
    fuzzing::tree(bytes);
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let root = folder.path().join("tree");
    std::fs::create_dir(&root).expect("it is ours");
    fuzzing::homecoming(bytes, &root);
    let outside = std::fs::read_dir(folder.path()).expect("it is there").count();
    assert_eq!(outside, 1, "something left the tree");
}
