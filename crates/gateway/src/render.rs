//! A description as the configuration of the programs that make it true.

mod dnsmasq;
mod qr;
mod table;
mod wireguard;

pub(crate) use dnsmasq::dnsmasq;
pub use qr::qr_code;
pub(crate) use table::table;
pub use wireguard::profile;
pub(crate) use wireguard::server;
