"""An executor with the interface of `concurrent.futures`, and a decorator."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from hostler import _project
from hostler._batch import Batch, Settings
from hostler.client import Client
from hostler.errors import HostlerError
from hostler.mapping import Results, map
from hostler.named import Map
from hostler.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")

# Calls that are submitted within this time share an array job, in seconds.
_COLLECTING = 0.02


class Executor(concurrent.futures.Executor):
    """Runs calls on the cluster, each in an array task of its own.

    Calls that are submitted one after another share an array job. All calls end with this process, even by SIGKILL.

    Parameters
    ----------
    max_workers
        Tasks of each array job that run at the same time; None for no limit.
    environment, trusted, client, **options
        See `hostler.map`.

    Examples
    --------
    >>> with hostler.Executor(cpus=1, memory="500M") as executor:
    ...     executor.submit(pow, 2, 10).result()
    1024
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        environment: _project.Environment = None,
        trusted: bool = True,
        client: Client | None = None,
        **options: Unpack[Options],
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        self._settings = Settings(client or Client(), environment, trusted, 1, max_workers, options)
        self._lock = threading.Lock()
        self._is_shut_down = False
        # Calls that no job has yet, and the threads of jobs. A thread that collects calls is the last one.
        self._waiting: list[_Call] = []
        self._is_collecting = False
        self._threads: set[threading.Thread] = set()
        self._unfinished: set[_Future[Any]] = set()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        """Submit a call and return its future.

        Cancelling the future cancels the task, as long as the task waits.

        Raises
        ------
        PicklingError
            If the function or an argument cannot be pickled.
        RuntimeError
            After `shutdown`.
        """
        call = _Call(_project.dumps("the call", (fn, args, kwargs)), _Future())
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append(call)
            self._unfinished.add(call.future)
            call.future.add_done_callback(self._forget)
            if not self._is_collecting:
                # No daemon: as with other executors, Python waits for the calls before it exits.
                thread = threading.Thread(target=self._run_batch, name="hostler-executor", daemon=False)
                self._threads.add(thread)
                self._is_collecting = True
                thread.start()
        return call.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls.

        Parameters
        ----------
        wait
            Return when all calls have ended.
        cancel_futures
            Cancel calls that have not started.
        """
        with self._lock:
            self._is_shut_down = True
            threads = list(self._threads)
            unfinished = list(self._unfinished)
        if cancel_futures:
            for future in unfinished:
                future.cancel()
        if wait:
            for thread in threads:
                thread.join()

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._unfinished.discard(future)

    def _run_batch(self) -> None:
        """Collect calls for a moment, and run them as one job."""
        try:
            time.sleep(_COLLECTING)
            with self._lock:
                calls, self._waiting = self._waiting, []
                self._is_collecting = False
            calls = [call for call in calls if not call.future.cancelled()]
            work = [call.work for call in calls]
            futures = dict(enumerate(call.future for call in calls))
            del calls
            if futures:
                self._follow(work, futures)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _follow(self, work: list[bytes], futures: dict[int, _Future[Any]]) -> None:
        """Run pickled calls as one job. Removes futures that have ended, so that their results can be freed."""
        try:
            batch = Batch(_project.dumps("the function", _call), work, "executor", self._settings)
            work.clear()
            try:
                for index in futures:
                    futures[index].cancel_with(functools.partial(batch.cancel_inputs, [index]))
                for outcome in batch.outcomes(lambda index: futures[index].start()):
                    futures.pop(outcome.index).settle(outcome.value, outcome.error)
                    del outcome
            finally:
                batch.cancel()
        except BaseException as error:
            for future in futures.values():
                future.settle(error=error)


@dataclass(frozen=True)
class _Call:
    """A pickled call and its future."""

    work: bytes
    future: _Future[Any]


def _call(work: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> Any:
    function, args, kwargs = work
    return function(*args, **kwargs)


class _Future(concurrent.futures.Future[R]):
    """A future whose cancellation also cancels the task on the cluster."""

    def __init__(self) -> None:
        super().__init__()
        self._changing = threading.RLock()
        self._cancel_task: Callable[[], None] | None = None

    def cancel(self) -> bool:
        with self._changing:
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            # Wakes those who wait for the future.
            self.set_running_or_notify_cancel()
            cancel_task = self._cancel_task
        if cancel_task:
            _quietly(cancel_task)
        return True

    def cancel_with(self, cancel_task: Callable[[], None]) -> None:
        """Say how to cancel the task. Cancels the task if the future was cancelled before."""
        with self._changing:
            self._cancel_task = cancel_task
            is_cancelled = self.cancelled()
        if is_cancelled:
            _quietly(cancel_task)

    def start(self) -> None:
        """Mark a waiting future as running."""
        with self._changing:
            if not self.cancelled() and not self.running():
                self.set_running_or_notify_cancel()

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result, unless the future was cancelled."""
        self.start()
        # A cancelled task on the cluster has an outcome as well.
        if self.cancelled():
            return
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


def _quietly(cancel_task: Callable[[], None]) -> None:
    """Cancel a task. If the head is unreachable, the task runs, and its result is dropped."""
    with contextlib.suppress(HostlerError):
        cancel_task()


class RemoteFunction(Generic[P, R]):
    """A function that runs on the cluster when it is called; see `remote`."""

    def __init__(self, function: Callable[P, R], settings: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._settings = settings

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function on the cluster and return its result."""
        return self.submit(*args, **kwargs).result()

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        """Run the function on the cluster and return a future."""
        executor = Executor(**self._settings)
        try:
            return executor.submit(self._function, *args, **kwargs)
        finally:
            executor.shutdown(wait=False)

    @overload
    def map(self, *iterables: Iterable[Any], key: None = None, **settings: Any) -> Results[R]: ...
    @overload
    def map(self, *iterables: Iterable[Any], key: str, **settings: Any) -> Map[R]: ...
    def map(self, *iterables: Iterable[Any], key: str | None = None, **settings: Any) -> Results[R] | Map[R]:
        """Call the function with each input; see `hostler.map`. Settings override those of the decorator."""
        found: Results[R] | Map[R] = map(self._function, *iterables, key=key, **{**self._settings, **settings})
        return found

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here."""
        return self._function(*args, **kwargs)


def remote(
    *,
    environment: _project.Environment = None,
    trusted: bool = True,
    client: Client | None = None,
    **options: Unpack[Options],
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]:
    """Decorate a function so that it runs on the cluster when it is called.

    Parameters
    ----------
    environment, trusted, client, **options
        See `hostler.map`.

    Examples
    --------
    >>> @hostler.remote(cpus=4, memory="8G")
    ... def train(seed):
    ...     return fit(seed)
    >>> score = train(3)
    >>> scores = list(train.map(range(10)))
    """
    settings = {"environment": environment, "trusted": trusted, "client": client, **options}
    return lambda function: RemoteFunction(function, settings)
