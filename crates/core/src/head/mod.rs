//! The head's state machine.
//!
//! A [`Command`] is a request or a message. [`decide`] checks it against the state and returns [`Event`]s, which are facts. [`update`]
//! applies an event and adds the required actions to [`Changes`]. The shell makes the events durable before it carries the changes
//! out. [`follow_up`] returns the events that the state itself calls for: placements ([`schedule`]), and nodes to power on and off.
//!
//! The daemon and the simulator drive the same loop: [`Rounds`] turns commands into commits for the store, and [`Durability`] decides what
//! may be sent and acknowledged, and when the state must be loaded again.

mod command;
mod decide;
mod durability;
mod event;
mod follow_up;
mod ids;
mod jobs;
mod limits;
mod listed;
mod nodes;
mod notifications;
mod power;
mod rounds;
mod settings;
mod state;
mod step;
mod stored;
mod update;
mod users;

pub use command::{Caller, Command, Refusal, Replaces};
pub use decide::decide;
pub use durability::{Answer, Delivery, Durability, NotDone};
pub use event::{Changes, Effect, Event, Record, Stamped, Start, TaskChange, TaskCount};
pub use follow_up::follow_up;
pub use ids::{ConnectionId, Now, SubmissionKey};
pub use jobs::dependency::{Delay, PartlyMet, PastJob};
pub use jobs::dry_run::DryRun;
pub use jobs::ended::{Ended, EndedJobs, PendingMoves};
pub use jobs::explain::{explain, explain_task};
pub use jobs::holds::Hold;
pub use jobs::job::{Active, HeldTasks, Job, KeptFiles, Part, Phase, WaitLimit};
pub use jobs::queue::Ahead;
pub use jobs::schedule::schedule;
pub use jobs::waiting::{WaitingJobs, memory_of};
pub use nodes::member::{KEY_LIFE_MS, Key, KeyRefusal, Member};
pub use nodes::node::{Drain, Link, Node, Silence};
pub use nodes::partition::{NodeTraits, Partition, PartitionCode, Partitions, PartitionsCommand, PartitionsEvent};
pub use power::{Boots, Meter, Power, PowerCommand, PowerEvent, PowerFault, Powers, Stage};
pub use rounds::{After, Commit, Done, Input, Rounds};
pub use settings::{JobDefaults, Kind, SetBy, Setting, SettingValue, Settings};
pub use state::State;
pub use stored::{RestoreError, begin_epoch, epoch_starts, read_ended_job, restore};
pub use update::update;
pub use users::user::{
    AutomaticUids, Block, Former, NewUser, TOKEN_TTL_MS, User, Users, UsersCommand, UsersEvent, UsersRefusal,
};
