//! The head's state machine.
//!
//! A [`Command`] is what somebody wants or says; [`decide`] checks it against the state and answers with [`Event`]s, which are facts;
//! [`update`] applies an event and adds what must be done to [`Changes`]. The shell makes the events durable before it carries the
//! changes out. [`schedule`] turns the state into the next placements, as one more event.

mod command;
mod decide;
mod event;
mod job;
mod life;
mod member;
mod node;
mod partitions;
mod peers;
mod queue;
mod quotas;
mod runs;
mod schedule;
mod settings;
mod state;
mod update;
mod users;

pub use command::{Caller, Command, Refusal};
pub use decide::decide;
pub use event::{Changes, ConnectionId, Effect, Event, Now, Record, Stamped, Start, SubmissionKey};
pub use job::{Active, Job, Part, PartOver, Phase};
pub use member::{KEY_LIFE_MS, Key, Member, Unwelcome};
pub use node::{Drain, Link, Node, Silence};
pub use partitions::{NodeTraits, Partition, Partitions, PartitionsCommand, PartitionsEvent};
pub use schedule::{explain, schedule};
pub use settings::{JobDefaults, Kind, SetBy, Setting, SettingValue, Settings};
pub use state::{Capacity, State};
pub use update::update;
pub use users::{NewUser, TOKEN_TTL_MS, User, Users, UsersCommand, UsersEvent, UsersRefusal};
