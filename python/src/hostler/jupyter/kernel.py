"""The local side of a kernel on a node: the sockets of Jupyter's clients on this machine, and what they are told.

See `hostler.jupyter.kernel_bridge` for the other side, and for how messages survive a lost connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session

from hostler.client import Client
from hostler.errors import HostlerError, JobFailedError
from hostler.jupyter import kernel_bridge, kernel_job
from hostler.jupyter.kernel_job import Options
from hostler.jupyter.kernel_link import Claim, Link, Running
from hostler.jupyter.kernel_missed import Missed

#: Channels of a connection file, in the order of the numbers that `ipc_connection` gives them.
CHANNELS = ("shell", "iopub", "stdin", "hb", "control")

# Time in which the bridge must confirm the end of a kernel. Otherwise the job is cancelled.
_END_SECONDS = 5.0

# Time in which a kernel must answer that a killed process left. Otherwise there will be a new one.
_TAKE_OVER_SECONDS = 30.0

# After this, a lost connection is worth a word.
_LOST_SECONDS = 5.0


def _private_directory() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    # A short path: sockets lie below it.
    return Path(tempfile.mkdtemp(prefix="hk-", dir=runtime if runtime and os.path.isdir(runtime) else None))


def ipc_connection(key: bytes, kernel_name: str = "") -> tuple[Path, dict[str, Any]]:
    """Return a private directory and a connection to Unix sockets in it: no other user can reach those."""
    directory = _private_directory()
    ports: dict[str, Any] = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
    return directory, {
        "transport": "ipc",
        "ip": str(directory / "k"),
        "key": key.decode(),
        "signature_scheme": "hmac-sha256",
        "kernel_name": kernel_name,
        **ports,
    }


class Kernel:
    """A kernel on a node, for clients on this machine.

    Parameters
    ----------
    connection
        Content of the connection file. The sockets are bound at once; what clients send waits for the kernel.
    say
        Called with what a person should know: why the job waits, how it ended.

    Attributes
    ----------
    exit_code : int or None
        Exit code of the kernel's process, if it is known to have exited.
    ended : str or None
        How the job ended, if it has.
    running : Running or None
    """

    def __init__(self, connection: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self.exit_code: int | None = None
        self.ended: str | None = None
        self.running: Running | None = None
        self._say = say
        self._connection = connection
        self._session = Session(key=connection["key"].encode(), signature_scheme=connection["signature_scheme"])
        self._context = zmq.Context()
        self._sockets = {name: self._bind(name) for name in CHANNELS}
        self._directory = _private_directory()
        self._link: Link | None = None
        self._thread = threading.Thread(target=self._carry, name="hostler-kernel", daemon=True)
        # What other threads tell the thread.
        self._commands: deque[tuple[str, list[bytes]]] = deque()
        self._wake, self._at_wake = os.pipe()
        self._stop = threading.Event()
        self._cancelled = threading.Event()
        self._changed = threading.Condition()
        # What is known of the kernel.
        self._run = 0
        self._state = "starting"
        self._is_killed = False
        self._down_since: float | None = None
        self._is_lost = False
        #: The number of the message before which everything is a replay.
        self._replayed_to = 0
        #: Header of the cell that ran last.
        self._cell: dict[str, Any] = {}
        #: Output that waits for the first client that wants it.
        self._held: list[list[bytes]] | None = None
        self._claim: Claim | None = None
        #: What another process has not shown.
        self._missed: Missed | None = None

    def launch(self, options: Options, directory: str, env: Mapping[str, str], *, notebook: str | None = None) -> None:
        """Submit a job for the kernel, and return when the kernel answers.

        The job is cancelled if this fails, or if the process ends meanwhile. Afterwards the job no longer depends on
        this process.

        Raises
        ------
        HostlerError
            If there will be no kernel.
        TimeoutError
            If the job does not start in time.
        """
        deadline = time.monotonic() + options.timeout
        try:
            attached, keys = kernel_job.submit(options, self._connection, directory, env)
        except BaseException:
            self.close()
            raise
        try:
            job = Client(options.head).job(int(attached.id))
            self._say(f"job {job.id} is submitted")
            port, status = kernel_job.wait_for_port(job, deadline, self._cancelled, self._say)
            head = options.head or os.environ.get("HOSTLER_HEAD")
            running = Running(
                job.id,
                status.details["submitted_at"],
                head,
                port,
                **keys,
                notebook=notebook,
                notebook_inode=kernel_job.inode(notebook) if notebook else None,
            )
            # Without locks, the notebook does not get its kernel back if this process is killed.
            with contextlib.suppress(OSError):
                self._claim = Claim(running)
            self.attach(running)
            self.wait_until_running(deadline - time.monotonic())
            running.save()
        except BaseException:
            attached.cancel()
            self.close()
            if self.running:
                self.running.forget()
            raise
        attached.finish()
        self._say(f"the kernel runs on {', '.join(status.nodes)} as job {job.id}")

    def take_over(self, running: Running, claim: Claim) -> None:
        """Connect to a kernel whose process here was killed, and return when it answers.

        Output that no client has seen appears below the next cell that one of them runs.

        Raises
        ------
        HostlerError
            If the kernel or its job has ended.
        TimeoutError
            If the kernel does not answer in time.
        """
        self._claim = claim
        self._missed = Missed(claim.seen, self._session, self._sockets["iopub"])
        try:
            self.attach(running)
            self.wait_until_running(_TAKE_OVER_SECONDS)
        except BaseException:
            self.close()
            raise
        self._say(f"connected again to job {running.job}")

    def attach(self, running: Running, *, hold: bool = False) -> None:
        """Connect to a kernel that runs.

        Parameters
        ----------
        running
            The kernel.
        hold
            Whether its output, which is replayed, waits for a local client.
        """
        self.running = running
        self._held = [] if hold else None
        self._link = Link(self._context, running, self._directory)
        self._thread.start()

    def wait_until_running(self, timeout: float) -> None:
        """Wait for the kernel to answer.

        Raises
        ------
        JobFailedError
            If the kernel or its job ends, or the launch is cancelled.
        TimeoutError
            If it takes too long.
        """
        deadline = time.monotonic() + timeout
        while self._state != "running" or self.ended:
            assert self.running
            assert self._link
            if self._cancelled.is_set():
                raise JobFailedError("the launch was cancelled", "cancelled")
            if self.ended or self.exit_code is not None:
                why = self.ended or f"the kernel of job {self.running.job} exited with code {self.exit_code}"
                job = Client(self.running.head).job(self.running.job)
                raise JobFailedError(why + kernel_job.tail(job), "job_failed")
            if self._link.is_refused:
                raise JobFailedError(f"the kernel of job {self.running.job} does not accept the keys", "refused")
            if time.monotonic() > deadline:
                why = f"the kernel of job {self.running.job} did not answer in time. {self._link.trouble}"
                raise TimeoutError(why.strip())
            self.wait_for_change(0.2)

    def cancel_launch(self) -> None:
        """Let a launch or a restart that has not ended fail; safe in a signal handler."""
        self._cancelled.set()

    def wait_for_change(self, timeout: float) -> None:
        """Wait until the kernel or its job ends, or something else changes."""
        with self._changed:
            self._changed.wait(timeout)

    def restart(self, timeout: float) -> None:
        """Start the kernel again in the same job, and wait until it answers."""
        self.exit_code = None
        self._is_killed = False
        self._state = "starting"
        self._run += 1
        self._cancelled.clear()
        self._command("start", b"%d" % self._run)
        self.wait_until_running(timeout)

    def send_signal(self, number: int) -> None:
        """Send a signal to the kernel, at once or as soon as it can be reached."""
        self._is_killed = self._is_killed or number in (signal.SIGTERM, signal.SIGKILL)
        self._command("signal", b"%d" % number)

    def end(self) -> None:
        """End the job, and disconnect."""
        if self.running and self._link and not self.ended:
            self._command("end")
            deadline = time.monotonic() + (_END_SECONDS if self._link.is_up else 0)
            while not self.ended and (self._commands or not self._link.is_confirmed):
                if time.monotonic() > deadline:
                    kernel_job.cancel(self.running)
                    break
                self.wait_for_change(0.2)
            self.running.forget()
        self.close()

    def close(self) -> None:
        """Disconnect. The kernel and its job continue."""
        self._stop.set()
        self._poke()
        if self._thread.is_alive():
            self._thread.join(5)
        elif not self._context.closed:
            self._clean_up()

    def _command(self, kind: str, *frames: bytes) -> None:
        self._commands.append((kind, list(frames)))
        self._poke()

    def _poke(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._at_wake, b"x")

    def _bind(self, name: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.XPUB if name == "iopub" else zmq.ROUTER)
        socket.linger = 1000
        socket.set_hwm(0)
        if name != "iopub":
            # As in ipykernel: a client that connects again has the identity of its last connection.
            socket.router_handover = True
        if self._connection.get("curve_secretkey"):
            socket.curve_server = True
            socket.curve_publickey = self._connection["curve_publickey"].encode()
            socket.curve_secretkey = self._connection["curve_secretkey"].encode()
        port, ip = self._connection[f"{name}_port"], self._connection["ip"]
        socket.bind(f"ipc://{ip}-{port}" if self._connection["transport"] == "ipc" else f"tcp://{ip}:{port}")
        return socket

    # From here on, only the thread calls.

    def _carry(self) -> None:
        """Carry messages until `close`, or until the job ends."""
        assert self._link
        try:
            while not self._stop.is_set() and not self.ended:
                poller = zmq.Poller()
                self._link.register(poller)
                poller.register(self._wake, zmq.POLLIN)
                for socket in self._sockets.values():
                    poller.register(socket, zmq.POLLIN)
                ready = dict(poller.poll(10_000 if self._link.is_up else 200))
                if self._wake in ready:
                    os.read(self._wake, 1000)
                while self._commands:
                    self._link.send(*self._commands[0])
                    # Only now, so that `end` sees it in one of the two queues.
                    self._commands.popleft()
                self._take_from_clients(self._link, ready)
                for kind, number, frames in self._link.take(ready):
                    self._take(kind, number, frames)
                self._watch(self._link)
                self._notify()
        finally:
            self._clean_up()
            self._notify()

    def _watch(self, link: Link) -> None:
        """Say when there has been no connection for a while, and when there is one again."""
        now = time.monotonic()
        if link.is_up:
            if self._is_lost:
                self._say("connected again")
            self._down_since, self._is_lost = None, False
        elif self._down_since is None:
            self._down_since = now
        elif self._run and not self._is_lost and now > self._down_since + _LOST_SECONDS:
            self._is_lost = True
            self._say(f"the connection to the kernel is lost, and will be tried again. {link.trouble}".strip())

    def _take_from_clients(self, link: Link, ready: Mapping[Any, int]) -> None:
        for name, socket in self._sockets.items():
            while socket in ready:
                try:
                    frames = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                if name == "iopub":
                    # Somebody subscribes, or does not any more.
                    if self._held is not None and frames[0][:1] == b"\1":
                        for held in self._held:
                            socket.send_multipart(held)
                        self._held = None
                elif name != "hb":
                    to = self._missed.on_request(frames) if self._missed and name == "shell" else name
                    link.send(to, frames)
                elif link.is_up and self._state != "exited":
                    # The beat of the heart is that of the connection.
                    socket.send_multipart(frames)

    def _take(self, kind: str, number: int, frames: list[bytes]) -> None:
        """Act on a message of the bridge."""
        if kind == "welcome":
            welcome = json.loads(frames[0])
            self._replayed_to = welcome["end"]
            if self._missed:
                self._missed.on_welcome(welcome["end"])
            self._on_state(welcome)
            if welcome["protocol"] != kernel_bridge.PROTOCOL:
                self.ended = "the kernel was started by another version of hostler"
        elif kind == "iopub":
            cell, state = kernel_bridge.status(frames)
            self._cell = cell or self._cell
            if self._missed and self._missed.take(number, frames):
                return
            if state == "idle":
                self._see(number)
            if self._held is None:
                self._sockets["iopub"].send_multipart(frames)
            else:
                self._held.append(frames)
        elif kind == "state":
            if json.loads(frames[0])["state"] == "exited":
                if self._missed:
                    self._missed.on_exit()
                if number >= self._replayed_to:
                    self._see(number)
            # Those that are replayed are history.
            if number >= self._replayed_to:
                self._on_state(json.loads(frames[0]))
                if self.exit_code and not self._is_killed:
                    self._tell(kernel_job.death(self.exit_code))
        elif kind == "lost":
            self._tell(f"{frames[0].decode()} messages of the kernel were too many to keep, and are lost")
        elif kind == "say":
            self._tell(frames[0].decode())
        elif kind == "ended":
            self._on_end_of_forward()
        else:
            to = self._missed.on_reply(frames) if self._missed and kind == "control" else kind
            self._sockets[to].send_multipart(frames)

    def _see(self, number: int) -> None:
        """Note that clients have been sent everything up to the end of a cell."""
        if self._claim and not (self._missed and self._missed.is_waiting):
            self._claim.see(number)

    def _on_state(self, state: dict[str, Any]) -> None:
        # What is said about an earlier run does not matter after `restart`.
        if state["run"] >= self._run:
            self._run = state["run"]
            self._state = state["state"]
            self.exit_code = state["code"] if state["state"] == "exited" else None

    def _on_end_of_forward(self) -> None:
        assert self.running
        with contextlib.suppress(HostlerError, OSError):
            status = Client(self.running.head).job(self.running.job).status()
            # Another cluster may be the default now.
            if status.ended and status.details["submitted_at"] == self.running.submitted_at:
                self.running.forget()
                self.ended = kernel_job.ending(self.running.job, status)
                self._tell(self.ended)

    def _tell(self, text: str) -> None:
        """Say something, and write it below the cell that ran last."""
        self._say(text)
        content = {"name": "stderr", "text": f"hostler: {text}\n"}
        self._session.send(self._sockets["iopub"], "stream", content, parent=self._cell, ident=b"hostler.stream")

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _clean_up(self) -> None:
        if self._link:
            self._link.close()
        for socket in self._sockets.values():
            socket.close()
        self._context.destroy()
        if self._claim:
            self._claim.release()
            self._claim = None
        at_wake, self._at_wake = self._at_wake, -1
        os.close(at_wake)
        os.close(self._wake)
        shutil.rmtree(self._directory, ignore_errors=True)
