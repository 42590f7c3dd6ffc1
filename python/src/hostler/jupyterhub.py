"""A spawner for JupyterHub: each user's server runs as a job of that user, and is reached through ``hostler forward``.

The server listens on a Unix socket in a private directory of its node, and another one there leads to the hub. So it
needs no port, and no way through the network. The hub submits, cancels and forwards as the user, by changing to the
user's account: it needs root for that, and no password.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import ipaddress
import json
import math
import os
import pwd
import re
import secrets
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

from jupyterhub import version_info
from jupyterhub.spawner import Spawner
from sqlalchemy.orm import object_session
from tornado.web import HTTPError
from traitlets import Float, Integer, List, Unicode, default

from hostler import _executable
from hostler.errors import HostlerError, RefusedError
from hostler.job import ENDED

# Starts the server with a socket in a new private directory, once another one there leads to the hub. Its port only
# makes it accept the socket: servers refuse both a socket and another port than the default one. Kernels that can
# encrypt their messages do so.
_START = """
directory=$1; shift
rm -rf -- "$directory" && mkdir -m 700 -- "$directory" || exit
trap 'rm -rf -- "$directory"' EXIT
trap 'exit 143' HUP INT TERM
case $JUPYTERHUB_API_URL in
    http+unix:*)
        tries=0
        until [ -S "$directory/hub.sock" ]; do
            [ $((tries += 1)) -le 600 ] || { echo "the hub has opened no way to itself within 60 s" >&2; exit 1; }
            sleep 0.1
        done ;;
esac
trap : HUP INT TERM
cd || exit
"$@" --ServerApp.sock="$directory/server.sock" --KernelManager.transport_encryption=auto
"""
_PORT = 8888

# Cancels a job as soon as the head answers (3: it is unreachable), also when the hub has ended meanwhile. A new cluster
# counts from 1 again, so the time of submission must be the same; `*` fits all.
_CANCEL = """
while
    found=$("$0" --json job "$1") && case $found in
        *'"submitted_at":'$2[,}]*) "$0" --quiet cancel "$1" ;;
    esac
    [ $? -eq 3 ]
do sleep 2; done
"""

# The head is asked this often while something is awaited, in seconds.
_PAUSE = 0.5
_STOP_SECONDS = 60.0
_FORWARD_SECONDS = 30.0

_OPTIONS = ("cpus", "memory_gib", "hours", "gpus", "partition")


class HostlerSpawner(Spawner):  # type: ignore[misc]
    """Runs each user's server as a job."""

    head = Unicode(
        help="Address of the head; by default HOSTLER_HEAD, or the socket of the head or of a node on this machine."
    ).tag(config=True)
    submit_args = List(Unicode(), help="Further options of `hostler run` for each job, e.g. ['--sandbox'].").tag(
        config=True
    )
    minimum_uid = Integer(1000, help="Accounts with a lower uid get no server.").tag(config=True)
    max_cpus = Integer(8, help="Most CPUs that a user can choose.").tag(config=True)
    max_memory_gib = Float(32.0, help="Most memory that a user can choose, in GiB.").tag(config=True)
    max_hours = Float(24.0, help="Longest time limit that a user can choose, in hours.").tag(config=True)
    max_gpus = Integer(0, help="Most GPUs that a user can choose.").tag(config=True)
    partitions = List(Unicode(), help="Partitions to choose from; none leaves the choice to Hostler.").tag(config=True)
    default_cpus = Integer(1, help="CPUs without a choice.").tag(config=True)
    default_memory_gib = Float(2.0, help="Memory without a choice, in GiB.").tag(config=True)
    default_hours = Float(8.0, help="Time limit without a choice, in hours.").tag(config=True)

    # Process id, start time and local port of the forward; empty without one.
    _forward: list[int]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_starting = False
        # Whether an earlier hub process started the server, and this one has not yet looked for it.
        self._is_unchecked = False
        self._forget()

    @default("head")
    def _head_default(self) -> str:
        return os.environ.get("HOSTLER_HEAD", "")

    @default("start_timeout")
    def _start_timeout_default(self) -> int:
        # Jobs wait in the queue.
        return 600

    @default("ip")
    def _ip_default(self) -> str:
        return "127.0.0.1"

    @default("port")
    def _port_default(self) -> int:
        return _PORT

    @default("options_form")
    def _options_form_default(self) -> Any:
        return form

    @default("options_from_form")
    def _options_from_form_default(self) -> Any:
        # The form has a token of the hub besides.
        return lambda data: checked(self, {name: data[name][0] for name in _OPTIONS if data.get(name)})

    @default("apply_user_options")
    def _apply_user_options_default(self) -> Any:
        # `start` checks them, because older versions of JupyterHub do not call this.
        return lambda spawner, options: None

    def get_state(self) -> dict[str, Any]:
        """Return what finds the job and its forward again."""
        state: dict[str, Any] = super().get_state()
        if self._job:
            state["hostler"] = {
                "job": self._job,
                "submitted_at": self._submitted_at,
                "socket": self._socket,
                "forward": self._forward,
                "reverse": self._is_reverse,
            }
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Find the job of an earlier hub process."""
        super().load_state(state)
        if found := state.get("hostler"):
            self._job = found["job"]
            self._submitted_at = found["submitted_at"]
            self._socket = found["socket"]
            self._forward = found["forward"]
            # Servers that an earlier release started reach the hub through the network.
            self._is_reverse = found.get("reverse", False)
            self._is_unchecked = True

    def clear_state(self) -> None:
        """Forget the job."""
        super().clear_state()
        self._forget()

    def _forget(self) -> None:
        self._job = 0
        self._submitted_at = 0
        self._socket = ""
        self._forward = []
        # Whether the server reaches the hub through a socket of the job.
        self._is_reverse = False
        # Why the last forward ended at once.
        self._trouble = ""
        self._message = "Submitting the job"

    async def start(self) -> str:
        """Submit the job, wait until the server answers, and return its address on this machine."""
        self._is_starting = True
        try:
            return await self._start()
        except HostlerError as error:
            raise _error(503, error.message) from error
        finally:
            self._is_starting = False

    async def _start(self) -> str:
        chosen = checked(self, self.user_options)
        self._identity()
        self._check_way_back()
        self._socket = f"/tmp/hostler-hub-{secrets.token_hex(8)}/server.sock"
        submission = asyncio.ensure_future(self._submit(chosen))
        try:
            await asyncio.shield(submission)
            await self._check_cluster()
        except BaseException:
            # The job would stay, and the hub would not know it.
            with contextlib.suppress(Exception):
                await submission
            if self._job:
                await self._cancel()
                self._job = 0
            raise
        self._save()
        if details := await self._wait():
            raise await self._failure(details)
        self.log.info("Server of %s: job %s, local port %s", self.user.name, self._job, self._forward[2])
        return self._address()

    async def _wait(self, deadline: float = math.inf) -> dict[str, Any] | None:
        """Wait until the server answers. Returns the job if it ended before, or at the deadline."""
        while not _is_alive(self._forward) or not await self._answers():
            details = await self._details()
            if details["state"] in ENDED or time.monotonic() > deadline:
                return details
            if details["state"] == "running" and not _is_alive(self._forward):
                await self._open_forward()
            self._message = await self._describe(details)
            await asyncio.sleep(_PAUSE)
        return None

    async def stop(self, now: bool = False) -> None:
        """Cancel the job, and wait for its end. If the head is away for long, the job ends when it is back."""
        if not self._job:
            return
        await self._cancel()
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(HostlerError):
                details = await self._find()
                if details is None or details["state"] in ENDED:
                    break
            await asyncio.sleep(_PAUSE)
        else:
            self.log.warning("Job %s of %s is cancelled, but has not ended yet", self._job, self.user.name)
        self._close_forward()

    async def poll(self) -> int | None:
        """Return None if the job has not ended, or its exit code. A head that does not answer means nothing."""
        if not self._job:
            return None if self._is_starting else 0
        if self.pending == "stop":
            # The hub asks before it calls `stop`, which finds out by itself.
            return None
        if self._is_unchecked:
            self._is_unchecked = False
            if not await self._resume():
                return 1
        try:
            details = await self._find()
            if details is not None and details["state"] not in ENDED:
                is_running = details["state"] == "running" and not self._is_starting
                if is_running and not _is_alive(self._forward):
                    await self._open_forward()
                    await self._route()
                return None
        except HostlerError as error:
            self.log.warning("Job %s of %s: %s", self._job, self.user.name, error.message)
            return None
        self._close_forward()
        if details is None:
            return 0
        self.log.info("Server of %s: job %s ended: %s", self.user.name, self._job, details["state"])
        return int(details["exit_code"] or 0)

    async def _resume(self) -> bool:
        """Wait for the server as its start did, and return whether it is in time or has ended.

        The hub itself waits for half a minute only, and at a port that is not the server's if there is no forward yet.
        """
        before = self._forward
        with contextlib.suppress(HostlerError, HTTPError):
            # A head that is away takes nothing from the time for the start.
            await self._details()
            if details := await self._wait(time.monotonic() + self.start_timeout):
                return details["state"] in ENDED
            if self._forward != before:
                await self._route()
        return True

    async def get_url(self) -> str:
        """Return the address of the server on this machine, which changes if the forward had to be opened again."""
        return self._address() + self.server.base_url if self._forward else str(self.server.url)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what happens to the job, and why it waits."""
        shown = ""
        while self.pending == "spawn":
            if self._message != shown:
                shown = self._message
                yield {
                    "progress": 30 if self._job and not self._forward else 70 if self._forward else 10,
                    "message": shown,
                }
            await asyncio.sleep(_PAUSE)

    def account(self) -> pwd.struct_passwd:
        """Return the account of this machine whose name is the user's name in JupyterHub. Override to map names."""
        return pwd.getpwnam(self.user.name)

    def _identity(self) -> dict[str, Any]:
        """Return the arguments with which a process gets the user's account."""
        try:
            account = self.account()
        except KeyError:
            raise _error(403, f"there is no account {self.user.name} on the machine of the hub") from None
        own = os.geteuid()
        if account.pw_uid < max(1, self.minimum_uid) and (own == 0 or account.pw_uid != own):
            raise _error(403, f"{account.pw_name} is a system account, which gets no server")
        base = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
        }
        if account.pw_uid == own:
            return {"env": base}
        if own != 0:
            raise _error(500, "only a hub that runs as root can start servers of other users")
        groups = os.getgrouplist(account.pw_name, account.pw_gid)
        return {"env": base, "user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}

    def _hub_address(self) -> str:
        """Return where the hub is for this machine, or nothing if servers cannot reach it over a Unix socket."""
        url = urlsplit(self.hub_connect_url or self.hub.api_url)
        if version_info < (6,) or url.scheme != "http" or not url.hostname:
            return ""
        return f"[{url.hostname}]:{url.port or 80}" if ":" in url.hostname else f"{url.hostname}:{url.port or 80}"

    def _hub_socket(self) -> str:
        return os.path.join(os.path.dirname(self._socket), "hub.sock")

    def _check_way_back(self) -> None:
        """Warn if servers on other machines cannot reach the hub."""
        if self._hub_address():
            return
        host = urlsplit(self.hub_connect_url or self.hub.api_url).hostname or ""
        with contextlib.suppress(ValueError):
            if host == "localhost" or ipaddress.ip_address(host).is_loopback:
                self.log.warning("Nodes on other machines cannot reach the hub at %s: set JupyterHub.hub_ip", host)

    async def _submit(self, chosen: Mapping[str, Any]) -> None:
        env = {name: str(value) for name, value in self.get_env().items() if value is not None}
        self._is_reverse = bool(self._hub_address())
        if self._is_reverse:
            for name in ("JUPYTERHUB_API_URL", "JUPYTERHUB_ACTIVITY_URL"):
                env[name] = f"http+unix://{quote(self._hub_socket(), safe='')}{urlsplit(env[name]).path}"
        flags = [
            f"--cpus={chosen['cpus']}",
            f"--memory={int(chosen['memory_gib'] * 1024)}M",
            f"--time={int(chosen['hours'] * 60)}m",
            "--name=jupyterhub",
            # The token of the server is among them. Variables are on no command line, and only the job gets them.
            f"--env-only={','.join(sorted(env))}",
        ]
        flags += [f"--gpus={chosen['gpus']}"] if chosen["gpus"] else []
        flags += [f"--partition={chosen['partition']}"] if chosen["partition"] else []
        directory = os.path.dirname(self._socket)
        command = ["sh", "-c", _START, "sh", directory, *self.cmd, *self.get_args()]
        arguments = ["run", "--detach", *flags, *self.submit_args, "--", *command]
        answer = await self._ask(*arguments, as_user=True, env=env)
        self._job = answer["id"]

    async def _check_cluster(self) -> None:
        """Find the job that was submitted as the user, whose own settings can name another cluster without `head`."""
        details = await self._find_reached()
        if details is None or details["user"].partition("@")[0] != self.account().pw_name:
            raise _error(500, f"job {self._job} is not in the hub's cluster; an admin sets HostlerSpawner.head")
        self._submitted_at = details["submitted_at"]

    async def _cancel(self) -> None:
        """Start a process that cancels the job in the cluster of the user, as the user."""
        await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            _CANCEL,
            _executable.find(),
            str(self._job),
            str(self._submitted_at or "*"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            **self._environment(self._identity()),
        )
        self.log.info("Cancelling job %s of %s", self._job, self.user.name)

    def _save(self) -> None:
        """Store the state now. The hub itself stores it only after the start, and would lose the job before that."""
        self.orm_spawner.state = self.get_state()
        object_session(self.orm_spawner).commit()

    async def _details(self) -> dict[str, Any]:
        """Return the job; waits while the head is unreachable."""
        details = await self._find_reached()
        if details is None:
            raise _error(500, f"job {self._job} does not exist any more")
        return details

    async def _find_reached(self) -> dict[str, Any] | None:
        """Return the job, or None if it does not exist any more; waits while the head is unreachable."""
        while True:
            try:
                return await self._find()
            except RefusedError:
                raise
            except HostlerError as error:
                self._message = error.message
            await asyncio.sleep(_PAUSE)

    async def _find(self) -> dict[str, Any] | None:
        """Return the job, or None if it does not exist any more."""
        try:
            details: dict[str, Any] = await self._ask("job", str(self._job))
        except RefusedError as error:
            if error.code == "no_such_job":
                return None
            raise
        # A new cluster counts from 1 again.
        return details if self._submitted_at in (0, details["submitted_at"]) else None

    async def _describe(self, details: dict[str, Any]) -> str:
        if details["state"] == "pending":
            with contextlib.suppress(HostlerError):
                return " ".join((await self._ask("why", str(self._job)))["lines"])
        where = f" on {', '.join(details['nodes'])}" if details["nodes"] else ""
        step = f"it is not reached yet: {self._trouble}" if self._trouble else "Jupyter starts"
        return f"Job {self._job} is {details['state']}{where}; {step}"

    async def _failure(self, details: dict[str, Any]) -> HTTPError:
        """Return the error for a job that ended before its server answered."""
        message = f"job {self._job} ended before Jupyter answered: {details['state']}"
        shown = details["tasks_shown"]
        if shown and shown[0]["message"]:
            message += f": {shown[0]['message']}"
        with contextlib.suppress(HostlerError):
            (part,) = await self._ask("logs", "--stderr", str(self._job), as_user=True)
            lines = part["stderr"].strip().splitlines()
            message += "".join(f"\n{line}" for line in lines[-5:])
        return _error(500, message)

    async def _open_forward(self) -> None:
        """Start a process that makes the socket a local port, and the hub a socket of the job.

        It lives as long as the job, also without the hub.
        """
        hub = self._hub_address()
        reverse = ["--reverse", f"{self._hub_socket()}:{hub}"] if hub and self._is_reverse else []
        wanted = [self._forward[2], 0] if self._forward else [0]
        for port in wanted:
            # Nothing reads what it prints later, so these are not pipes.
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
                process = await asyncio.create_subprocess_exec(
                    _executable.find(),
                    "--json",
                    "forward",
                    str(self._job),
                    f"{port}:{self._socket}",
                    *reverse,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                    cwd="/",
                    **self._environment(self._identity()),
                )
                line = b""
                deadline = time.monotonic() + _FORWARD_SECONDS
                try:
                    while not line.endswith(b"\n") and process.returncode is None and time.monotonic() < deadline:
                        await asyncio.sleep(0.05)
                        line = os.pread(output.fileno(), 4096, 0)
                finally:
                    if not line.endswith(b"\n") and process.returncode is None:
                        process.kill()
                said = os.pread(errors.fileno(), 1 << 16, 0).decode(errors="replace")
            if line.endswith(b"\n"):
                local = json.loads(line.splitlines()[0])["local"]
                self._forward = [process.pid, _started(process.pid), int(local.rpartition(":")[2])]
                self._trouble = ""
                self._save()
                return
            self._trouble = _executable.failure(process.returncode, said).message if process.returncode else "no answer"
        self.log.info("Job %s of %s is not reached yet: %s", self._job, self.user.name, self._trouble)

    async def _route(self) -> None:
        """Tell the proxy at once where the server is: others can take the port of a forward that has ended."""
        if not self._forward or not self.server:
            return
        self.server.port = self._forward[2]
        self._save()
        data = {"user": self.user.name, "server_name": self.name}
        try:
            await self.user.settings["proxy"].add_route(self.proxy_spec, self.server.host, data)
        except Exception:
            # The hub compares all routes from time to time.
            self.log.exception("Cannot update the route of %s", self.user.name)

    def _close_forward(self) -> None:
        if _is_alive(self._forward):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._forward[0], signal.SIGTERM)
        self._forward = []

    async def _answers(self) -> bool:
        """Whether the server answers through the forward."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._forward[2])
            try:
                writer.write(f"GET {self.server.base_url}api HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                return (await asyncio.wait_for(reader.read(5), 10)) == b"HTTP/"
            finally:
                writer.close()
        except (OSError, asyncio.TimeoutError):
            return False

    def _address(self) -> str:
        return f"http://127.0.0.1:{self._forward[2]}"

    def _environment(self, identity: dict[str, Any], env: Mapping[str, str] | None = None) -> dict[str, Any]:
        head = {"HOSTLER_HEAD": self.head} if self.head else {}
        return {**identity, "env": {**identity["env"], **(env or {}), **head}}

    async def _ask(self, *arguments: str, as_user: bool = False, env: Mapping[str, str] | None = None) -> Any:
        """Run a command and return its answer."""
        identity = self._identity() if as_user else {"env": dict(os.environ)}
        process = await asyncio.create_subprocess_exec(
            _executable.find(),
            "--json",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            **self._environment(identity, env),
        )
        output, errors = await process.communicate()
        if process.returncode:
            raise _executable.failure(process.returncode, errors.decode(errors="replace"))
        return json.loads(output) if output.strip() else None


def form(spawner: HostlerSpawner) -> str:
    """Return the form with which a user chooses what the job asks for."""

    def number(name: str, label: str, value: float, least: float, most: float, step: str) -> str:
        return (
            f'<label for="{name}">{label}</label><input class="form-control" id="{name}" name="{name}" type="number" '
            f'value="{min(value, most):g}" min="{least:g}" max="{most:g}" step="{step}" required>'
        )

    fields = [
        number("cpus", "CPUs", spawner.default_cpus, 1, spawner.max_cpus, "1"),
        number("memory_gib", "Memory in GiB", spawner.default_memory_gib, 0.25, spawner.max_memory_gib, "any"),
        number("hours", "Time limit in hours", spawner.default_hours, 0.1, spawner.max_hours, "any"),
    ]
    if spawner.max_gpus:
        fields.append(number("gpus", "GPUs", 0, 0, spawner.max_gpus, "1"))
    if spawner.partitions:
        choices = "".join(f"<option>{html.escape(name)}</option>" for name in spawner.partitions)
        fields.append(
            '<label for="partition">Partition</label>'
            f'<select class="form-control" id="partition" name="partition">{choices}</select>'
        )
    return "\n".join(f'<div class="form-group mb-3">{field}</div>' for field in fields)


def checked(spawner: HostlerSpawner, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a user chose, with the defaults for the rest.

    Raises
    ------
    HTTPError
        If the choice is not allowed, also if it did not come from the form.
    """
    limits = {
        "cpus": (spawner.default_cpus, 1, spawner.max_cpus),
        "memory_gib": (spawner.default_memory_gib, 1 / 16, spawner.max_memory_gib),
        "hours": (spawner.default_hours, 1 / 60, spawner.max_hours),
        "gpus": (0, 0, spawner.max_gpus),
    }
    if not isinstance(chosen, Mapping):
        raise _error(400, "the options must be an object")
    if unknown := sorted(set(chosen).difference(_OPTIONS)):
        raise _error(400, f"unknown options: {', '.join(unknown)}")
    found: dict[str, Any] = {}
    for name, (value, least, most) in limits.items():
        given = chosen.get(name, min(value, most))
        whole = name in ("cpus", "gpus")
        if not re.fullmatch(r"\d{1,9}" if whole else r"\d{1,9}(\.\d{1,9})?", str(given)):
            raise _error(400, f"{name} is {given!r}; it must be a {'whole number' if whole else 'number'}")
        found[name] = int(given) if whole else float(given)
        if not least <= found[name] <= most:
            raise _error(400, f"{name} is {given}; choose {least:g} to {most:g}")
    found["partition"] = chosen.get("partition") or (spawner.partitions[0] if spawner.partitions else "")
    if found["partition"] and found["partition"] not in spawner.partitions:
        raise _error(400, f"there is no partition {found['partition']!r} to choose")
    return found


def _error(status: int, message: str) -> HTTPError:
    """Return an error whose text the hub shows to the user."""
    error = HTTPError(status, "%s", message)
    cast("Any", error).jupyterhub_message = message
    return error


def _started(pid: int) -> int:
    """Return when a process started, in ticks since the boot; 0 if it has ended."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if state in "ZX" else int(rest[18])


def _is_alive(forward: list[int]) -> bool:
    return bool(forward) and forward[1] != 0 and _started(forward[0]) == forward[1]
