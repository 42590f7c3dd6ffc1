"""The connection from this machine to the bridge of a kernel, through `hostler forward`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from hostler import _executable, _forward

# Time in which the command must listen, and in which the bridge must answer.
_ANSWER_SECONDS = 10.0

# After these, a connection cannot be used any more.
_BROKEN = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


@dataclass(frozen=True)
class Running:
    """Where a kernel runs, and the keys to it. Kept in a file that only the user can read."""

    job: int
    #: Tells apart jobs of several clusters, in milliseconds.
    submitted_at: int
    head: str | None
    port: int
    kernel_name: str
    key: str = field(repr=False)
    signature_scheme: str
    bridge_public: str = field(repr=False)
    client_public: str
    client_secret: str = field(repr=False)
    #: Path of the notebook that Jupyter started it for, and the number of this file: later, another one may be there.
    notebook: str | None = None
    notebook_inode: int | None = None

    @property
    def file(self) -> Path:
        """The file with this."""
        return states() / f"{self.job}-{self.submitted_at}.json"

    def save(self) -> None:
        """Write the file."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.file, asdict(self))

    def forget(self) -> None:
        """Delete what is kept of it."""
        self.file.unlink(missing_ok=True)
        self.file.with_suffix(".seen").unlink(missing_ok=True)

    @staticmethod
    def load(file: Path) -> Running:
        """Read a file.

        Raises
        ------
        ValueError, TypeError
            If it is damaged, or of another version.
        """
        running = Running(**json.loads(file.read_text(encoding="utf-8")))
        if not isinstance(running.submitted_at, int) or running.file.name != file.name:
            raise ValueError(f"{file} is about another kernel")
        return running


class Claim:
    """Which process on this machine has the clients of a kernel, and which cells it has seen to their end.

    A lock on a file beside that of the kernel, which ends with the process, however that ends.

    Raises
    ------
    OSError
        If another process has it, or the file system has no locks.
    """

    def __init__(self, running: Running) -> None:
        running.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = running.file.with_suffix(".seen")
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise

    @property
    def seen(self) -> int:
        """Number of the message with which the last of these cells ended; -1 if there was none."""
        # A crash of the machine may leave anything there.
        with contextlib.suppress(ValueError):
            return int(os.pread(self._file, 20, 0))
        return -1

    def see(self, number: int) -> None:
        """Note the end of a cell. Numbers only grow."""
        # A full disk costs a repetition.
        with contextlib.suppress(OSError):
            os.pwrite(self._file, b"%d" % number, 0)

    def release(self) -> None:
        """Let others claim it."""
        os.close(self._file)


def states() -> Path:
    """Return the directory with a file for each kernel that this user has launched and that may still run."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "hostler" / "kernels"


def kept() -> list[Running]:
    """Return these kernels, newest first. Files that cannot be read are left out."""
    found = []
    for file in states().glob("*.json"):
        with contextlib.suppress(ValueError, TypeError, OSError):
            found.append(Running.load(file))
    return sorted(found, key=lambda running: running.submitted_at, reverse=True)


def write_private(file: Path, content: Mapping[str, Any]) -> None:
    """Write a file as JSON that no other user can ever read, and that is never there in part."""
    descriptor, part = tempfile.mkstemp(dir=file.parent, prefix=".")
    try:
        with open(descriptor, "w", encoding="utf-8") as opened:
            json.dump(content, opened, indent=1)
        os.replace(part, file)
    except BaseException:
        os.unlink(part)
        raise


class Link:
    """A connection that comes back by itself, for one thread. What the bridge has not confirmed is sent again.

    Parameters
    ----------
    context
        Of the sockets.
    running
        The kernel.
    directory
        A private directory for the socket of `hostler forward`.

    Attributes
    ----------
    is_up : bool
        Whether the bridge has answered on the present connection.
    is_refused : bool
        Whether the bridge did not accept the keys.
    trouble : str
        What `hostler forward` said last.
    """

    def __init__(self, context: zmq.Context[Any], running: Running, directory: Path) -> None:
        self.is_up = False
        self.is_refused = False
        self.trouble = ""
        self._context = context
        self._running = running
        self._path = directory / "link"
        self._log = directory / "forward.log"
        self._session = uuid.uuid4().hex
        self._forward: subprocess.Popen[bytes] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        # When to try the next step.
        self._due = 0.0
        self._unconfirmed: deque[tuple[int, list[bytes]]] = deque()
        self._sent = 0
        self._seen = -1

    @property
    def is_confirmed(self) -> bool:
        """Whether the bridge has everything that was sent."""
        return not self._unconfirmed

    def send(self, kind: str, frames: list[bytes]) -> None:
        """Send a message now, or when there is a connection."""
        self._sent += 1
        message = [kind.encode(), b"%d" % self._sent, *frames]
        self._unconfirmed.append((self._sent, message))
        if self.is_up:
            self._write(message)

    def register(self, poller: zmq.Poller) -> None:
        """Take the next step towards a connection if there is none, and register what must be watched."""
        if not self.is_up and time.monotonic() >= self._due:
            self._disconnect()
            self._due = time.monotonic() + _ANSWER_SECONDS
            if self._forward is None:
                self._start_forward()
            elif self._path.exists():
                self._connect()
        for socket in (self._socket, self._monitor, self._forward and self._forward.stdout):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)

    def take(self, ready: Mapping[Any, int]) -> Iterator[tuple[str, int, list[bytes]]]:
        """Yield what has arrived: kind, number and frames.

        The kind ``welcome`` stands for a new connection, and ``ended`` for the end of `hostler forward`, which mostly
        means that the job has ended.
        """
        if self._socket in ready or self._monitor in ready:
            yield from self._receive()
        if self._monitor in ready and self._monitor is not None:
            event = recv_monitor_message(self._monitor)["event"]
            self.is_refused = event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
            # What came before the end.
            yield from self._receive()
            self._disconnect()
            self._due = time.monotonic() + 0.5
        if self._forward and cast("IO[bytes]", self._forward.stdout).fileno() in ready:
            if os.read(cast("IO[bytes]", self._forward.stdout).fileno(), 10_000):
                # It listens.
                self._due = 0.0
            else:
                self._end_forward()
                self._disconnect()
                self._due = time.monotonic() + 1.0
                self.trouble = self._log.read_text(errors="replace").strip()
                yield "ended", self._seen, []

    def _receive(self) -> Iterator[tuple[str, int, list[bytes]]]:
        while self._socket is not None:
            try:
                kind, number, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            if kind == b"welcome":
                self._on_welcome(json.loads(number))
                yield "welcome", self._seen, [number]
            elif kind == b"received":
                self._confirm(int(number))
            else:
                self._seen = int(number)
                yield kind.decode(), self._seen, frames

    def close(self) -> None:
        """Disconnect."""
        self._disconnect()
        self._end_forward()

    def _start_forward(self) -> None:
        self._path.unlink(missing_ok=True)
        command = [_executable.find(), "--json", "forward", str(self._running.job), str(self._running.port)]
        with open(self._log, "wb") as log:
            self._forward = subprocess.Popen(
                [*_forward.GUARD, *command, "--socket", str(self._path)],
                env=_executable.environment(self._running.head),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def _end_forward(self) -> None:
        if self._forward:
            for pipe in (self._forward.stdin, self._forward.stdout):
                cast("IO[bytes]", pipe).close()
            self._forward.wait()
            self._forward = None

    def _connect(self) -> None:
        # A new socket for each connection, so that nothing is sent before the greeting.
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 1000
        self._socket.set_hwm(0)
        self._socket.reconnect_ivl = -1
        self._socket.heartbeat_ivl = 5000
        self._socket.heartbeat_timeout = 20000
        self._socket.curve_serverkey = self._running.bridge_public.encode()
        self._socket.curve_publickey = self._running.client_public.encode()
        self._socket.curve_secretkey = self._running.client_secret.encode()
        self._monitor = self._socket.get_monitor_socket(_BROKEN)
        self._socket.connect(f"ipc://{self._path}")
        hello = {"session": self._session, "seen": self._seen}
        self._write([b"hello", json.dumps(hello).encode()])

    def _disconnect(self) -> None:
        self.is_up = False
        if self._socket is not None:
            self._socket.disable_monitor()
            self._socket.close()
        if self._monitor is not None:
            self._monitor.close()
        self._socket = self._monitor = None

    def _on_welcome(self, welcome: dict[str, Any]) -> None:
        self.is_up = True
        self.trouble = ""
        self._confirm(welcome["received"])
        for _, message in self._unconfirmed:
            self._write(message)

    def _write(self, message: list[bytes]) -> None:
        # A connection that has just failed would block for ever. The monitor will say so.
        with contextlib.suppress(zmq.Again):
            assert self._socket is not None
            self._socket.send_multipart(message, zmq.NOBLOCK)

    def _confirm(self, number: int) -> None:
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._unconfirmed.popleft()
