//! Commands that describe what this cluster does not do: fair shares, priorities by factors, statistics of the scheduler and
//! periodic jobs.

pub(crate) mod scrontab;
pub(crate) mod sdiag;
pub(crate) mod sprio;
pub(crate) mod sshare;
pub(crate) mod sstat;
