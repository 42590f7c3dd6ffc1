"""Attempts to leave a sandbox. Prints a line for each: `reached NAME` or `refused NAME: why`.

Usage: attempts.py FACTS, as JSON: what the test has prepared outside of the sandbox. Some attempts succeed
without a sandbox, and the test checks that too; the others would succeed only with more rights.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import signal
import socket
import subprocess
import sys

facts = json.loads(sys.argv[1])
# Before anything here opens a file. The listing has one itself.
INHERITED = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 3]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

X86 = platform.machine() == "x86_64"
NUMBERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone": (56, 220),
    "clone3": (435, 435),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "name_to_handle_at": (303, 264),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "syslog": (103, 116),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "swapon": (167, 224),
    "acct": (163, 89),
    "shmget": (29, 194),
    "ioctl": (16, 29),
    "fanotify_init": (300, 262),
    "reboot": (169, 142),
    "prctl": (157, 167),
}

NEW_USER = 0x10000000
NEW_NS = 0x00020000
NEW_NET = 0x40000000
SIGCHLD = 17


def call(name, *arguments):
    """Make a system call, or raise its error."""
    number = NUMBERS[name][0 if X86 else 1]
    converted = [ctypes.c_long(it) if isinstance(it, int) else it for it in arguments]
    result = libc.syscall(ctypes.c_long(number), *converted)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def buffer(size):
    return ctypes.create_string_buffer(size)


def require(condition, why):
    if not condition:
        raise OSError(errno.ENOENT, why)


ATTEMPTS = []


def attempt(function):
    ATTEMPTS.append(function)
    return function


# Files.


@attempt
def write_beside_the_folder():
    with open(facts["beside"], "w") as file:
        file.write("escaped")


@attempt
def list_the_parent_directory():
    require(os.path.basename(facts["beside_existing"]) in os.listdir(".."), "no neighbour")


@attempt
def read_a_readable_file_of_another_user():
    open(facts["of_bob"]).read()


@attempt
def read_through_a_link_in_the_folder():
    if not os.path.islink("link"):
        os.symlink(facts["of_bob"], "link")
    open("link").read()


@attempt
def see_the_accounts_of_the_machine():
    require("daemon:" in open("/etc/passwd").read(), "no such account")


@attempt
def read_a_file_in_the_machines_tmp():
    open(facts["in_tmp"]).read()


@attempt
def read_a_file_in_the_machines_shared_memory():
    open(facts["in_shm"]).read()


@attempt
def read_the_shadow_file():
    open("/etc/shadow").read()


@attempt
def see_the_head_or_agent_directory():
    os.stat(facts["cluster"] + "/agent/agent.sock")


@attempt
def write_to_usr():
    open("/usr/local/bin/escaped", "w")


@attempt
def write_to_etc():
    open("/etc/passwd", "a")


@attempt
def write_to_the_root_directory():
    os.mkdir("/escaped")


@attempt
def chmod_a_program():
    os.chmod("/usr/bin/env", 0o777)


@attempt
def leave_by_dots():
    require(os.path.exists("../../../../../../../../../../home"), "no /home")


@attempt
def run_a_set_user_id_program():
    found = subprocess.run([facts["setuid_id"], "-u"], capture_output=True, text=True)
    require(found.stdout.strip() == "0", f"uid {found.stdout.strip()}")


@attempt
def leave_a_set_user_id_program_by_changing_its_mode():
    open("changed", "w").close()
    os.chmod("changed", 0o4755)


@attempt
def leave_a_set_user_id_program_by_descriptor():
    with open("by_descriptor", "w") as file:
        os.fchmod(file.fileno(), 0o4755)


@attempt
def create_a_set_user_id_program():
    os.close(os.open("created", os.O_CREAT | os.O_WRONLY, 0o4755))


@attempt
def create_an_unnamed_set_user_id_program():
    os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755))


@attempt
def make_a_node_with_a_set_user_id_bit():
    os.mknod("node", 0o104755)


# Devices and settings of the kernel.


@attempt
def make_a_device():
    os.mknod("device", 0o20666, os.makedev(1, 1))


@attempt
def open_a_device_in_the_folder():
    open(facts["device"], "rb").read(1)


@attempt
def open_physical_memory():
    open("/dev/mem", "rb").read(1)


@attempt
def open_the_kernel_log():
    open("/dev/kmsg", "rb").read(1)


@attempt
def open_a_disk():
    disks = [name for name in os.listdir("/dev") if name.startswith(("vd", "sd", "nvme", "loop", "dm-"))]
    require(disks, "no disks")
    open("/dev/" + disks[0], "rb").read(1)


@attempt
def set_the_core_pattern():
    open("/proc/sys/kernel/core_pattern", "w").write("|/bin/false")


@attempt
def trigger_sysrq():
    open("/proc/sysrq-trigger", "w")


@attempt
def read_kernel_memory():
    open("/proc/kcore", "rb").read(1)


@attempt
def make_a_control_group():
    os.mkdir("/sys/fs/cgroup/escaped")


@attempt
def see_control_groups():
    require(os.listdir("/sys/fs/cgroup"), "empty")


@attempt
def write_to_sys():
    open("/sys/devices/system/cpu/cpu1/online", "w").write("0")


# Processes.


def status_of(pid):
    try:
        lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        # It has just ended.
        return str(os.getuid())
    return lines["Uid"].split()[0]


@attempt
def see_processes_of_others():
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    others = [pid for pid in pids if status_of(pid) != str(os.getuid())]
    require(others, "no other user's process")


@attempt
def signal_an_own_process_outside():
    require("sleep" in open(f"/proc/{facts['sleeper']}/cmdline").read(), "another process")
    os.kill(facts["sleeper"], 0)


@attempt
def trace_an_own_process_outside():
    require("sleep" in open(f"/proc/{facts['sleeper']}/cmdline").read(), "another process")
    call("ptrace", 16, facts["sleeper"], 0, 0)
    os.waitpid(facts["sleeper"], 0)
    call("ptrace", 17, facts["sleeper"], 0, 0)


@attempt
def trace_init():
    call("ptrace", 16, 1, 0, 0)


@attempt
def kill_init():
    os.kill(1, signal.SIGKILL)
    require(not os.path.exists("/proc/1"), "it lives")


@attempt
def read_the_environment_of_init():
    require(open("/proc/1/environ", "rb").read(), "empty")


@attempt
def read_the_memory_of_init():
    open("/proc/1/mem", "rb").read(1)


@attempt
def enter_the_root_directory_of_init():
    require("home" in os.listdir("/proc/1/root"), "no home")


@attempt
def take_a_descriptor_of_init():
    os.listdir("/proc/1/fd")


@attempt
def replace_the_program_of_init():
    open("/proc/1/exe", "r+b")


@attempt
def copy_a_descriptor_by_pidfd():
    pidfd = call("pidfd_open", os.getpid(), 0)
    call("pidfd_getfd", pidfd, 0, 0)


@attempt
def inherit_a_descriptor():
    require(INHERITED, "only the streams")


@attempt
def compare_kernel_objects():
    call("kcmp", os.getpid(), os.getpid(), 1, 0, 0)


# Rights, mounts and namespaces.


@attempt
def have_a_capability():
    lines = [line for line in open("/proc/self/status") if line.startswith("Cap")]
    require(any(int(line.split()[1], 16) for line in lines), "none")


@attempt
def become_root():
    os.setuid(0)


@attempt
def have_new_privileges():
    require("NoNewPrivs:\t0" in open("/proc/self/status").read(), "no")


@attempt
def mount_a_file_system():
    call("mount", b"none", b"/tmp", b"tmpfs", 0, 0)


@attempt
def make_usr_writable():
    call("mount", 0, b"/usr", 0, 0x20 | 0x1000, 0)


@attempt
def unmount_proc_sys():
    call("umount2", b"/proc/sys", 2)


@attempt
def open_a_file_system():
    call("fsopen", b"tmpfs", 0)


@attempt
def copy_a_mount():
    call("open_tree", -100, b"/", 1)


def call_in_child(name, *arguments):
    """Make a system call that would change what later attempts see."""
    child = os.fork()
    if child == 0:
        try:
            call(name, *arguments)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


@attempt
def change_the_root():
    call_in_child("chroot", b"/tmp")


@attempt
def make_a_user_namespace():
    call_in_child("unshare", NEW_USER)


def clone(flags):
    child = call("clone", flags | SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@attempt
def clone_into_a_user_namespace():
    clone(NEW_USER)


@attempt
def clone_into_a_user_and_network_namespace():
    clone(NEW_USER | NEW_NET | NEW_NS)


@attempt
def clone3_into_a_user_namespace():
    arguments = (ctypes.c_uint64 * 11)(NEW_USER, 0, 0, 0, SIGCHLD)
    child = call("clone3", ctypes.byref(arguments), ctypes.sizeof(arguments))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@attempt
def enter_a_namespace():
    call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)


@attempt
def set_the_host_name():
    call("sethostname", b"escaped", 7)


# Parts of the kernel.


@attempt
def use_io_uring():
    os.close(call("io_uring_setup", 1, buffer(120)))


@attempt
def make_a_bpf_map():
    attributes = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    call("bpf", 0, ctypes.byref(attributes), ctypes.sizeof(attributes))


@attempt
def measure_with_perf():
    attributes = buffer(128)
    # A software counter (type 1) of the time of this task, in user mode only.
    attributes[0:8] = (1).to_bytes(4, "little") + (128).to_bytes(4, "little")
    attributes[8] = 1
    attributes[40] = 0x60
    os.close(call("perf_event_open", attributes, 0, -1, -1, 0))


@attempt
def handle_page_faults():
    os.close(call("userfaultfd", 1))


@attempt
def add_a_key():
    call("add_key", b"user", b"hostler-test", b"x", 1, -2)


@attempt
def read_a_keyring():
    call("keyctl", 0, -4, 1)


@attempt
def make_a_file_handle():
    handle = buffer(256)
    handle[0:4] = (128).to_bytes(4, "little")
    call("name_to_handle_at", -100, b"/usr", handle, ctypes.byref(ctypes.c_int()), 0)


@attempt
def watch_a_file_system():
    os.close(call("fanotify_init", 0x200, 0))


@attempt
def read_the_kernel_log():
    call("syslog", 3, buffer(64), 64)


@attempt
def load_a_module():
    call("init_module", buffer(8), 8, b"")


@attempt
def load_a_kernel():
    call("kexec_load", 0, 0, 0, 0)


@attempt
def set_the_clock():
    call("settimeofday", (ctypes.c_long * 2)(0, 0), 0)


@attempt
def swap_to_a_file():
    call("swapon", b"swap", 0)


@attempt
def account_processes():
    call("acct", 0)


@attempt
def restart_the_machine():
    # The magic numbers are wrong on purpose: without a filter, the kernel says so (EINVAL) if there is the right.
    try:
        call("reboot", 0, 0, 0, 0)
    except OSError as error:
        require(error.errno == errno.EINVAL, os.strerror(error.errno))


@attempt
def type_into_a_terminal():
    # TIOCSTI, with bits that the kernel ignores. Without a filter, the kernel says that this is no terminal.
    with open("/dev/null") as null:
        try:
            call("ioctl", null.fileno(), 0x1_0000_5412, buffer(1))
        except OSError as error:
            require(error.errno == errno.ENOTTY, os.strerror(error.errno))


@attempt
def call_by_the_x32_numbers():
    number = 0x40000000 + 39
    result = libc.syscall(ctypes.c_long(number))
    require(result != -1, os.strerror(ctypes.get_errno()))


@attempt
def call_as_a_32_bit_program():
    require(X86, "another processor")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # getpid by the interrupt of 32-bit programs, which has other numbers.
    code.write(bytes.fromhex("b814000000cd80c3"))
    child = os.fork()
    if child == 0:
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        os._exit(0 if function() == os.getpid() else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    require(code == 0, f"status {code}")


# Networks and other channels.


@attempt
def connect_to_a_server_of_the_machine():
    socket.create_connection(("127.0.0.1", facts["port"]), 2).close()


@attempt
def connect_to_a_cloud_address():
    with socket.socket() as it:
        it.settimeout(0.2)
        try:
            it.connect(("169.254.169.254", 80))
        except OSError as error:
            require(error.errno != errno.ENETUNREACH, "network is unreachable")


@attempt
def have_a_network_interface():
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    require(others, "only lo")


@attempt
def connect_to_an_abstract_socket():
    with socket.socket(socket.AF_UNIX) as it:
        it.connect("\0" + facts["abstract"])


@attempt
def find_abstract_sockets():
    require("@" in open("/proc/net/unix").read(), "none")


@attempt
def open_a_raw_socket():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()


@attempt
def open_a_packet_socket():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).close()


@attempt
def open_a_socket_of_kernel_cryptography():
    socket.socket(38, socket.SOCK_SEQPACKET, 0).close()


@attempt
def open_a_socket_to_the_hypervisor():
    socket.socket(40, socket.SOCK_STREAM, 0).close()


@attempt
def make_a_pair_of_sockets_to_the_hypervisor():
    try:
        socket.socketpair(40, socket.SOCK_STREAM)
    except OSError as error:
        # Any other error comes from the kernel's code for such sockets.
        if error.errno == errno.EPERM:
            raise


@attempt
def hear_of_devices():
    socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15).close()


@attempt
def find_shared_memory_by_key():
    call("shmget", facts["shm_key"], 0, 0)


for function in ATTEMPTS:
    try:
        function()
        print("reached", function.__name__, flush=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"refused {function.__name__}: {error}", flush=True)
print("tried", len(ATTEMPTS), flush=True)
