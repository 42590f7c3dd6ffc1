"""What runs on a node for a kernel of Jupyter: starts the kernel, and carries messages between it and its clients.

The channels of the kernel are Unix sockets in a private directory. This program has one port, on the loopback
interface. CurveZMQ protects it: a client must know this program's public key and have the secret key that belongs to
the client key in the settings, and all that passes is encrypted between the two ends.

Everything that the kernel says is first written to a journal on disk, with a number. Each client is sent what follows
the last number that it has seen. A client that was away therefore misses nothing that the journal still has, and a slow
one costs no memory. Messages from a client are numbered too, and repeated by it after a lost connection.

This file is sent to the node, which may lack the package: it needs only Python and ipykernel.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import DELIM, Session
from zmq.auth.thread import ThreadAuthenticator

#: Version of the messages between client and bridge.
PROTOCOL = 1

#: Files of the job's folder.
SETTINGS = "kernel-settings.json"
JOURNAL = "kernel-messages"

#: Sockets of a kernel to which clients send. Messages of "iopub" go to all clients.
REQUESTS = ("shell", "control", "stdin")

# The order in which the ports of connection files are numbered here.
_PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "hb": 4, "control": 5}

# Time to restart a kernel that died, before its allocation is given back.
_RESTART_SECONDS = 60.0


class Journal:
    """Numbered messages on disk, of which the oldest are forgotten: two files, each with half of the bytes.

    Parameters
    ----------
    directory
        Where the files are.
    limit
        Bytes of both files.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._parts: deque[tuple[int, int, array.array[int]]] = deque()
        self.end = 0
        directory.mkdir(mode=0o700, exist_ok=True)
        self._rotate()

    @property
    def first(self) -> int:
        """Number of the oldest message."""
        return self._parts[0][0]

    def append(self, frames: list[bytes]) -> None:
        """Add a message, whose number is `end`."""
        _, file, offsets = self._parts[-1]
        if offsets[-1] >= self._limit // 2:
            self._rotate()
            _, file, offsets = self._parts[-1]
        lengths = array.array("Q", [len(frames), *map(len, frames)])
        content = lengths.tobytes() + b"".join(frames)
        written = 0
        # A disk that is full costs the record, not the kernel.
        with contextlib.suppress(OSError):
            while written < len(content):
                written += os.write(file, content[written:])
        offsets.append(offsets[-1] + written)
        self.end += 1

    def read(self, number: int) -> list[bytes]:
        """Return the frames of a message; none if it could not be written."""
        first, file, offsets = next(part for part in reversed(self._parts) if part[0] <= number)
        start, end = offsets[number - first], offsets[number - first + 1]
        return unpack(os.pread(file, end - start, start), 0)[0]

    def _rotate(self) -> None:
        if len(self._parts) == 2:
            first, file, _ = self._parts.popleft()
            os.close(file)
            (self._directory / str(first)).unlink(missing_ok=True)
        flags = os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_APPEND
        file = os.open(self._directory / str(self.end), flags, 0o600)
        self._parts.append((self.end, file, array.array("Q", [0])))


def unpack(content: bytes, at: int) -> tuple[list[bytes], int]:
    """Return the frames of a message in the journal and where it ends; no frames if it is not whole."""
    count = int.from_bytes(content[at : at + 8], sys.byteorder)
    start = at + 8 * (count + 1)
    lengths = array.array("Q", content[at + 8 : start] if start <= len(content) else b"")
    frames = []
    for length in lengths:
        frames.append(content[start : start + length])
        start += length
    return (frames, start) if frames and start <= len(content) else ([], len(content))


class Kernel:
    """The process of the kernel, and the sockets to it.

    Parameters
    ----------
    context
        Of the sockets.
    settings
        As `hostler.jupyter.kernel_job` writes them.
    """

    def __init__(self, context: zmq.Context[Any], settings: dict[str, Any]) -> None:
        self._context = context
        self._session = Session(key=settings["key"].encode(), signature_scheme=settings["signature_scheme"])
        self._private = Path(tempfile.mkdtemp(prefix="hostler-kernel-"))
        self._connection = self._private / "connection.json"
        connection = {name: settings[name] for name in ("key", "signature_scheme", "kernel_name")}
        connection |= {"transport": "ipc", "ip": str(self._private / "k")}
        connection |= {f"{name}_port": port for name, port in _PORTS.items()}
        with open(os.open(self._connection, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            json.dump(connection, file)
        self._arguments = settings["arguments"]
        self._environment = {**os.environ, **settings["env"]}
        self._directory = _directory(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self.sockets: dict[str, zmq.Socket[bytes]] = {}

    def start(self) -> int:
        """Start the process. Return a file descriptor that becomes readable when it ends."""
        for name, port in _PORTS.items():
            (self._private / f"k-{port}").unlink(missing_ok=True)
            if name == "hb":
                continue
            socket = self._context.socket(zmq.SUB if name == "iopub" else zmq.DEALER)
            socket.linger = 0
            socket.set_hwm(0)
            # The kernel answers on the socket for input with the identity that asked on the one for requests.
            socket.identity = b"hostler"
            if name == "iopub":
                socket.subscribe(b"")
            socket.connect(f"ipc://{self._private}/k-{port}")
            self.sockets[name] = socket
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ipykernel_launcher", "-f", str(self._connection), *self._arguments],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        ended, at_end = os.pipe()
        threading.Thread(target=_close_at_end, args=(self._process, at_end), daemon=True).start()
        return ended

    def ask(self) -> None:
        """Ask for something that the kernel answers on all sockets, to learn that they are connected."""
        # The first frame stands for the session of a client, and there is none with this name.
        self._session.send(self.sockets["shell"], "kernel_info_request", ident=[b""])

    def send_signal(self, number: int) -> None:
        """Send a signal to the process group of the kernel."""
        if self._process:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)

    def forget(self) -> int:
        """Close the sockets of a process that has ended, and end its children. Return its exit code."""
        self.send_signal(signal.SIGKILL)
        code = self._process.wait() if self._process else 0
        self._process = None
        for socket in self.sockets.values():
            socket.close()
        self.sockets.clear()
        return code

    def remove(self) -> None:
        """Kill the process and delete its directory."""
        self.forget()
        shutil.rmtree(self._private, ignore_errors=True)


class Bridge:
    """Carries messages until a client ends it, or until the kernel is dead or idle for too long."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._context = zmq.Context()
        self._journal = Journal(Path(JOURNAL).absolute(), settings["journal_bytes"])
        self._kernel = Kernel(self._context, settings)
        self._idle_seconds: float | None = settings["idle_seconds"]
        #: For each connection, the session of its client and the number of the next message for it.
        self._clients: dict[bytes, tuple[bytes, int]] = {}
        #: For each session, how many messages have arrived.
        self._received: dict[bytes, int] = {}
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(credentials_provider=_OneKey(settings["client_public"].encode()))
        self._server = self._context.socket(zmq.ROUTER)
        self._server.curve_server = True
        self._server.curve_secretkey = settings["bridge_secret"].encode()
        # A send to a client that is full or gone fails, rather than being lost.
        self._server.router_mandatory = True
        self._server.heartbeat_ivl = 5000
        self._server.heartbeat_timeout = 20000
        self._server.linger = 1000
        self.port = self._server.bind_to_random_port("tcp://127.0.0.1")
        #: The number of times that the kernel was started, and whether it is ``starting``, ``running`` or ``exited``.
        self._state: dict[str, Any] = {"run": 0, "state": "exited"}
        self._ended = -1
        self._asked = self._dead_since = 0.0
        #: Requests of clients that came before the kernel was ready.
        self._early: list[tuple[bytes, str, list[bytes]]] = []
        self._running_cells: set[str] = set()
        self._active = time.monotonic()
        self._exit: int | None = None

    def run(self) -> int:
        """Carry messages until the end. Return the exit code of the job."""
        self._start()
        try:
            while self._exit is None:
                blocked = self._pump()
                waiting = self._state["state"] != "running"
                poller = zmq.Poller()
                for socket in [self._server, *self._kernel.sockets.values()]:
                    poller.register(socket, zmq.POLLIN)
                if self._ended >= 0:
                    poller.register(self._ended, zmq.POLLIN)
                ready = dict(poller.poll(20 if blocked else 200 if waiting else 5000))
                self._take_from_kernel(1000)
                if self._server in ready:
                    self._take_from_clients()
                if self._ended in ready:
                    self._on_kernel_exit()
                self._on_time()
        finally:
            self._kernel.remove()
            self._server.close()
            self._authenticator.stop()
            # After what was sent last.
            self._context.term()
        # A job that is cancelled or reaches its time limit leaves it in its results.
        shutil.rmtree(JOURNAL, ignore_errors=True)
        return self._exit

    def _start(self) -> None:
        self._ended = self._kernel.start()
        self._state = {"run": self._state["run"] + 1, "state": "starting"}
        self._early.clear()
        self._running_cells.clear()

    def _on_time(self) -> None:
        now = time.monotonic()
        if self._state["state"] == "starting":
            if now > self._asked + 0.2:
                self._asked = now
                self._kernel.ask()
        elif self._state["state"] == "exited" and now > self._dead_since + _RESTART_SECONDS:
            self._leave(f"the kernel exited with code {self._state['code']}, and nobody restarted it", 1)
        if self._running_cells:
            self._active = now
        elif self._idle_seconds is not None and now > self._active + self._idle_seconds:
            self._leave(f"no cell ran for {self._idle_seconds:g} s", 0)

    def _leave(self, why: str, code: int) -> None:
        print(why, file=sys.stderr)
        self._journal.append([b"say", b"", why.encode()])
        self._pump()
        self._exit = code

    def _take_from_kernel(self, most: int) -> None:
        for name, socket in self._kernel.sockets.items():
            for _ in range(most):
                try:
                    frames = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                if name == "iopub":
                    self._watch(frames)
                    self._journal.append([b"iopub", b"", *frames])
                elif frames[0]:
                    self._journal.append([name.encode(), *frames])

    def _watch(self, frames: list[bytes]) -> None:
        """Note which cells run, from a message of the kernel."""
        if self._state["state"] == "starting":
            self._announce("running")
            for session, kind, early in self._early:
                self._take(session, kind, early)
            self._early.clear()
        cell, state = status(frames)
        if cell and state == "busy":
            self._running_cells.add(cell["msg_id"])
        elif cell:
            self._running_cells.discard(cell["msg_id"])

    def _on_kernel_exit(self) -> None:
        # What it said last may still be on its way.
        time.sleep(0.05)
        self._take_from_kernel(sys.maxsize)
        os.close(self._ended)
        self._ended = -1
        self._dead_since = time.monotonic()
        self._running_cells.clear()
        self._announce("exited", code=self._kernel.forget())

    def _announce(self, state: str, **details: int) -> None:
        self._state = {"run": self._state["run"], "state": state, **details}
        self._journal.append([b"state", b"", json.dumps(self._state).encode()])

    def _take_from_clients(self) -> None:
        for _ in range(1000):
            try:
                connection, kind, *frames = self._server.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if kind == b"hello":
                self._greet(connection, json.loads(frames[0]))
            elif connection in self._clients:
                session, _ = self._clients[connection]
                if int(frames[0]) == self._received[session] + 1:
                    self._received[session] += 1
                    self._take(session, kind.decode(), frames[1:])
                self._send(connection, [b"received", b"%d" % self._received[session]])

    def _greet(self, connection: bytes, hello: dict[str, Any]) -> None:
        session = hello["session"].encode()
        self._clients = {key: client for key, client in self._clients.items() if client[0] != session}
        welcome = {
            "protocol": PROTOCOL,
            "received": self._received.setdefault(session, 0),
            "end": self._journal.end,
            **self._state,
        }
        if self._send(connection, [b"welcome", json.dumps(welcome).encode()]):
            self._clients[connection] = (session, hello["seen"] + 1)

    def _take(self, session: bytes, kind: str, frames: list[bytes]) -> None:
        if kind in REQUESTS and self._state["state"] == "starting":
            # The output would be lost: nobody listens to it yet.
            self._early.append((session, kind, frames))
        elif kind in REQUESTS:
            self._active = time.monotonic()
            # A kernel that has exited answers nothing.
            if kind in self._kernel.sockets:
                self._kernel.sockets[kind].send_multipart([session, *frames])
        elif kind == "signal":
            self._kernel.send_signal(int(frames[0]))
        elif kind == "start":
            # Another client may have restarted it already.
            if int(frames[0]) > self._state["run"]:
                if self._ended >= 0:
                    self._kernel.send_signal(signal.SIGKILL)
                    self._on_kernel_exit()
                self._start()
        elif kind == "end":
            self._exit = 0

    def _pump(self) -> bool:
        """Send to each client what it has not been sent. Return whether one of them is too slow."""
        blocked = False
        for connection, (session, following) in list(self._clients.items()):
            while following < self._journal.end:
                before = following
                if following < self._journal.first:
                    missing, following = self._journal.first - following, self._journal.first
                    message = [b"lost", b"%d" % (following - 1), b"%d" % missing]
                else:
                    kind, to, *frames = self._journal.read(following) or [b"lost", b"", b"1"]
                    message = [kind, b"%d" % following, *frames] if to in (b"", session) else []
                    following += 1
                if message and not self._send(connection, message):
                    following = before
                    blocked = True
                    break
            if connection in self._clients:
                self._clients[connection] = (session, following)
        return blocked

    def _send(self, connection: bytes, frames: list[bytes]) -> bool:
        try:
            self._server.send_multipart([connection, *frames], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError:
            self._clients.pop(connection, None)
            return False
        return True


class _OneKey:
    """Lets one client key in."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether a client with this key may connect."""
        return key == self._key


def parts(frames: list[bytes]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return header, parent header and content of a message of the kernel, empty if it is none."""
    # Code of the user may write anything there.
    with contextlib.suppress(ValueError, LookupError):
        at = frames.index(DELIM)
        found = [json.loads(frames[at + number]) for number in (2, 3, 5)]
        if all(isinstance(part, dict) for part in found):
            return found[0], found[1], found[2]
    return {}, {}, {}


def status(frames: list[bytes]) -> tuple[dict[str, Any], str]:
    """Return the header of a cell, and whether it is ``busy`` or ``idle``, if a message of the kernel says that."""
    if frames[0].endswith(b"status"):
        _, parent, content = parts(frames)
        if parent.get("msg_type") == "execute_request" and isinstance(parent.get("msg_id"), str):
            return parent, str(content.get("execution_state"))
    return {}, ""


def text(frames: list[bytes]) -> str:
    """Return what a message of the kernel shows, as text."""
    header, _, content = parts(frames)
    kind, data = header.get("msg_type"), content.get("data")
    if kind == "stream":
        return str(content.get("text"))
    if kind == "error":
        return "\n".join(map(str, content.get("traceback") or [])) + "\n"
    if kind in ("execute_result", "display_data") and isinstance(data, dict):
        return str(data.get("text/plain")) + "\n"
    return ""


def _close_at_end(process: subprocess.Popen[bytes], descriptor: int) -> None:
    # Reaping is left to `Kernel.forget`: until then, the process group has its number.
    with contextlib.suppress(OSError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.write(descriptor, b"x")
    os.close(descriptor)


def _directory(settings: dict[str, Any]) -> str:
    """Return the notebook's directory if this node has the same one, as on a shared disk, else the job's folder."""
    path = str(settings["directory"])
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == settings["directory_inode"] and os.access(path, os.R_OK | os.X_OK):
            return path
    return os.getcwd()


def main() -> int:
    """Run a kernel with the settings in the working directory."""
    if os.environ.get("HOSTLER_ATTEMPT", "1") != "1":
        sys.exit("the job was requeued, and the kernel's variables are lost; start another kernel")
    file = Path(SETTINGS)
    settings = json.loads(file.read_text(encoding="utf-8"))
    # It has keys. Nothing needs it again unless the job is requeued, which brings the folder anew.
    file.unlink()
    # The end of the job still lets this program clean up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    bridge = Bridge(settings)
    print(f"hostler-kernel port {bridge.port}", flush=True)
    return bridge.run()


if __name__ == "__main__":
    sys.exit(main())
