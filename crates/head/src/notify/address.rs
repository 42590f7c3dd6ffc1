//! Which addresses the head may send requests to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::fault::Fault;

/// Resolves a host once, and returns an address that the head may connect to. The caller must connect to this address,
/// because a second look-up could return another.
pub(super) async fn resolve(host: &str, port: u16, allow_private: bool) -> Result<SocketAddr, Fault> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((host, port)).await.map_err(|_| Fault::unreachable())?;
    found.into_iter().find(|address| allow_private || is_public(address.ip())).ok_or_else(Fault::unreachable)
}

/// Whether an address is on the public internet. Others may belong to services inside the site.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(a == 0
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99)
        || (a == 198 && (18..20).contains(&b)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is assigned to the public internet. Within it, 6to4 (2002::/16) and Teredo (2001::/32) lead to IPv4
    // addresses, and the rest of 2001::/23 and the documentation networks belong to no host.
    first & 0xe000 == 0x2000
        && first != 0x2002
        && !(first == 0x2001 && second < 0x200)
        && !(first == 0x2001 && second == 0xdb8)
        && !(first == 0x3fff && second < 0x1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_addresses_are_not_public() {
        for text in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().expect("an address")), "{text}");
        }
        for text in
            ["1.1.1.1", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.169.0.1", "2606:4700::1111", "2a00::1"]
        {
            assert!(is_public(text.parse().expect("an address")), "{text}");
        }
    }

    #[tokio::test]
    async fn hosts_inside_the_site_need_permission() {
        assert!(resolve("127.0.0.1", 9, false).await.is_err());
        assert!(resolve("localhost", 9, false).await.is_err());
        assert!(resolve("[::1]", 9, false).await.is_err());
        let address = resolve("127.0.0.1", 9, true).await.expect("allowed");
        assert_eq!(address, SocketAddr::from(([127, 0, 0, 1], 9)));
    }
}
