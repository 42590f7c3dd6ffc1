"""Options of a submission, and how they are passed to the executable."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TypedDict, cast

from hostler import _executable
from hostler.errors import UsageError
from hostler.job import Job


class Options(TypedDict, total=False):
    """What a job asks for. Options that are absent or None have the cluster's defaults."""

    #: CPUs per node.
    cpus: int | None
    #: Memory per node: bytes, or a text such as ``"2G"``.
    memory: int | str | None
    #: GPUs per node.
    gpus: int | None
    #: Counted resources per node, e.g. ``{"license": 2}``.
    resources: Mapping[str, int] | None
    #: Time limit: seconds, a timedelta, or a text such as ``"1h30m"``.
    time: float | timedelta | str | None
    #: Partition whose nodes may run the job.
    partition: str | None
    #: Required features of nodes, e.g. ``"ssd&!old"``.
    constraint: str | None
    #: Start only after these jobs have completed. A text such as ``"afterany:12"`` names another condition.
    after: Job | Iterable[Job] | str | None
    #: Name of the job.
    name: str | None
    #: Environment variables of the job.
    env: Mapping[str, str] | None
    #: Jobs with a higher number start first.
    priority: int | None
    #: Run the job again from the start if its node is lost.
    requeue: bool
    #: Have the nodes to itself, with all their resources.
    exclusive: bool
    #: Change settings of the nodes' machines meanwhile, to disturb the job less; only with ``exclusive``.
    quiet_machine: bool
    #: Run in a sandbox: without network, and with its folder as the only lasting place to write to.
    sandbox: bool
    #: Network of the sandbox: ``"none"``, ``"job"`` for only the other nodes of the job, or ``"host"`` for its node's.
    network: str | None
    #: Image of the root directory, e.g. ``"docker://python:3.12"``. Implies a sandbox.
    image: str | None
    #: Engine of the node that runs ``image`` instead of a sandbox: ``"docker"``, ``"podman"`` or ``"apptainer"``.
    runtime: str | None
    #: ``"fail"``: the job fails if the kernel kills one of its processes for memory, also if its program goes on.
    oom: str | None
    #: Keep the job waiting until ``hostler release``.
    hold: bool
    #: Labels of the job.
    tags: Mapping[str, str] | None


_FLAGS = {name: flag for flag, name in _executable.PARAMETERS.items()}
_NUMBERS = ("cpus", "gpus", "priority")
# Their values are repeated as NAME=VALUE.
_PAIRS = ("resources", "tags")
_SWITCHES = ("requeue", "hold", "exclusive", "quiet_machine", "sandbox")


def arguments(options: Mapping[str, object]) -> list[str]:
    """Return the options as arguments of ``hostler submit``.

    Raises
    ------
    UsageError
        If an option does not exist, or its value has another type.
    """
    found: list[str] = []
    for name, value in options.items():
        if name not in Options.__annotations__:
            known = ", ".join(Options.__annotations__)
            raise UsageError(f"unknown option `{name}`", "usage", (f"known options: {known}",))
        if value is None or value is False:
            continue
        if name in _NUMBERS and not isinstance(value, numbers.Integral):
            raise UsageError(f"`{name}` must be a whole number, and is {value!r}, a {type(value).__name__}", "usage")
        if name in ("env", *_PAIRS) and not isinstance(value, Mapping):
            raise UsageError(f"`{name}` must be a dictionary, and is {value!r}, a {type(value).__name__}", "usage")
        if name in _SWITCHES:
            found.append(_executable.Option(_FLAGS[name]))
        elif name == "env":
            found += [_executable.Variable(*item) for item in cast("Mapping[str, str]", value).items()]
        elif isinstance(value, Mapping):
            found += [_executable.Option(f"{_FLAGS[name]}={key}={text}") for key, text in value.items()]
        else:
            found.append(_executable.Option(f"{_FLAGS[name]}={_text(name, value)}"))
    return found


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if name == "time" and isinstance(value, timedelta):
        value = value.total_seconds()
    if name == "time" and isinstance(value, (int, float)):
        return f"{math.ceil(value)}s"
    if name == "after":
        jobs: Iterable[Job] = value if isinstance(value, Iterable) else [cast("Job", value)]
        return "afterok:" + ":".join(str(job.id) for job in jobs)
    return str(value)
