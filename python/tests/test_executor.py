"""`hostler.Executor` and `hostler.remote` on a real cluster."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hostler


@pytest.fixture
def executor(client: hostler.Client) -> Iterator[hostler.Executor]:
    """Return an executor with small tasks."""
    with hostler.Executor(client=client, cpus=1, memory="100M") as executor:
        yield executor


def test_calls_return_results_and_exceptions(executor: hostler.Executor) -> None:
    futures = [executor.submit(pow, 2, exponent) for exponent in range(4)]
    wrong = executor.submit(int, "x")
    assert [future.result(30) for future in futures] == [1, 2, 4, 8]
    with pytest.raises(ValueError, match="invalid literal") as raised:
        wrong.result(30)
    assert "Traceback" in str(raised.value.__cause__)
    assert list(executor.map(lambda x: x + 1, [1, 2])) == [2, 3]


def wait_for(file: Path) -> str:
    while not file.exists():
        time.sleep(0.01)
    return file.name


def test_futures_complete_as_their_tasks_end(executor: hostler.Executor, tmp_path: Path) -> None:
    futures = [executor.submit(wait_for, tmp_path / name) for name in ("first", "second")]
    done = concurrent.futures.as_completed(futures)
    for name in ("second", "first"):
        (tmp_path / name).touch()
        assert next(done).result() == name


def test_waiting_call_can_be_cancelled_and_a_running_one_cannot(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All calls belong to one job, also on a busy machine.
    monkeypatch.setattr("hostler.executor._COLLECTING", 1.0)
    with hostler.Executor(1, client=client, memory="100M") as executor:
        first = executor.submit(wait_for, tmp_path / "end")
        second = executor.submit(os.mkdir, str(tmp_path / "ran"))
        third = executor.submit(os.getpid)
        deadline = time.monotonic() + 20
        while not first.running():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert second.cancel()
        assert second.cancelled()
        assert not first.cancel()
        (tmp_path / "end").touch()
        with pytest.raises(concurrent.futures.CancelledError):
            second.result()
        assert not concurrent.futures.wait([second], 30).not_done
    assert third.result(30) > 0
    assert not (tmp_path / "ran").exists()


def test_shutdown_cancels_calls_and_refuses_new_ones(client: hostler.Client) -> None:
    executor = hostler.Executor(client=client, memory="100M", hold=True)
    futures = [executor.submit(os.getpid) for _ in range(3)]
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)


def test_refused_job_fails_its_calls(client: hostler.Client) -> None:
    with hostler.Executor(client=client, cpus=99) as executor:
        assert isinstance(executor.submit(int).exception(30), hostler.RefusedError)


def test_decorated_function_runs_on_the_cluster(client: hostler.Client) -> None:
    @hostler.remote(client=client, cpus=1, memory="100M")
    def process(offset: int) -> int:
        """Return a process id."""
        return offset + os.getpid()

    assert process.__doc__ == "Return a process id."
    assert process.local(0) == os.getpid()
    assert process(0) != os.getpid()
    assert len(set(process.map([0, 0]))) == 2


def test_python_waits_for_calls_before_it_exits(client: hostler.Client, tmp_path: Path) -> None:
    script = (
        "import hostler, time\n"
        "future = hostler.Executor(memory='100M').submit(int, '7')\n"
        "future.add_done_callback(lambda future: print(future.result()))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("7\n", "")
