//! Answers of power controllers, and output of the programs that talk to them.

use hostler_power::fuzzing;

use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "power", about: "answers of power controllers", run, seeds: fuzzing::honest };

fn run(bytes: &[u8]) {
    fuzzing::redfish(bytes);
    fuzzing::printed(bytes);
}
