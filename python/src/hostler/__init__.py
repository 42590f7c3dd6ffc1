"""Run Python functions and project folders on a Hostler cluster.

The package is thin: the executable ``hostler``, which the wheel contains, finds the cluster, takes snapshots of
folders, and downloads results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostler._delegate import delegate
from hostler._version import __version__
from hostler.client import Client, Node
from hostler.errors import (
    ExecutableError,
    HostlerError,
    JobFailedError,
    MismatchError,
    PicklingError,
    RefusedError,
    RemoteError,
    RemoteTraceback,
    UnreachableError,
    UsageError,
)
from hostler.executor import Executor, RemoteFunction, remote
from hostler.folder import map_folder
from hostler.job import Job, Status, Task
from hostler.mapping import Results, map
from hostler.named import Map
from hostler.options import Options
from hostler.preflight import Preflight, preflight

if TYPE_CHECKING:
    from typing import Any

    from hostler.asynchronous import AsyncClient, AsyncJob, AsyncTask

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "AsyncTask",
    "Client",
    "ExecutableError",
    "Executor",
    "HostlerError",
    "Job",
    "JobFailedError",
    "Map",
    "MismatchError",
    "Node",
    "Options",
    "PicklingError",
    "Preflight",
    "RefusedError",
    "RemoteError",
    "RemoteFunction",
    "RemoteTraceback",
    "Results",
    "Status",
    "Task",
    "UnreachableError",
    "UsageError",
    "__version__",
    "delegate",
    "map",
    "map_folder",
    "preflight",
    "remote",
]


def __getattr__(name: str) -> object:
    """Import the classes with coroutines when they are used: each task on a node would take longer to start."""
    if name in ("AsyncClient", "AsyncJob", "AsyncTask"):
        from hostler import asynchronous

        return getattr(asynchronous, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%hostler`` and ``%hostler`` to IPython, which calls this for ``%load_ext hostler``."""
    from hostler.jupyter import magic

    magic.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove ``%%hostler`` and ``%hostler`` from IPython."""
    from hostler.jupyter import magic

    magic.unload(shell)
