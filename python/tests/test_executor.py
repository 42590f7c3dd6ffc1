"""`hostler.Executor` and `hostler.remote` on a real cluster."""

from __future__ import annotations

import concurrent.futures
import importlib
import itertools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

import hostler
from hostler import _executable
from hostler._worker.call import Call
from hostler._worker.link import Worker
from hostler._worker.pool import Pool


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


def test_job_of_a_block_that_succeeded_is_completed(client: hostler.Client) -> None:
    before = {job.id for job in client.jobs(ended=True)}
    with hostler.Executor(client=client, cpus=1, memory="100M") as executor:
        # Some workers start only when all calls have ended.
        assert list(executor.map(abs, range(20))) == list(range(20))
    jobs = [job for job in client.jobs(ended=True) if job.id not in before]
    assert jobs
    assert {job.wait(20).state for job in jobs} == {"completed"}


def wait_for(file: Path) -> str:
    while not file.exists():
        time.sleep(0.01)
    return file.name


def test_executor_and_results_are_shown_with_their_jobs(client: hostler.Client, tmp_path: Path) -> None:
    with hostler.Executor(1, client=client, cpus=1, memory="100M") as executor:
        assert repr(executor) == "Executor(no workers)"
        calls = [executor.submit(wait_for, tmp_path / "end") for _ in range(3)]
        wait_until(calls[0].running)
        job, *_ = client.jobs()
        assert repr(executor) == f"Executor(job {job.id}, workers: 1, calls: 1 sent, 2 waiting)"
        (tmp_path / "end").touch()
        assert executor.submit(repr, executor).result() == "Executor(the workers of its caller)"
    assert repr(executor) == "Executor(shut down)"
    with hostler.map(abs, [-1, 2, 3], client=client, cpus=1, memory="100M") as results:
        assert results.job
        assert (next(results), repr(results)) == (1, f"Results(job {results.job.id}, 3 inputs, 1 read)")
    assert repr(hostler.map(abs, [])) == "Results(0 inputs)"


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
    monkeypatch.setattr("hostler._worker.pool._COLLECTING", 1.0)
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


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_stay_for_more_calls_and_end_when_idle(client: hostler.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with hostler.Executor(2, client=client, memory="100M") as executor:
        # No more than that many, although all calls wait at once.
        assert len(set(executor.map(lambda _: os.getpid(), range(200)))) <= 2
        # Dask reads this: `compute(scheduler=executor)`.
        assert (executor._max_workers, hostler.Executor(client=client, cpus=2)._max_workers) == (2, 4)
        (pool,) = executor._pools
        job = int(next(iter(pool.workers)).job.name(0).partition("_")[0])
        wait_until(lambda: all(worker.is_ready for worker in list(pool.workers)))
        monkeypatch.setattr("hostler._worker.pool._IDLE", 0.0)
        wait_until(lambda: client.job(job).status().ended)
        assert client.job(job).status().state == "completed"
        # New ones start.
        assert executor.submit(int, "7").result(30) == 7


def mark(log: Path, number: int, last: int) -> int:
    with log.open("a") as file:
        print(number, file=file, flush=True)
    if number == last:
        os._exit(3)
    return number


@pytest.mark.parametrize("place", ["cluster", "here"])
def test_worker_that_dies_costs_only_the_call_that_it_ran(client: hostler.Client, tmp_path: Path, place: str) -> None:
    log = tmp_path / "log"
    here = place == "here"
    with hostler.Executor.local(1) if here else hostler.Executor(1, client=client, memory="100M") as executor:
        # Short calls let the worker have several ones ahead.
        assert list(executor.map(int, range(50))) == list(range(50))
        calls = [executor.submit(mark, log, number, 20) for number in range(60)]
        message = (
            r"the call mark\(…, 20, 20\) has no result: (task|process) .* ended with exit code 3( on n[12])?(\n|$)"
        )
        # What the worker leaves behind, such as its socket, is no part of the message.
        with pytest.raises(hostler.JobFailedError, match=message):
            calls.pop(20).result(30)
        # Those before it have their results, and another worker runs those that had been sent with it.
        assert [call.result(30) for call in calls] == [number for number in range(60) if number != 20]
    # None runs twice.
    assert log.read_text().split() == [str(number) for number in range(60)]


def grow(log: Path) -> None:
    with log.open("a") as file:
        print("grow", file=file)
    content = bytearray()
    while True:
        content += b"x" * (10 << 20)


def test_calls_sent_with_one_that_runs_out_of_memory_run_elsewhere(client: hostler.Client, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with hostler.Executor(1, client=client, memory="100M") as executor:
        assert sum(executor.map(int, range(50))) == sum(range(50))
        before, guilty = executor.submit(mark, log, 1, 0), executor.submit(grow, log)
        after = executor.submit(mark, log, 2, 0)
        with pytest.raises(hostler.JobFailedError, match=r"the call grow\(…\) has no result: task .* out of memory"):
            guilty.result(60)
        assert (before.result(30), after.result(30)) == (1, 2)
    assert log.read_text().split() == ["1", "grow", "2"]


def test_call_of_a_requeued_worker_fails(client: hostler.Client, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no requeue"):
        hostler.Executor(client=client, requeue=True)
    log = tmp_path / "log"
    with hostler.Executor(1, client=client, memory="100M") as executor:
        call = executor.submit(lambda: wait_for(tmp_path / str(mark(log, 0, 1))))
        wait_until(log.exists)
        (worker,) = executor._pools[0].workers
        client.job(int(worker.job.name(0).partition("_")[0])).requeue()
        with pytest.raises(hostler.JobFailedError, match="was started again"):
            call.result(30)
        assert executor.submit(int, "7").result(30) == 7
    assert log.read_text() == "0\n"


def test_calls_of_a_failed_pool_fail_and_callbacks_can_submit_others(tmp_path: Path) -> None:
    with hostler.Executor.local(1) as executor:
        calls = [executor.submit(wait_for, tmp_path / "never") for _ in range(3)]
        wait_until(calls[0].running)
        again: list[concurrent.futures.Future[int]] = []
        calls[0].add_done_callback(lambda _: again.append(executor.submit(int, "7")))
        pool = executor._pools[0]
        assert pool._loop
        pool._loop.call_soon_threadsafe(pool.fail, RuntimeError("broken"))
        assert [str(call.exception(30)) for call in calls] == ["broken"] * 3
        wait_until(lambda: bool(again))
        assert again[0].result(30) == 7


class Raises:
    """An object that cannot be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("import asyncio; raise asyncio.CancelledError",)


def test_result_that_cannot_be_read_fails_its_call_alone() -> None:
    with hostler.Executor.local(1) as executor:
        wrong, right = executor.submit(Raises), executor.submit(int, "7")
        assert isinstance(wrong.exception(30), hostler.RemoteError)
        assert right.result(30) == 7
        # A recall that finds nothing does not prevent others.
        (pool,) = executor._pools
        (worker,) = pool.workers
        assert pool._loop
        pool._loop.call_soon_threadsafe(worker.recall)
        assert executor.submit(int, "7").result(30) == 7
        wait_until(lambda: not worker._is_recalled)


def test_local_workers_end_with_a_killed_process(tmp_path: Path) -> None:
    # Longer than the path of a socket can be.
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    script = """
import os, signal, sys, hostler, time
executor = hostler.Executor.local(2)
if CONNECTED:
    assert sum(executor.map(int, range(9))) == 36
executor.submit(time.sleep, 600)
while not any(executor._pools[0]._jobs):
    time.sleep(0.001)
# It lives longer.
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    for connected in ("True", "False"):
        variables = {**os.environ, "TMPDIR": str(directory)}
        program = [sys.executable, "-c", script.replace("CONNECTED", connected)]
        with subprocess.Popen(program, env=variables, stdin=subprocess.PIPE) as process:
            assert process.wait(30) == -signal.SIGKILL
            # The last worker removes what they need.
            wait_until(lambda: not list(directory.iterdir()))


@pytest.mark.parametrize("crash", ["connection", "head"])
def test_calls_survive_a_crash(client: hostler.Client, tmp_path: Path, crash: str) -> None:
    with hostler.Executor(1, client=client, memory="100M") as executor:
        calls = [executor.submit(wait_for, tmp_path / "first")]
        wait_until(calls[0].running)
        (worker,) = executor._pools[0].workers
        assert worker._forward
        lost = worker._forward
        if crash == "head":
            os.kill(client.info()["head"]["pid"], signal.SIGKILL)
        else:
            lost.kill()
        # The call ends while nobody is connected, and the next ones wait for the new connection.
        (tmp_path / "first").touch()
        calls += [executor.submit(wait_for, tmp_path / "second") for _ in range(3)]
        wait_until(lambda: lost.poll() is not None)
        if crash == "head":
            subprocess.run([_executable.find(), "up"], check=True, stdout=subprocess.DEVNULL)
        assert calls[0].result(30) == "first"
        (tmp_path / "second").touch()
        assert [call.result(30) for call in calls] == ["first", *["second"] * 3]
        # The same worker ran all of them.
        assert list(executor._pools[0].workers) == [worker]


def test_call_behind_a_long_one_moves_to_an_idle_worker(client: hostler.Client, tmp_path: Path) -> None:
    with hostler.Executor(2, client=client, memory="100M") as executor:
        assert sum(executor.map(int, range(2000))) == sum(range(2000))
        # Calls of this length travel in batches, and the first ones of a batch wait for the last ones.
        files = [tmp_path / str(n) for n in range(20)]
        first = executor.submit(wait_for, files[-1])
        others = [executor.submit(file.touch) for file in files]
        assert first.result(30) == "19"
        assert [other.result(30) for other in others] == [None] * 20


def test_modules_that_are_imported_or_edited_later_are_sent(
    executor: hostler.Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert executor.submit(int).result(30) == 0
    (tmp_path / "imported_later.py").write_text("def answer():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("imported_later")
    assert executor.submit(module.answer).result(30) == 42
    monkeypatch.setattr("hostler.executor._LOOKING", 0.0)
    # Also without a reload here: the code on the disk counts.
    (tmp_path / "imported_later.py").write_text("def answer():\n    return 'edited'\n")
    assert executor.submit(module.answer).result(30) == "edited"
    assert len(executor._pools) <= 3
    assert executor._pool() is executor._pool()


def test_map_with_buffersize_reads_inputs_as_results_are_taken(executor: hostler.Executor) -> None:
    taken: list[int] = []
    results = executor.map(abs, (taken.append(n) or -n for n in itertools.count()), buffersize=3)  # type: ignore[func-returns-value]
    assert taken == [0, 1, 2]
    assert list(itertools.islice(results, 4)) == [0, 1, 2, 3]
    assert len(taken) == 7


def test_values_of_variables_are_on_no_command_line(client: hostler.Client) -> None:
    # Also a variable that the commands on this machine would use.
    variables = {"API_TOKEN": f"secret-{os.getpid()}", "HOME": "/nonexistent", "LATIN": "caf\udce9"}
    with hostler.Executor(1, env=variables, client=client, cpus=1, memory="300M") as executor:
        assert executor.submit(lambda: [os.environ[name] for name in variables]).result(60) == [*variables.values()]
        lines = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert "--env=API_TOKEN" in lines
        assert variables["API_TOKEN"] not in lines


def test_local_workers_run_calls_as_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    # No cluster is there, nor the program.
    monkeypatch.setenv("HOSTLER_BIN", "/nonexistent")
    with hostler.Executor.local(2, env={"COLOUR": "red"}) as executor:
        assert list(executor.map(lambda x: (x, os.environ["COLOUR"]), range(3))) == [(x, "red") for x in range(3)]
        assert executor.submit(os.getpid).result(30) != os.getpid()
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result(30)
        with pytest.raises(hostler.JobFailedError, match=r"no result: process \d+ ended with exit code 3$"):
            executor.submit(os._exit, 3).result(30)
        with pytest.raises(hostler.PicklingError):
            executor.submit(next, (n for n in range(3)))
    with pytest.raises(ValueError, match="greater than 0"):
        hostler.Executor.local(0)
    with hostler.Executor.local(1, env={"PYTHONHOME": "/nonexistent"}) as executor:
        assert "no worker could start" in str(executor.submit(int).exception(30))


def test_forked_process_has_workers_of_its_own() -> None:
    with hostler.Executor.local(1) as executor:
        worker = executor.submit(os.getpid).result(30)
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()

        def run() -> None:
            answers.put(executor.submit(os.getpid).result(30))
            # Those of the parent are not waited for.
            executor.shutdown()

        process = context.Process(target=run)
        # As if another thread submitted a call at the moment of the fork.
        with executor._lock:
            process.start()
        other = answers.get()
        process.join(30)
        assert process.exitcode == 0
        assert other != worker
        assert executor.submit(os.getpid).result(30) == worker


def test_each_call_with_a_time_limit_has_a_worker_of_its_own(client: hostler.Client) -> None:
    with hostler.Executor(client=client, memory="100M", time="1m") as executor:
        assert len(set(executor.map(lambda _: os.getpid(), range(3)))) == 3


def test_shutdown_cancels_calls_and_refuses_new_ones(client: hostler.Client) -> None:
    executor = hostler.Executor(client=client, memory="100M", hold=True)
    futures = [executor.submit(os.getpid) for _ in range(3)]
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)


def test_pool_can_be_told_something_until_its_thread_has_ended() -> None:
    for _ in range(3):
        with hostler.Executor.local(1) as executor:
            call = executor.submit(time.sleep, 60)
            (pool,) = executor._pools
            while pool._is_running:
                # After the first one, the thread closes its event loop.
                pool.kill()
        with pytest.raises(concurrent.futures.CancelledError):
            call.result(0)


def test_workers_that_nothing_needs_end_without_having_started(
    client: hostler.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hostler.Executor(client=client, memory="100M", hold=True) as executor:
        future = executor.submit(int)
        pool = executor._pools[0]
        wait_until(lambda: bool(pool._jobs))
        (job,) = pool._jobs
        number = int(job.name(0).partition("_")[0])
        assert future.cancel()
        monkeypatch.setattr("hostler._worker.pool._IDLE", 0.0)
        wait_until(lambda: client.job(number).status().state == "cancelled")


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
    script = """
import atexit, hostler

def too_late():
    try:
        executor.submit(int)
    except RuntimeError as error:
        print(error)

atexit.register(too_late)
executor = hostler.Executor(memory='100M')
executor.submit(int, '7').add_done_callback(lambda future: print(future.result()))
other = hostler.Executor(memory='100M')
other.submit(int, '8').add_done_callback(lambda future: print(future.result()))
other.shutdown(wait=False)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    first, second, last = done.stdout.splitlines()
    assert (sorted((first, second)), last) == (["7", "8"], "cannot schedule new futures after interpreter shutdown")
    assert done.stderr == ""


def fibonacci(executor: hostler.Executor, n: int) -> int:
    if n < 2:
        return n
    first, second = (executor.submit(fibonacci, executor, m) for m in (n - 1, n - 2))
    return first.result() + second.result()


def depth(executor: hostler.Executor, levels: int) -> int:
    if levels == 1:
        return 1
    # No waiting of any kind keeps others from running.
    (done,) = concurrent.futures.as_completed([executor.submit(depth, executor, levels - 1)])
    return 1 + done.result()


def test_waiting_calls_lend_their_workers_on_a_full_cluster(client: hostler.Client, tmp_path: Path) -> None:
    # Two workers have all CPUs of the cluster.
    with hostler.Executor(client=client, cpus=4, memory="900M") as executor:
        calls = [executor.submit(depth, executor, 3) for _ in range(4)]
        calls.append(executor.submit(fibonacci, executor, 8))
        # Calls may submit others after `shutdown`.
    assert [call.result(0) for call in calls] == [3, 3, 3, 3, 21]

    def submits() -> str:
        # One that asks for nothing else runs its calls here too.
        with hostler.Executor(8) as own:
            first, second = (own.submit(wait_for, tmp_path / name) for name in ("first", "second"))
            (tmp_path / "begun").touch()
            return first.result() + second.result()

    with hostler.Executor(1, client=client, cpus=4, memory="500M") as executor:
        call = executor.submit(submits)
        wait_until((tmp_path / "begun").exists)
        (worker,) = executor._pools[0].workers
        assert worker._forward
        lost = worker._forward
        lost.kill()
        (tmp_path / "first").touch()
        wait_until(lambda: lost.poll() is not None)
        (tmp_path / "second").touch()
        assert call.result(30) == "firstsecond"


def begun(executor: hostler.Executor, file: Path) -> concurrent.futures.Future[str]:
    """Return a call that a worker has, and that waits for a file."""

    def run() -> str:
        file.with_suffix(".begun").touch()
        return wait_for(file)

    call = executor.submit(run)
    wait_until(file.with_suffix(".begun").exists)
    assert not call.cancel()
    return call


def test_calls_of_calls_fail_and_are_cancelled_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"

    def fails(executor: hostler.Executor) -> list[object]:
        wrong, dead = executor.submit(int, "x"), executor.submit(os._exit, 3)
        found: list[object] = [type(wrong.exception()), str(dead.exception())]
        runs = begun(executor, tmp_path / "end")
        waits = executor.submit(mark, log, 1, 0)
        found += [waits.cancel(), waits.cancelled()]
        (tmp_path / "end").touch()
        return [*found, runs.result(), *executor.map(str, range(2))]

    def ends(executor: hostler.Executor, gate: Path, how: Callable[[], object]) -> None:
        begun(executor, gate)
        executor.submit(mark, log, 2, 0)
        how()

    with hostler.Executor.local(1) as executor:
        kind, dead, *others = executor.submit(fails, executor).result(30)
        assert kind is ValueError
        assert "the call has no result: a process of process" in str(dead)
        assert "ended with exit code 3" in str(dead)
        assert others == [True, True, "end", "0", "1"]
        # What a call leaves behind is cancelled, unless a worker has it.
        with pytest.raises(ZeroDivisionError):
            executor.submit(ends, executor, tmp_path / "third", lambda: 1 / 0).result(30)
        (tmp_path / "third").touch()
        with pytest.raises(hostler.JobFailedError, match="exit code 4"):
            executor.submit(ends, executor, tmp_path / "fourth", lambda: os._exit(4)).result(30)
        assert capsys.readouterr().err == ""
        executor.submit(ends, executor, tmp_path / "fifth", int).result(30)
        (tmp_path / "fifth").touch()
        said = "returned before calls that it had submitted: 1 cancelled; let it wait for their results\n"
        assert re.fullmatch(rf"hostler: \S*ends\(.*\) {said}", capsys.readouterr().err)
        assert executor.submit(int, "7").result(30) == 7
    assert not log.exists()
    # A node may have others run nothing.
    with hostler.Executor.local(1, trusted=False) as executor:
        assert "`trusted=False` cannot use" in str(executor.submit(depth, executor, 3).exception(30))


def test_call_of_a_call_runs_once_if_the_connection_is_lost(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    put = Pool.put_nested
    lost: list[int] = []

    def lose(pool: Pool, worker: Worker, parent: Call, number: int, work: bytes) -> None:
        # Before the worker learns that the caller has the call.
        if not lost and worker._forward:
            worker._forward.kill()
            lost.append(worker._forward.wait())
        put(pool, worker, parent, number, work)

    monkeypatch.setattr(Pool, "put_nested", lose)

    def run() -> str:
        mark(log, 1, 0)
        return wait_for(tmp_path / "end")

    with hostler.Executor(1, client=client, memory="300M") as executor:
        call = executor.submit(lambda: executor.submit(run).result())
        wait_until(log.exists)
        # After the new connection.
        (worker,) = executor._pools[0].workers
        wait_until(lambda: worker.is_ready)
        (tmp_path / "end").touch()
        assert call.result(30) == "end"
    assert lost
    assert log.read_text() == "1\n"


def test_callbacks_in_a_call_can_wait_for_others_and_threads_can_outlive_it(tmp_path: Path) -> None:
    def waits(executor: hostler.Executor) -> int:
        found: SimpleQueue[int] = SimpleQueue()
        executor.submit(int, "1").add_done_callback(lambda _: found.put(executor.submit(int, "2").result()))
        executor.submit(int, "3").add_done_callback(lambda _: sys.exit())
        return found.get(timeout=30)

    def races(executor: hostler.Executor) -> list[bool]:
        call = executor.submit(int, "1")
        done, answered, answers = call.done, call.answered, []  # type: ignore[attr-defined]

        def before_result() -> bool:
            # With the result already here, nothing would set the event that `cancel` has just cleared.
            if not (found := done()):
                answered.wait()
            return found

        call.done = before_result  # type: ignore[method-assign]
        thread = threading.Thread(target=lambda: answers.append(call.cancel()), daemon=True)
        thread.start()
        thread.join(20)
        return answers

    def leaves(executor: hostler.Executor) -> None:
        call = begun(executor, tmp_path / "gate")

        def cancel() -> None:
            wait_for(tmp_path / "ended")
            (tmp_path / f"cancelled {call.cancel()}").touch()

        threading.Thread(target=cancel).start()

    with hostler.Executor.local(1) as executor:
        assert executor.submit(waits, executor).result(60) == 2
        assert executor.submit(races, executor).result(60) == [False]
        executor.submit(leaves, executor).result(60)
        (tmp_path / "ended").touch()
        wait_until((tmp_path / "cancelled False").exists)
        (tmp_path / "gate").touch()
