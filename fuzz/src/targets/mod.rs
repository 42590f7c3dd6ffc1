//! The targets, one file each.

pub(crate) mod api;
pub(crate) mod certificate;
pub(crate) mod cluster;
pub(crate) mod gossip;
pub(crate) mod journal;
pub(crate) mod layout;
pub(crate) mod link;
pub(crate) mod manifest;
pub(crate) mod mirror;
pub(crate) mod pack;
pub(crate) mod people;
pub(crate) mod power;
pub(crate) mod project;
pub(crate) mod remote;
pub(crate) mod shepherd;
pub(crate) mod traces;
pub(crate) mod values;
pub(crate) mod words;
