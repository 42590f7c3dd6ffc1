"""Call a function with many inputs, on many nodes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from hostler._worker.batch import Batch, Settings
from hostler._worker.project import Environment
from hostler._worker.records import Outcome
from hostler.client import Client
from hostler.errors import UsageError
from hostler.job import Job
from hostler.named import Errors, Map, check_errors, values
from hostler.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")


@overload
def map(
    function: Callable[..., R],
    /,
    *iterables: Iterable[Any],
    key: None = None,
    ordered: bool = True,
    errors: Errors = "raise",
    chunksize: int | None = None,
    max_workers: int | None = None,
    environment: Environment = None,
    trusted: bool = True,
    client: Client | None = None,
    **options: Unpack[Options],
) -> Results[R]: ...


@overload
def map(
    function: Callable[..., R],
    /,
    *iterables: Iterable[Any],
    key: str,
    chunksize: int | None = None,
    max_workers: int | None = None,
    environment: Environment = None,
    trusted: bool = True,
    client: Client | None = None,
    **options: Unpack[Options],
) -> Map[R]: ...


def map(
    function: Callable[..., R],
    /,
    *iterables: Iterable[Any],
    key: str | None = None,
    ordered: bool = True,
    errors: Errors = "raise",
    chunksize: int | None = None,
    max_workers: int | None = None,
    environment: Environment = None,
    trusted: bool = True,
    client: Client | None = None,
    **options: Unpack[Options],
) -> Results[R] | Map[R]:
    """Call a function with each input, as one array job, and return an iterator over the results.

    The job is submitted before this function returns. Without a `key`, it is cancelled when the iterator is closed,
    when an exception ends it, and when this process ends, even by SIGKILL. It is also cancelled when nobody has the
    iterator any more; a line on stderr says so.

    Parameters
    ----------
    function
        The function. It may be a lambda, a closure, or defined in a script or a notebook. Imported modules that are
        not installed are sent with it.
    *iterables
        The inputs, as with the built-in `map`. They are read to their end at once.
    key
        A name for the map, which then continues without this process; returns a `Map`. If you have a map with this
        key, it is returned, and nothing is submitted. It must have the same function, inputs and environment.
    ordered
        Return results in the order of the inputs; otherwise in the order in which they arrive.
    errors
        ``"raise"`` raises the first exception and cancels the rest. ``"return"`` returns exceptions in place of
        results.
    chunksize
        Inputs per array task. By default, the inputs are divided over at most four tasks for each one that the
        cluster's CPUs can run at the same time, or over one if the function captures more than 16 MiB; with a `key`,
        over at most 1000 tasks.
    max_workers
        Array tasks that run at the same time, at most.
    environment
        The Python environment on the nodes. ``"own"``: this interpreter, which must exist at the same path.
        ``"build"``: each node builds an environment with the same minor version and the packages installed here. A
        list of requirements: the same with these packages. By default ``"own"`` on a cluster from ``hostler up``,
        otherwise ``"build"``.
    trusted
        Whether results are unpickled here, which lets the nodes of the job run code here. If False, results are JSON.
    client
        The cluster; by default that of the command line.
    **options
        Resources of each array task: ``cpus``, ``memory``, ``gpus``, ``time`` and others of
        `hostler.options.Options`.

    Returns
    -------
    Results
        An iterator, and a context manager that cancels what has not ended. With a `key`, a `Map`.

    Raises
    ------
    PicklingError
        If the function or an input cannot be pickled.
    RefusedError
        If you have a job with the same key and another content.
    HostlerError
        If the job cannot be submitted; see `Client.submit`.

    Examples
    --------
    >>> list(hostler.map(lambda x: x * x, range(4), cpus=1))
    [0, 1, 4, 9]
    """
    if key is not None and (errors != "raise" or not ordered):
        raise UsageError("ordered and errors belong to `Map.results`", "usage")
    if not iterables:
        raise UsageError("map needs at least one iterable", "usage")
    settings = Settings(client or Client(), environment, options, trusted, chunksize, max_workers)
    name = getattr(function, "__name__", "map")
    if key is not None:
        return Map._submit(function, zip(*iterables, strict=False), name, key, settings)
    kept = cast("tuple[Sequence[Any], ...]", iterables) if all(isinstance(it, Sequence) for it in iterables) else ()
    return Results(function, zip(*iterables, strict=False), name, settings, ordered, errors, kept=kept)


class Results(Iterator[R], Generic[R]):
    """The results of `map` or `map_folder`: an iterator, and a context manager that cancels what has not ended.

    Attributes
    ----------
    job : Job or None
        The array job; None if there were no inputs.
    """

    def __init__(
        self,
        function: Callable[..., object],
        inputs: Iterator[tuple[object, ...]],
        name: str,
        settings: Settings,
        ordered: bool,
        errors: Errors,
        names: Sequence[str] | None = None,
        kept: Sequence[Sequence[Any]] = (),
        **files: Any,
    ) -> None:
        check_errors(errors)
        self._batch: Batch | None = None
        self._values: Iterator[R] = iter(())
        self.job: Job | None = None
        self._read = 0
        if (first := next(inputs, None)) is not None:
            inputs = itertools.chain([first], inputs)
            self._batch = batch = Batch(function, inputs, name, settings, runs_missed=errors == "return", **files)
            self._values = self._iterate(batch, ordered, errors, names, kept)
            self.job = batch.job

    def __repr__(self) -> str:
        if self._batch is None:
            return "Results(0 inputs)"
        jobs = "".join(f"job {job.id}, " for job in self._batch.jobs)
        return f"Results({jobs}{self._batch.count} inputs, {self._read} read)"

    def __next__(self) -> R:
        value = next(self._values)
        self._read += 1
        return value

    def __enter__(self) -> Results[R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Cancel the tasks that have not ended. Does nothing if all have ended."""
        if self._batch:
            self._batch.cancel()

    @staticmethod
    def _iterate(
        batch: Batch, ordered: bool, errors: Errors, names: Sequence[str] | None, inputs: Sequence[Sequence[Any]]
    ) -> Iterator[R]:
        outcomes = batch.outcomes()
        try:
            if names is None:
                yield from values(outcomes, ordered, errors, inputs)
            else:
                yield from values(_named(outcomes, errors, names), ordered, errors, None)
        finally:
            batch.cancel()


def _named(outcomes: Iterator[Outcome], errors: Errors, names: Sequence[str]) -> Iterator[Outcome]:
    """Put the names of inputs beside what became of them."""
    for outcome in outcomes:
        name = names[outcome.index]
        if outcome.error is None:
            yield Outcome(outcome.index, (name, outcome.value))
        elif errors == "return":
            yield Outcome(outcome.index, (name, outcome.error))
        else:
            if sys.version_info >= (3, 11):
                outcome.error.add_note(f"The file is {name}.")
            yield outcome
