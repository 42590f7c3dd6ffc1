"""What a notebook gets that lost its Jupyter, message by message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session

from hostler.jupyter import kernel_missed
from hostler.jupyter.kernel_missed import Missed

NOTE = "hostler: output of cells that had not ended when Jupyter was lost:\n"


class Scene:
    """A kernel, the Jupyter that it had, and the one that it has now."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self.before, self.now = Session(key=b"key"), Session(key=b"key")
        self.iopub, self._shown = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        for socket in (self.iopub, self._shown):
            socket.linger = 0
            socket.set_hwm(0)
        self._shown.bind("inproc://shown")
        self.iopub.connect("inproc://shown")
        self.missed = Missed(-1, self.now, self.iopub)
        self.number = 0

    def request(self, session: Session, kind: str = "execute_request") -> dict[str, Any]:
        """Return the header of a request of a client."""
        header: dict[str, Any] = session.msg(kind)["header"]
        return header

    def said(self, parent: dict[str, Any], kind: str, **content: str) -> bool:
        """Let the kernel say something. Return whether it is a replay."""
        message = self.before.msg(kind, content, parent)
        self.number += 1
        return self.missed.take(self.number - 1, [b"topic", *self.before.serialize(message)])

    def ask(self, header: dict[str, Any]) -> str:
        """Send a request. Return the channel for it."""
        message: dict[str, Any] = {"header": header, "parent_header": {}, "metadata": {}, "content": {}}
        return self.missed.on_request([b"client", *self.now.serialize(message)])

    def shown(self) -> str:
        """Return what is shown, which is below one cell."""
        text = ""
        while self._shown.poll(0):
            _, frames = self.now.feed_identities(self._shown.recv_multipart())
            message = self.now.deserialize(frames)
            if message["msg_type"] == "stream":
                text += message["content"]["text"]
        return text

    def close(self) -> None:
        """Close the sockets."""
        self.iopub.close()
        self._shown.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with zmq.Context() as context:
        scene = Scene(context)
        yield scene
        scene.close()


def test_cells_that_waited_and_cells_whose_beginning_is_forgotten_are_shown(scene: Scene) -> None:
    chatty, queued, own = (scene.request(session) for session in (scene.before, scene.before, scene.now))
    scene.missed.on_welcome(1)
    assert scene.said(chatty, "stream", name="stdout", text="chatty\n")
    assert not scene.said(chatty, "status", execution_state="idle")
    assert scene.missed.is_waiting
    scene.ask(own)
    assert scene.shown() == NOTE + "chatty\n"
    assert not scene.missed.is_waiting
    scene.said(queued, "status", execution_state="busy")
    scene.said(queued, "stream", name="stdout", text="queued\n")
    assert scene.shown() == "queued\n"
    # A page that connects learns that the kernel is busy; once for each question.
    info = scene.request(scene.now, "kernel_info_request")
    assert scene.ask(info) == "control"
    reply = [b"client", *scene.now.serialize(scene.now.msg("kernel_info_reply", {}, info))]
    assert [scene.missed.on_reply(reply) for _ in range(2)] == ["shell", "control"]
    scene.said(queued, "status", execution_state="idle")
    # From now on, only other clients have such cells.
    scene.said(own, "status", execution_state="busy")
    scene.said(scene.request(scene.before), "stream", name="stdout", text="of another client\n")
    assert scene.shown() == ""


def test_output_that_is_too_much_is_counted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_missed, "_WAITING_BYTES", 10_000)
    scene.missed.on_welcome(100)
    cell = scene.request(scene.before)
    for number in range(100):
        scene.said(cell, "stream", name="stdout", text=f"{number:1000}\n")
    scene.ask(scene.request(scene.now))
    assert scene.shown() == ""
    scene.said(cell, "status", execution_state="idle")
    first, second, *lines = scene.shown().splitlines(keepends=True)
    assert first == NOTE
    assert second.endswith(" bytes of older output were too many to keep, and are lost\n")
    assert 3 < len(lines) < 10
    assert [int(line) for line in lines] == list(range(100))[-len(lines) :]
