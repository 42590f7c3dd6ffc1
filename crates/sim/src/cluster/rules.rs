//! The options of a simulation, and the rules that it can break.

/// Options of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A rule of the daemons to break on purpose.
    pub break_rule: Option<Rule>,
    /// Keep the whole trace with all messages, instead of only its end for a failure.
    pub whole_trace: bool,
}

/// A rule that a daemon's loop must keep. The simulator's checks must notice a loop that breaks the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Replies wait until their events are durable.
    ReplyAfterDurable,
    /// Messages to agents wait until their events are durable.
    SendAfterDurable,
    /// The head accepts an end only with its whole result.
    CompleteResults,
    /// A report counts for the run that it names, not for the current run of the task.
    ReportsNameTheirRun,
    /// A restarted agent adopts running shepherds.
    AdoptShepherds,
    /// After a restart of the machine, a run that may have begun does not start again.
    NothingTwiceAfterBoot,
    /// A snapshot from before a reload of the store is discarded.
    SnapshotsOfThisLoad,
    /// A missing frame ends the connection.
    GapsEndConnections,
    /// A repeated frame is dropped.
    FramesCountOnce,
    /// A hello repeats the ends that the head has not acknowledged.
    EndsAreRepeated,
    /// Reports of the time between hello and welcome are sent after the welcome.
    ReportsSurviveTheWelcome,
    /// The head asks for an incomplete result again.
    IncompleteResultsAreRepeated,
    /// The blobs of kept results are kept.
    KeepResults,
    /// A node's agent obeys orders to end a run.
    EndsAreObeyed,
    /// The processes of a multi-node run begin when all nodes are ready.
    BeginTogether,
    /// Lookups find an ended job while it moves to the disk.
    LookWhereJobsMove,
    /// The environment of a job is kept as long as the job may run.
    KeepEnvironments,
}

impl Rule {
    pub const ALL: [Self; 17] = [
        Self::ReplyAfterDurable,
        Self::SendAfterDurable,
        Self::CompleteResults,
        Self::ReportsNameTheirRun,
        Self::AdoptShepherds,
        Self::NothingTwiceAfterBoot,
        Self::SnapshotsOfThisLoad,
        Self::GapsEndConnections,
        Self::FramesCountOnce,
        Self::EndsAreRepeated,
        Self::ReportsSurviveTheWelcome,
        Self::IncompleteResultsAreRepeated,
        Self::KeepResults,
        Self::EndsAreObeyed,
        Self::BeginTogether,
        Self::LookWhereJobsMove,
        Self::KeepEnvironments,
    ];
}
