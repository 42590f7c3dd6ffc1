"""Warm workers of an `Executor`: array tasks that run one call after another, each over a connection of its own.

One thread with an event loop serves all workers. It starts when there are calls, submits workers as they are needed,
and ends when all workers have ended. `hostler forward` connects it with the socket of `hostler._server`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import itertools
import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from hostler import _batch, _executable, _server
from hostler._batch import Settings
from hostler._worker_jobs import ClusterJob, LocalJob, WorkerJob, in_thread
from hostler.errors import HostlerError, JobFailedError, UnreachableError
from hostler.job import ENDED

R = TypeVar("R")

# Calls that are submitted within this time share their job, in seconds.
_COLLECTING = 0.02

# A worker gets as many calls ahead as it can run in this time, in seconds, and at most so many.
_AHEAD = 0.01
_MOST_AHEAD = 256

# Calls that wait for this long behind another one go to idle workers.
_STUCK = 0.02

# A worker without calls ends after this time, in seconds.
_IDLE = 10.0

# Most workers of a job.
_MOST_WORKERS = 1000

# After so many failed starts one after another, calls that wait fail. The pause between them grows to this, in seconds.
_MOST_FAILED_STARTS = 10
_LONGEST_PAUSE_OF_STARTS = 10.0

# Calls of up to this many bytes are sent together.
_COPIED = 1 << 16

# Most bytes of the line before a result.
_MOST_HEADER = 1 << 20

# What connecting fails with when this process has too many files or processes, which may get fewer.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)

# Time in which workers without calls must end, in seconds.
_ENDING = 2.0

# A worker that runs and cannot be connected with for this long is given up, in seconds.
_UNANSWERED = 60.0

# How often the head is asked for workers without a connection, in seconds. The pause grows.
_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0

# Idle times, and the end of the main thread, are looked for this often, in seconds.
_TICK = 0.1


class Future(concurrent.futures.Future[R]):
    """The future of a call. Those who wait for it learn at once that it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._changing = threading.RLock()

    def cancel(self) -> bool:
        """Cancel the call unless a worker has it."""
        with self._changing:
            if not self.cancelled():
                if not super().cancel():
                    return False
                self.set_running_or_notify_cancel()
            return True

    def start(self) -> bool:
        """Mark the future as running. Return False if it is cancelled."""
        with self._changing:
            return not self.cancelled() and (self.running() or self.set_running_or_notify_cancel())

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result, unless the future is cancelled."""
        if not self.start():
            return
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


@dataclass(frozen=True)
class Call:
    """A pickled call and its future."""

    work: bytes
    future: Future[Any]


class Pool:
    """Runs calls on workers of the same kind.

    Parameters
    ----------
    settings
        How workers run.
    is_local
        Whether they are processes of this machine instead of array tasks.
    """

    def __init__(self, settings: Settings, is_local: bool = False) -> None:
        self.settings = settings
        self._start_job = LocalJob if is_local else ClusterJob
        # With a time limit, each call has a worker of its own, and so all of the time.
        self.is_single = settings.options.get("time") is not None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_running = False
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False
        self._waiting: deque[Call] = deque()
        # All below belong to the thread. Workers that have been told to end are not in `workers` any more.
        self.event = asyncio.Event()
        self.workers: set[Worker] = set()
        self._jobs: dict[WorkerJob, list[Worker]] = {}
        self._next = 0
        self._most_workers = None if self.is_single else settings.max_workers
        self._is_growing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._needed_at = 0.0
        self._failed_starts = 0
        self._next_start = 0.0
        # Mean time of a call, in seconds.
        self.mean = _AHEAD

    def put(self, call: Call) -> None:
        """Run a call."""
        with self._lock:
            self._waiting.append(call)
            if not self._is_running:
                self._is_running = True
                # No daemon: as with other executors, Python waits for the calls before it exits.
                self._thread = threading.Thread(target=self._run, name="hostler-executor", daemon=False)
                self._thread.start()
            self._wake()

    def close(self) -> None:
        """End when all calls have ended."""
        with self._lock:
            self._is_closed = True
            self._wake()

    @property
    def is_over(self) -> bool:
        """Whether all calls have ended after `close`."""
        with self._lock:
            return self._is_closed and not self._is_running

    def cancel(self) -> None:
        """Cancel the calls that no worker has."""
        with self._lock:
            waiting = self._waiting.copy()
        for call in waiting:
            call.future.cancel()

    def join(self) -> None:
        """Wait for the end after `close`."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _wake(self) -> None:
        if self._loop is not None and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self.event.set)

    def _run(self) -> None:
        while True:
            try:
                asyncio.run(self._serve())
                return
            except BaseException as error:
                self._clean_up(error)
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
            # Callbacks of the calls that failed have submitted others.

    def _clean_up(self, error: BaseException) -> None:
        """Cancel all workers and fail all calls."""
        with self._lock:
            self._loop = None
        for job in self._jobs:
            with contextlib.suppress(Exception):
                job.cancel()
        calls = [call for workers in self._jobs.values() for worker in workers for call in worker.take_calls()]
        self._jobs = {}
        with self._lock:
            calls += self._waiting
            self._waiting.clear()
        _fail(calls, error)

    async def _serve(self) -> None:
        self.event, self._failure = asyncio.Event(), None
        self._failed_starts, self._next_start = 0, 0.0
        self.workers, self._jobs, self._is_growing = set(), {}, False
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._is_woken = False
        while True:
            while not self._is_over():
                self.dispatch()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.event.wait(), _TICK)
                self.event.clear()
                if self._failure is not None:
                    raise self._failure
            await self._end()
            with self._lock:
                if not self._waiting:
                    # The next call starts another thread.
                    self._loop, self._is_running = None, False
                    return

    def _is_over(self) -> bool:
        with self._lock:
            self._is_woken = False
            if self._waiting or self._is_growing or any(worker.outstanding for worker in self.workers):
                self._needed_at = time.monotonic()
                return False
            if self._is_closed or not threading.main_thread().is_alive() or not self.workers:
                return True
            # Also workers that never started, e.g. because the cluster is busy.
            return time.monotonic() - self._needed_at > _IDLE

    async def _end(self) -> None:
        """End workers without calls. Those that do not end by themselves are cancelled."""
        for worker in list(self.workers):
            worker.end()
        live = [worker for workers in self._jobs.values() for worker in workers]
        deadline = time.monotonic() + _ENDING
        while any(worker.is_ending and worker.is_connected for worker in live) and time.monotonic() < deadline:
            await asyncio.sleep(0.002)
        for job, workers in self._jobs.items():
            if all(worker.is_over for worker in workers):
                job.finish()
            else:
                job.cancel()
        for worker in live:
            worker.close()
        for task in self._tasks:
            task.cancel()
        self._jobs.clear()

    def dispatch(self) -> None:
        """Hand waiting calls to workers, call for more workers, and end idle ones."""
        ready = [worker for worker in self.workers if worker.is_ready]
        self._balance(ready)
        for worker in sorted(ready, key=lambda worker: len(worker.outstanding)):
            self.refill(worker, len(ready))
        while self._waiting and self._waiting[0].future.cancelled():
            self._waiting.popleft()
        is_due = time.monotonic() >= self._next_start
        if self._waiting and not self._is_growing and is_due and self._wanted() > 0:
            self._is_growing = True
            self._start(self._grow())
        for worker in ready:
            if not worker.outstanding and time.monotonic() - worker.last > _IDLE:
                worker.end()

    def refill(self, worker: Worker, ready: int) -> bool:
        """Hand waiting calls to a worker, so that it has enough to do for a moment. Return False if there are none."""
        ahead = 1 if self.is_single else max(1, min(int(_AHEAD / self.mean), _MOST_AHEAD))
        # Few calls are divided fairly.
        room = min(ahead, -(-len(self._waiting) // max(1, ready))) - len(worker.outstanding)
        calls: list[tuple[int, Call]] = []
        while len(calls) < room and self._waiting:
            call = self._waiting.popleft()
            if call.future.start():
                self._next += 1
                calls.append((self._next, call))
        if calls:
            worker.send_calls(calls)
        return bool(calls)

    def _balance(self, ready: list[Worker]) -> None:
        """Recall calls that wait behind a long one while other workers are idle."""
        if self._waiting or all(worker.outstanding for worker in ready):
            return
        now = time.monotonic()
        for worker in ready:
            if len(worker.outstanding) > 1 and now - worker.last > _STUCK:
                worker.recall()

    def give_back(self, calls: list[Call]) -> None:
        """Put calls back that have not begun."""
        self._waiting.extendleft(reversed(calls))
        self.event.set()

    def _wanted(self) -> int:
        """Return how many more workers there should be."""
        room = _MOST_WORKERS
        if self._most_workers is not None:
            room = min(room, self._most_workers - len(self.workers))
        if room <= 0:
            return 0
        starting = sum(1 for worker in self.workers if not worker.is_ready)
        with self._lock:
            calls = (call for call in self._waiting if not call.future.cancelled())
            return sum(1 for _ in itertools.islice(calls, room + starting)) - starting

    async def _grow(self) -> None:
        """Submit an array job of more workers."""
        try:
            await asyncio.sleep(_COLLECTING)
            if self._most_workers is None and not self.is_single:
                self._most_workers = _batch.slots(await in_thread(self.settings.client.info), self.settings)
            if (count := self._wanted()) > 0:
                job = await in_thread(functools.partial(self._start_job, self.settings, count))
                self._jobs[job] = [Worker(self, job, index) for index in range(count)]
                self.workers.update(self._jobs[job])
                self._start(self._watch(job))
        except (HostlerError, OSError) as error:
            self._on_failed_start(error)
        finally:
            self._is_growing = False
            self.event.set()

    async def _watch(self, job: WorkerJob) -> None:
        """Connect the workers of a job, again after lost connections, until all have ended."""
        pause = _SHORTEST_PAUSE
        while live := [worker for worker in self._jobs[job] if not worker.is_over]:
            job.changed.clear()
            unconnected = [worker for worker in live if not worker.is_connected]
            if unconnected:
                try:
                    await self._connect(job, unconnected)
                except OSError as error:
                    if error.errno not in _EXHAUSTED:
                        raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                await job.changed.wait()
                pause = _SHORTEST_PAUSE
        del self._jobs[job]
        job.finish()

    async def _connect(self, job: WorkerJob, unconnected: list[Worker]) -> None:
        """Connect the workers of a job that run, and forget those that have ended."""
        states = await job.tasks()
        for worker in unconnected:
            task = states.get(worker.index)
            if task is not None and task["state"] in ENDED:
                await self._on_lost(worker, task)
            elif task is not None and task["state"] == "running":
                await worker.connect()

    async def _on_lost(self, worker: Worker, task: dict[str, Any]) -> None:
        """Fail the calls that a worker had. Any of them may have begun, and none begins twice."""
        error: BaseException | None = None
        if worker.outstanding or not worker.was_ready:
            what = "the call has no result" if worker.was_ready else "no worker could start"
            stderr = await in_thread(functools.partial(worker.job.stderr, worker.index))
            error = _batch.lost(what, worker.job.name(worker.index), task, stderr)
        # Until here, the thread may not end.
        worker.is_over = True
        self.workers.discard(worker)
        self.event.set()
        if error is None:
            return
        _fail(worker.take_calls(), error)
        if not worker.was_ready and not worker.job.has_failed:
            # Once for all of its workers.
            worker.job.has_failed = True
            self._on_failed_start(error)
        elif not self.workers and not worker.was_ready:
            self._fail_waiting(error)

    def _on_failed_start(self, error: BaseException) -> None:
        """Try again after a while, or fail the calls that wait if no worker is left for them or nothing helps."""
        self._failed_starts += 1
        pause = min(2**self._failed_starts / 10, _LONGEST_PAUSE_OF_STARTS)
        self._next_start = time.monotonic() + pause
        if not self.workers or self._failed_starts >= _MOST_FAILED_STARTS:
            self._fail_waiting(error)

    def on_started(self) -> None:
        """Note that workers can start."""
        self._failed_starts, self._next_start = 0, 0.0
        self.event.set()

    def _fail_waiting(self, error: BaseException) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        _fail(waiting, error)

    def fail(self, error: BaseException) -> None:
        """Fail all calls, and end."""
        self._failure = error
        self.event.set()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)


def _fail(calls: Iterable[Call], error: BaseException) -> None:
    for call in calls:
        # What a callback of the caller raises may not keep others from learning of it.
        with contextlib.suppress(BaseException):
            call.future.settle(error=error)


class Worker(asyncio.Protocol):
    """A worker, and the connection to it.

    Attributes
    ----------
    outstanding : dict
        Calls that it has, with the one that it runs first.
    is_ready : bool
        Whether it takes calls.
    was_ready : bool
        Whether it ever did.
    is_ending : bool
        Whether it was told to end.
    is_over : bool
        Whether it has ended.
    last : float
        When its last result came, or the first call was sent.
    """

    def __init__(self, pool: Pool, job: WorkerJob, index: int) -> None:
        self.job = job
        self.index = index
        self.outstanding: dict[int, Call] = {}
        self.is_ready = self.was_ready = self.is_ending = self.is_over = False
        self.last = 0.0
        self._pool = pool
        self._id: object = None
        self._seen = 0
        self._bad_records = 0
        self._is_recalled = False
        self._received = bytearray()
        self._trouble_since: float | None = None
        self._forward: subprocess.Popen[bytes] | None = None
        self._output: asyncio.Transport | None = None
        self._input: asyncio.Transport | None = None

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
        self.is_over = self.is_ending
        self._output.abort()
        self._input = self._output = None
        forward, self._forward = self._forward, None
        if forward is not None:
            forward.kill()
            exit_code = forward.wait()
            if not self.is_ready and not self.is_ending:
                self._on_trouble(exit_code, self.job.connection_stderr(self.index))
        if self.is_ready:
            self._trouble_since = None
        self.is_ready = self._is_recalled = False
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
        if self.is_ending:
            return
        self._received += data
        before = self._seen
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
        if count := self._seen - before:
            self._on_results(count)

    def _on_bad_record(self) -> None:
        """Try once with another connection, which brings all results again. Then give up."""
        self._bad_records += 1
        if self._bad_records > 1:
            what = f"the call has no result: {self.job.name(self.index)} has sent what is no result"
            _fail(self.take_calls(), JobFailedError(what, "job_failed", ()))
            self.is_ready = True
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
            self.end()
            return
        sent = len(self.outstanding)
        self._pool.refill(self, sum(1 for worker in self._pool.workers if worker.is_ready))
        if len(self.outstanding) == sent and seen == self._seen:
            self._send(_server.RECEIVED)
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
            # Those of another process may have begun, and none begins twice.
            what = f"the call has no result: {self.job.name(self.index)} was started again"
            _fail(self.take_calls(), JobFailedError(what, "job_failed", ()))
        self._id = greeting["id"]
        self.is_ready = self.was_ready = True
        self.last = time.monotonic()
        # After a lost connection. The worker knows which ones it has.
        self._write_calls(list(self.outstanding.items()))
        self._pool.on_started()
        return end + 1

    def _take(self, at: int, returned: list[Call]) -> int:
        """Settle the calls of the records from here on. Return where the first incomplete one begins."""
        trusted = self._pool.settings.trusted
        while (end := self._received.find(b"\n", at)) >= 0:
            header = json.loads(self._received[at:end])
            if not _batch.is_header(header, 1 << 62):
                raise ValueError
            after = end + 1 + header["bytes"]
            if len(self._received) < after:
                return at
            with memoryview(self._received) as received:
                content = bytes(received[end + 1 : after])
            at = after
            call = self.outstanding.pop(header["input"], None)
            if header["kind"] == _server.RETURNED:
                returned += [call] if call else []
                continue
            self._seen += 1
            if call is not None:
                outcome = _batch.outcome_of(header, content, trusted)
                call.future.settle(outcome.value, outcome.error)
                # Results must not stay in memory until the next one arrives.
                del outcome
            del call, content
        if len(self._received) - at > _MOST_HEADER:
            raise ValueError
        return at

    def send_calls(self, calls: list[tuple[int, Call]]) -> None:
        """Send calls."""
        if not self.outstanding:
            self.last = time.monotonic()
        self.outstanding.update(calls)
        self._write_calls(calls)

    def _write_calls(self, calls: list[tuple[int, Call]]) -> None:
        small: list[bytes] = []
        for number, call in calls:
            small.append(_server.FRAME.pack(number, self._seen, len(call.work)))
            if len(call.work) <= _COPIED:
                small.append(call.work)
            else:
                self._write(b"".join(small))
                self._write(call.work)
                small.clear()
        self._write(b"".join(small))

    def recall(self) -> None:
        """Ask for the calls that have not begun."""
        if not self._is_recalled:
            self._is_recalled = True
            self._send(_server.RECALL)

    def end(self) -> None:
        """Let a worker without calls end."""
        if self.is_ready:
            self._send(_server.END)
            self.is_ready = False
            self.is_ending = True
        self._pool.workers.discard(self)
        self._pool.event.set()

    def take_calls(self) -> list[Call]:
        """Return the calls that it has, and forget them."""
        calls = list(self.outstanding.values())
        self.outstanding.clear()
        return calls

    def close(self) -> None:
        """Close the connection."""
        if self._input is not None:
            self._input.abort()
        self.connection_lost(None)

    def _send(self, command: int) -> None:
        self._write(_server.FRAME.pack(command, self._seen, 0))

    def _write(self, content: bytes) -> None:
        if self._output is not None and content:
            self._output.write(content)
