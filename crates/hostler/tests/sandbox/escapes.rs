//! Attempts to leave a sandbox, in `attempts.py`: each is refused inside. Outside, those that need no more rights than
//! any user has succeed, so a sandbox that does nothing would fail this test.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::Command;

use hostler_testkit::SharedCluster;
use nix::libc;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::json;

use crate::{ADA, BOB, HOSTLER, ids};

pub(crate) const ATTEMPTS: &str = include_str!("attempts.py");

/// Attempts that every Linux allows to an ordinary job. Others depend on settings of the kernel or need more rights.
const ALLOWED_OUTSIDE: [&str; 24] = [
    "write_beside_the_folder",
    "list_the_parent_directory",
    "read_a_readable_file_of_another_user",
    "read_through_a_link_in_the_folder",
    "see_the_accounts_of_the_machine",
    "read_a_file_in_the_machines_tmp",
    "read_a_file_in_the_machines_shared_memory",
    "leave_by_dots",
    "open_a_device_in_the_folder",
    "leave_a_set_user_id_program_by_changing_its_mode",
    "leave_a_set_user_id_program_by_descriptor",
    "create_a_set_user_id_program",
    "create_an_unnamed_set_user_id_program",
    "make_a_node_with_a_set_user_id_bit",
    "see_control_groups",
    "see_processes_of_others",
    "signal_an_own_process_outside",
    "trace_an_own_process_outside",
    "type_into_a_terminal",
    "connect_to_a_server_of_the_machine",
    "connect_to_an_abstract_socket",
    "find_abstract_sockets",
    "hear_of_devices",
    "find_shared_memory_by_key",
];

/// Attempts that the network of the machine lets succeed: it shows its interfaces and tables.
pub(crate) const OF_THE_NETWORK: [&str; 4] = [
    "connect_to_a_server_of_the_machine",
    "connect_to_a_cloud_address",
    "have_a_network_interface",
    "find_abstract_sockets",
];

/// Whether Landlock of this kernel has scopes for abstract sockets.
pub(crate) fn keeps_abstract_sockets_out() -> bool {
    const VERSION: libc::c_long = 1;
    // SAFETY: with this flag, the kernel only returns a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) >= 6 }
}

/// The attempts that succeeded, as `attempts.py` prints them.
pub(crate) fn reached(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("reached ")).map(str::to_owned).collect()
}

/// A shared memory segment of System V that is removed with this value.
struct SharedMemory {
    id: libc::c_int,
}

impl SharedMemory {
    fn create(key: libc::key_t) -> Self {
        // SAFETY: the system call takes plain integers.
        let id = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o666) };
        assert_ne!(id, -1, "the key is free");
        Self { id }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: removal needs no buffer.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

#[test]
fn attempts_to_leave_the_sandbox_fail() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let unique = format!("hostler-escape-{}", std::process::id());
    let (uid, gid) = ids(ADA);
    cluster.write(ADA, "folder/attempts.py", ATTEMPTS);
    let folder = cluster.home_of(ADA).join("folder");
    let beside = cluster.write(ADA, "neighbour", "text");
    let of_bob = cluster.write(BOB, "readable", "text of Bob");
    fs::set_permissions(of_bob.parent().expect("a directory"), fs::Permissions::from_mode(0o755)).expect("ours");

    let (in_tmp, in_shm) = (format!("/tmp/{unique}"), format!("/dev/shm/{unique}"));
    for path in [&in_tmp, &in_shm] {
        fs::write(path, "text").expect("writable");
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("ours");
    }
    let setuid_id = folder.join("id");
    fs::copy("/usr/bin/id", &setuid_id).expect("every system has it");
    fs::set_permissions(&setuid_id, fs::Permissions::from_mode(0o4755)).expect("ours");
    // As harmless as /dev/zero, which it is.
    let device = folder.join("zero");
    mknod(&device, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 5)).expect("needs root");
    fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).expect("ours");

    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = SocketAddr::from_abstract_name(&unique).expect("a short name");
    let _abstract = UnixListener::bind_addr(&address).expect("the name is free");
    let key = 0x6873_0000 + (std::process::id() & 0xffff).cast_signed();
    let _memory = SharedMemory::create(key);
    let mut sleeper = Command::new("sleep").arg("300").uid(uid).gid(gid).spawn().expect("sleep exists");

    let facts = json!({
        "beside": folder.with_file_name("escaped"),
        "beside_existing": beside,
        "of_bob": of_bob,
        "in_tmp": in_tmp,
        "in_shm": in_shm,
        "cluster": cluster.path(""),
        "setuid_id": setuid_id,
        "device": device,
        "sleeper": sleeper.id(),
        "port": server.local_addr().expect("bound").port(),
        "abstract": unique,
        "shm_key": key,
    });
    let facts = facts.to_string();
    let attempt = |options: &[&str]| {
        let arguments = [&["run", "-m", "200M"], options, &["--", "python3", "attempts.py", &facts]].concat();
        let output = cluster.command(ADA, &arguments).current_dir(&folder).output().expect("starts");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let inside = attempt(&["--sandbox"]);
    let with_network = attempt(&["--sandbox", "--network", "host"]);
    let outside = attempt(&[]);
    sleeper.kill().expect("ours");
    sleeper.wait().expect("ours");
    for path in [in_tmp, in_shm] {
        fs::remove_file(path).expect("ours");
    }

    let count = ATTEMPTS.matches("@attempt\n").count();
    for text in [&inside, &with_network, &outside] {
        assert!(text.contains(&format!("tried {count}\n")), "all attempts were made: {text}");
    }
    assert_eq!(reached(&inside), [""; 0], "{inside}");
    let more = reached(&with_network);
    assert!(more.contains(&"connect_to_a_server_of_the_machine".to_owned()), "{with_network}");
    let beyond: Vec<_> = more.iter().filter(|name| !OF_THE_NETWORK.contains(&&***name)).collect();
    let expected: &[&str] = if keeps_abstract_sockets_out() { &[] } else { &["connect_to_an_abstract_socket"] };
    assert_eq!(beyond, expected, "{with_network}");
    let reached: BTreeMap<String, ()> = reached(&outside).into_iter().map(|name| (name, ())).collect();
    for name in ALLOWED_OUTSIDE {
        assert!(reached.contains_key(name), "`{name}` proves nothing: it fails outside too: {outside}");
    }
    assert!(!cluster.home_of(ADA).join("escaped").exists() || reached.contains_key("write_beside_the_folder"));
}
