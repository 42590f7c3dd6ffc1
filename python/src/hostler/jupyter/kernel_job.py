"""The job of a kernel: its submission, and words for how it waits and ends."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from hostler import _executable
from hostler.client import Client
from hostler.errors import HostlerError, JobFailedError, UnreachableError, UsageError
from hostler.job import Job, Status
from hostler.jupyter import kernel_bridge
from hostler.jupyter.kernel_link import Claim, Running, kept, write_private

# Cancels a job as soon as the head answers (3 stands for unreachable).
_CANCEL = 'while "$0" --quiet cancel "$1" 2>/dev/null; [ $? -eq 3 ]; do sleep 5; done'

# Bytes of messages that are kept on the node for clients that are away.
_JOURNAL_BYTES = 64 << 20


@dataclass(frozen=True)
class Options:
    """How a kernel is launched; `hostler.kernel` documents them."""

    #: Options of `hostler submit`.
    submit: tuple[str, ...] = ()
    #: Options of the kernel, such as ``--HistoryManager.hist_file=:memory:``.
    arguments: tuple[str, ...] = ()
    python: str | None = None
    requirements: str | None = None
    #: Names of variables.
    env: tuple[str, ...] = ()
    head: str | None = None
    #: In seconds.
    timeout: float = 600.0
    idle: float | None = None


def submit(
    options: Options, connection: Mapping[str, Any], directory: str, env: Mapping[str, str]
) -> tuple[_executable.AttachedJob, dict[str, str]]:
    """Submit a job that is cancelled if this process ends. Return it, and the keys to its kernel.

    Parameters
    ----------
    options
        What it asks for.
    connection
        Content of the connection file of the local clients, whose key the kernel must have.
    directory
        Where the kernel works if the node has the same directory.
    env
        Variables, of which the kernel gets those that the options name.
    """
    if not zmq.has("curve"):
        raise UsageError("this pyzmq was built without CURVE", "usage", ("install pyzmq with pip",))
    bridge_public, bridge_secret = (key.decode() for key in zmq.curve_keypair())
    client_public, client_secret = (key.decode() for key in zmq.curve_keypair())
    shared = {name: connection.get(name) or "" for name in ("key", "signature_scheme", "kernel_name")}
    settings = {
        **shared,
        "bridge_secret": bridge_secret,
        "client_public": client_public,
        "arguments": options.arguments,
        "env": {name: env[name] for name in options.env if name in env},
        "directory": directory,
        "directory_inode": os.stat(directory).st_ino,
        "idle_seconds": options.idle,
        "journal_bytes": _JOURNAL_BYTES,
    }
    temporary = Path(tempfile.mkdtemp(prefix="hostler-kernel-"))
    try:
        folder = temporary / "folder"
        folder.mkdir()
        shutil.copyfile(kernel_bridge.__file__, folder / "bridge.py")
        write_private(folder / kernel_bridge.SETTINGS, settings)
        python = options.python
        if python is None and options.requirements is None and Client(options.head).info()["head"]["embedded"]:
            # The nodes of `hostler up` are on this machine.
            python = sys.executable
        if python is None:
            wanted = Path(options.requirements).read_text(encoding="utf-8") if options.requirements else ""
            (folder / "requirements.txt").write_text(f"{wanted}\nipykernel\n", encoding="utf-8")
        entry = [python, "--", "bridge.py"] if python else ["bridge.py"]
        arguments = ["--name=kernel", *options.submit, str(folder), *entry]
        attached = _executable.AttachedJob(arguments, options.head, str(temporary))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    # The head has it now.
    shutil.rmtree(folder, ignore_errors=True)
    keys = {"bridge_public": bridge_public, "client_public": client_public, "client_secret": client_secret}
    return attached, {**shared, **keys}


def wait_for_port(
    job: Job, deadline: float, cancelled: threading.Event, say: Callable[[str], None]
) -> tuple[int, Status]:
    """Wait until the bridge runs and has said which port it has.

    Raises
    ------
    JobFailedError
        If the job ends, or the launch is cancelled.
    TimeoutError
        If it takes too long.
    """
    why = "the head cannot be reached"
    said = ""
    pause = 0.1
    while True:
        with contextlib.suppress(UnreachableError):
            status = job.status()
            why = f"it is {status.state}"
            if status.ended:
                raise JobFailedError(ending(job.id, status) + tail(job), "job_failed")
            if status.state == "pending":
                why = f"it waits: {job.why().strip()}"
                if why != said:
                    said = why
                    say(f"job {job.id}: {why}")
            elif status.state == "running":
                with contextlib.suppress(HostlerError):
                    if found := re.search(r"^hostler-kernel port (\d+)$", job.logs(), re.MULTILINE):
                        return int(found[1]), status
        if time.monotonic() > deadline:
            raise TimeoutError(f"job {job.id} did not start a kernel in time, and was cancelled; {why}")
        if cancelled.wait(pause):
            raise JobFailedError("the launch was cancelled", "cancelled")
        pause = min(pause * 1.5, 2.0)


def inode(notebook: str) -> int | None:
    """Return the number of the file of a notebook; None if this is not the path of a notebook."""
    # Jupyter names consoles, too.
    if os.path.isabs(notebook) and notebook.endswith(".ipynb") and os.path.isfile(notebook):
        return os.stat(notebook).st_ino
    return None


def find_lost(notebook: str, kernel_name: str, head: str | None) -> tuple[Running, Claim] | None:
    """Return the running kernel of a notebook whose Jupyter was killed, and claim it."""
    wanted = (notebook, inode(notebook), kernel_name, head)
    for running in kept():
        if (running.notebook, running.notebook_inode, running.kernel_name, running.head) != wanted:
            continue
        try:
            claim = Claim(running)
        except OSError:
            # Another Jupyter has the same notebook open, or nobody can tell.
            continue
        is_found = False
        try:
            with contextlib.suppress(HostlerError):
                status = Client(head).job(running.job).status()
                # The job of another cluster may have the same number.
                if status.details["submitted_at"] == running.submitted_at:
                    if not status.ended:
                        is_found = True
                        return running, claim
                    running.forget()
        finally:
            if not is_found:
                claim.release()
    return None


def cancel(running: Running) -> None:
    """Cancel a job whose bridge cannot be reached: at once, or as soon as the head answers."""
    subprocess.Popen(
        ["sh", "-c", _CANCEL, _executable.find(), str(running.job)],
        env=_executable.environment(running.head),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def ending(job: int, status: Status) -> str:
    """Return how a job ended, as a sentence."""
    texts = {
        "cancelled": "was cancelled",
        "timeout": "reached its time limit",
        "out_of_memory": "used more memory than it asked for",
        "node_fail": f"lost its node {' '.join(status.nodes)}",
        "preempted": "was preempted",
        "completed": "ended",
        "failed": f"failed: {status.message or f'exit code {status.exit_code}'}",
    }
    return f"job {job} {texts.get(status.state, status.state)}".rstrip()


def death(code: int) -> str:
    """Return how a kernel ended that was not asked to."""
    if code == -signal.SIGKILL:
        return "the kernel was killed; mostly, this means that it needs more memory than its job has"
    return f"the kernel was ended by signal {-code}" if code < 0 else f"the kernel exited with code {code}"


def tail(job: Job) -> str:
    """Return the last lines that a job wrote to stderr."""
    with contextlib.suppress(HostlerError):
        if lines := job.logs("stderr").splitlines()[-5:]:
            return ":\n" + "\n".join(lines)
    return ""
