"""Kernels of Jupyter on the nodes of a cluster: ``python -m hostler.kernel add|list|remove|launch|attach|output``.

Jupyter starts such a kernel through `hostler.provisioner`. Programs that do not know provisioners, such as VS Code, run
``launch``, which stands for the kernel on this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hostler.client import Client
from hostler.errors import HostlerError, RefusedError, UnreachableError, UsageError

try:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    from jupyter_core.paths import jupyter_runtime_dir

    from hostler.jupyter import kernel_bridge
    from hostler.jupyter.kernel import Kernel, ipc_connection
    from hostler.jupyter.kernel_job import Options
    from hostler.jupyter.kernel_link import kept, write_private
except ModuleNotFoundError as missing:
    error = UsageError(f"kernels need {missing.name}", "usage", ("`pip install 'hostler[jupyter]'`",))
    if __name__ == "__main__":
        sys.exit(f"error: {error}")
    raise error from missing

# Files of kernels that a person attached to are found by their name, as in `jupyter console --existing`.
_ATTACHED = "kernel-hostler-{job}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m hostler.kernel", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="add a kernel to the list in Jupyter", **_STYLE)
    add.add_argument("--name", default="hostler", help="name of the kernel [default: hostler]")
    add.add_argument("--display-name", metavar="TEXT", help="name in the list [default: made from the resources]")
    _add_launch_options(add)
    add.set_defaults(run=_add)
    shown = commands.add_parser("list", help="list added kernels, and those that run", **_STYLE)
    shown.set_defaults(run=_list)
    remove = commands.add_parser("remove", help="remove an added kernel", **_STYLE)
    remove.add_argument("name", metavar="NAME")
    remove.set_defaults(run=_remove)
    launch = commands.add_parser("launch", help="run a kernel as a job; for programs that start kernels", **_STYLE)
    _add_launch_arguments(launch)
    launch.set_defaults(run=_launch)
    attach = commands.add_parser("attach", help="connect to a running kernel, and replay its output", **_STYLE)
    attach.add_argument("job", metavar="JOB", type=int, help="job of the kernel")
    attach.add_argument("--file", metavar="PATH", help="connection file to write [default: in Jupyter's directory]")
    attach.set_defaults(run=_attach)
    output = commands.add_parser("output", help="print what the cells of a kernel whose job ended wrote", **_STYLE)
    output.add_argument("job", metavar="JOB", type=int, help="job of the kernel")
    output.add_argument("--head", metavar="ADDRESS", help="the cluster [default: that of the command line]")
    output.set_defaults(run=_output)
    given, rest = parser.parse_known_args(arguments)
    if rest and given.run not in (_add, _launch):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        given.submit = rest
        code: int = given.run(given)
    except (HostlerError, TimeoutError, NoSuchKernel) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return code


def launch_options(arguments: Sequence[str]) -> Options:
    """Return the options among the arguments of ``launch``, as the kernelspec has them."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    _add_launch_arguments(parser)
    given, rest = parser.parse_known_args(arguments)
    given.submit = rest
    return _options(given)


_STYLE: dict[str, Any] = {"allow_abbrev": False}


def _add_launch_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "All other options are passed to `hostler submit`, e.g. -c 4 -m 16G --gpus 1 --time 8h."
    parser.add_argument("--python", metavar="PATH", help="Python on the nodes, with ipykernel")
    parser.add_argument("--requirements", metavar="FILE", help="packages of an environment that the node builds")
    parser.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="variable of the kernel")
    parser.add_argument("--head", metavar="ADDRESS", help="the cluster [default: that of the command line]")
    parser.add_argument("--timeout", type=_seconds, default=600.0, metavar="DURATION", help="[default: 10m]")
    parser.add_argument("--idle", type=_seconds, metavar="DURATION", help="end after this time without a running cell")


def _add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    _add_launch_options(parser)
    parser.add_argument("-f", "--f", dest="connection_file", metavar="FILE", help="connection file")
    # VS Code passes these instead of a file to kernels in Python.
    for name in ("ip", "transport", "shell", "iopub", "stdin", "hb", "control"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--Session.key", dest="key", help=argparse.SUPPRESS)
    parser.add_argument("--Session.signature_scheme", dest="scheme", default="hmac-sha256", help=argparse.SUPPRESS)


def _options(given: argparse.Namespace) -> Options:
    # Such as --HistoryManager.hist_file, which nbclient adds.
    arguments = tuple(option for option in given.submit if re.match(r"--\w+\.", option))
    return Options(
        submit=tuple(option for option in given.submit if option not in arguments),
        arguments=arguments,
        python=given.python,
        requirements=given.requirements,
        env=tuple(given.env),
        head=given.head,
        timeout=given.timeout,
        idle=given.idle,
    )


def _add(given: argparse.Namespace) -> int:
    if given.requirements:
        given.requirements = os.path.abspath(given.requirements)
    _check(given)
    argv = [sys.executable, "-m", "hostler.kernel", "launch", "-f", "{connection_file}"]
    for name in ("python", "requirements", "head", "timeout", "idle"):
        if (value := getattr(given, name)) is not None:
            argv.append(f"--{name}={value:g}" if isinstance(value, float) else f"--{name}={value}")
    argv += [f"--env={variable.partition('=')[0]}" for variable in given.env]
    spec = {
        "argv": [*argv, *given.submit],
        "display_name": given.display_name or f"Python on the cluster{_resources(given.submit)}",
        "language": "python",
        "interrupt_mode": "signal",
        "env": dict(variable.split("=", 1) for variable in given.env if "=" in variable),
        "metadata": {"debugger": True, "kernel_provisioner": {"provisioner_name": "hostler"}},
    }
    with tempfile.TemporaryDirectory() as directory:
        write_private(Path(directory, "kernel.json"), spec)
        path = KernelSpecManager().install_kernel_spec(directory, given.name, user=True)
    print(f"{given.name.lower()}: {spec['display_name']}, in {path}")
    return 0


def _check(given: argparse.Namespace) -> None:
    """Refuse what cannot work: a wrong name, a missing file, or unknown options. Say what does not work today."""
    # Jupyter would replace the directory of all kernels for `.`.
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", given.name):
        hint = "use letters without accents, digits, `-`, `_` and `.`, e.g. --name=big"
        raise UsageError(f"`{given.name}` cannot be the name of a kernel", "usage", (hint,))
    if given.requirements and not os.path.isfile(given.requirements):
        raise UsageError(f"{given.requirements} is not a file", "usage")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.py").touch()
        try:
            client = Client(given.head)
            # The nodes of `hostler up` are on this machine.
            if given.python is not None and client.info()["head"]["embedded"] and not shutil.which(given.python):
                raise UsageError(f"`--python {given.python}` is not a program on this machine", "usage")
            client._ask("submit", "--dry-run", *_options(given).submit, folder, "kernel.py")
        except (RefusedError, UnreachableError) as error:
            print(f"note: the kernel is added, but cannot start now: {error.message}", file=sys.stderr)


def _resources(submit: Sequence[str]) -> str:
    """Return what a job asks for, as it stands in the list of kernels."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("-c", "--cpus")
    parser.add_argument("-m", "--memory")
    parser.add_argument("--gpus")
    parser.add_argument("-p", "--partition")
    given, _ = parser.parse_known_args(submit)
    units = [(given.cpus, " CPU"), (given.memory, None), (given.gpus, " GPU"), (given.partition, None)]
    parts = [value + (unit + "s" * (value != "1") if unit else "") for value, unit in units if value]
    return f" ({', '.join(parts)})" if parts else ""


def _ours() -> dict[str, dict[str, Any]]:
    """Return the added kernels by name."""
    specs = {name: found["spec"] for name, found in KernelSpecManager().get_all_specs().items()}
    return {name: spec for name, spec in sorted(specs.items()) if "hostler.kernel" in spec["argv"]}


def _list(_: argparse.Namespace) -> int:
    for name, spec in _ours().items():
        print(f"{name}: {spec['display_name']}")
    for running in kept():
        try:
            status = Client(running.head).job(running.job).status()
        except HostlerError as error:
            print(f"job {running.job}: {error.message}")
            continue
        if status.details["submitted_at"] != running.submitted_at:
            print(f"job {running.job}: a kernel on another cluster")
        elif status.ended:
            running.forget()
        else:
            print(f"job {running.job}: a kernel on {', '.join(status.nodes)}")
    return 0


def _remove(given: argparse.Namespace) -> int:
    if given.name not in _ours():
        raise UsageError(f"no kernel `{given.name}` was added", "usage", ("`python -m hostler.kernel list`",))
    print(f"removed {KernelSpecManager().remove_kernel_spec(given.name)}")
    return 0


def _launch(given: argparse.Namespace) -> int:
    kernel = Kernel(_connection(given), _say)
    stopped = threading.Event()

    def stop(*_: object) -> None:
        stopped.set()
        kernel.cancel_launch()

    signal.signal(signal.SIGTERM, stop)
    # It reaches the kernel, not this process.
    signal.signal(signal.SIGINT, lambda *_: kernel.send_signal(signal.SIGINT))
    kernel.launch(_options(given), os.getcwd(), os.environ)
    try:
        while not stopped.is_set() and kernel.ended is None and kernel.exit_code is None:
            kernel.wait_for_change(1.0)
        code = kernel.exit_code
        return 1 if kernel.ended else 0 if stopped.is_set() else code if code and 0 < code < 256 else int(bool(code))
    finally:
        kernel.end()


def _connection(given: argparse.Namespace) -> dict[str, Any]:
    """Return the content of the connection file, or what stands in its place in the arguments."""
    if given.shell is None:
        if given.connection_file is None:
            raise UsageError("launch needs a connection file", "usage", ("add -f FILE",))
        content: dict[str, Any] = json.loads(Path(given.connection_file).read_text(encoding="utf-8"))
        return content
    if given.key is None:
        # Without a key, every program of the machine could run code in the kernel.
        raise UsageError("launch needs the key of the connection", "usage", ("add --Session.key=KEY, or -f FILE",))
    ports = {f"{name}_port": int(getattr(given, name)) for name in ("shell", "iopub", "stdin", "hb", "control")}
    key = re.sub(r"""^b?(["'])(.*)\1$""", r"\2", given.key)
    transport = (given.transport or "tcp").strip("\"'")
    scheme = given.scheme.strip("\"'")
    return {"ip": given.ip or "127.0.0.1", "transport": transport, "key": key, "signature_scheme": scheme, **ports}


def _attach(given: argparse.Namespace) -> int:
    running = next((running for running in kept() if running.job == given.job), None)
    if running is None:
        raise UsageError(
            f"no kernel of job {given.job} was launched on this machine",
            "usage",
            ("the keys to a kernel are on the machine that launched it", "`python -m hostler.kernel list`"),
        )
    directory, connection = ipc_connection(running.key.encode(), running.kernel_name)
    file = Path(given.file or os.path.join(jupyter_runtime_dir(), _ATTACHED.format(job=running.job)))
    kernel = Kernel(connection, _say)
    try:
        kernel.attach(running, hold=True)
        kernel.wait_until_running(30.0)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, connection)
        print(f"attached to job {running.job}: jupyter console --existing {file}", flush=True)
        _say("Ctrl-C detaches; the kernel keeps running")
        with contextlib.suppress(KeyboardInterrupt):
            while kernel.ended is None:
                kernel.wait_for_change(1.0)
        return 0
    finally:
        file.unlink(missing_ok=True)
        kernel.close()
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()


def _output(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as directory:
        (folder,) = Client(given.head).job(given.job).fetch(directory)
        files = sorted((folder / kernel_bridge.JOURNAL).glob("*"), key=lambda file: int(file.name))
        if not files:
            raise UsageError(f"job {given.job} left no output of a kernel: none that was shut down does", "usage")
        for content in (file.read_bytes() for file in files):
            at = 0
            while at < len(content):
                frames, at = kernel_bridge.unpack(content, at)
                sys.stdout.write(kernel_bridge.text(frames[2:]))
    return 0


def _say(text: str) -> None:
    print(f"hostler: {text}", file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    """Parse a duration such as ``90``, ``10m`` or ``1h30m``."""
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    if not text or not parts:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; use e.g. 90s, 10m or 1h30m")
    days, hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


if __name__ == "__main__":
    sys.exit(main())
