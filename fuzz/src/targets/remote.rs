//! Frames between programs, agents, and the nodes of a job.

use hostler_remote::fuzzing;

use crate::Target;

pub(crate) const TARGET: Target = Target { name: "remote", about: "frames of remote commands and steps", run, seeds };

fn run(bytes: &[u8]) {
    fuzzing::frames(bytes);
}

fn seeds() -> Vec<Vec<u8>> {
    let frames = fuzzing::valid_frames();
    let all = frames.concat();
    frames.into_iter().chain([all]).collect()
}
