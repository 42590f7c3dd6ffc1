//! A real head and a real node on this machine: where their files are ([`places`]), and what is set about them ([`settings`]).
//!
//! The embedded cluster of `hostler up` has places of its own and no settings files; see [`crate::cluster`].

pub(crate) mod places;
pub(crate) mod settings;
