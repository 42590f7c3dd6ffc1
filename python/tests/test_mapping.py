"""`hostler.map` on a real cluster."""

from __future__ import annotations

import concurrent.futures
import json
import math
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hostler
from hostler import _executable

SMALL = hostler.Options(cpus=1, memory="100M")


class Peculiar(Exception):
    """Cannot be unpickled: its constructor has other arguments than its base."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail_for_three(number: int) -> int:
    if number == 3:
        raise ValueError("three is not allowed")
    return number * 10


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_thousand_results_come_in_the_order_of_the_inputs(client: hostler.Client) -> None:
    factor = 3
    results = hostler.map(lambda x, y: factor * x + y, range(1000), range(1000), client=client, chunksize=125, **SMALL)
    assert list(results) == [4 * x for x in range(1000)]


def test_task_imports_little_of_the_package(client: hostler.Client, tmp_path: Path) -> None:
    # Each task starts a Python, which takes longer than many calls.
    def unneeded(*_: object) -> set[str]:
        return {"asyncio", "hostler.client", "hostler._executable", "ssl"} & set(sys.modules)

    (tmp_path / "file").touch()
    found = [*hostler.map(unneeded, [0], client=client, **SMALL)]
    found.append(hostler.delegate(unneeded, client=client, **SMALL)())
    found += [value for _, value in hostler.map_folder(unneeded, tmp_path, client=client, **SMALL)]
    with hostler.Executor(1, client=client, **SMALL) as executor:
        found.append(executor.submit(unneeded).result(60))
    assert found == [set()] * 4


def test_names_of_the_package_are_found_when_they_are_used() -> None:
    program = (
        "import sys, hostler\n"
        "print(hostler.map.__name__, hostler.preflight.__name__, hostler.options.Options is hostler.Options)\n"
        "print(set(hostler.__all__) - set(dir(hostler)), hasattr(hostler, 'nothing'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "map preflight True\nset() False\n"


def test_results_come_as_they_are_ready_if_unordered(client: hostler.Client) -> None:
    def wait(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    with hostler.map(wait, [60, 0.01], ordered=False, client=client, **SMALL) as results:
        assert next(results) == 0.01
        job = results.job
    assert job is not None
    assert job.wait(20).state == "cancelled", "leaving the block cancels the rest"


def test_map_of_nothing_returns_at_once() -> None:
    results = hostler.map(len, [], client=hostler.Client("unix:/nowhere"))
    assert (list(results), results.job) == ([], None)


def test_exception_is_raised_with_its_traceback_from_the_node(client: hostler.Client) -> None:
    results = hostler.map(fail_for_three, range(6), client=client, **SMALL)
    assert [next(results) for _ in range(3)] == [0, 10, 20]
    with pytest.raises(ValueError, match="three is not allowed") as raised:
        next(results)
    assert isinstance(raised.value.__cause__, hostler.RemoteTraceback)
    assert "in fail_for_three" in str(raised.value.__cause__)
    if sys.version_info >= (3, 11):
        assert raised.value.__notes__ == ["This was input 3: 3."]
    assert next(results, None) is None


def test_exceptions_are_returned_among_the_results(client: hostler.Client) -> None:
    def fail(kind: int) -> int:
        if kind == 1:
            raise Peculiar(1, 2)
        if kind == 2:
            sys.exit(4)
        return kind

    found = list(hostler.map(fail, range(4), errors="return", client=client, chunksize=2, **SMALL))
    assert [found[0], found[3]] == [0, 3]
    assert isinstance(found[1], hostler.RemoteError)
    assert "Peculiar: 1 and 2" in found[1].message
    assert isinstance(found[2], SystemExit)


def test_killed_task_names_its_input_and_keeps_the_results_of_others(client: hostler.Client) -> None:
    def die(number: int) -> int:
        if number == 1:
            print("last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 2:
            os._exit(7)
        return number

    found = list(hostler.map(die, range(5), errors="return", client=client, chunksize=4, **SMALL))
    error, other = found.pop(1), found.pop(1)
    assert found == [0, 3, 4], "those after it run in another process"
    for what in ("input 1 ended its process with signal 9", "input 2 ended its process with exit code 7"):
        assert what in str(error)
        assert what in str(other)
    assert isinstance(error, hostler.JobFailedError)
    assert "input 1 has no result: task" in error.message
    assert "exit code 137 on n" in error.message
    assert "last words" in error.message


@pytest.mark.parametrize("how", ["kill", "time limit"])
def test_inputs_of_a_task_that_another_one_ends_run_alone(
    client: hostler.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    log = tmp_path / "log"

    def ends_its_task(number: int) -> tuple[int, str]:
        with log.open("a") as file:
            print(number, file=file, flush=True)
        if number == 1 and how == "kill":
            os.kill(os.getppid(), signal.SIGKILL)
        if number == 1:
            time.sleep(600)
        return number, os.environ["HOSTLER_ARRAY_INDEX"]

    limit = {"time": "2s"} if how == "time limit" else {}
    options = hostler.Options(cpus=1, memory="100M", **limit)  # type: ignore[typeddict-item]
    results = hostler.map(ends_its_task, range(4), errors="return", client=client, chunksize=4, **options)
    found = list(results)
    error = found.pop(1)
    assert "input 1 has no result: task" in str(error)
    assert found == [(0, "0"), (2, "0"), (3, "1")]
    assert log.read_text().split() == ["0", "1", "2", "3"] or log.read_text().split() == ["0", "1", "3", "2"]
    assert "ended early; 2 inputs run alone in job" in capsys.readouterr().err
    # Without `errors="return"`, the first error ends the map.
    log.unlink()
    with pytest.raises(hostler.JobFailedError, match="input 1 has no result"):
        list(hostler.map(ends_its_task, range(4), client=client, chunksize=4, **options))
    assert log.read_text().split() == ["0", "1"]


def test_map_continues_after_a_crash_of_the_head(client: hostler.Client, tmp_path: Path) -> None:
    def wait_for_file(number: int) -> int:
        while number == 1 and not (tmp_path / "end").exists():
            time.sleep(0.01)
        return number

    results = hostler.map(wait_for_file, range(2), client=client, **SMALL)
    assert next(results) == 0
    os.kill(client.info()["head"]["pid"], signal.SIGKILL)
    starting = threading.Timer(0.5, subprocess.run, [[_executable.find(), "up"]], {"check": True})
    starting.start()
    (tmp_path / "end").touch()
    assert list(results) == [1]
    starting.join()


def test_what_cannot_be_pickled_is_a_clear_error(client: hostler.Client) -> None:
    lock = threading.Lock()

    def use_lock(_: int) -> bool:
        return lock.locked()

    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(hostler.PicklingError, match=r"the function cannot be pickled: .*use_lock: its variable `lock`"):
        hostler.map(use_lock, [1], client=client)
    with pytest.raises(hostler.PicklingError, match=r"input 1 cannot be pickled: .*lock"):
        hostler.map(print, [1, lock], client=client)
    with pytest.raises(hostler.PicklingError, match="generator"):
        hostler.map(print, [numbers()], client=client)
    found = list(
        hostler.map(lambda make: make(), [threading.Lock, numbers, int], errors="return", client=client, **SMALL)
    )
    assert [type(error) for error in found] == [pickle.PicklingError, pickle.PicklingError, int]
    assert "the result, a generator, cannot be pickled" in str(found[1])


def test_untrusted_results_are_json_and_never_unpickled(client: hostler.Client, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "hacked"),)

    def answer(kind: int) -> object:
        if kind == 1:
            return Hostile()
        if kind == 2:
            raise ValueError("refused")
        if kind >= 3:
            # What a hostile node might send: an exception to unpickle, in the name of this and of another input.
            content = pickle.dumps(Hostile())
            for index in (kind, 0):
                text = {"error": "E\x1b[2J", "traceback": "T\x9b1A"}
                header = {"input": index, "kind": "error", "bytes": len(content), **text}
                with open("../results", "ab") as records:
                    records.write(json.dumps(header).encode() + b"\n" + content)
            os._exit(0)
        return {"score": [1, 2.5, None]}

    found = list(hostler.map(answer, range(4), errors="return", trusted=False, client=client, **SMALL))
    assert found[0] == {"score": [1, 2.5, None]}
    assert [type(error) for error in found[1:]] == [hostler.RemoteError] * 3
    assert "cannot be written as JSON" in str(found[1])
    assert "ValueError: refused" in str(found[2])
    # Nothing that a node writes reaches the terminal as an escape sequence.
    hostile = found[3]
    assert isinstance(hostile, hostler.RemoteError)
    assert str(hostile) == "E\\x1b[2J"
    assert "T\\x9b1A" in str(hostile.__cause__)
    assert not (tmp_path / "hacked").exists()


def test_modules_beside_the_script_and_classes_of_the_script_work(client: hostler.Client, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("FACTOR = 7\ndef scale(x):\n    return FACTOR * x\n")
    package = tmp_path / "tools"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "late.py").write_text("def shift(x):\n    return x + 1\n")
    (package / ".gitignore").write_text("*.py\n")
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "part.py").write_text("ANSWER = 42\n")
    (tmp_path / "odd-name.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "script.py").write_text(
        "import importlib.util, sys\n"
        "import hostler, helper, tools, space.part\n"
        "spec = importlib.util.spec_from_file_location('odd', 'odd-name.py')\n"
        "odd = importlib.util.module_from_spec(spec)\n"
        "sys.modules['odd'] = odd\n"
        "spec.loader.exec_module(odd)\n"
        "class Point:\n"
        "    def __init__(self, x):\n"
        "        self.x = x\n"
        "def work(x):\n"
        "    from tools.late import shift\n"
        "    from space.part import ANSWER\n"
        "    return Point(shift(helper.scale(odd.twice(x))) + ANSWER)\n"
        "results = list(hostler.map(work, [1, 2], memory='100M'))\n"
        "assert all(isinstance(point, Point) for point in results)\n"
        "print([point.x for point in results])\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[57, 71]\n", "")


def test_environment_with_the_same_python_is_built_without_the_callers_packages(client: hostler.Client) -> None:
    def look(_: int) -> tuple[bool, str]:
        import importlib.util
        import platform

        return importlib.util.find_spec("pytest") is None, platform.python_version_tuple()[1]

    # By value: this test module imports pytest.
    look.__module__ = "__main__"
    assert list(hostler.map(look, [0], environment=[], client=client, **SMALL)) == [(True, str(sys.version_info.minor))]


def test_python_version_that_no_node_has_is_refused(client: hostler.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostler._worker.project.python_version", lambda: "3.29")
    with pytest.raises(hostler.RefusedError, match=r"requires Python .*3\.29"):
        hostler.map(len, ["a"], environment=[], client=client, **SMALL)


def test_client_killed_in_the_middle_leaves_nothing_running(client: hostler.Client, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, time, hostler\n"
        "results = hostler.map(lambda x: time.sleep(600), range(2), memory='100M', name='endless')\n"
        # Other processes of the program may live longer.
        "if os.fork() == 0:\n"
        "    os.close(1)\n"
        "    while not os.path.exists('end'):\n"
        "        time.sleep(0.05)\n"
        "    os._exit(0)\n"
        "print(results.job.id, flush=True)\n"
        "next(results)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for number in (signal.SIGKILL, signal.SIGINT):
        with subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        ) as process:
            assert process.stdout
            job = client.job(int(process.stdout.readline()))
            until(lambda job=job: job.status().state == "running")  # type: ignore[misc]
            process.send_signal(number)
        assert job.wait(20).state == "cancelled"
    until(lambda: not list(tmp_path.glob("hostler-map-*")))
    (tmp_path / "end").touch()


def test_interrupt_during_the_submission_leaves_nothing_running(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = tmp_path / "hostler"
    executable.write_text(
        f"#!/bin/sh\nreal={_executable.find()}\n"
        'case "$*" in *" submit "*) ;; *) exec "$real" "$@" ;; esac\n'
        'id=$("$real" "$@") && kill -INT "$CALLER" && echo "$id"\n'
    )
    executable.chmod(0o755)
    monkeypatch.setenv("HOSTLER_BIN", str(executable))
    monkeypatch.setenv("CALLER", str(os.getpid()))
    # The exception is kept, as the last one of a notebook is, and with it all frames.
    with pytest.raises(KeyboardInterrupt) as kept:
        hostler.map(time.sleep, [600], client=client, **SMALL)
    newest, *_ = client.jobs(ended=True)
    assert (newest.wait(20).state, kept.traceback[-1].name) == ("cancelled", "__init__")


def test_function_may_start_processes_that_run_the_main_program(client: hostler.Client, tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def root(number: float) -> list[float]:
        with open(calls, "a") as file:
            file.write(f"{number}\n")
        with multiprocessing.get_context("forkserver").Pool(1) as pool:
            return pool.map(math.sqrt, [number])

    options = hostler.Options(cpus=1, memory="400M", time="1m")
    assert list(hostler.map(root, [9, 4], chunksize=2, client=client, **options)) == [[3.0], [2.0]]
    assert calls.read_text() == "9\n4\n"


def test_map_with_too_many_tasks_is_refused_before_it_is_submitted(client: hostler.Client) -> None:
    with pytest.raises(hostler.UsageError, match="20000 array tasks; a map has at most 10000"):
        hostler.map(len, ["a"] * 20_000, chunksize=1, client=client, **SMALL)


def test_map_whose_results_are_discarded_says_that_it_is_cancelled(
    client: hostler.Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def lines(text: str) -> list[str]:
        return re.findall(r"hostler: job (\d+) cancelled: its results were not read; keep .* `key=`\n", text)

    hostler.map(time.sleep, [600], client=client, **SMALL)
    (discarded,) = lines(capfd.readouterr().err)
    assert client.job(int(discarded)).wait(20).state == "cancelled"
    hostler.map(time.sleep, [600], client=client, **SMALL).cancel()
    with hostler.map(time.sleep, [600], client=client, **SMALL):
        pass
    kept = hostler.map(abs, [-1], client=client, **SMALL)
    assert kept.job
    kept.job.wait(20)
    del kept
    assert lines(capfd.readouterr().err) == [], "asked for, or already completed"
    # One that is kept, and one of whose results some are read.
    program = (
        "import hostler, os, sys, time\n"
        "kept = [hostler.map(time.sleep, [600 * n, 600], ordered=False, memory='100M', chunksize=1) for n in (0, 1)]\n"
        "next(kept[0])\n"
        "print(*(it.job.id for it in kept), flush=True)\n"
        # A forked process says nothing.
        "if os.fork(): os.wait()\n"
        "sys.exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert sorted(lines(done.stderr)) == sorted(done.stdout.split())
    assert all(client.job(int(job)).wait(20).state == "cancelled" for job in done.stdout.split())


def test_cancelled_map_downloads_nothing_more(client: hostler.Client) -> None:
    with hostler.map(len, ["a", "b"], client=client, **SMALL) as results:
        pass
    with pytest.raises(concurrent.futures.CancelledError):
        list(results)


def test_broken_records_cost_only_their_own_inputs(client: hostler.Client) -> None:
    def answer(kind: int) -> int:
        broken = [
            {"input": [], "kind": "value", "bytes": 1, "error": "", "traceback": ""},
            {"input": kind, "kind": "value", "bytes": 2**63, "error": "", "traceback": ""},
            {"input": kind, "kind": "error", "bytes": 0, "error": 5, "traceback": 5},
        ]
        if kind < len(broken):
            with open("../results", "wb") as records:
                records.write(json.dumps(broken[kind]).encode() + b"\n1")
            os._exit(0)
        return kind

    found = list(hostler.map(answer, range(4), chunksize=1, errors="return", client=client, **SMALL))
    assert all(isinstance(error, hostler.JobFailedError) for error in found[:3])
    assert found[3] == 3


def test_status_of_an_array_is_not_that_of_its_only_started_task(client: hostler.Client, project: Path) -> None:
    job = client.submit(project, "main.py", array="0-2%1", memory="100M", hold=True)
    try:
        assert not job.status().ended
        assert [task.status().state for task in job.tasks()] == ["pending"] * 3
    finally:
        job.cancel()
