//! Redfish: HTTP and JSON, of which four calls are enough. The names of things differ between vendors, so links are followed and nothing
//! is put together by hand.
//!
//! - [`Address`] and [`Fingerprint`]: where a controller is and which certificate is its own.
//! - `line`: one connection and bounded exchanges on it.
//! - [`Service`]: a controller with its session, shared by the nodes behind it.
//! - [`RedfishDriver`]: one node's system there.
//! - `bodies`: what of their JSON is read.
//!
//! Deliberately absent: events, tasks (a reset that becomes one is accepted; the status says the rest), and everything else that can be
//! managed in this way.

mod address;
pub(crate) mod bodies;
mod driver;
mod line;
mod service;
mod trust;
mod watts;

pub use address::Address;
pub(crate) use driver::RedfishDriver;
pub(crate) use service::{Identity, Service};
pub use trust::Fingerprint;
