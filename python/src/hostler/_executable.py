"""The executable ``hostler``: finds it, runs it, and turns its errors into exceptions.

All requests go through the executable. It finds the cluster, sends the login token, verifies the certificate of a
remote head, and retries. Requests to the head's Unix socket would be a few milliseconds faster, but remote heads would
still need the executable: Python's ``ssl`` module cannot verify a certificate by the fingerprint of its authority.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from hostler._version import __version__
from hostler.errors import (
    ExecutableError,
    HostlerError,
    MismatchError,
    RefusedError,
    UnreachableError,
    UsageError,
)

# The exit codes of docs/reference/exit-codes.md.
_KINDS: dict[int, tuple[type[HostlerError], str]] = {
    2: (UsageError, "usage"),
    3: (UnreachableError, "unreachable"),
    4: (RefusedError, "refused"),
    5: (MismatchError, "mismatch"),
}

#: Text that is read at once, and how much of it an error shows.
CHUNK_BYTES = 1 << 16
TAIL_CHARACTERS = 4000


def find() -> str:
    """Return the path of the executable.

    ``HOSTLER_BIN`` names it. Otherwise, the wheel's own executable comes first, then ``PATH``.

    Raises
    ------
    ExecutableError
        If there is none.
    MismatchError
        If it has another version than this package.
    """
    named = os.environ.get("HOSTLER_BIN")
    for candidate in [named] if named else [*_beside_the_package(), shutil.which("hostler")]:
        if candidate and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            _check_version(candidate)
            return candidate
    raise ExecutableError(
        f"{named} in HOSTLER_BIN is not an executable file" if named else "the executable `hostler` was not found",
        "executable",
        ("install the package again with pip, or set HOSTLER_BIN to the path of the executable",),
    )


def _beside_the_package() -> list[str]:
    """Return where pip installs the executable, also with ``--target`` or ``--user``."""
    packages = os.path.realpath(Path(__file__).parents[1])
    found = [os.path.join(packages, "bin")]
    for scheme in (sysconfig.get_default_scheme(), "posix_user"):
        if packages in [os.path.realpath(sysconfig.get_path(kind, scheme)) for kind in ("purelib", "platlib")]:
            found.append(sysconfig.get_path("scripts", scheme))
    return [os.path.join(directory, "hostler") for directory in found]


@functools.cache
def _check_version(executable: str) -> None:
    try:
        answer = subprocess.run([executable, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise ExecutableError(f"cannot run {executable}: {error}", "executable") from error
    # Without the date and the commit, which programs of packages have.
    version = answer.stdout.removeprefix("hostler").strip().partition("+")[0]
    if version != __version__:
        raise MismatchError(
            f"the executable {executable} has version {version or 'unknown'}, this package has version {__version__}",
            "mismatch",
            ("install the same version of both",),
        )


def ask(
    arguments: Sequence[str],
    head: str | None,
    *,
    accepted: Collection[int] = (0,),
    timeout: float | None = None,
) -> Any:
    """Run a command with ``--json`` and return its answer.

    Parameters
    ----------
    arguments
        The command and its arguments.
    head
        Address of the head; None lets the executable choose.
    accepted
        Exit codes that are no error if the command prints an answer.
    timeout
        In seconds.

    Raises
    ------
    HostlerError
        If the command fails.
    TimeoutError
        If the command takes longer than `timeout`.
    """
    command = [find(), "--json", *arguments]
    try:
        # In a session of its own: Ctrl-C interrupts Python, which then ends the command.
        done = subprocess.run(
            command,
            env=environment(head, arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"`hostler {arguments[0]}` took longer than {timeout:g} s") from None
    return answer(done.returncode, done.stdout, done.stderr, accepted, arguments)


@dataclass(frozen=True)
class Head:
    """The head of a cluster, by its address; None lets the executable choose."""

    head: str | None = None

    def _ask(self, *arguments: str, accepted: Collection[int] = (0,), timeout: float | None = None) -> Any:
        return ask(arguments, self.head, accepted=accepted, timeout=timeout)

    def _lines(self, *arguments: str, accepted: Collection[int] = (0,)) -> Iterator[list[str]]:
        """Run a command with ``--json`` and yield the lines that it prints, as many as there are at once."""
        rest = ""
        for text in chunks(arguments, self.head, to_stderr=False, form="--json", accepted=accepted):
            *whole, rest = (rest + text).split("\n")
            yield whole

    async def _request(self, *arguments: str, accepted: Collection[int] = (0,), timeout: float | None = None) -> Any:
        """Return the same as `_ask`. Only that of `hostler.asynchronous` suspends the coroutine."""
        return self._ask(*arguments, accepted=accepted, timeout=timeout)


def answer(
    exit_code: int, output: bytes, errors: bytes, accepted: Collection[int], arguments: Sequence[str] = ()
) -> Any:
    """Return the answer of a command with ``--json`` that has ended, or raise its error."""
    if exit_code not in accepted or not output.strip():
        raise failure(exit_code, errors.decode(errors="replace"), arguments)
    return json.loads(output)


def lines(arguments: Sequence[str], head: str | None, *, to_stderr: bool) -> Iterator[str]:
    """Run a command and yield the lines that it prints, as they appear; see `chunks`."""
    rest = ""
    for text in chunks(arguments, head, to_stderr=to_stderr):
        *whole, rest = (rest + text).split("\n")
        yield from whole
    if rest:
        yield rest


def chunks(
    arguments: Sequence[str],
    head: str | None,
    *,
    to_stderr: bool,
    form: str = "--quiet",
    accepted: Collection[int] = (0,),
) -> Iterator[str]:
    """Run a command and yield the text that it prints, as it appears.

    Parameters
    ----------
    arguments
        The command and its arguments.
    head
        Address of the head; None lets the executable choose.
    to_stderr
        Whether the command prints the text to its standard error.
    form
        The option for the form of the text.
    accepted
        Exit codes that are no error.

    Raises
    ------
    HostlerError
        If the command fails.
    """
    with (
        tempfile.TemporaryFile() as rest,
        subprocess.Popen(
            [find(), form, *arguments],
            env=environment(head),
            stdin=subprocess.DEVNULL,
            stdout=rest if to_stderr else subprocess.PIPE,
            stderr=subprocess.PIPE if to_stderr else rest,
            start_new_session=True,
        ) as process,
    ):
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        pipe = cast("IO[bytes]", process.stderr if to_stderr else process.stdout)
        tail = ""
        try:
            while content := os.read(pipe.fileno(), CHUNK_BYTES):
                text = decoder.decode(content)
                tail = (tail + text)[-TAIL_CHARACTERS:]
                yield text
            if text := decoder.decode(b"", final=True):
                yield text
            exit_code = process.wait()
        finally:
            process.kill()
        if exit_code not in accepted:
            rest.seek(0)
            raise failure(exit_code, tail if to_stderr else rest.read().decode(errors="replace"))


class Option(str):
    """An argument for a parameter of a function of this package. Errors then name parameters instead of flags."""


class Variable(Option):
    """The argument ``--env=NAME`` for a variable of a job. All users can read command lines, so it has no value.

    Attributes
    ----------
    passed_on : tuple of str
        The variable with which the command gets the value.
    """

    passed_on: tuple[str, str]

    def __new__(cls, name: str, value: str) -> Variable:
        made = super().__new__(cls, f"--env={name}")
        made.passed_on = (f"HOSTLER_VALUE_OF_{name}", str(value))
        return made


def environment(head: str | None, arguments: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables for a command that uses this head and has these arguments."""
    values = dict(argument.passed_on for argument in arguments if isinstance(argument, Variable))
    return {**os.environ, **({"HOSTLER_HEAD": head} if head else {}), **values}


#: The parameters that stand for flags of a submission.
PARAMETERS = {
    "--resource": "resources",
    "--tag": "tags",
    **{
        f"--{name.replace('_', '-')}": name
        for name in (
            *("cpus", "memory", "gpus", "time", "partition", "constraint", "after", "name", "env", "priority"),
            *("requeue", "exclusive", "quiet_machine", "sandbox", "network", "image", "runtime", "oom", "hold"),
            *("array", "nodes", "tasks_per_node", "key"),
        )
    },
}

# Something else in backquotes, such as a command, which keeps its flags, or a flag, perhaps with a value.
_FLAG = re.compile(r"(`[^`-][^`]*`)|(?<![\w/])[`']?(--[a-z]+(?:-[a-z]+)*)(?: <[^>]*>|[ =]([^ `]+)(?=`))?[`']?")


def with_parameters(text: str) -> str:
    """Return a text of the command line with the names of parameters in place of flags."""

    def named(found: re.Match[str]) -> str:
        name = PARAMETERS.get(found[2])
        return f"`{name}={found[3] or ''}`" if name else found[0]

    return _FLAG.sub(named, text)


def failure(exit_code: int, stderr: str, arguments: Sequence[str] = ()) -> HostlerError:
    """Return the exception for a failed command, from its exit code, what it printed, and its arguments."""
    if any(isinstance(argument, Option) for argument in arguments):
        stderr = with_parameters(stderr)
    lines = stderr.splitlines()
    kind, code = _KINDS.get(exit_code, (HostlerError, "failed"))
    for line in reversed(lines):
        # With `--json`, the executable prints its error as a line of JSON.
        if line.startswith('{"error":'):
            error = json.loads(line)["error"]
            return kind(": ".join([error["message"], *error["causes"]]), error["code"] or code, tuple(error["hints"]))
    start = next((number for number, line in enumerate(lines) if line.startswith("error: ")), None)
    if start is None:
        text = "\n".join(lines[-5:]) or "no message"
        return HostlerError(f"`hostler` ended with exit code {exit_code}: {text}")
    message = [lines[start].removeprefix("error: ")]
    hints = []
    for line in lines[start + 1 :]:
        if line.startswith("hint: "):
            hints.append(line.removeprefix("hint: "))
        elif line.startswith("  because: "):
            message.append(line.strip().removeprefix("because: "))
        elif line and not line.startswith(("Usage: ", "For more information")):
            message.append(line.strip())
    return kind(": ".join(message), code, tuple(hints))


#: Pipes and sockets whose end shows other processes that this one has ended. A forked process, which may live longer,
#: closes them.
of_this_process: weakref.WeakSet[IO[bytes] | socket.socket] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    for connection in tuple(of_this_process):
        connection.close()


os.register_at_fork(after_in_child=_leave_to_the_parent)


# Submits a job, prints its id, and cancels the job when standard input ends without a line: then the process that
# started this one has closed the pipe or died, also by SIGKILL. While the head is unreachable (3), it tries again. The
# exit code says whether there was something to cancel.
_ATTACHED = """
directory=$1; shift
trap 'rm -rf "$directory"' EXIT
trap '' PIPE
id=$("$0" --quiet submit "$@") || exit
echo "$id"
exec >/dev/null
read -r ended && exit
while said=$("$0" cancel "$id" 2>&1); [ $? -eq 3 ]; do sleep 5; done
case $said in *cancelled*) exit 9 ;; esac
"""
_CANCELLED = 9

_CANCEL_SECONDS = 10.0


class AttachedJob:
    """A job that is cancelled when this process ends, however it ends.

    Parameters
    ----------
    arguments
        The arguments of ``hostler submit``.
    head
        Address of the head; None lets the executable choose.
    directory
        Directory to delete at the end.
    unless_lost
        What prevents that the job is cancelled because this object is discarded or the process exits. Such a job is
        named on stderr, with this text.

    Attributes
    ----------
    id : str
        Id of the job.

    Raises
    ------
    HostlerError
        If the submission fails.
    """

    def __init__(self, arguments: Sequence[str], head: str | None, directory: str, unless_lost: str = "") -> None:
        guard: subprocess.Popen[bytes] | None = None
        try:
            with tempfile.TemporaryFile() as stderr:
                guard = subprocess.Popen(
                    ["sh", "-c", _ATTACHED, find(), directory, *arguments],
                    env=environment(head, arguments),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,
                )
                self._stdin = cast("IO[bytes]", guard.stdin)
                of_this_process.add(self._stdin)
                with cast("IO[bytes]", guard.stdout) as stdout:
                    self.id = stdout.readline().decode().strip()
                if not self.id:
                    _release(guard, self._stdin)
                    stderr.seek(0)
                    raise failure(guard.returncode, stderr.read().decode(errors="replace"), arguments)
                said = f"hostler: job {self.id} cancelled: {unless_lost}" if unless_lost else ""
                self._lost = weakref.finalize(self, _release, guard, self._stdin, said)
        except BaseException:
            # A traceback, such as the last one of a notebook, would keep this object and the pipe, and so the job.
            if guard is not None:
                _release(guard, cast("IO[bytes]", guard.stdin))
            raise

    def finish(self) -> None:
        """Clean up after a job that has ended."""
        # The shell may have been killed, and a forked process has closed the pipe.
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write(b"ended\n")
            self._stdin.flush()
        self.cancel()

    def cancel(self) -> None:
        """Cancel the job if it has not ended, and clean up."""
        if found := self._lost.detach():
            guard, stdin, _ = found[2]
            _release(guard, stdin)


def _release(guard: subprocess.Popen[bytes], stdin: IO[bytes], said: str = "") -> None:
    """Cancel the job, and say so."""
    with contextlib.suppress(OSError):
        stdin.close()
    try:
        if guard.wait(_CANCEL_SECONDS) == _CANCELLED and said:
            print(said, file=sys.stderr)
    except subprocess.TimeoutExpired:
        print(f"hostler: the head is unreachable; process {guard.pid} cancels the job later", file=sys.stderr)
