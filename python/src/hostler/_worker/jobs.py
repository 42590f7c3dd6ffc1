"""Where the workers of an `Executor` run: in an array job, or as processes of this machine."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hostler import _executable
from hostler._worker import batch, helper, project, server
from hostler._worker.batch import Settings
from hostler.client import Client
from hostler.errors import HostlerError, UnreachableError
from hostler.job import Job

R = TypeVar("R")


class WorkerJob(abc.ABC):
    """Several workers that were started together, and that end with this process."""

    def __init__(self) -> None:
        #: Set when a connection is lost.
        self.changed = asyncio.Event()
        #: Whether a worker could not start.
        self.has_failed = False

    @abc.abstractmethod
    async def tasks(self) -> dict[int, dict[str, Any]]:
        """Return the state of each worker, as the head describes tasks; none if it is unknown."""

    @abc.abstractmethod
    def __str__(self) -> str:
        """Return the name of the job."""

    @abc.abstractmethod
    def name(self, index: int) -> str:
        """Return the name of a worker, for errors."""

    @abc.abstractmethod
    def connect(self, index: int) -> tuple[list[socket.socket], subprocess.Popen[bytes] | None] | None:
        """Connect to a worker.

        Returns
        -------
        tuple or None
            A socket from the worker, one to it unless the first one is for both, and the process that carries what
            passes. None if there is no connection.
        """

    def connection_stderr(self, index: int) -> str:
        """Return what the process that carried a connection has written to its stderr."""
        return ""

    @abc.abstractmethod
    def stderr(self, index: int) -> str:
        """Return what a worker has written to its stderr."""

    @abc.abstractmethod
    def say_why(self) -> None:
        """Say on stderr why no worker has started."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Clean up after all workers have ended, or end now."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """End the workers that have not ended, and clean up."""


class ClusterJob(WorkerJob):
    """An array job whose tasks are workers."""

    def __init__(self, settings: Settings, count: int) -> None:
        super().__init__()
        client = settings.client
        directory = Path(tempfile.mkdtemp(prefix="hostler-executor-"))
        try:
            folder = directory / "folder"
            folder.mkdir()
            settings = batch.on(client.info(), settings)
            project.write_program(folder, batch.worker_settings(settings, None))
            flags = batch.submission(folder, "executor", count, settings.max_workers, settings)
            self._attached = _executable.AttachedJob(flags, client.head, str(directory))
            # The head has it now.
            shutil.rmtree(folder, ignore_errors=True)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._directory = directory
        self._client: Client = client
        self._id = int(self._attached.id)
        self._count = count
        self._is_away = False

    async def tasks(self) -> dict[int, dict[str, Any]]:
        """Return the tasks by index; none if the head is unreachable."""
        ask = functools.partial(self._client._ask, "job", str(self._id), f"--tasks={self._count}")
        try:
            tasks = (await in_thread(ask))["tasks_shown"]
        except UnreachableError as error:
            if not self._is_away:
                print(f"hostler: {error.message}; the calls wait", file=sys.stderr)
            self._is_away = True
            return {}
        self._is_away = False
        return {task["index"]: task for task in tasks}

    def __str__(self) -> str:
        return f"job {self._id}"

    def name(self, index: int) -> str:
        """Return the id of a task."""
        return f"{self._id}_{index}"

    def connect(self, index: int) -> tuple[list[socket.socket], subprocess.Popen[bytes]]:
        """Connect to a worker, which may not listen yet, through `hostler forward`."""
        with contextlib.ExitStack() as here, contextlib.ExitStack() as there:
            # Two connections: the end of one of them does not end the other.
            (source, its_output), (sink, its_input) = pairs = [socket.socketpair() for _ in range(2)]
            for ours, its in pairs:
                here.enter_context(ours)
                there.enter_context(its)
            # A file needs no descriptor here.
            stderr = there.enter_context(open(self._forward_stderr(index), "wb"))
            forward = subprocess.Popen(
                [_executable.find(), "--json", "forward", self.name(index), f"./{server.SOCKET}", "--stdio"],
                env=_executable.environment(self._client.head),
                stdin=its_input.fileno(),
                stdout=its_output.fileno(),
                stderr=stderr,
                start_new_session=True,
            )
            here.pop_all()
        return [source, sink], forward

    def _forward_stderr(self, index: int) -> Path:
        return self._directory / f"forward-{index}"

    def connection_stderr(self, index: int) -> str:
        """Return what the process that carried a connection has written to its stderr."""
        with contextlib.suppress(OSError):
            return self._forward_stderr(index).read_text(errors="replace")
        return ""

    def stderr(self, index: int) -> str:
        """Return what a worker has written to its stderr."""
        with contextlib.suppress(HostlerError):
            return Job(self._client, self._id).task(index).logs("stderr")
        return ""

    def say_why(self) -> None:
        """Say on stderr why no worker has started."""
        batch.say_why(Job(self._client, self._id))

    def finish(self) -> None:
        """Clean up after all workers have ended, or end now."""
        self._attached.finish()

    def cancel(self) -> None:
        """Cancel the workers that have not ended, and clean up."""
        self._attached.cancel()


class LocalJob(WorkerJob):
    """Workers that are processes of this machine."""

    def __init__(self, settings: Settings, count: int) -> None:
        super().__init__()
        self._directory = Path(tempfile.mkdtemp(prefix="hostler-executor-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        # Its end is the end of the worker, also before the first call, and also if this process is killed.
        self._connections: list[socket.socket | None] = []
        try:
            program = self._directory / "program"
            program.mkdir()
            project.write_program(program, {**batch.worker_settings(settings, None), "local": True})
            for index in range(count):
                place = self._directory / str(index)
                place.mkdir()
                for entry in program.iterdir():
                    (place / entry.name).symlink_to(entry)
                ours, its = socket.socketpair()
                self._connections.append(ours)
                _executable.of_this_process.add(ours)
                with its, open(place / "stderr", "wb") as stderr:
                    self._processes.append(
                        subprocess.Popen(
                            [project.interpreter(), *helper.flags(), "main.py"],
                            cwd=place,
                            env={**os.environ, **(settings.options.get("env") or {})},
                            stdin=its.fileno(),
                            stderr=stderr,
                            start_new_session=True,
                        )
                    )
        except BaseException:
            self.cancel()
            raise

    async def tasks(self) -> dict[int, dict[str, Any]]:
        """Return the state of each worker."""
        return {index: _described(index, process.poll()) for index, process in enumerate(self._processes)}

    def say_why(self) -> None:
        """Say nothing: processes need not wait for CPUs."""

    def __str__(self) -> str:
        return "this machine"

    def name(self, index: int) -> str:
        """Return the process id of a worker."""
        return f"process {self._processes[index].pid}"

    def connect(self, index: int) -> tuple[list[socket.socket], None] | None:
        """Take the connection to a worker, which has no other one."""
        connection, self._connections[index] = self._connections[index], None
        if connection is None:
            self._processes[index].kill()
            return None
        return [connection], None

    def stderr(self, index: int) -> str:
        """Return what a worker has written to its stderr."""
        with contextlib.suppress(OSError):
            return (self._directory / str(index) / "stderr").read_text(errors="replace")
        return ""

    def finish(self) -> None:
        """Clean up after all workers have ended, or end now."""
        for connection in self._connections:
            if connection is not None:
                connection.close()
        for process in self._processes:
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def cancel(self) -> None:
        """End the workers that have not ended, and clean up."""
        for process in self._processes:
            process.kill()
        self.finish()


def _described(index: int, exit_code: int | None) -> dict[str, Any]:
    state = "running" if exit_code is None else "failed" if exit_code else "completed"
    return {"index": index, "state": state, "exit_code": exit_code, "node": None, "message": None}


async def in_thread(function: Callable[[], R]) -> R:
    """Run a function in a thread of its own. Those of `asyncio.to_thread` are not there when Python exits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def run() -> None:
        try:
            settle = functools.partial(future.set_result, function())
        except BaseException as error:
            settle = functools.partial(future.set_exception, error)
        # The loop may have ended because of an error.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, settle)

    try:
        threading.Thread(target=run, name="hostler-ask", daemon=False).start()
    except RuntimeError:
        # From its exit on, Python 3.12 starts no threads. The calls that remain need no more than this one.
        run()
    return await future


def _settle(future: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not future.done():
        settle()
