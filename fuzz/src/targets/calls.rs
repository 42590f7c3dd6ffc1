//! Frames between programs, agents and nodes that take part in a call.

use hostler_remote::fuzzing;

use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "calls", about: "frames of a call between programs, agents and nodes", run, seeds };

fn run(bytes: &[u8]) {
    fuzzing::frames(bytes);
}

fn seeds() -> Vec<Vec<u8>> {
    let frames = fuzzing::honest_frames();
    let all = frames.concat();
    frames.into_iter().chain([all]).collect()
}
