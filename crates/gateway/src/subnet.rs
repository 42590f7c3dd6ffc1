//! IPv4 addresses and subnets in CIDR notation, e.g. `10.42.0.1/24`.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A subnet. Its host bits are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subnet {
    network: Ipv4Addr,
    prefix: u8,
}

/// An address with the prefix length of its subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddress {
    pub address: Ipv4Addr,
    prefix: u8,
}

/// Why a text is not an address with a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubnetError {
    /// The text is not an address, a slash and a number up to 32.
    #[error("`{0}` is not an address with a prefix length, e.g. 10.42.0.1/24")]
    Form(String),
    /// Host bits are set in a subnet.
    #[error("`{0}` has host bits set; the subnet is {1}")]
    HostBits(String, Subnet),
}

impl Subnet {
    /// The subnet with this prefix length (0 to 32) that contains `address`.
    #[must_use]
    pub fn around(address: Ipv4Addr, prefix: u8) -> Self {
        Self { network: Ipv4Addr::from(u32::from(address) & mask_bits(prefix)), prefix: prefix.min(32) }
    }

    #[must_use]
    pub fn network(self) -> Ipv4Addr {
        self.network
    }

    #[must_use]
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// The netmask, e.g. `255.255.255.0`.
    #[must_use]
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from(mask_bits(self.prefix))
    }

    #[must_use]
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) | !mask_bits(self.prefix))
    }

    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & mask_bits(self.prefix) == u32::from(self.network)
    }

    /// Whether a machine may have this address: any address except the network and broadcast addresses.
    #[must_use]
    pub fn is_host_address(self, address: Ipv4Addr) -> bool {
        self.contains(address) && address != self.network && address != self.broadcast()
    }

    /// Whether the subnets share an address.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.network) || other.contains(self.network)
    }

    /// The addresses that machines may have, in order.
    pub fn hosts(self) -> impl Iterator<Item = Ipv4Addr> {
        let (first, last) = (u32::from(self.network), u32::from(self.broadcast()));
        (first.saturating_add(1)..last).map(Ipv4Addr::from)
    }
}

impl InterfaceAddress {
    #[must_use]
    pub fn subnet(self) -> Subnet {
        Subnet::around(self.address, self.prefix)
    }
}

fn mask_bits(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

fn parse(text: &str) -> Result<(Ipv4Addr, u8), SubnetError> {
    let form = || SubnetError::Form(text.to_owned());
    let (address, prefix) = text.trim().split_once('/').ok_or_else(form)?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32).ok_or_else(form)?;
    Ok((address.parse().map_err(|_| form())?, prefix))
}

impl FromStr for InterfaceAddress {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        parse(text).map(|(address, prefix)| Self { address, prefix })
    }
}

impl FromStr for Subnet {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let (address, prefix) = parse(text)?;
        let subnet = Self::around(address, prefix);
        if subnet.network == address { Ok(subnet) } else { Err(SubnetError::HostBits(text.to_owned(), subnet)) }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn subnet_has_network_and_broadcast_addresses() {
        let subnet: Subnet = "10.42.0.0/24".parse().expect("a subnet");
        assert_eq!((subnet.mask(), subnet.broadcast()), ([255, 255, 255, 0].into(), [10, 42, 0, 255].into()));
        assert!(!subnet.is_host_address([10, 42, 0, 0].into()) && !subnet.is_host_address([10, 42, 0, 255].into()));
        assert!(subnet.is_host_address([10, 42, 0, 254].into()) && !subnet.is_host_address([10, 42, 1, 1].into()));
        assert_eq!("10.42.0.0/30".parse::<Subnet>().expect("a subnet").hosts().count(), 2);
        assert_eq!("10.42.0.1/32".parse::<Subnet>().expect("a subnet").hosts().count(), 0);
    }

    #[test]
    fn invalid_subnets_are_rejected() {
        for wrong in ["10.42.0.0", "10.42.0/24", "10.42.0.0/33", "10.42.0.0/-1", "/24", "a/24", "10.42.0.0/24/1"] {
            assert!(wrong.parse::<Subnet>().is_err(), "{wrong}");
            assert!(wrong.parse::<InterfaceAddress>().is_err(), "{wrong}");
        }
        let error = "10.42.0.1/24".parse::<Subnet>().expect_err("host bits");
        assert_eq!(error.to_string(), "`10.42.0.1/24` has host bits set; the subnet is 10.42.0.0/24");
    }

    proptest! {
        #[test]
        fn overlapping_subnets_share_an_address(a: u32, b: u32, p in 0_u8..=32, q in 0_u8..=32) {
            let (one, other) = (Subnet::around(a.into(), p), Subnet::around(b.into(), q));
            // Of two overlapping subnets, the larger contains the smaller.
            let (small, large) = if p > q { (one, other) } else { (other, one) };
            let meets = large.contains(small.network()) && large.contains(small.broadcast());
            prop_assert_eq!(one.overlaps(other), meets);
            prop_assert_eq!(other.overlaps(one), meets);
        }

        #[test]
        fn addresses_round_trip_through_text(address: u32, prefix in 0_u8..=32) {
            let address = InterfaceAddress { address: address.into(), prefix };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            prop_assert_eq!(address.subnet().to_string().parse(), Ok(address.subnet()));
            prop_assert!(address.subnet().contains(address.address));
        }
    }
}
