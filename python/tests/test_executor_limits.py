"""Limits of `hostler.Executor`, with smaller numbers."""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import hostler
from hostler._worker import batch, frames, server
from hostler._worker.batch import Settings
from hostler._worker.call import Call, Future
from hostler._worker.jobs import LocalJob, WorkerJob
from hostler._worker.link import Worker
from hostler._worker.parts import Work
from hostler._worker.pool import _MOST_FAILED_STARTS, Pool


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for(files: list[Path]) -> int:
    """Touch the first file, and wait for all of them."""
    files[0].touch()
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    return os.getpid()


def test_calls_that_wait_say_why_once(
    client: hostler.Client, project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "PATIENCE", 0.3)
    blocking = [client.submit(project, "slow.py", cpus=4, memory="100M") for _ in range(2)]
    for job in blocking:
        wait_until(lambda job=job: job.status().state == "running")  # type: ignore[misc]

    def waits() -> list[str]:
        return [line for line in capfd.readouterr().err.splitlines() if line.startswith("hostler: ")]

    said: list[str] = []
    options: Any = {"client": client, "cpus": 1, "memory": "100M"}
    with hostler.Executor(1, **options) as executor, hostler.map(abs, [-1], **options) as results:
        future = executor.submit(abs, -1)
        wait_until(lambda: said.extend(waits()) or len(said) == 2)  # type: ignore[func-returns-value]
        time.sleep(1)
        for job in blocking:
            job.cancel()
        assert (list(results), future.result()) == ([1], 1)
    assert not waits()
    assert all(" waits: " in line and "`hostler why " in line for line in said), said


def test_worker_keeps_results_for_an_absent_caller_until_a_limit(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from hostler._worker import server\n"
        "server._ALONE, server._ALONE_WITH_RESULTS = 0.05, float(sys.argv[1])\n"
        "server.serve({'trusted': True, 'local': False, 'chunksize': None, 'python': [], 'asks': []}, False)\n"
    )
    (tmp_path / "main.py").write_text(program)
    path = tmp_path / server.SOCKET

    def connect() -> socket.SocketIO:
        with socket.socket(socket.AF_UNIX) as connection:
            wait_until(lambda: connection.connect_ex(f"/proc/self/fd/{folder}/{server.SOCKET}") == 0)
            return connection.makefile("rwb", buffering=0)

    def read(connection: socket.SocketIO) -> tuple[int, int]:
        """Read the greeting and a record. Return the number of results that have arrived, and the result."""
        received = json.loads(connection.readline())["received"]
        header = json.loads(connection.readline())
        return received, pickle.loads(connection.read(header["bytes"]))

    # The path of the socket may be too long.
    folder = os.open(tmp_path, os.O_RDONLY)
    call = pickle.dumps((abs, (-7,), {}))
    for has_result, limit in ((False, "1"), (True, "600")):
        with subprocess.Popen([sys.executable, "main.py", limit], cwd=tmp_path) as process:
            with connect() as first:
                first.write(frames.FRAME.pack(1, 0, len(call)) + call)
                assert read(first) == (0, 7)
                # The caller has not said that it has the result.
                with connect() as second:
                    assert read(second) == (0, 7)
                    if has_result:
                        second.write(frames.FRAME.pack(frames.RECEIVED, 1, 0))
                    began = time.monotonic()
            assert process.wait(60) == 0
            assert has_result or time.monotonic() - began >= 1
        assert not path.exists()
    os.close(folder)


def test_calls_fail_after_too_many_failed_starts_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostler._worker.pool._LONGEST_PAUSE_OF_STARTS", 0.01)
    starts: list[int] = []

    def fail(settings: Settings, count: int) -> WorkerJob:
        starts.append(count)
        raise hostler.RefusedError("no more workers", "refused")

    with hostler.Executor.local(2) as executor:
        running = executor.submit(wait_for, [tmp_path / "begun", tmp_path / "end"])
        wait_until((tmp_path / "begun").exists)
        (pool,) = executor._pools
        monkeypatch.setattr(pool, "_start_job", fail)
        # As long as a worker is there, others may become free or start later.
        assert str(executor.submit(int, "7").exception(60)) == "no more workers"
        assert starts == [1] * _MOST_FAILED_STARTS
        (tmp_path / "end").touch()
        assert running.result(30) > 0
        assert executor.submit(int, "7").result(30) == 7


def test_workers_beyond_the_most_of_a_job_are_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    class Counted(LocalJob):
        def __init__(self, settings: Settings, count: int) -> None:
            counts.append(count)
            super().__init__(settings, count)

    monkeypatch.setattr("hostler._worker.pool.LocalJob", Counted)
    monkeypatch.setattr("hostler._worker.pool._MOST_WORKERS", 2)
    files = [tmp_path / str(n) for n in range(5)]
    with hostler.Executor.local(5) as executor:
        calls = [executor.submit(wait_for, [files[n], *files]) for n in range(5)]
        assert len({call.result(60) for call in calls}) == 5
    assert (max(counts), sum(counts)) == (2, 5)


def test_calls_beside_one_that_ends_its_worker_run_again_once_and_alone() -> None:
    pool = Pool(Settings(hostler.Client(), "own", {}), is_local=True)
    worker, other = (Worker(pool, cast("Any", None), index) for index in range(2))

    def call(name: str, parent: Call | None = None) -> Call:
        made = Call(Work(b""), Future(), name, depth=1 if parent else 0, order=(-1 if parent else 0, 0), parent=parent)
        made.future.start()
        return made

    def lose(calls: dict[int, Call], state: str = "failed") -> list[str]:
        """Lose a worker with these calls. Return those that have failed."""
        worker.outstanding.update(calls)
        pool.lose(worker, lambda what: hostler.JobFailedError(what, "job_failed"), state)
        assert not worker.outstanding
        return [call.name for call in calls.values() if call.future.done()]

    beside = frames.BESIDE
    guilty, away = call("guilty"), call("away")
    inner, innocent = call("inner", guilty), call("innocent", away)
    waits = call("waits")
    assert lose({1: guilty, 2: waits, beside | 3: inner, beside | 4: innocent}) == ["guilty", "inner"]
    assert str(guilty.future.exception()) == "the call guilty has no result"
    # It runs beside the call that has submitted it, and beside no other one.
    other.outstanding[5] = call("other")
    assert pool._next_call(other, [], only_nested=False) is None
    other.outstanding = {5: away}
    assert pool._next_call(other, [], only_nested=True) is innocent
    assert pool._next_call(other, [(6, innocent)], only_nested=False) is None
    assert lose({beside | 6: innocent}) == ["innocent"]
    pool._alone.clear()
    assert pool._next_call(other, [], only_nested=False) is waits
    # Calls that share the memory of a worker may all be to blame, and those of a lost node may still run.
    first, second = call("first"), call("second", away)
    assert lose({1: first, beside | 2: second}, "out_of_memory") == []
    assert lose({1: first, beside | 2: second}, "out_of_memory") == ["first", "second"]
    first, second = call("first"), call("second", away)
    assert lose({beside | 1: first, beside | 2: call("inner", first)}) == ["inner"]
    assert lose({1: first, beside | 2: second}, "node_fail") == ["first", "second"]


def garble(number: int) -> int:
    """Send what is no record, as a call could that writes to all its files."""
    worker = server.current
    assert worker
    with worker._lock:
        assert worker._connection
        worker._connection.sendall(b"no record\n")
    return number


def test_worker_that_sends_something_else_twice_is_given_up(client: hostler.Client) -> None:
    with hostler.Executor(1, client=client, memory="100M") as executor:
        # All results come again on another connection.
        assert executor.submit(garble, 1).result(30) == 1
        with pytest.raises(hostler.JobFailedError, match=r"\d+_0 sent something else"):
            executor.submit(garble, 2).result(30)
        assert executor.submit(int, "7").result(30) == 7


def test_process_beside_a_waiting_call_can_break(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off() -> None:
        worker = server.current
        assert worker
        assert worker._connection
        worker._connection.sendall(b'{"input": 1, "ki')
        os.kill(os.getpid(), signal.SIGKILL)

    def waits(executor: hostler.Executor) -> list[object]:
        worker = server.current
        assert worker
        found: list[object] = [
            str(executor.submit(call).exception()) for call in (break_off, functools.partial(garble, 1))
        ]
        assert executor.submit(int, "7").result() == 7
        # A forked process has no connection to the other one.
        own = {os.readlink(f"/proc/self/fd/{helper.connection.fileno()}") for helper in worker._helpers}
        if (child := os.fork()) == 0:
            descriptors = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
            os._exit(any(os.readlink(name) in own for name in descriptors if os.path.lexists(name)))
        found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        start = threading.Thread.start

        def fail(thread: threading.Thread) -> None:
            if thread.name == "hostler-helper":
                raise RuntimeError("can't start new thread")
            start(thread)

        worker._helpers.clear()
        threading.Thread.start = fail  # type: ignore[assignment, method-assign]
        return [*found, str(executor.submit(int).exception())]

    monkeypatch.setattr("hostler._worker.pool._NESTED", 0.0)
    with hostler.Executor.local(1) as executor:
        killed, garbled, has_connection, failed = executor.submit(waits, executor).result(60)
        assert "was killed by signal 9" in str(killed)
        assert "was killed by signal 9" in str(garbled)
        assert has_connection == 0
        assert "could not start: can't start new thread" in str(failed)
        # Short calls are sent in batches again.
        pool = executor._pools[0]
        wait_until(lambda: not pool.is_nested)
        assert sum(executor.map(int, range(9))) == 36


def test_an_unknown_option_is_refused_when_the_executor_is_made() -> None:
    settings: dict[str, Any] = {"mem": "1G"}
    with pytest.raises(TypeError, match=r"no option 'mem'; it has .*memory"):
        hostler.Executor(**settings)


def test_arguments_of_process_pools_that_have_no_meaning_are_refused() -> None:
    with pytest.raises(TypeError, match="has no initializer"):
        hostler.Executor(initializer=print)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="chunksize must be at least 1"):
        hostler.Executor().map(abs, [1], chunksize=0)
