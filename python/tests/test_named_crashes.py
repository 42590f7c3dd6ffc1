"""Maps with a key while clients, the head, agents and whole nodes are killed."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hostler
from hostler import _executable

# The first map's tasks may run again if their nodes are lost.
KEYS = ("moves", "stays")

SUBMITS = """
import os, sys, time
import hostler

runs, gates = sys.argv[1:]

def work(key, number):
    with open(runs, "a") as file:
        file.write(f"{key} {number} {os.environ['HOSTLER_NODE']}\\n")
    while not os.path.exists(f"{gates}/{number}"):
        time.sleep(0.02)
    return number * number

maps = [
    hostler.map(
        work, [key] * 10, range(10), key=key, chunksize=2, cpus=1, memory="100M", resources={key: 1}, requeue=requeue
    )
    for key, requeue in (("moves", True), ("stays", False))
]
list(maps[0])
"""


class Cluster:
    """A cluster of three nodes, each of which has room for one task of each map."""

    def __init__(self, home: Path) -> None:
        self.variables = {**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
        self.variables["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
        self.up()
        self.run("configure", "setting", "heartbeat", "1s")
        self.client = hostler.Client(f"unix:{home}/hostler/head.sock")

    def run(self, *arguments: str) -> None:
        """Run a command, which must succeed."""
        command = [_executable.find(), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=self.variables)

    def give_up_silent_nodes(self) -> None:
        """Let the head give up a node after ten seconds rather than a minute."""
        for name, value in (("suspect-after", "3s"), ("down-after", "8s"), ("lost-after", "10s")):
            self.run("configure", "setting", name, value)

    def up(self) -> None:
        """Start what is not running."""
        self.run("up", "--nodes=3", "--cpus=2", "--memory=1G", "--resource=moves=1", "--resource=stays=1")

    def agent(self, node: str) -> int:
        """Return the process id of an agent."""
        (pid,) = (int(found["agent_pid"]) for found in self.client._ask("nodes") if found["name"] == node)
        return pid


@pytest.fixture
def cluster(home: Path) -> Iterator[Cluster]:
    # A short path: sockets lie below it.
    own = Path(tempfile.mkdtemp(prefix="hostler-py-"))
    cluster = Cluster(own)
    try:
        yield cluster
    finally:
        cluster.run("down", "--cancel")
        shutil.rmtree(own, ignore_errors=True)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kill(pid: int) -> None:
    # Children may end with their parents.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not contents(Path(f"/proc/{pid}/cmdline")))


def contents(file: Path) -> str:
    """Return the contents of a file about a process, which may have ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return file.read_text()
    return ""


def tree(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    children = [contents(task).split() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *(one for found in children for child in found for one in tree(int(child)))]


def test_maps_with_a_key_outlive_client_head_agent_and_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """Everything is killed while each node runs a task of each map, with one complete and one running input."""
    runs, gates = tmp_path / "runs", tmp_path / "gates"
    runs.touch()
    gates.mkdir()
    client = cluster.client

    def lines() -> list[str]:
        return runs.read_text().splitlines()

    script = [sys.executable, "-c", SUBMITS, str(runs), str(gates)]
    with subprocess.Popen(script, env={**cluster.variables, "HOSTLER_HEAD": str(client.head)}) as process:
        until(lambda: len(lines()) == 6)
        for number in (0, 2, 4):
            (gates / str(number)).touch()
        until(lambda: len(lines()) == 12)
        process.kill()
    where = {key: {int(number): node for name, number, node in map(str.split, lines()) if name == key} for key in KEYS}
    assert all(sorted(set(nodes.values())) == ["n1", "n2", "n3"] for nodes in where.values())

    moves, stays = (hostler.Map.open(key, client=client) for key in KEYS)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        # They read on while the head is away.
        reads = [threads.submit(read, m) for m in (moves, stays)]
        kill(client.info()["head"]["pid"])
        cluster.up()
        kill(old := cluster.agent("n1"))
        cluster.up()
        gone, returning = tree(cluster.agent("n2")), tree(cluster.agent("n3"))
        command = Path(f"/proc/{returning[0]}/cmdline").read_text().split("\0")[:-1]
        for pid in (*gone, *returning):
            kill(pid)
        with subprocess.Popen(command, env=cluster.variables, stderr=subprocess.DEVNULL) as agent:
            # Only now: on a slow machine, agents take seconds to start.
            until(lambda: cluster.agent("n3") == agent.pid and cluster.agent("n1") != old)
            cluster.give_up_silent_nodes()
            for number in range(10):
                (gates / str(number)).touch()
            moved, stayed = (future.result(60) for future in reads)
            assert {node.name: node.state for node in client.nodes()} == {"n1": "up", "n2": "down", "n3": "up"}

            squares = [number * number for number in range(10)]
            on_lost_nodes = [number for number in range(6) if where["stays"][number] != "n1"]
            assert moved == squares
            assert [stayed[number] for number in range(10) if number not in on_lost_nodes] == [
                square for number, square in enumerate(squares) if number not in on_lost_nodes
            ]
            failed = stays.failed()
            assert sorted(failed) == on_lost_nodes
            assert all("was lost with its node on n" in str(error) for error in failed.values())
            # No input has run twice yet, unless the map allowed it and its node was lost.
            assert twice("stays", lines()) == []
            assert twice("moves", lines()) == [number for number in range(6) if where["moves"][number] != "n1"]

            assert stays.retry() == on_lost_nodes
            assert sorted(stays.results(ordered=False)) == squares
            assert twice("stays", lines()) == on_lost_nodes
            assert list(hostler.Map.open("moves", client=client)) == squares
            assert len(lines()) == 2 * len(squares) + 2 * len(on_lost_nodes)
            cluster.run("down", "--cancel")
            agent.wait(20)


def read(m: hostler.Map[int]) -> list[int]:
    return list(m.results(errors="return"))


def twice(key: str, lines: list[str]) -> list[int]:
    """Return the inputs of a map that began twice; none may begin more often."""
    begun = collections.Counter(int(number) for name, number, _ in map(str.split, lines) if name == key)
    assert max(begun.values()) <= 2
    return sorted(number for number, count in begun.items() if count == 2)
