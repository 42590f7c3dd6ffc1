"""A further process of a worker, for calls that run while others of the same worker wait for them.

It is a worker as well (see `hostler._worker.server`), whose caller is the worker's first process. It shares the CPUs
and the memory of the worker, and ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from hostler._worker import frames, wire
from hostler._worker.records import is_header

#: The argument of such a process.
ARGUMENT = "helper"

_READ_BYTES = 1 << 18


def flags() -> list[str]:
    """Return the flags of this Python, such as `-O`, with which `multiprocessing` starts processes as well."""
    found: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # Also from variables such as PYTHONPYCACHEPREFIX, which are not sent. Before Python 3.12, -1 is the default.
    digits = getattr(sys.flags, "int_max_str_digits", -1)
    if digits not in (-1, getattr(sys.int_info, "default_max_str_digits", -1)):
        found.append(f"-Xint_max_str_digits={digits}")
    if sys.pycache_prefix:
        found.append(f"-Xpycache_prefix={os.path.abspath(sys.pycache_prefix)}")
    return found


class Helper:
    """A process that runs one call at a time.

    Parameters
    ----------
    place
        The folder of the worker.
    relay
        Called with this object and each record, with and without its content.

    Attributes
    ----------
    connection : socket
        The process sees its end, and ends.
    has_ended : bool
        Whether the process has ended.
    """

    def __init__(self, place: Path, relay: Callable[[Helper, wire.Header, bytes], None]) -> None:
        self.connection, its = socket.socketpair()
        with its:
            for connection in (self.connection, its):
                # Functions may have called `socket.setdefaulttimeout`.
                connection.setblocking(True)
            self._process = subprocess.Popen(
                [sys.executable, *flags(), "main.py", ARGUMENT], cwd=place, stdin=its.fileno()
            )
        self._relay = relay
        self._lock = threading.Lock()
        self._number: int | None = None
        self.has_ended = False
        try:
            threading.Thread(target=self._receive, name="hostler-helper", daemon=True).start()
        except RuntimeError:
            self.connection.close()
            self._process.kill()
            self._process.wait()
            raise

    @property
    def is_free(self) -> bool:
        """Whether it can run a call."""
        return self._number is None and not self.has_ended

    def run(self, number: int, content: bytes) -> None:
        """Run a call."""
        self._number = number
        self._send(number, content)
        if self.has_ended:
            self._on_lost()

    def reply(self, record: bytes) -> None:
        """Hand over the record of a call that its call has submitted."""
        self._send(frames.REPLY, record)

    def _send(self, number: int, content: bytes = b"") -> None:
        # If it has ended, the other thread notices.
        with self._lock, contextlib.suppress(OSError):
            self.connection.sendall(frames.FRAME.pack(number, 0, len(content)) + content)

    def _receive(self) -> None:
        # It may end within a record, and a call can write anything to its files. Not a file of the socket, which would
        # stay open in a forked process when the socket is closed.
        descriptor = self.connection.fileno()
        with contextlib.suppress(Exception), open(descriptor, "rb", _READ_BYTES, closefd=False) as records:
            # The greeting.
            records.readline()
            while line := records.readline():
                header: wire.Header = json.loads(line)
                if not is_header(header, 1 << 62):
                    break
                content = records.read(header["bytes"])
                if len(content) == header["bytes"] and header["kind"] != frames.KNOWN:
                    if header["input"] == self._number:
                        self._number = None
                    self._relay(self, header, line + content)
        self.has_ended = True
        self._process.kill()
        self._process.wait()
        self._on_lost()
        self.connection.close()

    def _on_lost(self) -> None:
        """Say that the call which it ran has no result."""
        with self._lock:
            number, self._number = self._number, None
        if number is not None:
            code = self._process.wait()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            record = frames.packed(number, frames.LOST, error=how)
            self._relay(self, json.loads(record), record)
