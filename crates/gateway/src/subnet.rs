//! Addresses and subnets of IPv4, as people write them: `10.42.0.1/24`.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A set of addresses with the same first bits. Its host bits are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    network: Ipv4Addr,
    prefix: u8,
}

/// An address of a machine together with the subnet that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceAddress {
    /// The machine's own address.
    pub address: Ipv4Addr,
    prefix: u8,
}

/// Why a text is no address with a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubnetError {
    /// There is no slash, no address before it or no number up to 32 after it.
    #[error("`{0}` is not an address and the length of its prefix")]
    Form(String),
    /// A subnet's own address has bits set behind the prefix.
    #[error("`{0}` has bits set behind its prefix; the subnet is {1}")]
    HostBits(String, Subnet),
}

impl Subnet {
    /// The subnet of this prefix, 0 to 32 bits, that `address` is in.
    #[must_use]
    pub fn around(address: Ipv4Addr, prefix: u8) -> Self {
        Self { network: Ipv4Addr::from(u32::from(address) & mask_bits(prefix)), prefix: prefix.min(32) }
    }

    /// One address alone.
    #[must_use]
    pub fn of_one(address: Ipv4Addr) -> Self {
        Self { network: address, prefix: 32 }
    }

    /// Its first address, which is its name.
    #[must_use]
    pub fn network(self) -> Ipv4Addr {
        self.network
    }

    /// How many bits all its addresses have in common.
    #[must_use]
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Its mask, as `255.255.255.0`.
    #[must_use]
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from(mask_bits(self.prefix))
    }

    /// Its last address, which is for all of it.
    #[must_use]
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) | !mask_bits(self.prefix))
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & mask_bits(self.prefix) == u32::from(self.network)
    }

    /// Whether a machine may have this address: in it, and neither its first nor its last.
    #[must_use]
    pub fn has_room_for(self, address: Ipv4Addr) -> bool {
        self.contains(address) && address != self.network && address != self.broadcast()
    }

    /// Whether some address is in both.
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
    /// The address in the subnet of that many bits, 0 to 32.
    #[must_use]
    pub fn new(address: Ipv4Addr, prefix: u8) -> Self {
        Self { address, prefix: prefix.min(32) }
    }

    /// The subnet that the address is in.
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

impl TryFrom<String> for Subnet {
    type Error = SubnetError;

    fn try_from(text: String) -> Result<Self, SubnetError> {
        text.parse()
    }
}

impl TryFrom<String> for InterfaceAddress {
    type Error = SubnetError;

    fn try_from(text: String) -> Result<Self, SubnetError> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> Self {
        subnet.to_string()
    }
}

impl From<InterfaceAddress> for String {
    fn from(address: InterfaceAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_subnet_knows_its_ends() {
        let subnet: Subnet = "10.42.0.0/24".parse().expect("a subnet");
        assert_eq!((subnet.mask(), subnet.broadcast()), ([255, 255, 255, 0].into(), [10, 42, 0, 255].into()));
        assert!(!subnet.has_room_for([10, 42, 0, 0].into()) && !subnet.has_room_for([10, 42, 0, 255].into()));
        assert!(subnet.has_room_for([10, 42, 0, 254].into()) && !subnet.has_room_for([10, 42, 1, 1].into()));
        assert_eq!("10.42.0.0/30".parse::<Subnet>().expect("a subnet").hosts().count(), 2);
        assert_eq!(Subnet::of_one([10, 0, 0, 1].into()).hosts().count(), 0);
    }

    #[test]
    fn what_is_no_subnet_is_said_to_be_none() {
        for wrong in ["10.42.0.0", "10.42.0/24", "10.42.0.0/33", "10.42.0.0/-1", "/24", "a/24", "10.42.0.0/24/1"] {
            assert!(wrong.parse::<Subnet>().is_err(), "{wrong}");
            assert!(wrong.parse::<InterfaceAddress>().is_err(), "{wrong}");
        }
        let error = "10.42.0.1/24".parse::<Subnet>().expect_err("host bits");
        assert_eq!(error.to_string(), "`10.42.0.1/24` has bits set behind its prefix; the subnet is 10.42.0.0/24");
    }

    proptest! {
        #[test]
        fn overlapping_is_having_an_address_in_common(a: u32, b: u32, p in 0_u8..=32, q in 0_u8..=32) {
            let (one, other) = (Subnet::around(a.into(), p), Subnet::around(b.into(), q));
            // Of two subnets that meet, the smaller is inside the larger, so its ends are.
            let (small, large) = if p > q { (one, other) } else { (other, one) };
            let meets = large.contains(small.network()) && large.contains(small.broadcast());
            prop_assert_eq!(one.overlaps(other), meets);
            prop_assert_eq!(other.overlaps(one), meets);
        }

        #[test]
        fn what_is_written_is_read_again(address: u32, prefix in 0_u8..=32) {
            let address = InterfaceAddress::new(address.into(), prefix);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            prop_assert_eq!(address.subnet().to_string().parse(), Ok(address.subnet()));
            prop_assert!(address.subnet().contains(address.address));
        }
    }
}
