"""What a warm worker of an `Executor` does on a node: runs calls that arrive on a Unix socket, one after another.

The caller connects through `hostler forward`. If the connection breaks, calls and results are kept, and the caller
connects again. A worker on the caller's machine has its connection as stdin, and ends with it. A frame of the caller
begins with a number, how many results the caller has, and the bytes that follow; see `hostler._worker.frames`. The
number is that of a pickled call, or a command. The answer is a greeting, and then records as in `hostler._worker.wire`.
The greeting has an id of this process: a caller that gets another one knows that its calls are lost.

A call can submit other calls, as records. The caller puts them among the calls that wait, and sends their results here.
Once a call has submitted others, the caller may send this worker another one of these, which runs beside it in a
process of its own (see `hostler._worker.helper`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import queue
import selectors
import shutil
import socket
import sys
import threading
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Any, NoReturn

from hostler._worker import apart, frames, parts, pickling, wire
from hostler._worker.call import Future
from hostler._worker.helper import Helper
from hostler._worker.records import outcome_of

#: The socket, in the folder of the task. Nodes leave this directory out of results.
SOCKET = ".hostler/worker.sock"

#: This process's worker, while it runs calls of an executor.
current: Worker | None = None

# A worker without calls whose caller does not come back ends after this time, in seconds, and with results, after the
# other one.
_ALONE = 600.0
_ALONE_WITH_RESULTS = 86400.0

_READ_BYTES = 1 << 18


def serve(settings: wire.Settings, is_helper: bool) -> None:
    """Run calls until the caller says that it needs no more.

    Parameters
    ----------
    settings
        Those of the task.
    is_helper
        Whether this process runs calls for another one of the same worker.
    """
    global current
    has_socket = not settings["local"] and not is_helper
    current = worker = Worker(settings, is_helper, _listener() if has_socket else None)
    worker.receiver.start()
    try:
        worker.run()
    finally:
        apart.clean_up(os.getpid())
        if has_socket:
            with contextlib.suppress(OSError):
                os.unlink(worker.place / SOCKET)


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    os.makedirs(os.path.dirname(SOCKET), exist_ok=True)
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


class _Submitted(Future[Any]):
    """The future of a call that a call of this worker has submitted."""

    def __init__(self, worker: Worker, number: int) -> None:
        super().__init__()
        self._worker = worker
        self._number = number
        self.answered = threading.Event()

    def cancel(self) -> bool:
        """Cancel the call unless a worker has it."""
        # Before the question whether it is done: the answer may come at any moment.
        self.answered.clear()
        # The receiver runs callbacks only if no thread can start, and cannot wait for itself.
        if not self.done() and threading.current_thread() is not self._worker.receiver:
            self._worker.emit(self._number, frames.packed(self._number, frames.CANCEL))
            self.answered.wait()
        return self.cancelled()

    def take(self, header: wire.Header, content: bytes) -> None:
        """Settle it with the record of the call."""
        try:
            if header["kind"] == frames.CANCELLED:
                super().cancel()
            elif header["kind"] != frames.GOES_ON:
                outcome = outcome_of(header, content, True)
                self.settle(outcome.value, outcome.error)
        finally:
            self.answered.set()


class Worker:
    """What runs calls in this process.

    Attributes
    ----------
    place : Path
        The folder of the task.
    settings : Settings
        Those of the task.
    receiver : Thread
        Receives calls.
    """

    def __init__(self, settings: wire.Settings, is_helper: bool, listener: socket.socket | None) -> None:
        self.place = Path.cwd()
        self.settings = settings
        self.receiver = threading.Thread(target=self.receive, name="hostler-receive", daemon=True)
        self._id = os.urandom(8).hex()
        self._is_helper = is_helper
        self._listener = listener
        # Which call runs, in the main thread.
        self._running: int | None = None
        self._helpers: list[Helper] = []
        self._calls: queue.SimpleQueue[tuple[int, list[Any]] | None] = queue.SimpleQueue()
        # Pieces that calls refer to, by their hashes. The caller sends them again on another connection.
        self._parts: dict[str, parts.Kept] = {}
        # For everything below.
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._unsent: list[bytes] = []
        # Results that the caller may not have, how many it has, and the calls that are not among these.
        self._kept: deque[tuple[int, bytes]] = deque()
        self._received = 0
        self._known: set[int] = set()
        # Calls that were submitted here and have no result yet: the future, or the process that has it.
        self._submitted: dict[int, _Submitted | Helper] = {}
        if listener is None:
            self._connect(_stdin())
        os.register_at_fork(after_in_child=self._disown)

    def _disown(self) -> None:
        """Close the connections in a child process, which may live longer than this one."""
        global current
        current = None
        for connection in (self._connection, self._listener, *(helper.connection for helper in self._helpers)):
            if connection is not None:
                connection.close()

    def submit(self, work: bytes) -> Future[Any]:
        """Submit a pickled call to the executor whose call runs here."""
        if self._running is None:
            raise RuntimeError("no call of the Executor runs here any more")
        number = int.from_bytes(os.urandom(8), "big") >> 2
        future = _Submitted(self, number)
        with self._lock:
            self._submitted[number] = future
        self.emit(number, frames.packed(number, frames.SUBMITTED, frames.NUMBER.pack(self._running) + work))
        return future

    def emit(self, number: int, record: bytes) -> None:
        """Send a record, again on the next connection if this one breaks."""
        self._add(number, record)
        self._send()

    def _add(self, number: int, record: bytes) -> None:
        with self._lock:
            self._unsent.append(record)
            # Without a listener, there is no other connection.
            if self._listener is not None:
                self._kept.append((number, record))

    def relay(self, helper: Helper, header: wire.Header, record: bytes) -> None:
        """Send a record of a process that runs calls beside this one."""
        if header["kind"] == frames.SUBMITTED:
            with self._lock:
                self._submitted[header["input"]] = helper
        self.emit(header["input"], record)

    def _run_beside(self, number: int, content: bytes) -> None:
        """Run a call in another process of this worker, which stays for more."""
        try:
            self._helpers = [helper for helper in self._helpers if not helper.has_ended]
            helper = next((helper for helper in self._helpers if helper.is_free), None)
            if helper is None:
                helper = Helper(self.place, self.relay)
                self._helpers.append(helper)
            helper.run(number, content)
        except Exception as error:
            self.emit(number, frames.packed(number, frames.LOST, error=f"could not start: {error}"))

    def _on_reply(self, content: bytes) -> None:
        line, _, rest = content.partition(b"\n")
        header: wire.Header = json.loads(line)
        number = header["input"]
        with self._lock:
            if header["kind"] == frames.GOES_ON:
                waiting = self._submitted.get(number)
            else:
                waiting = self._submitted.pop(number, None)
                self._unsent.append(frames.packed(number, frames.KNOWN))
        self._send()
        if isinstance(waiting, Helper):
            waiting.reply(content)
        elif waiting is not None:
            # Callbacks of the future may wait for other calls, whose results the receiver must take.
            settling = threading.Thread(target=waiting.take, args=(header, rest), name="hostler-settle", daemon=True)
            try:
                settling.start()
            except RuntimeError:
                with contextlib.suppress(SystemExit):
                    waiting.take(header, rest)

    def run(self) -> None:
        """Run calls, in the main thread."""
        while (call := self._calls.get()) is not None:
            # Nothing keeps large arguments in pickled form while the function runs.
            index, content = call
            del call
            self._running = index
            work = functools.partial(apart.run, functools.partial(_called, content))
            record = wire.record(index, work, self.settings["trusted"])
            self._running = None
            # Threads of the call that have outlived it may still use the variables.
            own = (threading.main_thread().name, "hostler-")
            if all(thread.name.startswith(own) for thread in threading.enumerate()):
                pickling.clear_main()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            # Before the next call, which may end this process.
            self.emit(index, record)
            del record

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
        if self._is_helper:
            os._exit(1)
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
            alone = time.monotonic() - alone_since
            if not ready and not self._is_needed(alone):
                self._calls.put(None)
                return
            if not ready and self._submitted and alone > _ALONE_WITH_RESULTS:
                # Nobody runs what its calls wait for.
                os._exit(1)
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
                    # Functions may have called `socket.setdefaulttimeout`.
                    connection.setblocking(True)
                    selector.register(connection, selectors.EVENT_READ)
                    self._connect(connection)
                    break

    def _is_needed(self, alone: float) -> bool:
        """Whether calls have not ended, or their caller may come back for results, after being alone for a time."""
        with self._lock:
            ended = sum(1 for number, _ in self._kept if number in self._known)
            return len(self._known) > ended or bool(self._kept and alone < _ALONE_WITH_RESULTS)

    def _connect(self, connection: socket.socket | None) -> None:
        if connection is None and self._connection is not None:
            # Wakes a thread that sends.
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        self._parts.clear()
        with self._lock:
            self._connection = connection
            greeting = json.dumps({"id": self._id, "received": self._received}).encode() + b"\n"
            self._unsent = [greeting, *(record for _, record in self._kept)]
        if connection is not None:
            self._send()

    def _take(self, received: bytearray) -> None:
        at = 0
        while len(received) - at >= frames.FRAME.size:
            number, seen, size = frames.FRAME.unpack_from(received, at)
            end = at + frames.FRAME.size + size
            if len(received) < end:
                break
            with self._lock:
                while self._received < seen and self._kept:
                    self._received += 1
                    self._known.discard(self._kept.popleft()[0])
                is_new = number >= 0 and number not in self._known
                if is_new and self._listener is not None:
                    self._known.add(number)
            with memoryview(received) as view:
                start = at + frames.FRAME.size
                if number == frames.PART:
                    digest, start = view[start : start + frames.DIGEST].hex(), start + frames.DIGEST
                    with view[start:end] as part:
                        self._parts[digest] = parts.kept(part)
                has_content = is_new or number in (frames.REPLY, frames.DROP)
                content = bytes(view[start:end]) if has_content else b""
            if is_new and number >= frames.BESIDE and not self._is_helper:
                self._run_beside(number, parts.joined(parts.completed(content, self._parts)))
            elif is_new:
                self._calls.put((number, parts.completed(content, self._parts)))
            elif number == frames.DROP:
                self._parts.pop(content.hex(), None)
            elif number == frames.REPLY:
                self._on_reply(content)
            elif number == frames.RECALL:
                self._give_back()
            elif number == frames.END:
                self._calls.put(None)
            at = end
        del received[:at]

    def _give_back(self) -> None:
        records = []
        with contextlib.suppress(queue.Empty):
            while call := self._calls.get_nowait():
                with self._lock:
                    self._known.discard(call[0])
                records.append(frames.packed(call[0], frames.RETURNED))
        with self._lock:
            self._unsent += records
        self._send()


def _called(content: list[Any]) -> Any:
    function, args, kwargs = parts.taken(content)
    return function(*args, **kwargs)
