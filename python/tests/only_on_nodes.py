"""Prints as JSON what functions do to their processes on nodes. A local run would end, or has other processes."""

from __future__ import annotations

import importlib
import itertools
import json
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar
from unittest import mock

import hostler


class Counter:
    seen: ClassVar[int] = 0

    def __init__(self, number: int) -> None:
        self.number = number


calls = 0
numbers = itertools.count()
generator = random.Random(1)


def draw(_: int) -> float:
    return generator.random()


def count(_: int) -> tuple[int, int, int]:
    global calls
    calls += 1
    Counter.seen += 1
    return calls, next(numbers), Counter.seen


def change_process(value: int) -> list[object]:
    importlib.import_module("later")
    found: list[object] = [
        os.environ.get("OWN"),
        "own" in sys.path,
        "PATH" in os.environ,
        os.environ["OF_LATER"],
        "of later" in sys.path,
        os.umask(0o777) == 0o777,
    ]
    os.environ["OWN"] = str(value)
    del os.environ["PATH"]
    sys.path.append("own")
    return found


def stop_later(how: int) -> tuple[bool, int]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    signal.setitimer(signal.ITIMER_REAL, 2)
    if how:
        signal.setitimer(signal.ITIMER_REAL, 0)
        time.sleep(2.5)
    mock.patch("os.getpid", return_value=1).start()
    socket.setdefaulttimeout(0.01)
    return before[0] != 1, how


def wait_for_others(executor: hostler.Executor) -> list[tuple[bool, int]]:
    socket.setdefaulttimeout(0.01)
    return list(executor.map(stop_later, [0, 1]))


def print_type_of_result() -> None:
    (found,) = hostler.map(Counter, [0], cpus=1, memory="300M")
    sys.exit(type(found) is not Counter)


def leave_child(how: int) -> int:
    if os.fork() == 0:
        if how == 0:
            sys.exit(3)
        if how == 1:
            raise ValueError("in the child")
        return -1
    return os.waitstatus_to_exitcode(os.wait()[1])


def end_process(how: int) -> int:
    if how == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == 3:
        os._exit(7)
    if how == 4:
        bytearray(400 << 20)
    return how


def only_on_nodes() -> Iterator[tuple[str, object]]:
    def ended(results: Iterable[Any]) -> list[object]:
        return [it if isinstance(it, int) else str(it).split("\n")[0] for it in results]

    children = hostler.map(leave_child, range(3), chunksize=3, errors="return", cpus=1, memory="300M")
    yield "children of functions", ended(children)
    with hostler.Executor(1, cpus=1, memory="300M") as executor:
        yield "children of calls", ended(executor.map(leave_child, range(3)))
    for kind in (draw, count):
        found = [list(hostler.map(kind, range(4), chunksize=size, cpus=1, memory="300M")) for size in (1, 2, 4)]
        yield f"{kind.__name__} with each chunksize", found[0] == found[1] == found[2]
    for size in (1, 3):
        found = list(hostler.map(change_process, range(3), chunksize=size, cpus=1, memory="300M"))
        yield f"changes of the process with chunksize {size}", found
    with hostler.Executor(1, cpus=1, memory="300M") as executor:
        yield "changes of the process by calls", list(executor.map(change_process, range(3)))
    yield "limits and timers", list(hostler.map(stop_later, [0, 1, 2], chunksize=3, cpus=1, memory="300M"))
    with hostler.Executor(1, cpus=1, memory="300M") as executor:
        yield (
            "limits and timers of calls",
            [*executor.map(stop_later, [0, 1]), *executor.submit(wait_for_others, executor).result()],
        )
    process = multiprocessing.get_context("spawn").Process(target=print_type_of_result)
    process.start()
    process.join()
    yield "spawned caller", process.exitcode
    os.environ["PYTHONHOME"] = sys.base_prefix
    homes = hostler.map(lambda _: os.environ.get("PYTHONHOME"), [0], cpus=1, memory="300M")
    yield "home of Python", next(homes) == os.environ.pop("PYTHONHOME")
    crashes = hostler.map(end_process, range(6), chunksize=6, errors="return", cpus=1, memory="300M")
    yield "crashes", [it if isinstance(it, int) else str(it).split(": task")[0] for it in crashes]


if __name__ == "__main__":
    print(json.dumps(dict(only_on_nodes())))
