//! Renders a description to configurations of `nft`, dnsmasq and WireGuard.

mod dnsmasq;
mod qr;
mod table;
mod wireguard;

pub(crate) use dnsmasq::dnsmasq;
pub use qr::qr_code;
pub(crate) use table::table;
pub(crate) use wireguard::{profile, server};
