"""What a warm worker of an `Executor` does on a node: runs calls that arrive on a Unix socket, one after another.

The caller connects through `hostler forward`. If the connection breaks, calls and results are kept, and the caller
connects again. A frame of the caller begins with `FRAME`: a number, how many results the caller has, and the bytes that
follow. The number is that of a pickled call, or one of the commands below. The answer is a greeting, and then records
as in `hostler._worker`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import queue
import selectors
import socket
import struct
import sys
import threading
import time
from collections import deque
from typing import Any

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

# A worker without calls whose caller does not come back ends after this time, in seconds.
_ALONE = 600.0

_READ_BYTES = 1 << 18


def serve(settings: _worker.Settings) -> None:
    """Run calls until the caller says that it needs no more."""
    worker = _Worker(settings)
    threading.Thread(target=worker.receive, name="hostler-receive", daemon=True).start()
    threading.Thread(target=worker.send_gathered, name="hostler-send", daemon=True).start()
    try:
        worker.run()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(worker.path)


class _Worker:
    def __init__(self, settings: _worker.Settings) -> None:
        self.path = os.path.abspath(SOCKET)
        self._trusted = settings["trusted"]
        self._is_local = settings["local"]
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
        self._listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o077)
        try:
            # A relative path, which is never too long.
            self._listener.bind(SOCKET)
        finally:
            os.umask(before)
        self._listener.listen()

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
                # If the connection is broken, all results are sent on the next one.
                with contextlib.suppress(OSError):
                    self._connection.sendall(content)

    def receive(self) -> None:
        """Accept connections, of which the newest counts, and receive calls."""
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        received = bytearray()
        connection: socket.socket | None = None
        while True:
            ready = selector.select(_ALONE if connection is None else None)
            if not ready and not self._is_busy():
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
                    if self._is_local:
                        # The caller has ended.
                        os._exit(1)
                    # It has ended, or another one has come.
                    selector.unregister(connection)
                    self._connect(None)
                    connection.close()
                    connection = None
                    received.clear()
                if key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    selector.register(connection, selectors.EVENT_READ)
                    self._connect(connection)
                    break

    def _is_busy(self) -> bool:
        with self._lock:
            return len(self._known) > len(self._kept)

    def _connect(self, connection: socket.socket | None) -> None:
        if connection is None and self._connection is not None:
            # Wakes a thread that sends.
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._connection = connection
            greeting = json.dumps({"received": self._received}).encode() + b"\n"
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
                self._calls.put((number, bytes(received[at + FRAME.size : end])))
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
