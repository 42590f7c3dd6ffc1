//! The kernel's tables of TCP sockets: `/proc/PID/net/tcp` and `/proc/PID/net/tcp6`, of the process's network namespace.

use std::net::{IpAddr, SocketAddr};

/// A TCP socket. Addresses of IPv4 in a socket for IPv6 are those of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Number of the state in the kernel.
    pub state: u8,
    /// The user who owns the socket. Root for sockets that their program has closed.
    pub uid: u32,
    /// Number of the socket, as in the links in `/proc/PID/fd`; 0 for sockets that no program holds.
    pub inode: u64,
}

impl TcpSocket {
    /// The state of a connection that a program holds open.
    pub const ESTABLISHED: u8 = 1;

    /// The state of a socket that waits for connections.
    pub const LISTEN: u8 = 10;

    /// Parses a line: number, local address, remote address, state, three other fields, uid, a timeout and the inode.
    /// `None` for the heading.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        Some(Self {
            local: address(fields.next()?)?,
            remote: address(fields.next()?)?,
            state: u8::from_str_radix(fields.next()?, 16).ok()?,
            uid: fields.nth(3)?.parse().ok()?,
            inode: fields.nth(1)?.parse().ok()?,
        })
    }
}

/// Parses an address such as `0100007F:1F90`: the address as words in the machine's byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(short) => IpAddr::from(short),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn own_listeners_are_in_the_tables() {
        for (table, address) in [("tcp", "127.0.0.1:0"), ("tcp6", "[::1]:0"), ("tcp6", "[::ffff:127.0.0.1]:0")] {
            // Without IPv6, only the first address exists.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let own = listener.local_addr().expect("an address");
            let own = SocketAddr::new(own.ip().to_canonical(), own.port());
            let text = fs::read_to_string(format!("/proc/self/net/{table}")).expect("readable");
            let found = text.lines().filter_map(TcpSocket::parse).find(|it| it.local == own).expect(address);
            assert_eq!((found.state, found.uid), (TcpSocket::LISTEN, nix::unistd::geteuid().as_raw()), "{address}");
            assert!(found.inode > 0 && found.remote.port() == 0, "{found:?}");
        }
    }

    #[test]
    fn lines_are_parsed() {
        let line = "   0: 0100007F:1F90 0200007F:D431 0A 00000000:00000000 00:00000000 00000000  1000        0 42 1 0 100 0 0 10 0";
        if cfg!(target_endian = "little") {
            let expected = TcpSocket {
                local: "127.0.0.1:8080".parse().expect("an address"),
                remote: "127.0.0.2:54321".parse().expect("an address"),
                state: TcpSocket::LISTEN,
                uid: 1000,
                inode: 42,
            };
            assert_eq!(TcpSocket::parse(line), Some(expected));
        }
        let heading =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        for rubbish in
            ["", "x", heading, "1: :: : 1", "1: 0100007F:D431", &line[..60], "1: 010000é:1 é:1 0A a:a 0:0 0 0 0 1"]
        {
            assert_eq!(TcpSocket::parse(rubbish), None, "{rubbish}");
        }
    }
}
