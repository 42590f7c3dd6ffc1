"""Run Python functions and project folders on a Hostler cluster.

The package is thin: the executable ``hostler``, which the wheel contains, finds the cluster, takes snapshots of
folders, and downloads results.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from hostler._version import __version__

if TYPE_CHECKING:
    from typing import Any

    from hostler._delegate import delegate
    from hostler._preflight import Preflight, preflight
    from hostler.asynchronous import AsyncClient, AsyncJob, AsyncTask
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

# Where the names below are defined: those that need the fewest others first.
_MODULES = (
    *("errors", "options", "job", "client", "named", "mapping", "folder", "executor"),
    *("_preflight", "_delegate", "asynchronous"),
)

# Where a relative `sys.executable` leads from: the program may change its directory.
_DIRECTORY = "" if os.path.isabs(sys.executable or os.sep) else os.getcwd()

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
    """Import what the program uses. A task on a node uses little of it, and starts twice as fast without the rest."""
    if name in _MODULES:
        return importlib.import_module(f"hostler.{name}")
    for module in _MODULES if name in __all__ else ():
        found = vars(importlib.import_module(f"hostler.{module}"))
        if name in found:
            globals()[name] = found[name]
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%hostler`` and ``%hostler`` to IPython, which calls this for ``%load_ext hostler``."""
    from hostler.jupyter import magic

    magic.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove ``%%hostler`` and ``%hostler`` from IPython."""
    from hostler.jupyter import magic

    magic.unload(shell)
