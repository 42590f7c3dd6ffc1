//! State of WireGuard, from `wg show INTERFACE dump`.

use std::net::Ipv4Addr;

use crate::keys::PublicKey;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedVpn {
    /// The server's public key; `None` if the server has no key yet.
    pub public_key: Option<PublicKey>,
    pub port: u16,
    pub peers: Vec<Peer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub public_key: PublicKey,
    /// The peer's address in the VPN; `None` unless the peer has exactly one address.
    pub address: Option<Ipv4Addr>,
    pub endpoint: Option<String>,
    /// Time of the last handshake, in seconds since 1970.
    pub handshake_secs: Option<u64>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl ObservedVpn {
    /// Parses the output of `wg show INTERFACE dump`. Ignores the private key in it.
    #[must_use]
    pub fn parse(dump: &str) -> Option<Self> {
        let mut lines = dump.lines();
        let own: Vec<&str> = lines.next()?.split('\t').collect();
        let [_private, public, port, _mark] = own.as_slice() else { return None };
        let peers = lines.map(Peer::parse).collect::<Option<_>>()?;
        Some(Self { public_key: public.parse().ok(), port: port.parse().ok()?, peers })
    }
}

impl Peer {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [public, _shared, endpoint, allowed, handshake, received, sent, _keep_alive] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            public_key: public.parse().ok()?,
            address: allowed.strip_suffix("/32").and_then(|address| address.parse().ok()),
            endpoint: Some(*endpoint).filter(|endpoint| *endpoint != "(none)").map(ToOwned::to_owned),
            handshake_secs: handshake.parse().ok().filter(|secs| *secs != 0),
            received_bytes: received.parse().ok()?,
            sent_bytes: sent.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PrivateKey;

    #[test]
    fn dump_is_parsed() {
        let (server, client) = (PrivateKey::from_bytes([1; 32]), PrivateKey::from_bytes([2; 32]).public());
        let dump = format!(
            "{}\t{}\t51820\toff\n{client}\t(none)\t192.0.2.7:4321\t10.44.0.2/32\t1700000000\t1234\t99\toff\n{client}\t(none)\t(none)\t(none)\t0\t0\t0\t25\n",
            server.to_text(),
            server.public(),
        );
        let vpn = ObservedVpn::parse(&dump).expect("a dump");
        assert_eq!((vpn.public_key, vpn.port, vpn.peers.len()), (Some(server.public()), 51820, 2));
        let [first, second] = vpn.peers.as_slice() else { panic!("two peers") };
        assert_eq!((first.address, first.handshake_secs), (Some([10, 44, 0, 2].into()), Some(1_700_000_000)));
        assert_eq!((second.address, second.handshake_secs, &second.endpoint), (None, None, &None));
        assert_eq!(ObservedVpn::parse("(none)\t(none)\t0\toff\n").expect("new").public_key, None);
        assert_eq!(ObservedVpn::parse(""), None);
        assert_eq!(ObservedVpn::parse("a\tb"), None);
    }
}
