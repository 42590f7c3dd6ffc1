//! Finds the sockets on which a run listens, and says whether a connection comes from the run.
//!
//! The kernel lists the sockets of a network namespace, and the open files of each process. A socket belongs to the run if
//! a process of the run holds it. Processes may end and start meanwhile, so the caller looks again after it has connected.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Instant;

use hostler_sys::TcpSocket;

use crate::measure::usage::run::RunPlace;

/// The most addresses that are tried. A job may listen at millions of them.
const MOST_DESTINATIONS: usize = 8;

/// An address at which only the run answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listener {
    /// The network namespace, as the kernel names it, e.g. `net:[4026531840]`.
    pub(super) namespace: PathBuf,
    /// A process of the run in this namespace.
    pub(super) pid: u32,
    pub(super) address: SocketAddr,
}

/// Finds the addresses at which a run listens on `port`, best first.
///
/// # Errors
/// If the search takes longer than until `deadline`, or the processes of the run cannot be listed.
pub(super) fn find(place: &RunPlace, port: u16, deadline: Instant) -> io::Result<Vec<Listener>> {
    let is_wanted = |it: &TcpSocket| it.state == TcpSocket::LISTEN && it.local.port() == port;
    let mut found = Vec::new();
    for (namespace, pids) in namespaces(place, deadline)? {
        let sockets = sockets(&pids, is_wanted, deadline)?;
        let own = held(&pids, &sockets, deadline)?;
        let listener = |address| Listener { namespace: namespace.clone(), pid: pids[0], address };
        found.extend(destinations(&sockets, &own).into_iter().map(listener));
    }
    Ok(found)
}

/// Whether a process of a run made the connection from `from` to `to`, in this network namespace. Sockets of other users than
/// `user` do not count.
///
/// # Errors
/// As for [`find`].
pub(super) fn connects(
    place: &RunPlace,
    user: u32,
    namespace: &Path,
    (from, to): (SocketAddr, SocketAddr),
    deadline: Instant,
) -> io::Result<bool> {
    let is_wanted = |it: &TcpSocket| (it.local, it.remote) == (from, to) && it.inode != 0 && it.uid == user;
    // Other users of the node can connect as often as they like, so this comes before the search of all processes.
    let is_here = fs::read_link("/proc/self/ns/net")? == namespace;
    if is_here && sockets(&[process::id()], is_wanted, deadline)?.is_empty() {
        return Ok(false);
    }
    let Some(pids) = namespaces(place, deadline)?.remove(namespace) else { return Ok(false) };
    let sockets = sockets(&pids, is_wanted, deadline)?;
    Ok(!held(&pids, &sockets, deadline)?.is_empty())
}

/// The processes of the run by their network namespaces.
fn namespaces(place: &RunPlace, deadline: Instant) -> io::Result<BTreeMap<PathBuf, Vec<u32>>> {
    let mut found: BTreeMap<PathBuf, Vec<u32>> = BTreeMap::new();
    let processes = place.processes().ok_or_else(|| io::Error::other("cannot list the processes of the job"))?;
    for pid in processes {
        in_time(deadline)?;
        // A process that has ended has no namespace.
        if let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/net")) {
            found.entry(namespace).or_default().push(pid);
        }
    }
    Ok(found)
}

/// The wanted sockets in the network namespace of these processes.
fn sockets(pids: &[u32], is_wanted: impl Fn(&TcpSocket) -> bool, deadline: Instant) -> io::Result<Vec<TcpSocket>> {
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        // The kernel may have no IPv6, and some of the processes may have ended.
        let open = |pid| File::open(format!("/proc/{pid}/net/{table}")).ok();
        let Some(file) = pids.iter().find_map(open) else { continue };
        for line in BufReader::new(file).lines() {
            in_time(deadline)?;
            found.extend(TcpSocket::parse(&line?).filter(&is_wanted));
        }
    }
    Ok(found)
}

/// Those of `sockets` that one of the processes holds, by inode.
fn held(pids: &[u32], sockets: &[TcpSocket], deadline: Instant) -> io::Result<BTreeSet<u64>> {
    let links: BTreeMap<PathBuf, u64> =
        sockets.iter().map(|socket| (format!("socket:[{}]", socket.inode).into(), socket.inode)).collect();
    let mut found = BTreeSet::new();
    for pid in pids {
        if found.len() == links.len() {
            break;
        }
        // The process may have ended.
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for file in files.flatten() {
            in_time(deadline)?;
            found.extend(fs::read_link(file.path()).ok().and_then(|link| links.get(&link)));
        }
    }
    Ok(found)
}

fn in_time(deadline: Instant) -> io::Result<()> {
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the job has too many processes and open files to search in time"))
}

/// The addresses at which sockets in `own` listen and no other socket answers. Several sockets can share an address, and
/// the kernel then chooses any of them.
fn destinations(sockets: &[TcpSocket], own: &BTreeSet<u64>) -> Vec<SocketAddr> {
    // For each address, whether all sockets that listen there are the run's own.
    let mut is_own: BTreeMap<IpAddr, bool> = BTreeMap::new();
    for socket in sockets {
        *is_own.entry(socket.local.ip()).or_insert(true) &= own.contains(&socket.inode);
    }
    let own_sockets = sockets.iter().filter(|socket| own.contains(&socket.inode));
    let addresses: BTreeSet<SocketAddr> = own_sockets.flat_map(|socket| reachable_at(socket.local)).collect();
    let mut safe: Vec<SocketAddr> =
        addresses.into_iter().filter(|address| only_own_answer(&is_own, address.ip())).collect();
    // Loopback works without any network.
    safe.sort_by_key(|address| !address.ip().is_loopback());
    safe.truncate(MOST_DESTINATIONS);
    safe
}

/// Where to connect to a socket that listens at `local`.
fn reachable_at(local: SocketAddr) -> Vec<SocketAddr> {
    let ips: &[IpAddr] = match local.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
        // Sockets for IPv6 usually take connections over IPv4 too, and the namespace may have no address of IPv6.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => &[IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)],
        _ => &[local.ip()],
    };
    ips.iter().map(|ip| SocketAddr::new(*ip, local.port())).collect()
}

/// Whether a connection to `ip` can only reach the run. The kernel chooses among the sockets with exactly this address,
/// else among those for all addresses of its family, else among those for all addresses.
fn only_own_answer(is_own: &BTreeMap<IpAddr, bool>, ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let order = [ip, any, Ipv6Addr::UNSPECIFIED.into()];
    order.iter().find_map(|at| is_own.get(at)).copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listening: &[(&str, u64)], own: &[u64], expected: &[&str]) {
        let sockets: Vec<TcpSocket> = listening
            .iter()
            .map(|(ip, inode)| TcpSocket {
                local: SocketAddr::new(ip.parse().expect("an address"), 80),
                remote: "0.0.0.0:0".parse().expect("an address"),
                state: TcpSocket::LISTEN,
                uid: 0,
                inode: *inode,
            })
            .collect();
        let found = destinations(&sockets, &own.iter().copied().collect());
        let found: Vec<String> = found.iter().map(|address| address.ip().to_string()).collect();
        assert_eq!(found, expected, "{listening:?} {own:?}");
    }

    #[test]
    fn wildcards_are_reached_over_loopback_which_comes_first() {
        check(&[], &[], &[]);
        check(&[("127.0.0.1", 1)], &[1], &["127.0.0.1"]);
        check(&[("0.0.0.0", 1)], &[1], &["127.0.0.1"]);
        check(&[("::1", 1)], &[1], &["::1"]);
        check(&[("::", 1)], &[1], &["127.0.0.1", "::1"]);
        check(&[("10.0.0.1", 1), ("127.0.0.1", 2)], &[1, 2], &["127.0.0.1", "10.0.0.1"]);
    }

    #[test]
    fn addresses_at_which_others_may_answer_are_left_out() {
        check(&[("127.0.0.1", 1)], &[], &[]);
        // Both sockets share the address.
        check(&[("127.0.0.1", 1), ("127.0.0.1", 2)], &[1], &[]);
        check(&[("127.0.0.1", 1), ("127.0.0.1", 2)], &[1, 2], &["127.0.0.1"]);
        // The exact address has precedence over the run's wildcard.
        check(&[("0.0.0.0", 1), ("127.0.0.1", 2)], &[1], &[]);
        check(&[("0.0.0.0", 1), ("127.0.0.1", 2)], &[2], &["127.0.0.1"]);
        check(&[("0.0.0.0", 1), ("10.0.0.1", 2)], &[1], &["127.0.0.1"]);
        // A wildcard of IPv4 has precedence over one of IPv6.
        check(&[("0.0.0.0", 1), ("::", 2)], &[1], &["127.0.0.1"]);
        check(&[("0.0.0.0", 1), ("::", 2)], &[2], &["::1"]);
    }
}
