"""What a warm worker of an `Executor` does on a node: runs calls that arrive on a Unix socket, one after another.

The caller connects through `hostler forward`. If the connection breaks, calls and results are kept, and the caller
connects again. A worker on the caller's machine has its connection as stdin, and ends with it. A frame of the caller
begins with `FRAME`: a number, how many results the caller has, and the bytes that follow. The number is that of a
pickled call, or one of the commands below. The answer is a greeting, and then records as in `hostler._worker`. The
greeting has an id of this process: a caller that gets another one knows that its calls are lost.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import pickle
import queue
import secrets
import selectors
import shutil
import socket
import struct
import sys
import threading
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Any, NoReturn

from hostler import _worker

#: The socket, in the folder of the task.
SOCKET = "hostler-worker.sock"

#: Number, results that the caller has, and bytes that follow.
FRAME = struct.Struct("<qQQ")

#: Commands: nothing but the number of results; give back calls that have not begun; end.
RECEIVED = -1
RECALL = -2
END = -3

#: The kind of a record for a call that has not begun and is given back.
RETURNED = "returned"

# Results of short calls travel together: each waits at most this long, in seconds, while more calls are there.
_GATHERING = 0.002

# A worker without calls whose caller does not come back ends after this time, in seconds, and with results, after the
# other one.
_ALONE = 600.0
_ALONE_WITH_RESULTS = 86400.0

_READ_BYTES = 1 << 18


def serve(settings: _worker.Settings) -> None:
    """Run calls until the caller says that it needs no more."""
    worker = _Worker(settings["trusted"], None if settings["local"] else _listener())
    threading.Thread(target=worker.receive, name="hostler-receive", daemon=True).start()
    threading.Thread(target=worker.send_gathered, name="hostler-send", daemon=True).start()
    try:
        worker.run()
    finally:
        if not settings["local"]:
            with contextlib.suppress(OSError):
                os.unlink(worker.place / SOCKET)


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    # Of a worker that was killed.
    with contextlib.suppress(OSError):
        os.unlink(SOCKET)
    before = os.umask(0o077)
    try:
        # A relative path, which is never too long.
        listener.bind(SOCKET)
    finally:
        os.umask(before)
    listener.listen()
    return listener


def _stdin() -> socket.socket:
    """Take the connection of a local worker; calls have an empty stdin, and their child processes no connection."""
    connection = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return connection


class _Worker:
    def __init__(self, trusted: bool, listener: socket.socket | None) -> None:
        self.place = Path.cwd()
        self._id = secrets.token_hex(8)
        self._trusted = trusted
        self._listener = listener
        self._calls: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._has_unsent = threading.Event()
        # For everything below.
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._unsent: list[bytes] = []
        # Results that the caller may not have, how many it has, and the calls that are not among these.
        self._kept: deque[tuple[int, bytes]] = deque()
        self._received = 0
        self._known: set[int] = set()
        if listener is None:
            self._connect(_stdin())
        os.register_at_fork(after_in_child=self._disown)

    def _disown(self) -> None:
        """Close the connection in a child process, which may live longer than this one."""
        for connection in (self._connection, self._listener):
            if connection is not None:
                connection.close()

    def run(self) -> None:
        while (call := self._calls.get()) is not None:
            # Nothing keeps large arguments in pickled form while the function runs.
            index, content = call[0], [call[1]]
            del call
            record = _worker.record(index, functools.partial(_called, content), self._trusted)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            with self._lock:
                self._kept.append((index, record))
                self._unsent.append(record)
            del record
            if self._calls.empty():
                self._send()
            else:
                self._has_unsent.set()

    def send_gathered(self) -> None:
        """Send results while the next call may take long."""
        while self._has_unsent.wait():
            time.sleep(_GATHERING)
            self._has_unsent.clear()
            self._send()

    def _send(self) -> None:
        with self._lock:
            content, self._unsent = b"".join(self._unsent), []
            if self._connection is not None and content:
                try:
                    self._connection.sendall(content)
                except OSError as error:
                    if error.errno == errno.EBADF:
                        # A call has closed all files.
                        os._exit(1)
                    if self._listener is None:
                        self._abandon()
                    # All results are sent on the next connection.

    def receive(self) -> None:
        """Receive calls. Without this, the worker would be of no use."""
        try:
            if self._listener is None:
                self._receive_from_parent()
            else:
                self._accept(self._listener)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _receive_from_parent(self) -> None:
        assert self._connection is not None
        received = bytearray()
        with contextlib.suppress(ConnectionError):
            while content := self._connection.recv(_READ_BYTES):
                received += content
                self._take(received)
        self._abandon()

    def _abandon(self) -> NoReturn:
        """End after the caller, which may have had no time to clean up: the last worker removes the program."""
        shutil.rmtree(self.place, ignore_errors=True)
        with contextlib.suppress(OSError):
            if not any(entry.name.isdigit() for entry in self.place.parent.iterdir()):
                shutil.rmtree(self.place.parent, ignore_errors=True)
        os._exit(1)

    def _accept(self, listener: socket.socket) -> None:
        """Accept connections, of which the newest counts, and receive calls."""
        selector = selectors.DefaultSelector()
        selector.register(listener, selectors.EVENT_READ)
        received = bytearray()
        connection: socket.socket | None = None
        alone_since = time.monotonic()
        while True:
            ready = selector.select(_ALONE if connection is None else None)
            if not ready and not self._is_needed(time.monotonic() - alone_since):
                self._calls.put(None)
                return
            for key, _ in ready:
                if connection is not None:
                    content = b""
                    if key.fileobj is connection:
                        with contextlib.suppress(OSError):
                            content = connection.recv(_READ_BYTES)
                    if content:
                        received += content
                        self._take(received)
                        continue
                    # It has ended, or another one has come.
                    selector.unregister(connection)
                    self._connect(None)
                    connection.close()
                    connection = None
                    received.clear()
                    alone_since = time.monotonic()
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    selector.register(connection, selectors.EVENT_READ)
                    self._connect(connection)
                    break

    def _is_needed(self, alone: float) -> bool:
        """Whether calls have not ended, or their caller may come back for results, after being alone for a time."""
        with self._lock:
            return len(self._known) > len(self._kept) or bool(self._kept and alone < _ALONE_WITH_RESULTS)

    def _connect(self, connection: socket.socket | None) -> None:
        if connection is None and self._connection is not None:
            # Wakes a thread that sends.
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._connection = connection
            greeting = json.dumps({"id": self._id, "received": self._received}).encode() + b"\n"
            self._unsent = [greeting, *(record for _, record in self._kept)]
        if connection is not None:
            self._send()

    def _take(self, received: bytearray) -> None:
        at = 0
        while len(received) - at >= FRAME.size:
            number, seen, size = FRAME.unpack_from(received, at)
            end = at + FRAME.size + size
            if len(received) < end:
                break
            with self._lock:
                while self._received < seen and self._kept:
                    self._received += 1
                    self._known.discard(self._kept.popleft()[0])
                is_new = number >= 0 and number not in self._known
                if is_new:
                    self._known.add(number)
            if is_new:
                with memoryview(received) as view:
                    self._calls.put((number, bytes(view[at + FRAME.size : end])))
            elif number == RECALL:
                self._give_back()
            elif number == END:
                self._calls.put(None)
            at = end
        del received[:at]

    def _give_back(self) -> None:
        records = []
        with contextlib.suppress(queue.Empty):
            while call := self._calls.get_nowait():
                with self._lock:
                    self._known.discard(call[0])
                header = _worker.Header(input=call[0], kind=RETURNED, bytes=0, error="", traceback="")
                records.append(json.dumps(header).encode() + b"\n")
        with self._lock:
            self._unsent += records
        self._send()


def _called(content: list[bytes]) -> Any:
    function, args, kwargs = pickle.loads(content.pop())
    return function(*args, **kwargs)
