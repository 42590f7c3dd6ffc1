"""An executor with the interface of `concurrent.futures`, and a decorator."""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from hostler._worker import modules, project, server
from hostler._worker.batch import Settings, asks, slots
from hostler._worker.call import Call, Future, named
from hostler._worker.parts import Store
from hostler._worker.pool import Pool
from hostler._worker.project import Environment
from hostler.client import Client
from hostler.errors import UsageError
from hostler.mapping import Results, map
from hostler.named import Map
from hostler.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Edited modules are looked for this often, in seconds. Each time would cost more than to submit a call.
_LOOKING = 0.05

P = ParamSpec("P")
R = TypeVar("R")


class Executor(concurrent.futures.Executor):
    """Runs calls on the cluster, on workers that stay for more calls.

    Workers are array tasks. They start when calls wait for them, and end after ten seconds without calls. All of them
    end with this process, even by SIGKILL.

    Calls can submit calls to the executor that runs them, or to one that asks for the same options or for none. These
    run on the same workers, and a call that has submitted others shares its worker with such calls until they end.

    Parameters
    ----------
    max_workers
        Calls that run at the same time, at most. By default, as many as the CPUs of the cluster can run.
    environment, trusted, client, **options
        See `hostler.map`. The options are those of each worker. With ``time``, each call has a worker of its own.
        ``requeue`` is refused: a call that runs on a lost node does not run again.

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
        environment: Environment = None,
        trusted: bool = True,
        client: Client | None = None,
        **options: Unpack[Options],
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if options.get("requeue"):
            raise ValueError(
                "a call that ran on a lost node does not run again, so an Executor has no requeue; hostler.map has"
            )
        if not options.keys().isdisjoint(("initializer", "initargs")):
            raise TypeError(
                "Executor has no initializer, since workers come and go: do it in a module that the function imports, "
                "which happens once in each worker, or in each call"
            )
        if unknown := sorted(options.keys() - Options.__annotations__.keys()):
            known = ", ".join(sorted(Options.__annotations__))
            raise TypeError(f"Executor has no option {unknown[0]!r}; it has {known}")
        project.check_sandbox(environment, options)
        self._settings = Settings(client or Client(), environment, options, trusted, max_workers=max_workers)
        self._is_local = False
        # Inside of a call: its worker, if that can run calls of this executor.
        self._worker = _fitting_worker(self._settings, is_local=False)
        self._submitted: set[concurrent.futures.Future[Any]] = set()
        self._lock = threading.Lock()
        self._is_shut_down = False
        # The last one takes calls. The workers of the others lack modules that were imported or edited later.
        self._pools: list[Pool] = []
        self._looked_at = 0.0
        self._module_count = 0
        # Values that cannot be sent, and whether any were ever sent.
        self._lost: list[str] = []
        self._has_state = False
        self._parts = Store()
        self._modules: dict[str, str] = {}
        self._shipped: dict[str, tuple[int, int]] = {}
        weakref.finalize(self, _close, self._pools).atexit = False
        _executors.add(self)

    @classmethod
    def local(
        cls, max_workers: int | None = None, *, trusted: bool = True, env: Mapping[str, str] | None = None
    ) -> Executor:
        """Return an executor whose workers are processes of this machine. It needs no cluster.

        Functions, arguments and results travel as on a cluster, so what works here can be sent to nodes.

        Parameters
        ----------
        max_workers
            Calls that run at the same time, at most; by default the CPUs that this process may use.
        trusted
            See `hostler.map`.
        env
            Variables of the workers besides those of this process.
        """
        if max_workers is None:
            max_workers = len(os.sched_getaffinity(0))
        executor = cls(max_workers, environment="own", trusted=trusted, env=env)
        executor._is_local = True
        executor._worker = None
        return executor

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings. Inside of a call of this executor, the copy uses the same workers."""
        return _copied, (type(self), self._is_local, self._settings)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        """Submit a call and return its future.

        Cancelling the future cancels the call, unless a worker has it.

        Raises
        ------
        PicklingError
            If the function or an argument cannot be pickled.
        RuntimeError
            After `shutdown`.
        """
        values = self._values()
        # Inside of a call, it travels through the caller of that one.
        work = project.packed_call((fn, args, kwargs), None if self._worker else self._parts, values)
        call = Call(work, Future(), named(fn, args))
        with self._lock:
            if self._worker is not None:
                return self._submit_to_worker(self._worker, call.work.head)
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if not threading.main_thread().is_alive():
                raise RuntimeError("cannot schedule new futures after interpreter shutdown")
            self._pool().put(call)
        return call.future

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[R]:
        """Call a function with each input, and return an iterator over the results in the order of the inputs.

        Parameters
        ----------
        fn
            The function.
        *iterables
            The inputs, as with the built-in `map`.
        timeout
            Time from now in which each result must be there, in seconds.
        chunksize
            Has no effect: short calls are sent in batches by themselves.
        buffersize
            Calls whose results have not been taken, at most; inputs are read as results are taken. By default, all
            inputs are read at once.

        Raises
        ------
        concurrent.futures.TimeoutError
            From the iterator, if a result is not there in time.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be at least 1")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        if buffersize is None:
            return super().map(fn, *iterables, timeout=timeout, chunksize=chunksize)
        deadline = None if timeout is None else time.monotonic() + timeout
        inputs = zip(*iterables, strict=False)
        futures = collections.deque(self.submit(fn, *items) for items in itertools.islice(inputs, buffersize))
        return self._buffered(fn, inputs, futures, deadline)

    def _buffered(
        self,
        fn: Callable[..., R],
        inputs: Iterator[tuple[Any, ...]],
        futures: collections.deque[concurrent.futures.Future[R]],
        deadline: float | None,
    ) -> Iterator[R]:
        """Yield results, and submit a call for each."""
        try:
            while futures:
                if (items := next(inputs, None)) is not None:
                    futures.append(self.submit(fn, *items))
                yield _taken(futures.popleft(), deadline)
        finally:
            for future in futures:
                future.cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, except those that running calls submit.

        Parameters
        ----------
        wait
            Return when all calls have ended.
        cancel_futures
            Cancel calls that no worker has.
        """
        with self._lock:
            self._is_shut_down = True
            submitted = tuple(self._submitted)
        if cancel_futures:
            for future in submitted:
                future.cancel()
        if wait:
            concurrent.futures.wait(submitted)
        for pool in self._pools:
            if cancel_futures:
                pool.cancel()
            pool.close()
        if wait:
            for pool in self._pools:
                pool.join()

    def __repr__(self) -> str:
        if self._worker is not None:
            return "Executor(the workers of its caller)"
        states = [str(pool) for pool in self._pools if not pool.is_over]
        return f"Executor({'; '.join(states) or ('shut down' if self._is_shut_down else 'no workers')})"

    @property
    def _max_workers(self) -> int:
        """How many calls run at the same time; Dask reads this."""
        if self._worker is not None:
            return self._settings.max_workers or len(os.sched_getaffinity(0))
        return self._settings.max_workers or slots(self._settings.client.info(), self._settings)

    def _submit_to_worker(self, worker: server.Worker, work: bytes) -> concurrent.futures.Future[Any]:
        """Submit a call inside of a call."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = worker.submit(work)
        self._submitted.add(future)
        future.add_done_callback(self._submitted.discard)
        return future

    def _values(self) -> dict[str, bytes] | None:
        """Return what this program has set in modules; None if no worker has any values from it."""
        self._look_for_modules()
        values, lost = project.state_of_modules(self._modules)
        if lost and lost != self._lost:
            project.warn_of_state(lost)
        self._lost = lost
        self._has_state = self._has_state or bool(values)
        # Workers that run a call of a call may have those of another call.
        return values if self._has_state or self._worker is not None else None

    def _look_for_modules(self) -> None:
        if modules.count() != self._module_count:
            self._module_count = modules.count()
            self._modules = modules.files()
            self._looked_at = 0.0

    def _pool(self) -> Pool:
        """Return a pool whose workers have all modules that a call may need, as they are now."""
        self._look_for_modules()
        now = time.monotonic()
        if self._pools and now - self._looked_at < _LOOKING:
            return self._pools[-1]
        self._looked_at = now
        versions = modules.versions(self._modules)
        if not self._pools or not versions.items() <= self._shipped.items():
            _close(self._pools)
            self._pools[:] = [pool for pool in self._pools if not pool.is_over]
            self._pools.append(Pool(self._settings, self._is_local))
            self._shipped = versions
        return self._pools[-1]


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def _begin_again() -> None:
    """Let executors of a forked process start workers of their own: it has no threads, and those serve its parent."""
    for executor in tuple(_executors):
        # Another thread of the parent may have held the lock.
        executor._lock = threading.Lock()
        executor._worker = None
        executor._submitted.clear()
        executor._pools.clear()


os.register_at_fork(after_in_child=_begin_again)


def _fitting_worker(settings: Settings, is_local: bool) -> server.Worker | None:
    """Return the worker of the call that runs here, if it has all that an executor asks for."""
    worker = server.current
    # With `trusted=False`, a node may not have others run anything.
    if worker is None or worker.settings["local"] != is_local or not (worker.settings["trusted"] and settings.trusted):
        return None
    head, environment, options = asks(settings)
    its_head, its_environment, its_options = worker.settings["asks"]
    env = settings.options.get("env") or {}
    fits = (
        head in (None, its_head)
        and environment in (None, its_environment)
        and options in ({}, its_options)
        and all(os.environ.get(name) == value for name, value in env.items())
    )
    return worker if fits else None


def _copied(kind: type[Executor], is_local: bool, settings: Settings) -> Executor:
    """Return an executor that was pickled."""
    if server.current is not None and not settings.trusted:
        raise UsageError(
            "calls of an Executor with `trusted=False` cannot use an Executor of their caller",
            "usage",
            ("what a node sends would run on other nodes; create one inside the call, or leave out `trusted`",),
        )
    executor = Executor.__new__(kind)
    Executor.__init__(
        executor,
        settings.max_workers,
        environment=settings.environment,
        trusted=settings.trusted,
        client=settings.client,
        **settings.options,
    )
    executor._is_local = is_local
    executor._worker = _fitting_worker(settings, is_local)
    return executor


def _close(pools: list[Pool]) -> None:
    for pool in pools:
        pool.close()


def _taken(future: concurrent.futures.Future[R], deadline: float | None) -> R:
    """Return a result that only the caller keeps."""
    try:
        return future.result(None if deadline is None else deadline - time.monotonic())
    finally:
        future.cancel()


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
    environment: Environment = None,
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
