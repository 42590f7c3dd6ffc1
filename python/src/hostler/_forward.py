"""`hostler forward` as a context: it runs until the block ends, or this process does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import IO, cast

from hostler import _executable
from hostler.errors import HostlerError

#: Runs a command until standard input ends, as it does when this process is killed, and returns its exit code. The end
#: of the command closes standard output.
GUARD = (
    "sh",
    "-c",
    '"$@" </dev/null & child=$!; exec >&-; read -r ended; kill "$child" 2>/dev/null; wait "$child"',
    "sh",
)


def arguments(job: str, port: int | str, socket: str | os.PathLike[str] | None, node_rank: int) -> list[str]:
    """Return the command for `Client.forward`."""
    local = ["--socket", os.path.abspath(socket), "--", str(port)] if socket is not None else ["--", f"0:{port}"]
    return ["--json", "forward", job, f"--node-rank={node_rank}", *local]


def _start(arguments: Sequence[str], head: str | None, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*GUARD, _executable.find(), *arguments],
        env=_executable.environment(head),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )
    _executable.of_this_process.add(cast("IO[bytes]", process.stdin))
    return process


@contextlib.contextmanager
def running(arguments: Sequence[str], head: str | None) -> Iterator[str]:
    """Run the command, and yield the local address."""
    with tempfile.TemporaryFile() as stderr:
        # Its end closes the pipes and waits.
        with _start(arguments, head, stderr) as process:
            if line := cast("IO[bytes]", process.stdout).readline():
                yield json.loads(line)["local"]
        if not line:
            raise _failure(process.returncode, stderr)


@contextlib.asynccontextmanager
async def running_async(arguments: Sequence[str], head: str | None) -> AsyncIterator[str]:
    """Do the same without blocking the event loop."""
    with tempfile.TemporaryFile() as stderr:
        # Nothing can cancel this between the start and the block that ends it.
        with _start(arguments, head, stderr) as process:
            try:
                if line := await asyncio.to_thread(cast("IO[bytes]", process.stdout).readline):
                    yield json.loads(line)["local"]
            finally:
                cast("IO[bytes]", process.stdin).close()
                await asyncio.to_thread(process.wait)
        if not line:
            raise _failure(process.returncode, stderr)


def _failure(exit_code: int, stderr: IO[bytes]) -> HostlerError:
    stderr.seek(0)
    return _executable.failure(exit_code, stderr.read().decode(errors="replace"))
