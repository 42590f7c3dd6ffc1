"""The caller's side of a worker of an `Executor`."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import enum
import functools
import json
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from hostler import _executable
from hostler._worker import frames, records, wire
from hostler._worker.batch import Settings
from hostler._worker.call import Call, Future, fail
from hostler._worker.jobs import WorkerJob
from hostler._worker.parts import Part
from hostler.errors import HostlerError, JobFailedError, UnreachableError

# A worker that runs and cannot be connected with for this long is given up, in seconds.
_UNANSWERED = 60.0

# Calls of up to this many bytes are sent together.
_COPIED = 1 << 16

# Most bytes of the line before a result.
_MOST_HEADER = 1 << 20


class State(enum.Enum):
    """What a worker does."""

    #: It has not answered on a connection yet, or not since the last one was lost.
    STARTING = enum.auto()
    #: It takes calls.
    READY = enum.auto()
    #: It was told to end.
    ENDING = enum.auto()
    #: It has ended.
    OVER = enum.auto()


class Owner(Protocol):
    """What has workers: `hostler._worker.pool.Pool`, which says what these are."""

    settings: Settings
    event: asyncio.Event
    workers: set[Worker]
    mean: float
    is_single: bool
    is_nested: bool

    def on_started(self) -> None: ...
    def refill(self, worker: Worker, ready: int) -> bool: ...
    def put_nested(self, worker: Worker, parent: Call, number: int, work: bytes) -> None: ...
    def give_back(self, calls: list[Call]) -> None: ...
    def lose(self, worker: Worker, error_of: Callable[[str], HostlerError], state: str = ...) -> None: ...
    def fail(self, error: BaseException) -> None: ...


def _forget(gone: collections.deque[str], digest: str, part: object) -> None:
    gone.append(digest)


class Worker(asyncio.Protocol):
    """A worker, and the connection to it.

    Attributes
    ----------
    outstanding : dict
        Calls that it has, with the one that it runs first.
    state : State
        What it does.
    was_ready : bool
        Whether it ever took calls.
    has_process : bool
        Whether its task starts or runs.
    last : float
        When its last result came, or the first call was sent.
    """

    def __init__(self, pool: Owner, job: WorkerJob, index: int) -> None:
        self.job = job
        self.index = index
        self.outstanding: dict[int, Call] = {}
        self.state = State.STARTING
        self.was_ready = False
        self.has_process = False
        self.last = 0.0
        self._pool = pool
        self._id: object = None
        # Records of this process that have arrived on this connection or before it, and on any connection.
        self._seen = 0
        self._taken = 0
        self._results = 0
        self._bad_records = 0
        # Results of calls that its calls have submitted, by their ids, which it may not have.
        self._replies: dict[int, bytes] = {}
        # Parts that it has, and those of them that no call has any more.
        self._parts: dict[str, weakref.ref[Part]] = {}
        self._gone: collections.deque[str] = collections.deque()
        self._is_recalled = False
        self._received = bytearray()
        self._trouble_since: float | None = None
        self._forward: subprocess.Popen[bytes] | None = None
        self._output: asyncio.Transport | None = None
        self._input: asyncio.Transport | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it takes calls."""
        return self.state is State.READY

    @property
    def is_ending(self) -> bool:
        """Whether it will end soon by itself: it was told to, or will be as soon as its process has started."""
        if self.state is State.ENDING:
            return self.is_connected
        return self.is_ready or (self.state is State.STARTING and self.has_process)

    @property
    def load(self) -> int:
        """How many calls it has that do not wait for others."""
        if not self._pool.is_nested:
            return len(self.outstanding)
        return sum(1 for call in self.outstanding.values() if not call.children)

    @property
    def is_occupied(self) -> bool:
        """Whether a call would wait for the end of another one, which may wait for others."""
        return any(self._pool.is_single or number < frames.BESIDE for number in self.outstanding)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, which the worker may not have answered yet."""
        return self._input is not None

    async def connect(self) -> None:
        """Connect to the worker, which may not listen yet."""
        opened = self.job.connect(self.index)
        if opened is None:
            return
        (source, *sink), self._forward = opened
        loop = asyncio.get_running_loop()
        if sink:
            self._output, _ = await loop.create_unix_connection(asyncio.Protocol, sock=sink[0])
        # The greeting may come at once.
        await loop.create_unix_connection(lambda: self, sock=source)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the greeting of the worker."""
        assert isinstance(transport, asyncio.Transport)
        self._input = transport
        self._output = self._output or transport

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection. Another one follows if the worker has not ended."""
        if self._output is None:
            return
        self._output.abort()
        self._input = self._output = None
        forward, self._forward = self._forward, None
        if forward is not None:
            forward.kill()
            exit_code = forward.wait()
            if self.state is State.STARTING:
                self._on_trouble(exit_code, self.job.connection_stderr(self.index))
        if self.state is State.ENDING:
            self.state = State.OVER
        elif self.state is State.READY:
            self.state = State.STARTING
            self._trouble_since = None
        self._is_recalled = False
        self._received.clear()
        self.job.changed.set()

    def _on_trouble(self, exit_code: int, stderr: str) -> None:
        """Give up after a while in which the worker runs and does not answer."""
        failure = _executable.failure(exit_code, stderr)
        now = time.monotonic()
        if self._trouble_since is None or isinstance(failure, UnreachableError):
            self._trouble_since = now
        elif now - self._trouble_since > _UNANSWERED:
            self._pool.fail(failure)

    def data_received(self, data: bytes) -> None:
        """Settle the calls of complete records, and send more."""
        if self.state is State.ENDING:
            return
        self._received += data
        before = self._seen
        self._results = 0
        returned: list[Call] = []
        try:
            at = self._read_greeting() if not self.is_ready else 0
            if self.is_ready:
                del self._received[: self._take(at, returned)]
        except (ValueError, TypeError, KeyError, RecursionError):
            # A call has written something else.
            self._on_bad_record()
            return
        except BaseException as error:
            self._pool.fail(error)
            return
        if returned:
            self._is_recalled = False
            self._pool.give_back(returned)
        if self._results:
            self._on_results(self._results)
        elif self._seen != before:
            self._send(frames.RECEIVED)

    def _on_bad_record(self) -> None:
        """Try once with another connection, which brings all results again. Then give up."""
        self._bad_records += 1
        if self._bad_records > 1:
            self._lose("sent something else")
            self.state = State.READY
            self.end()
        else:
            self.close()

    def _on_results(self, count: int) -> None:
        now = time.monotonic()
        # Quick to fall, so that short calls are not slow for long.
        self._pool.mean = (self._pool.mean + (now - self.last) / count) / 2
        self.last = now
        # A recall may have found nothing.
        self._is_recalled = False
        seen = self._seen
        if self._pool.is_single:
            if not self.outstanding:
                self.end()
            return
        sent = len(self.outstanding)
        self._pool.refill(self, sum(1 for worker in self._pool.workers if worker.is_ready))
        if len(self.outstanding) == sent and seen == self._seen:
            self._send(frames.RECEIVED)
        if not self.outstanding:
            self._pool.event.set()

    def _read_greeting(self) -> int:
        end = self._received.find(b"\n")
        if end < 0:
            if len(self._received) > _MOST_HEADER:
                raise ValueError
            return 0
        greeting = json.loads(self._received[:end])
        self._seen = int(greeting["received"])
        if greeting["id"] != self._id and self._id is not None:
            self._lose("was started again")
            self._taken = 0
        self._id = greeting["id"]
        self.state, self.was_ready = State.READY, True
        self.last = time.monotonic()
        # After a lost connection. The worker knows which ones it has, but has no parts.
        self._parts.clear()
        self._write_calls(list(self.outstanding.items()))
        for record in self._replies.values():
            self._write_reply(record)
        self._pool.on_started()
        return end + 1

    def _take(self, at: int, returned: list[Call]) -> int:
        """Settle the calls of the records from here on. Return where the first incomplete one begins."""
        while (end := self._received.find(b"\n", at)) >= 0:
            header = json.loads(self._received[at:end])
            if not records.is_header(header, 1 << 62):
                raise ValueError
            after = end + 1 + header["bytes"]
            if len(self._received) < after:
                return at
            with memoryview(self._received) as received:
                content = bytes(received[end + 1 : after])
            at = after
            if header["kind"] == frames.RETURNED:
                returned += [call] if (call := self.outstanding.pop(header["input"], None)) else []
            elif header["kind"] == frames.KNOWN:
                self._replies.pop(header["input"], None)
            else:
                self._seen += 1
                self._on_record(header, content)
                self._taken = max(self._taken, self._seen)
            # Results must not stay in memory until the next one arrives.
            del content
        if len(self._received) - at > _MOST_HEADER:
            raise ValueError
        return at

    def _on_record(self, header: wire.Header, content: bytes) -> None:
        """Settle a call, or do what one asks for."""
        number, kind = header["input"], header["kind"]
        if kind == frames.SUBMITTED:
            # With `trusted=False`, nothing that a node sends is unpickled, neither here nor on another node.
            if not self._pool.settings.trusted or len(content) < frames.NUMBER.size:
                raise ValueError
            (parent,) = frames.NUMBER.unpack_from(content)
            if (call := self.outstanding.get(parent)) is None:
                # By a thread that has outlived its call.
                self._write_reply(frames.packed(number, frames.CANCELLED))
            elif self._seen > self._taken:
                # Not one that comes again after a lost connection.
                self._pool.put_nested(self, call, number, content[frames.NUMBER.size :])
            return
        if kind == frames.CANCEL:
            children = [call.children[number] for call in self.outstanding.values() if number in call.children]
            # There is none if it has ended, or if a thread has outlived its call.
            if not children or not children[0].future.cancel():
                self._write_reply(frames.packed(number, frames.GOES_ON))
            return
        self._results += 1
        call = self.outstanding.pop(number, None)
        if call is None:
            return
        if (count := call.abandon()) and kind == "value":
            what = f"{call.name or 'a call'} returned before calls that it had submitted"
            print(f"hostler: {what}: {count} cancelled; let it wait for their results", file=sys.stderr)
        if kind == frames.LOST:
            what = f"{call.what}: a process of {self.job.name(self.index)} {header['error']}"
            fail([call], JobFailedError(what, "job_failed", ()))
        elif call.depth:
            call.future.settle((header, content))
        else:
            outcome = records.outcome_of(header, content, self._pool.settings.trusted)
            call.future.settle(outcome.value, outcome.error)

    def reply(self, parent: Call, number: int, future: Future[Any]) -> None:
        """Hand over the result of a call that one of its calls has submitted."""
        del parent.children[number]
        self._pool.event.set()
        try:
            header, content = future.result()
            record = frames.packed(number, header["kind"], content, header["error"], header["traceback"])
        except concurrent.futures.CancelledError:
            record = frames.packed(number, frames.CANCELLED)
        except BaseException as error:
            failure = wire.failure(error)
            record = frames.packed(number, "error", failure.content, failure.text, failure.traceback)
        self._replies[number] = record
        if self.is_ready:
            self._write_reply(record)

    def _write_reply(self, record: bytes) -> None:
        self._write(frames.FRAME.pack(frames.REPLY, self._seen, len(record)))
        self._write(record)

    def send_calls(self, calls: list[tuple[int, Call]]) -> None:
        """Send calls."""
        if not self.outstanding:
            self.last = time.monotonic()
        self.outstanding.update(calls)
        # An earlier recall is not about these.
        self._is_recalled = False
        self._write_calls(calls)

    def _write_calls(self, calls: list[tuple[int, Call]]) -> None:
        small: list[bytes] = []
        for number, call in calls:
            self._write_parts(call, small)
            head = call.work.head
            small.append(frames.FRAME.pack(number, self._seen, len(head)))
            if len(head) <= _COPIED:
                small.append(head)
            else:
                self._write(b"".join(small))
                self._write(head)
                small.clear()
        self._write(b"".join(small))

    def _write_parts(self, call: Call, before: list[bytes]) -> None:
        """Write the parts of a call that the worker lacks. Parts that no call has any more make room first."""
        while self._gone:
            digest = self._gone.popleft()
            if self._parts.pop(digest, None) is not None:
                before += [frames.FRAME.pack(frames.DROP, self._seen, frames.DIGEST), bytes.fromhex(digest)]
        for part in call.work.parts:
            reference = self._parts.get(part.digest)
            if reference is None or reference() is not part:
                before += [
                    frames.FRAME.pack(frames.PART, self._seen, frames.DIGEST + len(part.content)),
                    bytes.fromhex(part.digest),
                ]
                self._write(b"".join(before))
                before.clear()
                self._write(part.content)
                self._parts[part.digest] = weakref.ref(part, functools.partial(_forget, self._gone, part.digest))

    def recall(self) -> None:
        """Ask for the calls that have not begun."""
        if not self._is_recalled:
            self._is_recalled = True
            self._send(frames.RECALL)

    def end(self) -> None:
        """Let a worker without calls end."""
        if self.is_ready:
            self._send(frames.END)
            self.state = State.ENDING
        self._pool.workers.discard(self)
        self._pool.event.set()

    def take_calls(self) -> dict[int, Call]:
        """Return the calls that it has, and forget them."""
        calls, self.outstanding = self.outstanding, {}
        self._replies.clear()
        return calls

    def _lose(self, how: str) -> None:
        name = self.job.name(self.index)
        self._pool.lose(self, lambda what: JobFailedError(f"{what}: {name} {how}", "job_failed", ()))

    def close(self) -> None:
        """Close the connection."""
        if self._input is not None:
            self._input.abort()
        self.connection_lost(None)

    def _send(self, command: int) -> None:
        self._write(frames.FRAME.pack(command, self._seen, 0))

    def _write(self, content: bytes) -> None:
        if self._output is not None and content:
            # Of bytes, asyncio copies the rest each time that it has sent a piece.
            self._output.write(memoryview(content))
