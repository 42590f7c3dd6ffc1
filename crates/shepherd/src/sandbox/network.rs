//! The network of a job's nodes: an interface in the sandbox on each node, whose packets the agents of these nodes exchange.
//!
//! Init creates the interface. It stays without an agent, and the kernel removes it with the sandbox. Nothing else is in the
//! network but loopback, and the job has no rights to it. So every job can have the same addresses.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_int, c_short, c_ulong};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::plan::During;
use crate::launch::JobNetwork;
use crate::sys;

/// Name of the interface.
pub const JOB_INTERFACE: &CStr = c"job";

/// Largest packet, in bytes.
pub const JOB_MTU: usize = 32 << 10;

/// Number of packets that the kernel keeps for the agent. They are not counted as the job's memory.
const QUEUE_PACKETS: c_int = 64;

/// Address before that of the first node.
const BASE: u32 = 10 << 24;

const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 0, 0, 0);

impl JobNetwork {
    /// Returns the address of the node with this rank.
    #[must_use]
    pub fn address(rank: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(BASE.saturating_add(rank).saturating_add(1))
    }

    /// Returns the rank of the node that would have this address; `None` if no node would.
    #[must_use]
    pub fn rank(address: Ipv4Addr) -> Option<u32> {
        address.to_bits().checked_sub(BASE + 1)
    }

    /// The name of this node.
    pub(super) fn host_name(&self) -> Option<&str> {
        self.nodes.get(usize::try_from(self.rank).ok()?).map(String::as_str)
    }

    /// The lines of /etc/hosts.
    pub(super) fn hosts(&self) -> String {
        (0..).zip(&self.nodes).map(|(rank, name)| format!("{} {name}\n", Self::address(rank))).collect()
    }

    /// Creates the interface. Needs a network namespace of its own, with the rights to it, and the machine's /dev.
    pub(super) fn create(&self) -> io::Result<()> {
        let path = "/dev/net/tun";
        let opened = File::options().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path);
        let device = opened.during(format_args!("open {path}"))?;
        let mut request = request();
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as c_short;
        ioctl(&device, libc::TUNSETIFF, &raw const request).during("create the interface")?;
        // SAFETY: the request takes a plain integer.
        sys::check(unsafe { libc::ioctl(sys::raw(&device), libc::TUNSETPERSIST, 1 as c_ulong) }.into())
            .during("keep the interface")?;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        request.ifr_ifru.ifru_mtu = JOB_MTU as c_int;
        ioctl(&socket, libc::SIOCSIFMTU, &raw const request).during("set the size of packets")?;
        // This member holds an integer too. The library does not name the one for the length of the queue.
        request.ifr_ifru.ifru_mtu = QUEUE_PACKETS;
        match ioctl(&socket, libc::SIOCSIFTXQLEN, &raw const request) {
            // In a user namespace, the kernel's own length stays, 500 packets.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            set => set.during("set the length of the queue")?,
        }
        for (what, address) in [(libc::SIOCSIFADDR, Self::address(self.rank)), (libc::SIOCSIFNETMASK, NETMASK)] {
            request.ifr_ifru.ifru_addr = socket_address(address);
            ioctl(&socket, what, &raw const request).during(format_args!("set the address {address}"))?;
        }
        // Last: to the agent, an interface that is up is complete.
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as c_short;
        ioctl(&socket, libc::SIOCSIFFLAGS, &raw const request).during("bring up the interface")
    }
}

/// A request about the interface.
fn request() -> libc::ifreq {
    // SAFETY: zeroes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (into, letter) in request.ifr_name.iter_mut().zip(JOB_INTERFACE.to_bytes()) {
        *into = *letter as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: both types have 16 bytes, and the first one is a form of the second one.
    unsafe { std::mem::transmute(address) }
}

fn ioctl(on: &impl AsFd, what: libc::Ioctl, request: *const libc::ifreq) -> io::Result<()> {
    // SAFETY: the caller's pointer is to a valid structure, which these requests read.
    sys::check(unsafe { libc::ioctl(sys::raw(on), what, request) }.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_addresses_by_rank() {
        let network = JobNetwork { rank: 1, nodes: vec!["n1".to_owned(), "n2".to_owned()] };
        assert_eq!(network.hosts(), "10.0.0.1 n1\n10.0.0.2 n2\n");
        assert_eq!(network.host_name(), Some("n2"));
        for rank in [0, 1, 255, 65_535] {
            assert_eq!(JobNetwork::rank(JobNetwork::address(rank)), Some(rank));
        }
        assert_eq!(JobNetwork::rank(Ipv4Addr::new(10, 0, 0, 0)), None);
        assert_eq!(JobNetwork::rank(Ipv4Addr::LOCALHOST), Some((127 << 24) - (10 << 24)));
    }
}
