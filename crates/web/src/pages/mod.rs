//! The pages, one file each.

pub(crate) mod audit;
pub(crate) mod duplicate;
pub(crate) mod files;
pub(crate) mod files_archive;
pub(crate) mod history;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod jobs_act;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod output;
pub(crate) mod overview;
pub(crate) mod people;
pub(crate) mod settings;
pub(crate) mod submit;
pub(crate) mod terminal;
pub(crate) mod timeline;
pub(crate) mod usage;
