"""A client of one cluster."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hostler import _forward
from hostler._display import Rich, RichList, fields, size, table
from hostler._executable import Head, Option
from hostler.job import Job, Jobs, Task
from hostler.options import Options, arguments

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    Attributes
    ----------
    name : str
    state : str
        ``up``, ``suspect``, ``down``, ``draining``, ``drained``, ``off``, ``waking`` or ``stopping``.
    cpus, cpus_free : int
    memory, memory_free : int
        In bytes.
    gpus, gpus_free : int
    features : tuple of str
        E.g. ``python3.12`` for each Python that the node has.
    details : dict
        The whole answer of the head, as ``hostler nodes --json`` prints it.
    """

    name: str
    state: str
    cpus: int
    cpus_free: int
    memory: int
    memory_free: int
    gpus: int
    gpus_free: int
    features: tuple[str, ...]
    details: dict[str, Any] = field(repr=False, hash=False)


class Nodes(RichList, list[Node]):
    """The nodes of a cluster, which notebooks show as a table."""

    def _view(self) -> tuple[str, str]:
        return table(
            ["name", "state", "CPUs", "CPUs free", "memory", "memory free", "GPUs", "GPUs free"],
            [
                (
                    node.name,
                    node.state,
                    node.cpus,
                    node.cpus_free,
                    size(node.memory),
                    size(node.memory_free),
                    node.gpus,
                    node.gpus_free,
                )
                for node in self
            ],
        )


@dataclass(frozen=True)
class Client(Head, Rich):
    """A client of one cluster. It holds no connection, so it may be copied, pickled and shared between threads.

    Parameters
    ----------
    head
        Address of the head: ``unix:/path/to/head.sock``, or ``HOST:PORT`` after ``hostler login``. By default the
        cluster that the command line uses: ``HOSTLER_HEAD``, ``config.toml``, this user's cluster from ``hostler up``,
        a head or a node on this machine, the last login.
    """

    def submit(
        self,
        folder: str | os.PathLike[str],
        entry: str,
        *args: str,
        array: int | str | Iterable[int] | None = None,
        nodes: int | None = None,
        tasks_per_node: int | None = None,
        key: str | None = None,
        **options: Unpack[Options],
    ) -> Job:
        """Submit a project folder as a job.

        The executable takes a snapshot of the folder before this method returns, so later edits do not matter.

        Parameters
        ----------
        folder
            Project folder.
        entry
            Program to run: a ``.py`` file or an executable in the folder, or a command.
        *args
            Arguments of the program.
        array
            One task for each index: a number of tasks, indices, or a text such as ``"0-99%10"``.
        nodes
            Number of nodes.
        tasks_per_node
            Processes per node.
        key
            Submit only if you have no job with this key; otherwise return that job, which must have the same folder,
            command and indices.
        **options
            See `hostler.options.Options`: ``cpus``, ``memory``, ``gpus``, ``time``, ``after`` and others.

        Raises
        ------
        UsageError
            If the folder or the entry point does not exist, or an option is invalid.
        RefusedError
            If the head refuses the job, e.g. because no node can ever run it.
        UnreachableError
            If no cluster is running.
        """
        flags = submission(folder, entry, args, array, nodes, tasks_per_node, key, options)
        return Job(self, submitted(self._ask(*flags)))

    def job(self, id: int) -> Job:
        """Return the job with this id, without asking whether it exists."""
        return Job(self, id)

    def jobs(self, *, ended: bool = False) -> Jobs:
        """Return jobs, newest first; with `ended`, also those that have ended. At most a thousand."""
        return Jobs(self, self._ask("jobs", *(["--all"] if ended else []))["jobs"])

    def forward(
        self,
        job: Job | Task | int,
        port: int | str,
        *,
        socket: str | os.PathLike[str] | None = None,
        node_rank: int = 0,
    ) -> AbstractContextManager[str]:
        """Reach a port or Unix socket of a running job from here, until the end of the ``with`` block.

        Parameters
        ----------
        job
            A job, or a task of an array.
        port
            A TCP port of the job, or the path of a Unix socket. A path contains a slash, and may begin in the job's
            folder.
        socket
            Path of a new Unix socket that only you can connect to. By default, a free port of ``127.0.0.1``, which
            everybody on this machine can connect to.
        node_rank
            Rank of the node, for a job on several nodes.

        Returns
        -------
        context manager
            Its value is the local address: ``127.0.0.1:PORT``, or the path of the socket. Nothing waits for the job's
            server to listen.

        Raises
        ------
        RefusedError
            On entry, if the job does not run, or belongs to another user.

        Examples
        --------
        >>> with client.forward(job, 6006) as address:
        ...     urllib.request.urlopen(f"http://{address}")
        """
        name = job._name if isinstance(job, (Job, Task)) else str(job)
        return _forward.running(_forward.arguments(name, port, socket, node_rank), self.head)

    def nodes(self) -> Nodes:
        """Return the nodes, by name."""
        return described_nodes(self._ask("nodes"))

    def info(self) -> dict[str, Any]:
        """Return a summary of the cluster, as ``hostler info --json`` prints it."""
        answer: dict[str, Any] = self._ask("info")
        return answer

    def _view(self) -> tuple[str, str]:
        info = self.info()
        head = info["head"]
        return fields(
            f"Hostler cluster at {self.head or head['address'] or 'this machine'}",
            {
                "nodes": ", ".join(f"{count} {state}" for state, count in info["nodes"].items() if count) or "none",
                "tasks": ", ".join(f"{count} {state}" for state, count in info["tasks"].items() if count) or "none",
                "CPUs": f"{info['cpus']['free']} of {info['cpus']['total']} free",
                "memory": f"{size(info['memory_bytes']['free'])} of {size(info['memory_bytes']['total'])} free",
                "GPUs": f"{info['gpus']['free']} of {info['gpus']['total']} free" if info["gpus"]["total"] else None,
                "warning": head["warning"],
            },
        )


def submitted(answer: dict[str, Any]) -> int:
    """Return the id of a submitted job. Warn about packages and Python versions of the project that it does not get."""
    if unread := answer.get("not_used"):
        lines = "; ".join(f"{it['what']} ({it['advice']})" for it in unread)
        warnings.warn(f"the job does not use {lines}", stacklevel=3)
    return int(answer["id"])


def submission(
    folder: str | os.PathLike[str],
    entry: str,
    args: Sequence[str],
    array: int | str | Iterable[int] | None,
    nodes: int | None,
    tasks_per_node: int | None,
    key: str | None,
    options: Options,
) -> list[str]:
    """Return the command for `Client.submit`."""
    flags = arguments(options)
    own = {
        "array": None if array is None else _array(array),
        "nodes": nodes,
        "tasks-per-node": tasks_per_node,
        "key": key,
    }
    flags += [Option(f"--{name}={value}") for name, value in own.items() if value is not None]
    return ["submit", *flags, os.path.abspath(folder), entry, "--", *args]


def described_nodes(answer: list[dict[str, Any]]) -> Nodes:
    """Return the nodes that the head describes."""
    return Nodes(
        Node(
            name=node["name"],
            state=node["state"],
            cpus=node["cpus"],
            cpus_free=node["cpus_free"],
            memory=node["memory_bytes"],
            memory_free=node["memory_free_bytes"],
            gpus=node["gpus"],
            gpus_free=node["gpus_free"],
            features=tuple(node["features"]),
            details=node,
        )
        for node in answer
    )


def _array(array: int | str | Iterable[int]) -> str:
    if isinstance(array, str):
        return array
    return f"0-{array - 1}" if isinstance(array, int) else ",".join(str(index) for index in array)
