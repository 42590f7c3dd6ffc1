//! Tests of a real head in its own process, over real connections: users on the Unix socket, agents over TLS, strangers
//! on both.

mod agent;
mod answers;
mod blobs;
mod description;
mod disk;
mod events;
mod floods;
mod forward;
mod harness;
mod hostile;
mod jobs;
mod nodes;
mod output;
mod settings;
mod states;
mod trust;
mod usage;
mod users;
