"""Output of cells that ran when a notebook lost its Jupyter, for the notebook that is opened again.

Such output belongs to requests of a page that is gone, so no page would show it. Here it becomes output of the next
cell that somebody runs.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import zmq
from jupyter_client.session import DELIM, Session

from hostler.jupyter import kernel_bridge

# What stands below a cell, and what changes that.
_SHOWN = ("stream", "display_data", "execute_result", "error", "update_display_data", "clear_output")

# Bytes of output that wait for a cell below which they appear.
_WAITING_BYTES = 8 << 20


class Missed:
    """What has been missed.

    Parameters
    ----------
    seen
        Number of the message with which the last cell ended that the notebook has.
    session, iopub
        Of the clients.
    """

    def __init__(self, seen: int, session: Session, iopub: zmq.Socket[bytes]) -> None:
        self._seen = seen
        self._session = session
        self._iopub = iopub
        #: The number from which on messages are no replay, and whether one of these has arrived.
        self._end: int | None = None
        self._is_whole = False
        #: Output that the notebook lacks, its bytes, and those of older output that was too much.
        self._waiting: deque[list[bytes]] = deque()
        self._bytes = self._dropped_bytes = 0
        #: Headers of the requests of cells that still run, by their ids, and ids of those that have ended.
        self._running: dict[str, dict[str, Any]] = {}
        self._ended: set[str] = set()
        #: Sessions of the clients, and whether a cell of theirs has begun: all others have ended then.
        self._sessions: set[str] = set()
        self._is_over = False
        #: Ids of requests that went to another channel, and that have no reply yet.
        self._diverted: set[str] = set()
        #: Header of the request below which it appears, if there has been one.
        self._below: dict[str, Any] | None = None
        self._is_announced = False

    @property
    def is_waiting(self) -> bool:
        """Whether there is output that no client has been sent."""
        return bool(self._waiting)

    def on_welcome(self, end: int) -> None:
        """Note where the replay ends; later connections have none."""
        if self._end is None:
            self._end = end

    def take(self, number: int, frames: list[bytes]) -> bool:
        """Take a message of the kernel. Return whether it is a replay, which nobody else needs."""
        is_replay = self._end is not None and number < self._end
        if not is_replay and not self._is_whole:
            self._is_whole = True
            self._show_all()
        if not is_replay and self._is_over:
            return False
        header, parent, content = kernel_bridge.parts(frames)
        request, kind, state = str(parent.get("msg_id")), header.get("msg_type"), content.get("execution_state")
        if parent.get("msg_type") != "execute_request":
            return is_replay
        if not is_replay and parent.get("session") in self._sessions:
            self._is_over = True
        elif kind == "status" and state == "idle":
            self._running.pop(request, None)
            self._ended.add(request)
        elif kind == "status" or (kind in _SHOWN and number > self._seen):
            # Its beginning may be forgotten.
            if request not in self._ended:
                self._running[request] = parent
            if kind != "status":
                self._keep(frames)
                self._show_all()
        return is_replay

    def _keep(self, frames: list[bytes]) -> None:
        self._waiting.append(frames)
        self._bytes += _size(frames)
        while self._bytes > _WAITING_BYTES:
            size = _size(self._waiting.popleft())
            self._bytes -= size
            self._dropped_bytes += size

    def on_exit(self) -> None:
        """Note the end of the kernel's process, and so of its cells."""
        self._running.clear()

    def on_request(self, frames: list[bytes]) -> str:
        """Show everything if this request is the first one that runs a cell. Return the channel for a request."""
        header, _, content = kernel_bridge.parts(frames)
        self._sessions.add(str(header.get("session")))
        if header.get("msg_type") == "kernel_info_request":
            # Jupyter's server shows a notebook only after the answer, for which it would wait until the cell ends.
            self._diverted.add(str(header.get("msg_id")))
            return "control"
        is_cell = header.get("msg_type") == "execute_request" and content.get("store_history", True)
        if self._below is None and is_cell and not content.get("silent"):
            self._below = header
            self._show_all()
        return "shell"

    def on_reply(self, frames: list[bytes]) -> str:
        """Return the channel for a reply on the control channel."""
        request = str(kernel_bridge.parts(frames)[1].get("msg_id"))
        if request not in self._diverted:
            return "control"
        self._diverted.discard(request)
        for cell in self._running.values():
            # A page that has just connected shows that the kernel is busy.
            self._session.send(self._iopub, "status", {"execution_state": "busy"}, cell, b"hostler.status")
        return "shell"

    def _show_all(self) -> None:
        """Show what there is, if it is known to be missing and there is a cell for it."""
        if not self._is_whole or self._below is None:
            return
        if self._waiting and not self._is_announced:
            self._is_announced = True
            self._note("output of cells that had not ended when Jupyter was lost:")
        if self._dropped_bytes:
            self._note(f"{self._dropped_bytes} bytes of older output were too many to keep, and are lost")
            self._dropped_bytes = 0
        while self._waiting:
            self._show(self._waiting.popleft())
        self._bytes = 0

    def _note(self, text: str) -> None:
        content = {"name": "stderr", "text": f"hostler: {text}\n"}
        self._session.send(self._iopub, "stream", content, self._below, b"hostler.stream")

    def _show(self, frames: list[bytes]) -> None:
        header, _, content = kernel_bridge.parts(frames)
        at = frames.index(DELIM)
        kind, below, metadata = header["msg_type"], self._below, json.loads(frames[at + 4])
        self._session.send(self._iopub, kind, content, below, frames[0], [*frames[at + 6 :]], metadata=metadata)


def _size(frames: list[bytes]) -> int:
    return sum(map(len, frames))
