"""The client for programs with an event loop. Classes and methods are those of `hostler.client` and `hostler.job`."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from hostler import _executable, _forward
from hostler._executable import Head
from hostler.client import Nodes, described_nodes, submission, submitted
from hostler.job import AsyncWork, Output, checked, indices
from hostler.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class AsyncClient(Head):
    """A client of one cluster, whose methods are coroutines.

    A cancelled call ends the command that it runs, and nothing waits any more. A cancelled `submit` may have submitted
    the job; with a `key`, the next call returns that one.

    Parameters
    ----------
    head
        As for `Client`.

    Examples
    --------
    >>> client = hostler.AsyncClient()
    >>> jobs = [await client.submit("project", "main.py", str(n)) for n in range(3)]
    >>> await asyncio.gather(*(job.wait() for job in jobs))
    """

    async def submit(
        self,
        folder: str | os.PathLike[str],
        entry: str,
        *args: str,
        array: int | str | Iterable[int] | None = None,
        nodes: int | None = None,
        tasks_per_node: int | None = None,
        key: str | None = None,
        **options: Unpack[Options],
    ) -> AsyncJob:
        """Submit a project folder as a job; see `Client.submit`."""
        flags = submission(folder, entry, args, array, nodes, tasks_per_node, key, options)
        return AsyncJob(self, submitted(await self._request(*flags)))

    def job(self, id: int) -> AsyncJob:
        """Return the job with this id, without asking whether it exists."""
        return AsyncJob(self, id)

    async def jobs(self, *, ended: bool = False) -> list[AsyncJob]:
        """Return jobs, newest first; with `ended`, also those that have ended. At most a thousand."""
        answer = await self._request("jobs", *(["--all"] if ended else []))
        return [AsyncJob(self, job["id"]) for job in answer["jobs"]]

    def forward(
        self,
        job: AsyncJob | AsyncTask | int,
        port: int | str,
        *,
        socket: str | os.PathLike[str] | None = None,
        node_rank: int = 0,
    ) -> contextlib.AbstractAsyncContextManager[str]:
        """Reach a port or Unix socket of a running job from here, in an ``async with`` block; see `Client.forward`."""
        name = job._name if isinstance(job, (AsyncJob, AsyncTask)) else str(job)
        return _forward.running_async(_forward.arguments(name, port, socket, node_rank), self.head)

    async def nodes(self) -> Nodes:
        """Return the nodes, by name."""
        return described_nodes(await self._request("nodes"))

    async def info(self) -> dict[str, Any]:
        """Return a summary of the cluster; see `Client.info`."""
        answer: dict[str, Any] = await self._request("info")
        return answer

    async def _request(self, *arguments: str, accepted: Collection[int] = (0,), timeout: float | None = None) -> Any:
        """Do the same as `_ask`, without blocking the event loop. A cancellation ends the command."""
        asked = _asked(["--json", *arguments], self.head)
        try:
            exit_code, output, errors = await asyncio.wait_for(asked, timeout)
        except asyncio.TimeoutError:
            # Before Python 3.11, it is another class than the built-in one.
            raise TimeoutError(f"`hostler {arguments[0]}` took longer than {timeout:g} s") from None
        return _executable.answer(exit_code, output, errors, accepted, arguments)


class _Work(AsyncWork):
    """What jobs and array tasks have in common."""

    async def stream(self, output: Output = "stdout") -> AsyncIterator[str]:
        """Yield the lines of an output as they appear, until the end; see `Job.stream`."""
        await self.status()
        flags = ["logs", "--follow", f"--{checked(output)}", self._name]
        async for line in _lines(flags, self._client.head, to_stderr=output != "stdout"):
            yield line


class AsyncTask(_Work):
    """One task of an array job.

    Attributes
    ----------
    job : AsyncJob
    index : int
    """

    _is_task = True

    def __init__(self, job: AsyncJob, index: int) -> None:
        super().__init__(job._client, f"{job.id}_{index}")
        self.job = job
        self.index = index


class AsyncJob(_Work):
    """A submitted job.

    Attributes
    ----------
    id : int
    """

    def __init__(self, client: AsyncClient, id: int) -> None:
        super().__init__(client, str(id))
        self.id = id

    async def tasks(self) -> list[AsyncTask]:
        """Return the tasks of an array job."""
        array = (await self.status()).details.get("array")
        return [AsyncTask(self, index) for index in indices(array)] if array else []

    def task(self, index: int) -> AsyncTask:
        """Return the task with this index."""
        return AsyncTask(self, index)


async def _asked(arguments: Sequence[str], head: str | None) -> tuple[int, bytes, bytes]:
    async with _running(arguments, head, asyncio.subprocess.PIPE) as process:
        output, errors = await process.communicate()
    return process.returncode or 0, output, errors


@contextlib.asynccontextmanager
async def _running(
    arguments: Sequence[str], head: str | None, stdout: int | IO[bytes]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command, and end it if the block is left before."""
    process = await asyncio.create_subprocess_exec(
        _executable.find(),
        *arguments,
        env=_executable.environment(head, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _lines(arguments: Sequence[str], head: str | None, *, to_stderr: bool) -> AsyncIterator[str]:
    """Do the same as `_executable.lines`, without blocking the event loop."""
    with tempfile.TemporaryFile() as rest:
        stdout = rest if to_stderr else asyncio.subprocess.PIPE
        async with _running(["--quiet", *arguments], head, stdout) as process:
            pipe = cast("asyncio.StreamReader", process.stderr if to_stderr else process.stdout)
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            tail = line = ""
            while content := await pipe.read(_executable.CHUNK_BYTES):
                text = decoder.decode(content)
                tail = (tail + text)[-_executable.TAIL_CHARACTERS :]
                *whole, line = (line + text).split("\n")
                for found in whole:
                    yield found
            if line:
                yield line
            errors = b"" if to_stderr else await cast("asyncio.StreamReader", process.stderr).read()
            exit_code = await process.wait()
        if exit_code != 0:
            raise _executable.failure(exit_code, tail if to_stderr else errors.decode(errors="replace"))
