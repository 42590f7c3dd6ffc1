//! Frames between a shepherd and its clients.

use hostler_shepherd::{Launch, fuzzing};

use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "shepherd", about: "frames between an agent and a shepherd", run, seeds };

fn run(bytes: &[u8]) {
    fuzzing::frames(bytes);
}

fn seeds() -> Vec<Vec<u8>> {
    let mut launch = Launch::new("/run/1", ["python3", "main.py"]);
    launch.env = vec![("SEED".into(), "1".into())];
    let frames = fuzzing::valid_frames(&launch);
    let mut seeds = frames.clone();
    seeds.push(frames.concat());
    seeds
}
