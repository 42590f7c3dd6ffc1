"""One array job that calls a function with many inputs, and the results as they arrive."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostler import _executable
from hostler._worker import modules, project, wire
from hostler._worker.project import Environment
from hostler._worker.records import Outcome, is_header, outcome_of
from hostler._worker.task import FRESH_BYTES
from hostler.client import Client
from hostler.errors import HostlerError, JobFailedError, UnreachableError, UsageError
from hostler.job import ENDED, Job
from hostler.options import Options, arguments

# Without a chunksize, inputs are divided over this many array tasks for each that can run at the same time. More would
# balance better, but each starts a Python, and loads the function: there is one for each if that is large.
_TASKS_PER_SLOT = 4

# Most array tasks of a map. The head lists no more in one answer.
_MOST_TASKS = 10_000

# Pause before an unreachable head is asked again.
_AWAY_SECONDS = 1.0

# Results to download with one command, and fewer if they have files of the caller, which need room.
_FETCHED_AT_ONCE = 200
_FETCHED_WITH_FILES = 10

# A job none of whose tasks has started after this time says why, in seconds.
PATIENCE = 10.0

# What keeps a map from being cancelled.
_UNREAD = "its results were not read; keep the return value and read it, or use `hostler.map` with `key=`"

# How much of its stderr the error of a task shows.
_TAIL_CHARACTERS = 2000

# Variables that change what Python computes.
_OF_PYTHON = ("PYTHONHASHSEED", "PYTHONUTF8")

_ENDINGS = {
    "cancelled": "was cancelled",
    "timeout": "reached its time limit",
    "out_of_memory": "ran out of memory",
    "node_fail": "was lost with its node",
}


@dataclass(frozen=True)
class Settings:
    """How the function runs; see `hostler.map`."""

    client: Client
    environment: Environment
    options: Options
    trusted: bool = True
    chunksize: int | None = None
    max_workers: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no map can have."""
        arguments(self.options)
        if any(number is not None and number < 1 for number in (self.chunksize, self.max_workers)):
            raise UsageError("chunksize and max_workers must be at least 1", "usage")


@dataclass(frozen=True)
class Shape:
    """How inputs are divided over the tasks of an array, and the form of their results."""

    count: int
    chunksize: int
    trusted: bool
    #: Inputs that run, one for each task; none for all of them.
    only: tuple[int, ...] = ()

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self.only) or -(-self.count // self.chunksize)

    def inputs(self, task: int) -> range:
        """Return the inputs of a task."""
        if self.only:
            return range(self.only[task], self.only[task] + 1)
        return range(task * self.chunksize, min((task + 1) * self.chunksize, self.count))


def on(cluster: dict[str, Any], settings: Settings) -> Settings:
    """Return settings with the default environment of this cluster, as ``hostler info`` describes it."""
    if settings.environment is not None:
        project.check_sandbox(settings.environment, settings.options)
        return settings
    # The nodes of `hostler up` are on the caller's machine.
    environment = project.default_environment(cluster["head"]["embedded"], settings.options)
    return dataclasses.replace(settings, environment=environment)


def shape(count: int, tasks: int, settings: Settings) -> Shape:
    """Divide inputs over as many tasks, or as the settings say.

    Raises
    ------
    UsageError
        If these are too many tasks.
    """
    found = Shape(count, settings.chunksize or -(-count // min(tasks, _MOST_TASKS)), settings.trusted)
    if found.tasks > _MOST_TASKS:
        raise UsageError(
            f"{count} inputs with chunksize {found.chunksize} are {found.tasks} array tasks; a map has at most "
            f"{_MOST_TASKS}",
            "usage",
            (f"choose a chunksize of at least {-(-count // _MOST_TASKS)}, or none",),
        )
    return found


def write(folder: Path, name: str, divided: Shape, settings: Settings) -> list[str]:
    """Write everything but function and inputs into the folder of a map. Return the arguments of ``hostler submit``.

    Parameters
    ----------
    folder
        A folder with function and inputs.
    name
        Name of the job, unless the options have one.
    divided
        How the inputs are divided over tasks.
    settings
        How the function runs; see `on`.
    """
    project.write_program(folder, worker_settings(settings, divided.chunksize))
    return submission(folder, name, divided.tasks, settings.max_workers, settings)


def worker_settings(settings: Settings, chunksize: int | None) -> wire.Settings:
    """Return what the tasks must know."""
    return wire.Settings(
        python=list(sys.version_info[:3]),
        argv=sys.argv.copy(),
        texts=modules.texts(),
        chunksize=chunksize,
        only=[],
        trusted=settings.trusted,
        local=False,
        state=project.packed_state() if chunksize is not None else {},
        asks=asks(settings) if chunksize is None else [],
    )


def asks(settings: Settings) -> list[Any]:
    """Return what an executor asks for: head, environment, and options that are not about variables and names."""
    options = {name: value for name, value in settings.options.items() if name not in ("env", "name", "tags")}
    asked = [settings.client.head, settings.environment, options]
    # The form that they have when they are read again.
    found: list[Any] = json.loads(json.dumps(asked, default=str))
    return found


def submission(folder: Path, name: str, tasks: int, at_once: int | None, settings: Settings) -> list[str]:
    """Write the environment into a folder with everything else. Return the arguments of ``hostler submit``."""
    entry = project.write_environment(folder, settings.environment)
    options = Options(name=re.sub(r"[^A-Za-z0-9_.-]", "", name) or "map")
    options.update(settings.options)
    names = (*_OF_PYTHON, "PYTHONHOME") if settings.environment == "own" else _OF_PYTHON
    if its := {name: os.environ[name] for name in names if name in os.environ}:
        options["env"] = {**its, **(options.get("env") or {})}
    limit = f"%{at_once}" if at_once else ""
    return [*arguments(options), f"--array=0-{tasks - 1}{limit}", str(folder), *entry]


def slots(cluster: dict[str, Any], settings: Settings) -> int:
    """Return how many tasks the CPUs of a cluster can run at the same time, at least one."""
    return max(1, int(cluster["cpus"]["total"]) // (settings.options.get("cpus") or 1))


class Batch:
    """An array job that calls a function, and that is cancelled at the end of a ``with`` block or of this process.

    Parameters
    ----------
    function
        The function.
    inputs
        The arguments of each call, at least one. They are read to their end, and not kept in memory.
    name
        Name of the job, unless the options have one.
    settings
        How the function runs.
    add
        Called with the folder of the map, to which it may add files.
    keep
        See `Collector`.
    runs_missed
        Whether inputs that did not run, because another one of their task ended it, run in tasks of their own.

    Attributes
    ----------
    job : Job
    jobs : list of Job
        It, and the job of the inputs that it missed.
    count : int
        The number of inputs.
    """

    def __init__(
        self,
        function: Callable[..., object],
        inputs: Iterable[tuple[object, ...]],
        name: str,
        settings: Settings,
        *,
        add: Callable[[Path], None] | None = None,
        keep: Callable[[int, Path], None] | None = None,
        runs_missed: bool = False,
    ) -> None:
        client = settings.client
        cluster = client.info()
        self._settings = settings = on(cluster, settings)
        self._name = name
        self._keep = keep
        self._runs_missed = runs_missed
        directory = Path(tempfile.mkdtemp(prefix="hostler-map-"))
        attached: _executable.AttachedJob | None = None
        try:
            self._folder = folder = directory / "folder"
            folder.mkdir()
            with modules.only() as self._imported:
                count = project.write_call(folder, function, inputs)
                if add is not None:
                    add(folder)
                is_large = (folder / wire.FUNCTION).stat().st_size > FRESH_BYTES
                per_slot = 1 if is_large else _TASKS_PER_SLOT
                divided = shape(count, per_slot * slots(cluster, settings), settings)
                flags = write(folder, name, divided, settings)
            attached = _executable.AttachedJob(flags, client.head, str(directory), _UNREAD)
            if not runs_missed:
                # The head has it now.
                shutil.rmtree(folder, ignore_errors=True)
            self._attached = attached
            self.job = Job(client, int(attached.id))
            self.jobs = [self.job]
            self.count = count
            self._waiting = threading.Timer(PATIENCE, say_why, (self.job,))
            self._waiting.daemon = True
            self._waiting.start()
            self._shape = divided
            self._results = Collector(self.job, divided, directory, keep)
        except BaseException:
            if attached is not None:
                attached.cancel()
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def outcomes(self, on_start: Callable[[int], None] = lambda index: None) -> Iterator[Outcome]:
        """Yield what became of each input; see `Collector.outcomes`."""
        missed: list[int] = []
        for outcome in self._results.outcomes(on_start):
            if outcome.has_begun or not self._runs_missed or len(missed) == _MOST_TASKS:
                yield outcome
            else:
                missed.append(outcome.index)
            # Results must not stay in memory until the next one arrives.
            del outcome
        if missed:
            self._submit_missed(missed)
            yield from self._results.outcomes(on_start)
        self._attached.finish()

    def _submit_missed(self, missed: list[int]) -> None:
        """Submit a job with one task for each of these inputs."""
        only = sorted(missed)
        divided = dataclasses.replace(self._shape, chunksize=1, only=tuple(only))
        file = self._folder / wire.SETTINGS
        file.write_text(json.dumps({**json.loads(file.read_text()), "chunksize": 1, "only": only}), encoding="utf-8")
        settings, before, client = self._settings, self._attached, self._settings.client
        with modules.only(self._imported):
            flags = submission(self._folder, self._name, divided.tasks, settings.max_workers, settings)
        self._attached = _executable.AttachedJob(flags, client.head, str(self._folder.parent), _UNREAD)
        before.finish()
        job = Job(client, int(self._attached.id))
        self.jobs.append(job)
        what = "input runs" if len(only) == 1 else "inputs run"
        print(f"hostler: job {self.job.id} ended early; {len(only)} {what} alone in job {job.id}", file=sys.stderr)
        self._results = Collector(job, divided, None, self._keep)

    def cancel(self) -> None:
        """Cancel the tasks that have not ended, and clean up."""
        # Results must not be downloaded any more: the directory for them is deleted.
        self._results.stop()
        self._waiting.cancel()
        self._attached.cancel()


def say_why(job: Job) -> None:
    """Say on stderr why a job waits, if no task of it has started."""
    with contextlib.suppress(HostlerError):
        status = job.status()
        if status.state == "pending":
            reason = f": {status.reason}" if status.reason else ""
            print(f"hostler: job {job.id} waits{reason}; `hostler why {job.id}` says more", file=sys.stderr)


class Collector:
    """Downloads the results of the tasks of a map.

    Parameters
    ----------
    job
        The array job.
    divided
        How the inputs are divided over its tasks.
    directory
        A directory for results, each of which is deleted when it is read. Without one, there is one for each download,
        so that a process that is killed while it waits leaves none.
    keep
        Called with each input that has a result, and the directory with the files of its task. Its errors are those of
        the input.
    """

    def __init__(
        self, job: Job, divided: Shape, directory: Path | None, keep: Callable[[int, Path], None] | None = None
    ) -> None:
        self.job = job
        self._client = job._client
        self._shape = divided
        self._directory = directory
        self._keep = keep
        self._is_stopped = False
        self._is_away = False

    def outcomes(
        self, on_start: Callable[[int], None] = lambda index: None, *, waits: bool = True
    ) -> Iterator[Outcome]:
        """Yield what became of each input, in the order in which the tasks end.

        Parameters
        ----------
        on_start
            Called with each input whose task has started.
        waits
            Whether to wait for tasks that have not ended.

        Raises
        ------
        CancelledError
            After `stop`.
        """
        started: set[int] = set()
        for tasks in self._changes() if waits else [self._present()]:
            self._check_not_stopped()
            for task in tasks:
                if task["state"] != "pending" and task["index"] not in started:
                    started.add(task["index"])
                    for index in self._shape.inputs(task["index"]):
                        on_start(index)
            ended = [task for task in tasks if task["state"] in ENDED]
            at_once = _FETCHED_WITH_FILES if self._keep else _FETCHED_AT_ONCE
            for at in range(0, len(ended), at_once):
                yield from self._collect(ended[at : at + at_once])

    def _present(self) -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = self._ask("job", str(self.job.id), f"--tasks={self._shape.tasks}")["tasks_shown"]
        return tasks

    def _changes(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the tasks that have started or ended, as that happens, until all have ended; each end once."""
        ended: set[int] = set()
        while True:
            try:
                for lines in self._client._lines("wait", "--each", str(self.job.id), accepted=(0, 1)):
                    self._is_away = False
                    tasks = [task for task in map(json.loads, lines) if task["index"] not in ended]
                    yield tasks
                    ended.update(task["index"] for task in tasks if task["state"] in ENDED)
                return
            except UnreachableError as error:
                self._wait_for_head(error)

    def _wait_for_head(self, error: UnreachableError) -> None:
        """Say once that the head is unreachable, and wait, since the tasks continue."""
        if not self._is_away:
            print(f"hostler: {error.message}; the map waits", file=sys.stderr)
        self._is_away = True
        time.sleep(_AWAY_SECONDS)

    def stop(self) -> None:
        """Download nothing more."""
        self._is_stopped = True

    def _check_not_stopped(self) -> None:
        if self._is_stopped:
            raise concurrent.futures.CancelledError("the map was cancelled")

    def _ask(self, *arguments: str) -> Any:
        """Run a command. Waits while the head is unreachable."""
        while True:
            try:
                answer = self._client._ask(*arguments)
            except UnreachableError as error:
                self._wait_for_head(error)
            else:
                self._is_away = False
                return answer

    def _collect(self, tasks: list[dict[str, Any]]) -> Iterator[Outcome]:
        """Download the results of tasks, and yield what became of their inputs."""
        self._check_not_stopped()
        names = [f"{self.job.id}_{task['index']}" for task in tasks if task["result"]]
        if names and self._directory is None:
            with tempfile.TemporaryDirectory(prefix="hostler-map-") as directory:
                yield from self._outcomes_of(tasks, self._ask("fetch", *names, f"--to={directory}"))
            return
        try:
            arrived = self._ask("fetch", *names, f"--to={self._directory}") if names else []
        finally:
            if self._is_stopped and self._directory is not None:
                # It has been deleted meanwhile, and the download may have created it again.
                shutil.rmtree(self._directory, ignore_errors=True)
        self._check_not_stopped()
        yield from self._outcomes_of(tasks, arrived)

    def _outcomes_of(self, tasks: list[dict[str, Any]], arrived: list[dict[str, Any]]) -> Iterator[Outcome]:
        """Yield what became of the inputs of tasks, whose results have arrived."""
        places = {result["index"]: Path(result["path"]) for result in arrived}
        for task in tasks:
            place = places.get(task["index"])
            missing = set(self._shape.inputs(task["index"]))
            for outcome in self._read(place / wire.RESULTS) if place else ():
                # A node cannot claim results of other tasks.
                if outcome.index in missing:
                    missing.discard(outcome.index)
                    yield self._kept(outcome, place) if place and self._keep else outcome
                # Results must not stay in memory until the next one arrives.
                del outcome
            began = _last_that_began(task, place, self._shape.inputs(task["index"]))
            for index in sorted(missing):
                yield Outcome(index, error=self._lost(index, task, place, began), has_begun=index <= began)
            if place:
                shutil.rmtree(place, ignore_errors=True)

    def _kept(self, outcome: Outcome, place: Path) -> Outcome:
        """Return an outcome after its file has been put in place, or the error if there is one."""
        if self._keep and outcome.error is None:
            try:
                self._keep(outcome.index, place)
            except (OSError, HostlerError) as error:
                return Outcome(outcome.index, error=error)
        return outcome

    def _read(self, file: Path) -> Iterator[Outcome]:
        """Read the complete records of a task; a task that was killed may have written a part of another one."""
        if not is_own_file(file):
            return
        size = file.stat().st_size
        with open(file, "rb") as records:
            while (line := records.readline()).endswith(b"\n"):
                try:
                    header: wire.Header = json.loads(line)
                    # The job may have written something else into this file.
                    if not is_header(header, size):
                        return
                    content = records.read(header["bytes"])
                    if len(content) < header["bytes"]:
                        return
                    outcome = outcome_of(header, content, self._shape.trusted)
                except (ValueError, TypeError, KeyError, RecursionError):
                    return
                yield outcome
                del outcome

    def _lost(self, index: int, task: dict[str, Any], place: Path | None, began: int) -> HostlerError:
        """Return the error for an input without a result, which has begun if it is not after the last one that has."""
        log = place / "stderr.log" if place else None
        tail = log.read_text(errors="replace")[-_TAIL_CHARACTERS:] if log and is_own_file(log) else ""
        what = (
            f"input {index} has no result"
            if index <= began
            else f"input {index} did not run, since during input {began}"
        )
        return lost(what, f"{self.job.id}_{task['index']}", task, tail)


def _last_that_began(task: dict[str, Any], place: Path | None, inputs: range) -> int:
    """Return the last input of a task that may have begun."""
    # Nobody knows what has run on a lost node, and what somebody has cancelled should not run.
    if place is None or task["state"] in ("node_fail", "cancelled") or not is_own_file(place / wire.PROGRESS):
        return inputs[-1]
    content = (place / wire.PROGRESS).read_bytes()[: wire.PROGRESS_FORM.size]
    # A call can write anything there.
    began = wire.PROGRESS_FORM.unpack(content)[0] if len(content) == wire.PROGRESS_FORM.size else inputs[-1]
    return int(min(max(began, inputs[0]), inputs[-1]))


def lost(what: str, name: str, task: dict[str, Any], stderr: str) -> JobFailedError:
    """Return the error for what a task, or a process of this machine, did not complete."""
    code = task["exit_code"]
    how = _ENDINGS.get(task["state"], "could not start" if code is None else f"ended with exit code {code}")
    node = f" on {task['node']}" if task["node"] else ""
    message = f": {_executable.with_parameters(task['message'])}" if task["message"] else ""
    tail = stderr[-_TAIL_CHARACTERS:].strip()
    tail = f"\nend of its stderr:\n{tail}" if tail else ""
    is_task = name[:1].isdigit()
    return JobFailedError(
        f"{what}: {'task ' if is_task else ''}{name} {how}{node}{message}{tail}",
        "job_failed",
        (f"`hostler job {name}` and `hostler logs {name}` show more",) if is_task else (),
    )


def is_own_file(file: Path) -> bool:
    """Whether this is a file of the result: no link, and no file that another user of this machine has put there."""
    return file.is_file() and not file.is_symlink() and file.stat().st_uid == os.geteuid()
