//! Where a connection comes from, as long as nobody knows who has opened it.

use std::net::{IpAddr, Ipv6Addr};

/// The network of a peer: its IPv4 address, or the /64 network of its IPv6 address, since a host usually controls a
/// whole /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// The origin of an unidentified connection. Connections of one origin compete with each other first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Network(Network),
    /// A process of this machine whose user has not been looked up.
    Uid(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_addresses_count_by_their_first_64_bits() {
        let network = |text: &str| Network::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::2"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }
}
