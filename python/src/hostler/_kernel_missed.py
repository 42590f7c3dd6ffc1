"""Output of cells that ran when a notebook lost its Jupyter, for the notebook that is opened again.

Such output belongs to requests of a page that is gone, so no page would show it. Here it becomes output of the next
cell that somebody runs.
"""

from __future__ import annotations

import json
from typing import Any

import zmq
from jupyter_client.session import DELIM, Session

from hostler import _kernel_bridge

# What stands below a cell, and what changes that.
_SHOWN = ("stream", "display_data", "execute_result", "error", "update_display_data", "clear_output")


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
        #: Output of each cell that the notebook lacks, by the id of its request.
        self._cells: dict[str, list[list[bytes]]] = {}
        #: The cells among them that still run, with the headers of their requests.
        self._running: dict[str, dict[str, Any]] = {}
        #: Ids of requests that went to another channel.
        self._diverted: set[str] = set()
        #: Header of the request below which it appears, if there has been one.
        self._below: dict[str, Any] | None = None
        self._is_announced = False

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
        if not is_replay and not self._running:
            return False
        header, parent, content = _kernel_bridge.parts(frames)
        request, kind, state = str(parent.get("msg_id")), header.get("msg_type"), content.get("execution_state")
        if kind == "status" and parent.get("msg_type") == "execute_request":
            if is_replay and state == "busy":
                self._cells[request] = []
                self._running[request] = parent
            elif state == "idle":
                self._on_end(request, number)
        elif kind in _SHOWN and (request in self._running or (is_replay and request in self._cells)):
            self._cells[request].append(frames)
            self._show_all()
        return is_replay

    def on_exit(self, number: int) -> None:
        """Note the end of the kernel's process, and so of its cells."""
        for request in list(self._running):
            self._on_end(request, number)

    def _on_end(self, request: str, number: int) -> None:
        self._running.pop(request, None)
        if number <= self._seen:
            self._cells.pop(request, None)

    def on_request(self, frames: list[bytes]) -> str:
        """Show everything if this request is the first one that runs a cell. Return the channel for a request."""
        header, _, content = _kernel_bridge.parts(frames)
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
        if _kernel_bridge.parts(frames)[1].get("msg_id") not in self._diverted:
            return "control"
        for cell in self._running.values():
            # A page that has just connected shows that the kernel is busy.
            self._session.send(self._iopub, "status", {"execution_state": "busy"}, cell, b"hostler.status")
        return "shell"

    def _show_all(self) -> None:
        """Show what there is, if it is known to be missing and there is a cell for it."""
        if not self._is_whole or self._below is None:
            return
        outputs = [output for cell in self._cells.values() for output in cell]
        self._cells = {request: [] for request in self._running}
        if outputs and not self._is_announced:
            self._is_announced = True
            note = {"name": "stderr", "text": "hostler: output of cells that had not ended when Jupyter was lost:\n"}
            self._session.send(self._iopub, "stream", note, self._below, b"hostler.stream")
        for output in outputs:
            self._show(output)

    def _show(self, frames: list[bytes]) -> None:
        header, _, content = _kernel_bridge.parts(frames)
        at = frames.index(DELIM)
        kind, below, metadata = header["msg_type"], self._below, json.loads(frames[at + 4])
        self._session.send(self._iopub, kind, content, below, frames[0], [*frames[at + 6 :]], metadata=metadata)
