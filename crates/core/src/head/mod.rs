//! The head's state machine.
//!
//! A [`Command`] is a request or a message. [`decide`] checks it against the state and returns [`Event`]s, which are facts. [`update`]
//! applies an event and adds the required actions to [`Changes`]. The shell makes the events durable before it carries the changes
//! out. [`follow_up`] returns the events that the state itself calls for: placements ([`schedule`]), and nodes to power on and off.
//!
//! The daemon and the simulator drive the same loop: [`Rounds`] turns commands into commits for the store, and [`Durability`] decides what
//! may be sent and acknowledged, and when the state must be loaded again.

mod change;
mod command;
mod decide;
mod dependencies;
mod dependency;
mod dry_run;
mod durability;
mod ended;
mod event;
mod explain;
mod follow_up;
mod holds;
mod ids;
mod job;
mod life;
mod limits;
mod member;
mod members;
mod node;
mod notifications;
mod partition;
mod partitions;
mod peers;
mod power;
mod queue;
mod quotas;
mod requests;
mod rounds;
mod runs;
mod schedule;
mod settings;
mod state;
mod step;
mod stored;
mod submission;
mod turns;
mod update;
mod user;
mod users;
mod waiting;

pub use command::{Caller, Command, Refusal};
pub use decide::decide;
pub use dependency::{Delay, PartlyMet, PastJob};
pub use dry_run::DryRun;
pub use durability::{Answer, Delivery, Durability, NotDone};
pub use ended::{Ended, EndedJobs, PendingMoves};
pub use event::{Changes, Effect, Event, Record, Stamped, Start, TaskChange, TaskCount};
pub use explain::{explain, explain_task};
pub use follow_up::follow_up;
pub use holds::Hold;
pub use ids::{ConnectionId, Now, SubmissionKey};
pub use job::{Active, HeldTasks, Job, Part, Phase, WaitLimit};
pub use member::{KEY_LIFE_MS, Key, KeyRefusal, Member};
pub use node::{Drain, Link, Node, Silence};
pub use partition::{NodeTraits, Partition, Partitions, PartitionsCommand, PartitionsEvent};
pub use power::{Boots, Meter, Power, PowerCommand, PowerEvent, PowerFault, Powers, Stage};
pub use queue::Ahead;
pub use rounds::{After, Commit, Done, Input, Rounds};
pub use schedule::schedule;
pub use settings::{JobDefaults, Kind, SetBy, Setting, SettingValue, Settings};
pub use state::State;
pub use stored::{RestoreError, begin_epoch, epoch_starts, read_ended_job, restore};
pub use update::update;
pub use user::{
    AutomaticUids, Block, Former, NewUser, TOKEN_TTL_MS, User, Users, UsersCommand, UsersEvent, UsersRefusal,
};
pub use waiting::{WaitingJobs, memory_of};
