//! Descriptors that programs send over Unix sockets.

use std::os::fd::{AsFd, AsRawFd};

use nix::libc;

/// The socket option `SO_PASSRIGHTS` of Linux 6.16, in the numbers that all architectures with Rust's daemons share.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Makes the kernel refuse descriptors that programs send to this Unix socket, and to the connections that it accepts
/// later. Returns whether the kernel does so: Linux before 6.16 has no such option.
///
/// A process that reads or closes a socket closes the descriptors in it, even those that it never received. The last
/// close of a file can wait for its file system, which may be a program of the sender that never answers.
pub fn refuse_descriptors(socket: &impl AsFd) -> bool {
    let off: libc::c_int = 0;
    let length = size_of_val(&off) as libc::socklen_t;
    // SAFETY: the pointer refers to a local variable of this length.
    let set = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const off).cast(), length)
    };
    set == 0
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{IoSlice, Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    use nix::errno::Errno;
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

    use super::*;

    #[test]
    fn socket_gets_bytes_but_no_descriptors_of_any_kind() {
        let name = format!("hostler-descriptors-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).expect("a short name");
        let listener = UnixListener::bind_addr(&address).expect("the name is free");
        let refuses = refuse_descriptors(&listener);
        let mut client = UnixStream::connect_addr(&address).expect("the listener has room");
        let file = File::open("/dev/null").expect("every system has it");
        let (nested, other) = UnixStream::pair().expect("a pair");
        sendmsg::<()>(
            nested.as_raw_fd(),
            &[IoSlice::new(b"x")],
            &[ControlMessage::ScmRights(&[file.as_raw_fd()])],
            MsgFlags::empty(),
            None,
        )
        .expect("other sockets take descriptors");
        for (what, sent) in [("a file", file.as_raw_fd()), ("a socket with a file", other.as_raw_fd())] {
            let along = [ControlMessage::ScmRights(&[sent])];
            let sent = sendmsg::<()>(client.as_raw_fd(), &[IoSlice::new(b"x")], &along, MsgFlags::MSG_NOSIGNAL, None);
            assert_eq!(sent == Err(Errno::EPERM), refuses, "{what}: {sent:?}");
        }
        let (mut accepted, _) = listener.accept().expect("a client has connected");
        client.write_all(b"end").expect("the connection is open");
        drop(client);
        let mut bytes = Vec::new();
        accepted.read_to_end(&mut bytes).expect("the client has closed");
        assert!(bytes.ends_with(b"end"), "{bytes:?}");
    }
}
