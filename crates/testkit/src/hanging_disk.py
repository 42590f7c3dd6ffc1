"""A FUSE file system with one program that never answers one kind of request. Ends with its standard input.

usage: hanging_disk.py MOUNT_POINT lookup|getattr|open|open-to-read|read|flush|write|release|nothing

With `getattr`, it never answers for its root directory. With `write`, the kernel caches what is written, so that whoever closes the file waits.
"""

import ctypes
import os
import struct
import sys
import threading

LOOKUP, GETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FLUSH = 1, 3, 14, 15, 16, 17, 18, 25
INIT, OPENDIR, READDIR = 26, 27, 28
WRITEBACK_CACHE = 1 << 16
NAMES = {"lookup": LOOKUP, "getattr": GETATTR, "open": OPEN, "open-to-read": OPEN, "read": READ, "flush": FLUSH, "write": WRITE, "release": RELEASE, "nothing": 0}
# Requests without an answer.
FORGET, INTERRUPT, BATCH_FORGET = 2, 36, 42
ROOT, PROGRAM = 1, 2
CONTENT = b"#!/bin/sh\necho it runs\n"
ENOENT, ENOSYS = 2, 38
DETACH = 2

where, hanging = sys.argv[1], NAMES[sys.argv[2]]
only_to_read = sys.argv[2] == "open-to-read"
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other,default_permissions"
if libc.mount(b"hanging", where.encode(), b"fuse", 0, options.encode()) != 0:
    sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")


def end_with_input():
    sys.stdin.buffer.read()
    libc.umount2(where.encode(), DETACH)
    os._exit(0)


def attributes(node):
    mode, size = (0o040755, 0) if node == ROOT else (0o100777, len(CONTENT))
    return struct.pack("<6Q10I", node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node, body):
    """Returns the error and the data."""
    if opcode == INIT:
        flags = WRITEBACK_CACHE if hanging == WRITE else 0
        return 0, struct.pack("<4I2H2I2HI28x", 7, 31, 0, flags, 16, 12, 65536, 1, 0, 0, 0)
    if opcode == LOOKUP:
        found = body.split(b"\0")[0] == b"program"
        return (0, struct.pack("<4Q2I", PROGRAM, 0, 0, 0, 0, 0) + attributes(PROGRAM)) if found else (ENOENT, b"")
    if opcode == GETATTR:
        return 0, struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if opcode in (OPEN, OPENDIR):
        return 0, struct.pack("<Q2I", 0, 0, 0)
    if opcode == READ:
        offset, size = struct.unpack_from("<QI", body, 8)
        return 0, CONTENT[offset:offset + size]
    if opcode in (RELEASE, FLUSH, READDIR):
        return 0, b""
    return ENOSYS, b""


threading.Thread(target=end_with_input, daemon=True).start()
while True:
    request = os.read(device, 1 << 20)
    _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
    if opcode == INIT:
        print("mounted", flush=True)
    is_concerned = node == (ROOT if hanging in (LOOKUP, GETATTR) else PROGRAM)
    if only_to_read and opcode == OPEN and struct.unpack_from("<I", request, 40)[0] & os.O_ACCMODE != os.O_RDONLY:
        is_concerned = False
    if opcode in (FORGET, INTERRUPT, BATCH_FORGET) or (opcode == hanging and is_concerned):
        continue
    error, data = answer(opcode, node, request[40:])
    os.write(device, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)
