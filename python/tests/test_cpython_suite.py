"""CPython's own tests of executors, on `hostler.Executor`.

They are those of the running Python, or of Debian's if it has none: some distributions leave them out.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import glob
import importlib
import pickle
import shutil
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

import hostler

# Tests that do not apply, or whose subject our own tests show in another way.
EXCLUDED = {
    # Start a Python with a class of `concurrent.futures`: see `test_python_waits_for_calls_before_it_exits` and others
    # in test_executor.py.
    "test_interpreter_shutdown": "imports the class by its name",
    "test_submit_after_interpreter_shutdown": "imports the class by its name",
    "test_hang_gh83386": "imports the class by its name",
    "test_cancel_futures": "expects that calls start within a few milliseconds",
    "test_hang_gh94440": "gives five seconds to a start and an end of workers; a busy machine may need more",
    # Calls are pickled by `submit`, which refuses what cannot be pickled.
    "test_error_at_task_pickle": "expects the error from the future instead of `submit`",
    "test_shutdown_deadlock_pickle": "expects the error from the future instead of `submit`",
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": "replaces a pipe of ProcessPoolExecutor",
    # A worker that dies fails its own call, not the others.
    "test_crash_big_data": "starts a new pair of workers for each of ten calls that crash",
}

# Names of the suite's classes, and where they are from Python 3.12 on.
CLASSES = {
    "ExecutorTest": "executor",
    "WaitTests": "test_wait",
    "AsCompletedTests": "test_as_completed",
    "ExecutorShutdownTest": "test_shutdown",
    "ExecutorDeadlockTest": "test_deadlock",
}

# What a call that crashes, or whose arguments or result cannot be unpickled, raises instead of BrokenProcessPool. Such
# a call does not break the executor.
BROKEN = (hostler.JobFailedError, hostler.RemoteError, SystemExit, pickle.UnpicklingError)


def suite() -> str | None:
    """Return the file or the directory of the suite."""
    own = Path(unittest.__file__).parents[1] / "test"
    for directory in (str(own), "/usr/lib/python3.[0-9]*/test"):
        for form in ("test_concurrent_futures.py", "test_concurrent_futures"):
            if found := sorted(glob.glob(f"{directory}/{form}")):
                return found[-1]
    return None


# Tests that give their calls a few seconds, which are not meant for the start of a worker on a busy machine.
TIMED = ("test_map_timeout",)


class Executor(hostler.Executor):
    """An executor with small workers."""

    def __init__(self, max_workers: int | None = None, mp_context: None = None) -> None:
        super().__init__(max_workers, memory="200M")


class Event:
    """What `threading.Event` is for threads, for processes: a file."""

    def __init__(self, directory: str) -> None:
        self.file = Path(directory) / "event"

    def set(self) -> None:
        """Create the file."""
        self.file.touch()

    def wait(self) -> bool:
        """Wait for the file."""
        while not self.file.exists():
            time.sleep(0.01)
        return True


class ExecutorMixin(unittest.TestCase):
    """What the suite's classes need."""

    executor_type = Executor
    worker_count = 2
    get_context = None

    def setUp(self) -> None:
        """Create an executor."""
        self.executor = Executor(self.worker_count)
        self.get_context = lambda: None
        if self._testMethodName in TIMED:
            self.executor.submit(int).result()

    def create_event(self) -> Event:
        """Return an event for a call, as the suite of Python 3.14 needs it."""
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        return Event(directory)

    def tearDown(self) -> None:
        """End the executor."""
        self.executor.shutdown()


def groups(found: str) -> list[list[unittest.TestCase]]:
    """Return the suite's tests with our mixin, in groups that may run at the same time."""
    # A copy under another name, which is sent to the workers like each module that is not installed.
    directory = tempfile.mkdtemp(prefix="hostler-suite-")
    atexit.register(shutil.rmtree, directory)
    copy = shutil.copytree if Path(found).is_dir() else shutil.copyfile
    copy(found, Path(directory) / ("cpython_suite" + Path(found).suffix))
    sys.path.insert(0, directory)

    def module(name: str) -> Any:
        return importlib.import_module(f"cpython_suite.{name}" if Path(found).is_dir() else "cpython_suite")

    try:
        classes = {name: getattr(module(place), name) for name, place in CLASSES.items()}
        module("test_deadlock").BrokenProcessPool = BROKEN
    finally:
        sys.path.remove(directory)
    apart: list[list[unittest.TestCase]] = []
    for name, theirs in classes.items():
        ours = type(name, (theirs, ExecutorMixin), {})
        tests = [ours(test) for test in unittest.TestLoader().getTestCaseNames(ours) if test not in EXCLUDED]
        # These replace the standard error of this process.
        apart += [tests] if name == "ExecutorDeadlockTest" else [[test] for test in tests]
    return apart


def test_executor_passes_the_tests_of_cpython(client: hostler.Client) -> None:
    found = suite()
    assert found, "this Python has no test.test_concurrent_futures: install libpython3.N-testsuite on Debian"
    result = unittest.TestResult()

    def run(tests: list[unittest.TestCase]) -> None:
        for test in tests:
            test(result)

    # Most of them wait most of the time.
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        list(threads.map(run, sorted(groups(found), key=len, reverse=True)))
    wrong = [f"{test}\n{text}" for test, text in result.failures + result.errors]
    assert not wrong, "\n".join(wrong)
    assert result.testsRun > 30
    assert not result.skipped
