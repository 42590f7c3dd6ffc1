//! What is measured on the node, and the quiet machine that some measurements need.
//!
//! - [`certificate`]: what disturbed an exclusive job; [`quiet`]: settings of the machine that are changed for one.
//! - [`usage`]: figures over time of the node and its runs; [`gpu_use`] and [`nvidia_smi`]: those of GPUs; [`rapl`]: energy.
//! - [`metrics`]: what `/metrics` shows.

pub(crate) mod certificate;
pub(crate) mod gpu_use;
pub(crate) mod metrics;
pub(crate) mod nvidia_smi;
pub(crate) mod quiet;
pub(crate) mod rapl;
pub(crate) mod usage;
