"""Jobs and array tasks."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from hostler import _executable
from hostler._display import Rich, RichList, bar, clock, fields, progress, table
from hostler._executable import Head
from hostler.errors import JobFailedError, UsageError

#: States that do not change any more.
ENDED = frozenset({"completed", "failed", "cancelled", "timeout", "out_of_memory", "node_fail", "preempted"})

Output = Literal["stdout", "stderr", "setup"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Status:
    """What the head knows about a job or an array task at one moment.

    Attributes
    ----------
    state : str
        ``pending``, ``starting``, ``running``, ``completing``, or how it ended: ``completed``, ``failed``,
        ``cancelled``, ``timeout``, ``out_of_memory``, ``node_fail`` or ``preempted``.
    reason : str or None
        Why it waits.
    exit_code : int or None
        Exit code of the program. For an array, that of a task that failed.
    nodes : tuple of str
        Nodes on which it runs, or ran last.
    message : str or None
        Why it failed, if the program did not say so itself.
    submitted_at, started_at, ended_at : datetime or None
        In UTC.
    tasks : dict
        Number of array tasks in each state, with ``total``, and with ``live`` for those on a node.
    details : dict
        The whole answer of the head, as ``hostler job --json`` prints it.
    """

    state: str
    reason: str | None
    exit_code: int | None
    nodes: tuple[str, ...]
    message: str | None
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    tasks: dict[str, int]
    details: dict[str, Any] = field(repr=False)

    @property
    def ended(self) -> bool:
        """Whether the state is final, unless somebody requeues the job."""
        return self.state in ENDED

    @property
    def completed(self) -> bool:
        """Whether the program ended successfully and the head has its results."""
        return self.state == "completed"


class Named:
    """What jobs and array tasks are for programs with and without an event loop."""

    # Whether it is a task.
    _is_task = False

    def __init__(self, client: Head, name: str) -> None:
        self._client = client
        self._name = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and (self._name, self._client) == (other._name, other._client)

    def __hash__(self) -> int:
        return hash(self._name)


class AsyncWork(Named):
    """Jobs and array tasks for programs with an event loop. The methods of others are the same, without coroutines."""

    async def status(self) -> Status:
        """Return the present state."""
        return status_of(await self._client._request("job", self._name), is_task=self._is_task)

    async def wait(self, timeout: float | None = None) -> Status:
        """Wait for the end, however it ends.

        Parameters
        ----------
        timeout
            In seconds; None waits without a limit.

        Raises
        ------
        TimeoutError
            If it has not ended in time. It continues.
        """
        # Exit code 1 means that the job did not complete.
        try:
            await self._client._request("wait", self._name, accepted=(0, 1), timeout=timeout)
        except TimeoutError:
            raise TimeoutError(f"{self!r} has not ended within the timeout of {timeout:g} s, and continues") from None
        return await AsyncWork.status(self)

    async def why(self) -> str:
        """Explain why it waits, and estimate when it starts."""
        return "\n".join((await self._client._request("why", self._name))["lines"])

    async def logs(self, output: Output = "stdout") -> str:
        """Return what was written so far. For an array, the output of all tasks, in the order of their indices.

        Parameters
        ----------
        output
            ``stdout``, ``stderr``, or ``setup`` for the log of the Python environment.
        """
        parts = await self._client._request("logs", f"--{checked(output)}", self._name)
        return "".join(part[output] for part in parts)

    async def fetch(self, to: str | os.PathLike[str] = ".", *, overwrite: bool = False) -> list[Path]:
        """Download the results that exist: the files that the program created or changed, and its output.

        Parameters
        ----------
        to
            Parent directory; each job, array task and further node gets a subdirectory.
        overwrite
            Replace files that differ from the results.

        Returns
        -------
        list of Path
            One directory for each job, array task and further node.
        """
        flags = ["--overwrite"] if overwrite else []
        arrived = await self._client._request("fetch", self._name, f"--to={os.fspath(to)}", *flags)
        return [Path(result["path"]) for result in arrived]

    async def result(self, to: str | os.PathLike[str] = ".") -> Path:
        """Wait for the end, download the results, and return their directory.

        Raises
        ------
        JobFailedError
            If it did not complete. `fetch` downloads what it wrote nevertheless.
        UsageError
            If there are several directories: for an array, use `tasks`; for several nodes, use `fetch`.
        """
        if not self._is_task:
            check_single(self._name, (await AsyncWork.status(self)).details)
        status = await AsyncWork.wait(self)
        if not status.completed:
            raise incomplete(repr(self), self._name, status)
        return (await AsyncWork.fetch(self, to))[0]

    async def cancel(self) -> None:
        """Cancel it. Results written so far can still be fetched. Does nothing if it has ended."""
        await self._client._request("cancel", self._name)

    async def requeue(self, *, keep_files: bool = False) -> None:
        """Queue it again. Tasks of an array that have completed keep their results.

        Parameters
        ----------
        keep_files : bool
            Start in the folder as the last attempt left it, e.g. with its checkpoints, not in the submitted one.
        """
        await self._client._request("requeue", *["--keep-files"] * keep_files, self._name)


def _now(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that does the same as a coroutine, with a client that does not suspend it."""

    @functools.wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            method(self, *args, **kwargs).send(None)
        except StopIteration as end:
            found: R = end.value
            return found
        raise AssertionError("the client has suspended the coroutine")

    return run


class _Work(Named):
    """Jobs and array tasks for programs without an event loop."""

    status = _now(AsyncWork.status)
    wait = _now(AsyncWork.wait)
    why = _now(AsyncWork.why)
    logs = _now(AsyncWork.logs)
    fetch = _now(AsyncWork.fetch)
    result = _now(AsyncWork.result)
    cancel = _now(AsyncWork.cancel)
    requeue = _now(AsyncWork.requeue)

    def stream(self, output: Output = "stdout") -> Iterator[str]:
        """Yield the lines of an output as they appear, until the end.

        For an array, the tasks follow one after another.
        """
        # Raises an exception if there is no such job. Otherwise its text would be among the lines of stderr.
        self.status()
        yield from _executable.lines(
            ["logs", "--follow", f"--{checked(output)}", self._name], self._client.head, to_stderr=output != "stdout"
        )


class Task(_Work):
    """One task of an array job.

    Attributes
    ----------
    job : Job
    index : int
    """

    _is_task = True

    def __init__(self, job: Job, index: int) -> None:
        super().__init__(job._client, f"{job.id}_{index}")
        self.job = job
        self.index = index


class Job(_Work, Rich):
    """A submitted job.

    Attributes
    ----------
    id : int
    """

    def __init__(self, client: Head, id: int) -> None:
        super().__init__(client, str(id))
        self.id = id

    def tasks(self) -> list[Task]:
        """Return the tasks of an array job."""
        array = self.status().details.get("array")
        return [Task(self, index) for index in indices(array)] if array else []

    def task(self, index: int) -> Task:
        """Return the task with this index."""
        return Task(self, index)

    def _view(self) -> tuple[str, str]:
        return described(f"job {self.id}", self.status())


class Jobs(RichList, list[Job]):
    """Jobs, which notebooks show as a table with the states when they were asked for.

    Parameters
    ----------
    client
        The client of their cluster.
    details
        The head's answer for each job.
    """

    def __init__(self, client: Head, details: list[dict[str, Any]]) -> None:
        super().__init__(Job(client, job["id"]) for job in details)
        self._details = {job["id"]: job for job in details}

    def _view(self) -> tuple[str, str]:
        # The list may have been changed meanwhile.
        found = [self._details[job.id] for job in self if job.id in self._details]
        return table(
            ["job", "name", "user", "state", "tasks", "nodes", "submitted", "reason"],
            [
                (
                    job["id"],
                    job["name"],
                    job["user"],
                    job["state"],
                    progress(job["tasks"]) if job["tasks"]["total"] > 1 else "",
                    ", ".join(job["nodes"]),
                    _time(job["submitted_at"]),
                    job["reason"],
                )
                for job in found
            ],
        )


def check_single(id: str, details: dict[str, Any]) -> None:
    """Raise an exception if a job has several results."""
    if details.get("array"):
        raise UsageError(
            f"job {id} is an array, with one result for each task",
            "usage",
            ("use `[task.result() for task in job.tasks()]`, or `job.wait()` and `job.fetch()`",),
        )
    if details["node_count"] > 1:
        raise UsageError(
            f"job {id} has one result for each of its nodes", "usage", ("use `job.wait()` and `job.fetch()`",)
        )


def incomplete(what: str, name: str, status: Status) -> JobFailedError:
    """Return the exception for a job or task that did not complete."""
    how = f"exit code {status.exit_code}" if status.state == "failed" and status.exit_code else status.state
    message = f"{what} did not complete: {status.message or how}"
    return JobFailedError(message, "job_failed", (f"`hostler logs {name}` shows its output",))


def described(title: str, status: Status) -> tuple[str, str]:
    """Return the state of a job as text and as HTML."""
    details, tasks = status.details, status.tasks
    text, markup = fields(
        f"{title}: {status.state}",
        {
            "name": details["name"],
            "reason": status.reason,
            "message": status.message,
            "exit code": status.exit_code,
            "nodes": ", ".join(status.nodes),
            "tasks": f"{progress(tasks)}, of {tasks['total']}" if details["array"] else None,
            "submitted": status.submitted_at,
            "run time": run_time(status),
        },
    )
    if details["array"]:
        completed = tasks["completed"]
        ended = tasks["total"] - tasks["pending"] - tasks["live"]
        markup += bar(completed, ended - completed, tasks["total"])
    return text, markup


def run_time(status: Status) -> str | None:
    """Return how long a job has run, or ran."""
    if not status.started_at:
        return None
    end = status.ended_at or datetime.now(timezone.utc)
    return clock(max(0.0, (end - status.started_at).total_seconds()))


def checked(output: str) -> str:
    """Return the name of an output, if there is such an output."""
    if output not in ("stdout", "stderr", "setup"):
        raise UsageError(f"there is no output `{output}`", "usage", ("choose stdout, stderr or setup",))
    return output


def status_of(details: dict[str, Any], *, is_task: bool) -> Status:
    """Return the status of a job, or of a task of an array: for that, the head describes the job and shows the task."""
    shown = details.get("tasks_shown", [])
    only = shown[0] if len(shown) == 1 and (is_task or not details.get("array")) else {}
    view = {**details, **only} if is_task else details
    node = only.get("node")
    own = (node,) if node else ()
    return Status(
        state=view["state"],
        reason=details.get("reason") if view["state"] == "pending" else None,
        exit_code=view["exit_code"],
        nodes=own if is_task else tuple(details["nodes"]) or own,
        message=_executable.with_parameters(only.get("message") or "") or None,
        submitted_at=_time(details["submitted_at"]),
        started_at=_time(view["started_at"]),
        ended_at=_time(view["ended_at"]),
        tasks=details["tasks"],
        details=details,
    )


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def indices(text: str) -> list[int]:
    """Return the indices of an array such as ``0-9:3,12%4``."""
    found: list[int] = []
    for part in text.split("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found
