//! A real head in a process of its own, over its real doors: users on the Unix socket, agents over TLS, strangers on both.

mod agent;
mod answers;
mod blobs;
mod disk;
mod events;
mod floods;
mod harness;
mod hostile;
mod jobs;
mod nodes;
mod output;
mod settings;
mod trust;
mod users;
