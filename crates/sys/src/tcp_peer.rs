//! Which user's program opened a TCP connection of this machine.
//!
//! TCP has no peer credentials. But both ends of a connection over loopback are sockets of this machine, and the
//! kernel's table of sockets names the owner of each.

use std::fs;
use std::io;
use std::net::SocketAddr;

use crate::TcpSocket;

/// Returns the user of a connection: the owner of the socket at the address `peer` that is connected to `own`. `None` if
/// this machine has no such socket, because its program has closed it or runs on another machine.
///
/// Reads the whole table, which is long on a machine with many connections.
///
/// # Errors
/// The kernel's table cannot be read.
pub fn tcp_peer_owner(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<u32>> {
    // A program may use a socket for IPv6 to connect to an address of IPv4.
    let tables: &[&str] = if peer.is_ipv4() { &["/proc/net/tcp", "/proc/net/tcp6"] } else { &["/proc/net/tcp6"] };
    for table in tables {
        match fs::read_to_string(table) {
            Ok(text) => {
                if let Some(uid) = owner_in(&text, peer, own) {
                    return Ok(Some(uid));
                }
            }
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Finds the owner in the text of a table. The kernel reports root as the owner of sockets that their program has closed,
/// so only open connections count.
fn owner_in(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let is_it = |socket: &TcpSocket| {
        socket.local == plain(peer) && socket.remote == plain(own) && socket.state == TcpSocket::ESTABLISHED
    };
    table.lines().filter_map(TcpSocket::parse).find(is_it).map(|socket| socket.uid)
}

fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn own_connection_is_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let own = listener.local_addr().expect("an address");
        for target in [own.to_string(), format!("[::ffff:127.0.0.1]:{}", own.port())] {
            // Without IPv6, only the first target exists.
            let Ok(stream) = TcpStream::connect(&target) else { continue };
            let (_accepted, peer) = listener.accept().expect("a connection");
            assert_eq!(tcp_peer_owner(peer, own).expect("readable"), Some(nix::unistd::geteuid().as_raw()), "{target}");
            drop(stream);
        }
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        assert_eq!(tcp_peer_owner(nobody, own).expect("readable"), None);
    }

    #[test]
    fn owner_is_read_from_the_line_of_the_connection() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0\n\
             1: 0100007F:D431 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 2 1 0 20 4 30 10 -1\n\
             2: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 4 30 10 -1\n";
        let [peer, own] = ["127.0.0.1:54321", "127.0.0.1:8080"].map(|text| text.parse().expect("an address"));
        if cfg!(target_endian = "little") {
            assert_eq!(owner_in(table, peer, own), Some(1001));
            assert_eq!(owner_in(table, own, peer), Some(1000));
            let closed = table.replace(" 01 ", " 06 ");
            assert_eq!(owner_in(&closed, peer, own), None);
        }
        for rubbish in ["", "x\ny", &table[..200]] {
            assert_eq!(owner_in(rubbish, peer, own), None);
        }
    }
}
