//! The faults of a world.

use hostler_store::Fault as DiskFault;

/// A fault or its repair.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    CrashHead {
        again: bool,
    },
    StartHead,
    FreezeHead,
    ThawHead,
    /// From now on the head's disk applies this fault to writes.
    BreakDisk(DiskFault),
    MendDisk,
    JumpClock,
    Sweep,
    CrashAgent {
        node: usize,
    },
    KillShepherd {
        node: usize,
    },
    LosePower {
        node: usize,
    },
    PowerOn {
        node: usize,
    },
    FreezeNode {
        node: usize,
    },
    ThawNode {
        node: usize,
    },
    FillNode {
        node: usize,
    },
    EmptyNode {
        node: usize,
    },
    CutConnection {
        node: usize,
    },
    CutOff {
        node: usize,
    },
    Rejoin {
        node: usize,
    },
    /// Faults end, and everything broken is repaired.
    Calm,
}
