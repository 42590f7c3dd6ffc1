//! The commands that start or set up daemons, or describe the program itself. The others are in [`hostler_cli::commands`].

pub(crate) mod agent;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod fetch_image;
pub(crate) mod gateway;
pub(crate) mod generate;
pub(crate) mod head;
pub(crate) mod ranks;
pub(crate) mod session_leader;
pub(crate) mod shims;
pub(crate) mod sim;
pub(crate) mod unpack_layer;
pub(crate) mod up;
pub(crate) mod virtual_node;
