//! Wake-up packets and the MAC addresses that they carry.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::str::FromStr;
use std::time::Duration;

use hostler_model::ParseError;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use serde::{Deserialize, Serialize};

/// Number of packets to send. More than one, because nodes do not acknowledge them.
const PACKETS: u32 = 3;

/// Time between two packets.
const BETWEEN: Duration = Duration::from_millis(100);

/// The discard port, by convention.
pub(crate) const PORT: u16 = 9;

/// A MAC address, e.g. `52:54:00:12:34:56`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

/// A wake-up packet and its destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    pub mac: MacAddress,
    /// Destination; the broadcast addresses of all local segments if absent.
    pub broadcast: Option<IpAddr>,
    pub port: u16,
}

impl WakeUp {
    /// The magic packet: six bytes 0xff, then the MAC address sixteen times.
    #[must_use]
    pub fn packet(&self) -> [u8; 102] {
        let mut packet = [0xff; 102];
        for part in packet[6..].chunks_exact_mut(6) {
            part.copy_from_slice(&self.mac.0);
        }
        packet
    }

    /// Sends the packet several times from this machine. Blocks for 0.2 seconds.
    ///
    /// # Errors
    /// The packet cannot be sent to any segment.
    pub fn send(&self) -> io::Result<()> {
        let targets = match self.broadcast {
            Some(target) => BTreeSet::from([target]),
            None => segments()?.into_iter().map(|(_, all)| all.into()).collect::<BTreeSet<_>>(),
        };
        let mut result = Err(io::Error::new(io::ErrorKind::NetworkUnreachable, "no interface has a broadcast address"));
        for round in 0..PACKETS {
            if round > 0 {
                std::thread::sleep(BETWEEN);
            }
            for target in &targets {
                // A failure in one segment must not affect the others.
                let sent = self.send_to(*target);
                if result.is_err() {
                    result = sent;
                }
            }
        }
        result
    }

    fn send_to(&self, target: IpAddr) -> io::Result<()> {
        let any: SocketAddr = match target {
            IpAddr::V4(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
            IpAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = std::net::UdpSocket::bind(any)?;
        if target.is_ipv4() {
            socket.set_broadcast(true)?;
        }
        socket.send_to(&self.packet(), (target, self.port))?;
        Ok(())
    }
}

/// This machine's addresses on its active interfaces, each with the broadcast address. A broadcast address reaches its
/// own segment, independent of the default route. It is computed, because an interface may have none configured.
///
/// # Errors
/// If the system does not list the interfaces.
pub fn segments() -> io::Result<Vec<(Ipv4Addr, Ipv4Addr)>> {
    let mut found = Vec::new();
    for interface in getifaddrs()? {
        let is_live = interface.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_BROADCAST);
        let number = |address: Option<&SockaddrStorage>| Some(address?.as_sockaddr_in()?.ip().to_bits());
        let (address, mask) = (number(interface.address.as_ref()), number(interface.netmask.as_ref()));
        let pair = |(address, mask)| Some((Ipv4Addr::from_bits(address), broadcast(address, mask)?));
        found.extend(address.zip(mask).and_then(pair).filter(|_| is_live));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The broadcast address of a network. Point-to-point links have none.
fn broadcast(address: u32, mask: u32) -> Option<Ipv4Addr> {
    (mask.count_zeros() > 1).then(|| Ipv4Addr::from_bits(address | !mask))
}

impl FromStr for MacAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a MAC address, e.g. `52:54:00:12:34:56`");
        let parts: Vec<&str> = text.split([':', '-']).collect();
        let mut bytes = [0; 6];
        if parts.len() != bytes.len() {
            return Err(error());
        }
        for (byte, part) in bytes.iter_mut().zip(parts) {
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(error());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for MacAddress {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> Self {
        mac.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wake_up(mac: [u8; 6]) -> WakeUp {
        WakeUp { mac: MacAddress(mac), broadcast: None, port: PORT }
    }

    #[test]
    fn packet_has_the_standard_format() {
        let packet = wake_up([1, 2, 3, 4, 5, 6]).packet();
        assert_eq!(packet[..6], [0xff; 6]);
        assert_eq!(packet[6..], [1, 2, 3, 4, 5, 6].repeat(16));
    }

    #[test]
    fn segments_have_a_broadcast_address() {
        let all = |address: &str, bits: u32| {
            let address = address.parse::<Ipv4Addr>().expect("an address").to_bits();
            broadcast(address, u32::MAX.checked_shl(32 - bits).unwrap_or(0)).map(|all| all.to_string())
        };
        assert_eq!(all("10.0.9.1", 24).as_deref(), Some("10.0.9.255"));
        assert_eq!(all("192.168.4.7", 22).as_deref(), Some("192.168.7.255"));
        assert_eq!(all("10.0.9.1", 31), None);
        assert_eq!(all("10.0.9.1", 32), None);
    }

    proptest! {
        #[test]
        fn addresses_round_trip(bytes: [u8; 6]) {
            let mac = MacAddress(bytes);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(mac.to_string().to_uppercase().replace(':', "-").parse(), Ok(mac));
        }

        #[test]
        fn only_valid_addresses_are_parsed(text in "\\PC{0,18}|([0-9a-fA-Fx+]{1,3}[:-]?){5,7}") {
            if let Ok(mac) = text.parse::<MacAddress>() {
                prop_assert_eq!(mac.to_string(), text.to_lowercase().replace('-', ":"));
            }
        }
    }
}
