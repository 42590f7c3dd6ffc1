//! One file a command. A command's type is its flags, and its documentation is its help text.

pub(crate) mod act;
pub(crate) mod agent;
pub(crate) mod attach;
pub(crate) mod completions;
pub(crate) mod configure;
pub(crate) mod demo;
pub(crate) mod discover;
pub(crate) mod down;
pub(crate) mod fetch;
pub(crate) mod generate;
pub(crate) mod head;
pub(crate) mod info;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod logs;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod ranks;
pub(crate) mod run;
pub(crate) mod shims;
pub(crate) mod sim;
pub(crate) mod submit;
pub(crate) mod target;
pub(crate) mod up;
pub(crate) mod wait;
pub(crate) mod why;
