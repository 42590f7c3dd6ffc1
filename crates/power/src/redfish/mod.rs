//! Redfish: HTTP and JSON. Names of resources differ between vendors, so the driver follows links and does not
//! construct paths.
//!
//! - [`Address`] and [`Fingerprint`]: a controller's address and expected certificate.
//! - `line`: one connection, and requests on it with size and time limits.
//! - [`Service`]: a controller with its session, shared by its nodes.
//! - [`RedfishDriver`]: one node's system on a controller.
//! - `encoding`: compressed responses.
//! - `bodies`: the JSON types, `lenient`: deviations from the standard.
//!
//! Not supported on purpose: events, tasks (a reset that starts a task counts as accepted, and the status shows its
//! outcome), and all other management functions.

mod address;
pub(crate) mod bodies;
mod driver;
mod encoding;
mod lenient;
mod line;
mod service;
mod trust;
mod watts;

pub use address::Address;
pub(crate) use driver::RedfishDriver;
pub(crate) use service::{Identity, Service};
pub use trust::Fingerprint;
