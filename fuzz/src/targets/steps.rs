//! Frames between whoever launches on a node of a job and the process that takes it there.

use hostler_remote::step::fuzzing;

use crate::Target;

pub(crate) const TARGET: Target = Target { name: "steps", about: "frames of a step between nodes", run, seeds };

fn run(bytes: &[u8]) {
    fuzzing::frames(bytes);
}

fn seeds() -> Vec<Vec<u8>> {
    let frames = fuzzing::honest_frames();
    let all = frames.concat();
    frames.into_iter().chain([all]).collect()
}
