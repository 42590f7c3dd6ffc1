"""Warm workers of an `Executor`: array tasks that run one call after another, each over a connection of its own.

One thread with an event loop serves all workers. It starts when there are calls, submits workers as they are needed,
and ends when all workers have ended. `hostler forward` connects it with the socket of `hostler._worker.server`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hostler._worker import batch, frames
from hostler._worker.batch import Settings
from hostler._worker.call import Call, Future, fail
from hostler._worker.jobs import ClusterJob, LocalJob, WorkerJob, in_thread
from hostler._worker.link import State, Worker
from hostler._worker.parts import Work
from hostler.errors import HostlerError
from hostler.job import ENDED

R = TypeVar("R")

# Calls that are submitted within this time share their job, in seconds.
_COLLECTING = 0.02

# A worker gets as many calls ahead as it can run in this time, in seconds, and at most so many.
_AHEAD = 0.01
_MOST_AHEAD = 256

# Calls that wait for this long behind another one go to idle workers.
_STUCK = 0.02

# After the last call that another one has submitted, in seconds, calls are sent in batches again.
_NESTED = 1.0

# A worker without calls ends after this time, in seconds.
_IDLE = 10.0

# Most workers of a job.
_MOST_WORKERS = 1000

# After so many failed starts one after another, calls that wait fail. The pause between them grows to this, in seconds.
_MOST_FAILED_STARTS = 10
_LONGEST_PAUSE_OF_STARTS = 10.0

# What connecting fails with when this process has too many files or processes, which may get fewer.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)

# Time in which workers without calls must end, in seconds.
_ENDING = 2.0

# How often the head is asked for workers without a connection, in seconds. The pause grows.
_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0

# Idle times, and the end of the main thread, are looked for this often, in seconds.
_TICK = 0.1


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
        # A heap by order, and the number of the next call.
        self._waiting: list[tuple[tuple[int, int], Call]] = []
        self._order = itertools.count()
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
        self._has_said_why = False
        # Mean time of a call, in seconds.
        self.mean = _AHEAD
        # Whether calls submit others, and when one last did.
        self.is_nested = False
        self._nested_at = 0.0
        # Calls that run again and have not ended.
        self._alone: list[Call] = []

    def put(self, call: Call) -> None:
        """Run a call."""
        with self._lock:
            call.order = (-call.depth, next(self._order))
            heapq.heappush(self._waiting, (call.order, call))
            if not self._is_running:
                self._is_running = True
                # No daemon: as with other executors, Python waits for the calls before it exits.
                self._thread = threading.Thread(target=self._run, name="hostler-executor", daemon=False)
                self._thread.start()
            self._wake()

    def __str__(self) -> str:
        jobs, workers = [str(job) for job in tuple(self._jobs)], tuple(self.workers)
        sent = sum(len(worker.outstanding) for worker in workers)
        return ", ".join([*jobs, f"workers: {len(workers)}", f"calls: {sent} sent, {len(self._waiting)} waiting"])

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
        for _, call in waiting:
            call.future.cancel()

    def kill(self) -> None:
        """Cancel the workers now, also those that run calls, and fail all calls."""
        with self._lock:
            self._call_in_loop(self.fail, concurrent.futures.CancelledError())

    def join(self) -> None:
        """Wait for the end after `close`."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = self._call_in_loop(self.event.set)

    def _call_in_loop(self, function: Callable[..., object], *arguments: object) -> bool:
        """Call a function in the thread, if its loop runs. The lock is held, so the loop does not close meanwhile."""
        if self._loop is None:
            return False
        self._loop.call_soon_threadsafe(function, *arguments)
        return True

    def _run(self) -> None:
        while True:
            try:
                asyncio.run(self._serve_until_error())
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
        for job in self._jobs:
            with contextlib.suppress(Exception):
                job.cancel()
        calls = [call for workers in self._jobs.values() for worker in workers for call in worker.take_calls().values()]
        self._jobs = {}
        with self._lock:
            calls += (call for _, call in self._waiting)
            self._waiting.clear()
        fail(calls, error)

    async def _serve_until_error(self) -> None:
        try:
            await self._serve()
        except BaseException:
            with self._lock:
                self._loop = None
            raise

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
        """End workers without calls. Those that do not end by themselves in a moment are cancelled."""
        for worker in list(self.workers):
            worker.end()
        live = [worker for workers in self._jobs.values() for worker in workers]
        deadline = time.monotonic() + _ENDING
        # Also those that just start: a job with cancelled tasks is shown as cancelled, although all calls succeeded.
        while any(worker.is_ending for worker in live) and time.monotonic() < deadline:
            await asyncio.sleep(0.002)
            for worker in live:
                worker.end()
        for job, workers in self._jobs.items():
            if all(worker.state is State.OVER for worker in workers):
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
        if self.is_nested and time.monotonic() - self._nested_at > _NESTED:
            self.is_nested = self._has_nested()
        self._balance(ready)
        for worker in sorted(ready, key=lambda worker: worker.load):
            self.refill(worker, len(ready))
        with self._lock:
            while self._waiting and self._waiting[0][1].future.cancelled():
                heapq.heappop(self._waiting)
        is_due = time.monotonic() >= self._next_start
        if self._waiting and not self._is_growing and is_due and self._wanted() > 0:
            self._is_growing = True
            self._start(self._grow())
        for worker in ready:
            if not worker.outstanding and time.monotonic() - worker.last > _IDLE:
                worker.end()

    def _has_nested(self) -> bool:
        """Whether a call waits for another one, or that one waits."""
        with self._lock:
            if self._waiting and self._waiting[0][1].depth:
                return True
        return any(call.children or call.depth for worker in self.workers for call in worker.outstanding.values())

    def refill(self, worker: Worker, ready: int) -> bool:
        """Hand waiting calls to a worker, so that it has enough to do for a moment. Return False if there are none."""
        is_short = not self.is_single and not self.is_nested
        ahead = max(1, min(int(_AHEAD / self.mean), _MOST_AHEAD)) if is_short else 1
        # Few calls are divided fairly.
        room = min(ahead, -(-len(self._waiting) // max(1, ready))) - worker.load
        beside = frames.BESIDE if self.is_nested and worker.is_occupied else 0
        calls: list[tuple[int, Call]] = []
        self._alone = [call for call in self._alone if not call.future.done()]
        while len(calls) < room and (call := self._next_call(worker, calls, only_nested=bool(beside))):
            if call.future.start():
                self._next += 1
                calls.append((self._next | beside, call))
        if calls:
            worker.send_calls(calls)
        return bool(calls)

    def _next_call(self, worker: Worker, added: list[tuple[int, Call]], only_nested: bool) -> Call | None:
        """Take the first waiting call if a worker, which gets others as well, may run it now."""
        with self._lock:
            if not self._waiting or (only_nested and not self._waiting[0][1].depth):
                return None
            others = (*worker.outstanding.values(), *(call for _, call in added)) if self._alone else ()
            return heapq.heappop(self._waiting)[1] if self._waiting[0][1].may_share(others) else None

    def _balance(self, ready: list[Worker]) -> None:
        """Recall calls that wait behind a long one while other workers are idle."""
        if self._waiting or all(worker.load for worker in ready):
            return
        now = time.monotonic()
        for worker in ready:
            if worker.load > 1 and now - worker.last > _STUCK:
                worker.recall()

    def give_back(self, calls: list[Call]) -> None:
        """Put calls back that have not begun."""
        with self._lock:
            for call in calls:
                heapq.heappush(self._waiting, (call.order, call))
        self.event.set()

    def put_nested(self, worker: Worker, parent: Call, number: int, work: bytes) -> None:
        """Run a call that a call of a worker has submitted, also after `close`."""
        call = Call(Work(work), Future(), depth=parent.depth + 1, parent=parent)
        parent.children[number] = call
        self._nested_at = time.monotonic()
        call.future.add_done_callback(functools.partial(self._on_nested_done, worker, parent, number))
        if not self.is_nested:
            # A call that waits behind its own parent would wait for ever. From now on, none does.
            self.is_nested = True
            for other in self.workers:
                if other.is_ready:
                    other.recall()
        self.put(call)
        self.event.set()

    def _on_nested_done(self, worker: Worker, parent: Call, number: int, future: Future[Any]) -> None:
        """Hand the result to the worker that waits for it, in the thread of the pool."""
        with self._lock:
            self._call_in_loop(worker.reply, parent, number, future)

    def _wanted(self) -> int:
        """Return how many more workers there should be."""
        room = _MOST_WORKERS
        if self._most_workers is not None:
            room = min(room, self._most_workers - len(self.workers))
        if room <= 0:
            return 0
        starting = sum(1 for worker in self.workers if not worker.is_ready)
        with self._lock:
            calls = (call for _, call in self._waiting if not call.future.cancelled())
            return sum(1 for _ in itertools.islice(calls, room + starting)) - starting

    async def _grow(self) -> None:
        """Submit an array job of more workers."""
        try:
            await asyncio.sleep(_COLLECTING)
            if self._most_workers is None and not self.is_single:
                self._most_workers = batch.slots(await in_thread(self.settings.client.info), self.settings)
            if (count := self._wanted()) > 0:
                job = await in_thread(functools.partial(self._new_job, asyncio.get_running_loop(), count))
                self._jobs[job] = [Worker(self, job, index) for index in range(count)]
                self.workers.update(self._jobs[job])
                self._start(self._watch(job))
        except (HostlerError, OSError) as error:
            self._on_failed_start(error)
        finally:
            self._is_growing = False
            self.event.set()

    def _new_job(self, loop: asyncio.AbstractEventLoop, count: int) -> WorkerJob:
        job = self._start_job(self.settings, count)
        with self._lock:
            if self._loop is loop:
                self._jobs[job] = []
                return job
        # The pool has failed meanwhile.
        job.cancel()
        raise asyncio.CancelledError

    async def _watch(self, job: WorkerJob) -> None:
        """Connect the workers of a job, again after lost connections, until all have ended."""
        pause = _SHORTEST_PAUSE
        says_at = time.monotonic() + batch.PATIENCE
        while live := [worker for worker in self._jobs[job] if worker.state is not State.OVER]:
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
                if (
                    not self._has_said_why
                    and time.monotonic() > says_at
                    and not any(it.is_ready for it in self.workers)
                ):
                    self._has_said_why = True
                    await in_thread(job.say_why)
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
            elif task is not None and task["state"] in ("starting", "running"):
                worker.has_process = True
                if task["state"] == "running":
                    await worker.connect()

    async def _on_lost(self, worker: Worker, task: dict[str, Any]) -> None:
        """Fail what a worker that has ended had begun, or fail calls that wait for one that could not start."""
        error_of: Callable[[str], HostlerError] | None = None
        if worker.outstanding or not worker.was_ready:
            stderr = await in_thread(functools.partial(worker.job.stderr, worker.index))
            error_of = functools.partial(batch.lost, name=worker.job.name(worker.index), task=task, stderr=stderr)
        # Until here, the thread may not end.
        worker.state = State.OVER
        self.workers.discard(worker)
        self.event.set()
        if error_of is None:
            return
        self.lose(worker, error_of, task["state"])
        error = error_of("no worker could start")
        if not worker.was_ready and not worker.job.has_failed:
            # Once for all of its workers.
            worker.job.has_failed = True
            self._on_failed_start(error)
        elif not self.workers and not worker.was_ready:
            self._fail_waiting(error)

    def lose(self, worker: Worker, error_of: Callable[[str], HostlerError], state: str = "failed") -> None:
        """Fail the call that a worker ran when it died, and let others run the calls that are not to blame.

        Results arrive in the order of the calls, so the first one without a result is the one that it ran. Those that
        ran beside it run again, once and alone, unless nobody knows whether they have ended.
        """
        calls = worker.take_calls()
        first = next((number for number in calls if number < frames.BESIDE), None)
        beside = [call for number, call in calls.items() if number >= frames.BESIDE]
        if first is not None:
            beside = [call for call in beside if not call.belongs_to(calls[first])]
            # They have shared the memory.
            beside += [calls[first]] if beside and state == "out_of_memory" else []
        again = [call for call in beside if not call.is_alone] if state != "node_fail" else []
        # A call submits its own again.
        again = [call for call in again if not any(call is not it and call.belongs_to(it) for it in again)]
        for call in again:
            call.abandon()
            call.is_alone = True
        self._alone += again
        waiting = [call for number, call in calls.items() if first is not None and first < number < frames.BESIDE]
        self.give_back([*again, *waiting])
        for call in calls.values():
            if call not in again and call not in waiting:
                fail([call], error_of(call.what))

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
            waiting, self._waiting = self._waiting, []
        fail((call for _, call in waiting), error)

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
