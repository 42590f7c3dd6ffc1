"""Maps with a name, which outlive the process that submitted them."""

from __future__ import annotations

import dataclasses
import reprlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from hostler._display import Rich
from hostler._worker import batch, meaning, modules, project
from hostler._worker.batch import Collector, Settings, Shape
from hostler._worker.records import Outcome
from hostler._worker.wire import MODULES
from hostler.client import Client
from hostler.errors import MismatchError, RefusedError, UsageError
from hostler.job import Job, Status, described
from hostler.options import arguments

R = TypeVar("R")

Errors = Literal["raise", "return"]

# Inputs are divided over at most this many array tasks. The number does not depend on the cluster, because the same map
# has to give the same job tomorrow.
_TASKS = 1000

# The job's tag that describes the inputs, and its value: number of inputs, inputs per task, and form of the results.
_TAG = "map"
_FORMS = {True: "pickle", False: "json"}

# The job's tag with a digest of each part of the content, and how an error names a part that differs.
_CONTENT = "map-content"
_PARTS = {
    "function": "another function",
    "inputs": "other inputs",
    "modules": "other modules beside the program",
    "state": "other values set in modules",
    "environment": "another environment",
}


class Map(Rich, Generic[R]):
    """A map with a name, which continues without this process: the result of `map` with a ``key``.

    Attributes
    ----------
    key : str
    job : Job
        The array job.

    Examples
    --------
    >>> m = hostler.map(simulate, range(10_000), key="grid-3", cpus=2)
    >>> # Tomorrow, or on another machine:
    >>> m = hostler.Map.open("grid-3")
    >>> results = list(m)
    """

    def __init__(self, key: str, job: Job, shape: Shape) -> None:
        self.key = key
        self.job = job
        self._shape = shape

    @classmethod
    def open(cls, key: str, *, client: Client | None = None) -> Map[Any]:
        """Return the map with this key.

        Raises
        ------
        UsageError
            If you have no map with this key, or its job was deleted.
        """
        client = client or Client()
        found = client._ask("jobs", f"--key={key}")["jobs"]
        if not found:
            raise UsageError(
                f"there is no map with the key `{key}`",
                "no_such_key",
                ("`hostler.map(…, key=…)` submits one; old jobs are deleted",),
            )
        return Map(key, Job(client, found[0]["id"]), _shape(key, found[0]))

    @classmethod
    @modules.only()
    def _submit(
        cls,
        function: Callable[..., object],
        inputs: Iterable[tuple[Any, ...]],
        name: str,
        key: str,
        settings: Settings,
    ) -> Map[Any]:
        """Submit a map, or find the one with this key and the same content."""
        client = settings.client
        settings = batch.on(client.info(), settings)
        with tempfile.TemporaryDirectory(prefix="hostler-map-") as directory:
            folder = Path(directory) / "folder"
            folder.mkdir()
            values = meaning.Values()
            count = project.write_call(folder, function, inputs, values)
            if count == 0:
                raise UsageError("a map with a key needs at least one input", "usage")
            shape = batch.shape(count, _TASKS, settings)
            tags = {**(settings.options.get("tags") or {}), _TAG: f"{count},{shape.chunksize},{_FORMS[shape.trusted]}"}
            settings = dataclasses.replace(settings, options={**settings.options, "tags": tags})
            flags = batch.write(folder, name, shape, settings)
            content = {
                "function": meaning.of(function),
                "inputs": values.digest(),
                "modules": meaning.of_files(folder / MODULES),
                "state": project.described_state(),
                "environment": project.described_environment(folder, settings.environment),
            }
            tag = ",".join(f"{part}:{digest}" for part, digest in content.items())
            if found := _same(client, key, shape, content):
                return found
            try:
                job = client._ask("submit", f"--key={key}", f"--tag={_CONTENT}={tag}", *flags)
            except RefusedError:
                # Another process may have submitted it meanwhile.
                if found := _same(client, key, shape, content):
                    return found
                raise
        return Map(key, Job(client, job["id"]), shape)

    def __repr__(self) -> str:
        return f"Map({self.key!r}, job {self.job.id}, {len(self)} inputs)"

    def __len__(self) -> int:
        return self._shape.count

    def __iter__(self) -> Iterator[R]:
        return self.results()

    def results(self, *, ordered: bool = True, errors: Errors = "raise") -> Iterator[R]:
        """Yield the results, and wait for those that are missing. Nothing is cancelled.

        Each call begins with the first result again, and downloads all of them.

        Parameters
        ----------
        ordered
            Yield results in the order of the inputs; otherwise in the order in which they arrive.
        errors
            ``"raise"`` raises the first exception. ``"return"`` yields exceptions in place of results.
        """
        check_errors(errors)
        return values(self._outcomes(), ordered, errors)

    def status(self) -> Status:
        """Return the present state of the job; `tasks` counts array tasks, not inputs."""
        return self.job.status()

    def wait(self, timeout: float | None = None) -> Status:
        """Wait for the end of all tasks; see `Job.wait`."""
        return self.job.wait(timeout)

    def failed(self) -> dict[int, BaseException]:
        """Return the exceptions of those inputs whose tasks have ended without a result for them, by input."""
        return {outcome.index: outcome.error for outcome in self._outcomes(waits=False) if outcome.error is not None}

    def retry(
        self, *, cpus: int | None = None, memory: int | str | None = None, time: float | str | None = None
    ) -> list[int]:
        """Run the failed inputs again; see `failed`. Return the inputs that run again.

        All inputs of an array task run again, also those that have a result.

        Parameters
        ----------
        cpus, memory, time
            New values for all tasks that have not completed. Refused while tasks run.
        """
        tasks = sorted({index // self._shape.chunksize for index in self.failed()})
        if not tasks:
            return []
        names = [f"{self.job.id}_{task}" for task in tasks]
        changes = arguments({"cpus": cpus, "memory": memory, "time": time})
        client = self.job._client
        hold = ["--hold"] if changes else []
        client._ask("requeue", "--completed", *hold, *names)
        if changes:
            client._ask("update", str(self.job.id), *changes)
            client._ask("release", *names)
        return [index for task in tasks for index in self._shape.inputs(task)]

    def cancel(self) -> None:
        """Cancel the tasks that have not ended. Results that exist remain."""
        self.job.cancel()

    def _view(self) -> tuple[str, str]:
        return described(f"map {self.key} of {len(self)} inputs, job {self.job.id}", self.status())

    def _outcomes(self, *, waits: bool = True) -> Iterator[Outcome]:
        yield from Collector(self.job, self._shape, None).outcomes(waits=waits)


def check_errors(errors: str) -> None:
    """Raise an exception if this says nothing about exceptions of the function."""
    if errors not in ("raise", "return"):
        raise UsageError(f'errors is "{errors}"', "usage", ('choose "raise" or "return"',))


def values(
    outcomes: Iterator[Outcome], ordered: bool, errors: Errors, inputs: Sequence[Sequence[Any]] | None = ()
) -> Iterator[Any]:
    """Yield results, and raise or yield exceptions. These get a note with their input, unless `inputs` is None."""
    for outcome in _in_order(outcomes) if ordered else outcomes:
        if outcome.error is None:
            yield outcome.value
            continue
        if inputs is not None and sys.version_info >= (3, 11):
            given = ", ".join(reprlib.repr(values[outcome.index]) for values in inputs)
            outcome.error.add_note(f"This was input {outcome.index}{': ' if given else ''}{given}.")
        if errors == "raise":
            raise outcome.error
        # The caller asked for exceptions among the results.
        yield outcome.error


def _in_order(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    early: dict[int, Outcome] = {}
    following = 0
    for outcome in outcomes:
        early[outcome.index] = outcome
        while following in early:
            yield early.pop(following)
            following += 1


def _same(client: Client, key: str, shape: Shape, content: dict[str, str]) -> Map[Any] | None:
    """Return the map with this key, if there is one.

    Raises
    ------
    RefusedError
        If it has another content.
    """
    jobs = client._ask("jobs", f"--key={key}")["jobs"]
    if not jobs:
        return None
    (job,) = jobs
    its_shape = _shape(key, job)
    its_content = dict(part.split(":") for part in job["labels"].get(_CONTENT, "").split(",") if part)
    other = [what for part, what in _PARTS.items() if its_content.get(part) != content[part]]
    if not other and (its_shape.chunksize, its_shape.trusted) != (shape.chunksize, shape.trusted):
        other = ["another chunksize, or another value of trusted"]
    if other:
        raise RefusedError(
            f"job {job['id']} has the key `{key}` and {' and '.join(other)}",
            "other_job",
            (
                "choose another key; this one is free again once the results were read and the cluster's setting "
                "`retention` has passed since the job ended",
                f"`hostler.Map.open({key!r})` opens it as it is",
            ),
        )
    return Map(key, Job(client, job["id"]), its_shape)


def _shape(key: str, job: dict[str, Any]) -> Shape:
    """Read the description of the inputs in the tag of a job."""
    try:
        count, chunksize, form = job["labels"][_TAG].split(",")
        return Shape(int(count), int(chunksize), {"pickle": True, "json": False}[form])
    except (KeyError, ValueError):
        raise MismatchError(
            f"job {job['id']} with the key `{key}` is not a map, or its tag `{_TAG}` was changed", "mismatch"
        ) from None
