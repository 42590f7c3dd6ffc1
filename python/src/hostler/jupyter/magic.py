"""The extension of IPython: ``%load_ext hostler``, then ``%%hostler`` above a cell, and ``%hostler jobs``."""

from __future__ import annotations

import argparse
import contextlib
import dis
import importlib
import queue
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, ModuleType
from typing import Any, NoReturn

from IPython import display as ipython

from hostler import _executable
from hostler._display import Rich, escaped
from hostler._worker import modules, project, wire
from hostler._worker.batch import Batch, Settings
from hostler._worker.records import Outcome, recreated
from hostler.client import Client
from hostler.errors import HostlerError, RemoteError, RemoteTraceback, UsageError
from hostler.job import Job, Jobs, Status, described, run_time
from hostler.jupyter import cell as cells
from hostler.options import Options

# The reason of a job that waits is asked for this often, and the clock of one that runs moves, in seconds.
_PAUSE = 1.0

# Output that a node has sent arrives at most this long after the result, in seconds.
_OUTPUT_SECONDS = 10.0

_READS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL"}
_STORES = {"STORE_NAME", "STORE_GLOBAL"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}

# Variables with the inputs and outputs of the notebook.
_HISTORY = re.compile("In|Out|_{1,3}|_i{1,3}|_[iod]h")


_display: Any = ipython.display


def load(shell: Any) -> None:
    """Add the magics to a shell."""

    def hostler(line: str, cell: str | None = None) -> Any:
        """Run a cell on the cluster, or a command of Hostler.

        ``%%hostler [options]`` runs the cell as a job, with the variables that it uses, and brings back the variables
        that it creates or changes, its output, and its exception. ``%%hostler -h`` lists the options.

        ``%hostler jobs`` and ``%hostler nodes`` show tables; ``%hostler watch 12`` follows a job, or a map in a
        variable, to its end; all other commands are those of the command line, e.g. ``%hostler why 12``.
        """
        try:
            return _query(shell, line) if cell is None else _run(shell, line, cell)
        except HostlerError as error:
            cause = error.__cause__
            remote = [cause.text] if isinstance(cause, RemoteTraceback) else []
            _show_only(error, [*remote, f"{type(error).__name__}: {error}"])
            raise

    shell.register_magic_function(hostler, "line_cell", "hostler")


def unload(shell: Any) -> None:
    """Remove the magics from a shell."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("hostler", None)


@modules.only()
def _run(shell: Any, line: str, cell: str) -> Any:
    given = _parsed(line)
    if given is None:
        return None
    # The first line of the cell, with the magic, counts in the numbers of lines.
    source = f"\n{cell}"
    name = f"cell {shell.execution_count}"
    codes = _compiled(shell, source, name)
    for code in codes:
        modules.note(code)
    variables = _used(shell, codes)
    work = cells.Cell(
        source=source,
        name=name,
        flags=shell.compile.flags,
        shows_value=not cell.rstrip().endswith(";"),
        imports=_submodules(codes, variables.values()),
        variables=_packed(variables),
    )
    options = Options(
        cpus=given.cpus,
        memory=given.memory,
        gpus=given.gpus,
        time=given.time,
        partition=given.partition,
        constraint=given.constraint,
        name=given.name,
        env=_pairs(given.env),
        exclusive=given.exclusive,
    )
    settings = Settings(Client(given.head), given.environment, options)
    with Batch(cells.run, [(work,)], "cell", settings) as batch:
        outcome = _follow(batch, _Live(shell, given.quiet))
    if outcome.error is not None:
        raise outcome.error
    return _received(shell, batch.job, outcome.value)


def _parsed(line: str) -> argparse.Namespace | None:
    """Parse the options of a cell. None if they only ask for help."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(message, "usage", ("`%%hostler -h` lists the options",))

    parser = Parser(prog="%%hostler", description="Run a cell as a job.", allow_abbrev=False, add_help=False)
    parser.add_argument("-c", "--cpus", type=int, metavar="N", help="CPUs")
    parser.add_argument("-m", "--memory", metavar="SIZE", help="memory, e.g. 16G")
    parser.add_argument("-g", "--gpus", type=int, metavar="N", help="GPUs")
    parser.add_argument("-t", "--time", metavar="TIME", help="time limit, e.g. 1h30m")
    parser.add_argument("-p", "--partition", metavar="NAME", help="partition")
    parser.add_argument("--constraint", metavar="FEATURES", help="required features of nodes")
    parser.add_argument("--exclusive", action="store_true", help="use a whole node")
    parser.add_argument("--name", default="cell", metavar="NAME", help="name of the job [default: cell]")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variable of the environment")
    parser.add_argument("--environment", choices=("own", "build"), help="Python on the nodes, as for hostler.map")
    parser.add_argument("--head", metavar="ADDRESS", help="the cluster [default: that of the command line]")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show the progress")
    parser.add_argument("-h", "--help", action="store_true", help="print this text")
    given = parser.parse_args(_words(line))
    if given.help:
        print(parser.format_help())
        return None
    return given


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"cannot read `{line}`: {error}", "usage") from None


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"`--env {text}` has no value", "usage", ("use --env NAME=VALUE",))
        pairs[name] = value
    return pairs


def _compiled(shell: Any, source: str, name: str) -> list[CodeType]:
    """Compile the cell, and return its code with that of all functions and classes in it."""
    try:
        found = [code for code in cells.compiled(source, name, shell.compile.flags) if code]
    except SyntaxError as error:
        with contextlib.suppress(SyntaxError):
            cells.compiled(shell.transform_cell(source), name, shell.compile.flags)
            raise UsageError(
                f"line {error.lineno} of the cell is not Python: magics, `!` and `?` do not work on a node",
                "usage",
                ("use `subprocess.run` instead of `!`",),
            ) from None
        raise
    for code in found:
        found += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return found


def _operands(codes: Iterable[CodeType], operations: set[str]) -> set[str]:
    return {step.argval for code in codes for step in dis.get_instructions(code) if step.opname in operations}


def _used(shell: Any, codes: list[CodeType]) -> dict[str, Any]:
    """Return the variables of the notebook that the cell uses."""
    names = _operands(codes, _READS)
    if "get_ipython" in names:
        raise UsageError("there is no IPython on a node, so `get_ipython` does not work in this cell", "usage")
    hidden = shell.user_ns_hidden
    absent = object()
    for name in sorted(filter(_HISTORY.fullmatch, names - _operands(codes, _STORES))):
        if shell.user_ns.get(name, absent) is hidden.get(name):
            raise UsageError(
                f"`{name}` belongs to IPython and is not sent to a node", "usage", ("assign it to another variable",)
            )
    return {
        name: value
        for name in sorted(names)
        # IPython has variables of its own, such as another `open`.
        if (value := shell.user_ns.get(name, absent)) is not absent and hidden.get(name, absent) is not value
    }


def _submodules(codes: list[CodeType], values: Iterable[object]) -> tuple[str, ...]:
    """Return submodules that the cell reaches through a module, such as ``xml.dom``: the module alone lacks them."""
    attributes = _operands(codes, _ATTRIBUTES)
    prefixes = tuple(f"{value.__name__}." for value in values if isinstance(value, ModuleType))
    return tuple(
        sorted(
            name
            for name in list(sys.modules)
            for prefix in prefixes
            if name.startswith(prefix) and attributes.issuperset(name[len(prefix) :].split("."))
        )
    )


def _packed(variables: dict[str, Any]) -> bytes:
    """Pickle variables together, so that what they share stays shared."""

    def parts() -> Iterator[tuple[str, object]]:
        for name, value in variables.items():
            for inner, found in project.captured(value).items() if callable(value) else ():
                yield f"the variable `{inner}`, which `{name}` uses,", found
            yield f"the variable `{name}`", value

    return project.dumps("the variables of the cell", variables, parts())


class _Live:
    """A line that says how the job is; it changes in place in notebooks, without widgets."""

    def __init__(self, shell: Any, quiet: bool = False) -> None:
        # Terminals print each change on a line of its own.
        self._in_place = getattr(shell, "kernel", None) is not None
        self._quiet = quiet
        self._handle: Any = None
        self._shown = ""

    def show(self, text: str, markup: str, moving: str = "") -> None:
        """Show a state; `moving` is what changes all the time, such as a clock."""
        if self._quiet or self._shown == text + moving * self._in_place:
            return
        self._shown = text + moving * self._in_place
        if not self._in_place:
            print(text, file=sys.stderr)
        elif self._handle is None:
            self._handle = _display(_Shown(text + moving, markup + escaped(moving)), display_id=True)
        else:
            self._handle.update(_Shown(text + moving, markup + escaped(moving)))

    def say(self, text: str, moving: str = "") -> None:
        """Show a state that is one line."""
        self.show(text, escaped(text), moving)


class _Shown(Rich):
    def __init__(self, text: str, markup: str) -> None:
        self._both = (text, markup)

    def __repr__(self) -> str:
        return self._both[0]

    def _view(self) -> tuple[str, str]:
        return self._both


def _follow(batch: Batch, live: _Live) -> Outcome:
    """Show output and progress until the end. An interrupt cancels the job."""
    job = batch.job
    events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def collect() -> None:
        try:
            for outcome in batch.outcomes(lambda _: events.put(("started", None))):
                events.put(("ended", outcome))
        except BaseException as error:
            events.put(("ended", Outcome(0, error=error)))

    def read(output: str) -> None:
        arguments = ["logs", "--follow", f"--{output}", f"{job.id}_0"]
        try:
            # What is lost if the head fails is in `hostler logs`.
            with contextlib.suppress(HostlerError):
                for text in _executable.chunks(arguments, job._client.head, to_stderr=output == "stderr"):
                    events.put((output, text))
        finally:
            events.put(("closed", output))

    outputs = {"stdout", "stderr"}
    outcome: Outcome | None = None
    is_started = False
    status: Status | None = None
    turn = deadline = time.monotonic()
    try:
        for target in (collect, partial(read, "stdout"), partial(read, "stderr")):
            threading.Thread(target=target, daemon=True).start()
        live.say(f"job {job.id} was submitted")
        while outcome is None or (outputs and time.monotonic() < deadline):
            with contextlib.suppress(queue.Empty):
                kind, value = events.get(timeout=_PAUSE)
                if kind == "started":
                    is_started, turn = True, 0.0
                elif kind == "ended":
                    outcome, deadline = value, time.monotonic() + _OUTPUT_SECONDS
                elif kind == "closed":
                    outputs.discard(value)
                else:
                    print(value, end="", flush=True, file=sys.stderr if kind == "stderr" else sys.stdout)
            if outcome is None and time.monotonic() >= turn:
                turn = time.monotonic() + _PAUSE
                if is_started:
                    status = status or _status(job)
                    live.say(f"job {job.id} runs{_where(status)}", _clock(status))
                else:
                    live.say(f"job {job.id} waits{_reason(job)}")
    except KeyboardInterrupt as interrupt:
        batch.cancel()
        live.say(f"job {job.id} was cancelled")
        _show_only(interrupt, [f"KeyboardInterrupt: job {job.id} was cancelled"])
        raise
    how = "has no result" if outcome.error else "ended"
    status = _status(job) or status
    live.say(f"job {job.id} {how}{_where(status)}", _clock(status))
    return outcome


def _status(job: Job) -> Status | None:
    """Return the status of the only task: the job itself names no nodes after its end."""
    with contextlib.suppress(HostlerError):
        return job.task(0).status()
    return None


def _where(status: Status | None) -> str:
    return "".join(f" on {node}" for node in status.nodes) if status else ""


def _clock(status: Status | None) -> str:
    taken = run_time(status) if status else None
    return f", {taken}" if taken else ""


def _reason(job: Job) -> str:
    try:
        reason = job.status().reason
    except HostlerError as error:
        reason = error.message
    return f": {reason}" if reason else ""


def _received(shell: Any, job: Job, done: object) -> Any:
    """Assign the variables, display what the cell displayed, and return the value of its last expression."""
    if not isinstance(done, cells.Done):
        raise RemoteError(f"job {job.id} returned something else than the variables of a cell", "remote")
    error = _failure(job, done.node, done.failure) if done.failure else None
    try:
        values, value, calls = cells.load(done.values, shell.user_ns)
        displayed = [cells.load(call, shell.user_ns) for call in calls]
    except Exception as cause:
        if error is not None:
            raise error from error.__cause__
        raise RemoteError(f"the variables of the cell cannot be read here: {cause}", "remote") from None
    for name, module in done.modules.items():
        try:
            values[name] = importlib.import_module(module)
        except Exception as cause:
            done.lost[name] = str(cause)
    shell.push(values)
    for name in done.deleted:
        shell.user_ns.pop(name, None)
    for objects, keywords in displayed:
        _display(*objects, **keywords)
    for name, why in done.lost.items():
        print(f"hostler: the variable `{name}` did not come back: {why}", file=sys.stderr)
    if error is not None:
        raise error from error.__cause__
    return value


def _failure(job: Job, node: str, failure: wire.Failure) -> BaseException:
    """Return the exception of the cell, which is shown with its traceback on the node."""
    error = recreated(failure)
    _show_only(error, [f"On {node}, in job {job.id}:", *failure.traceback.splitlines()])
    return error


def _show_only(error: BaseException, lines: list[str]) -> None:
    """Have IPython show these lines instead of a traceback of this package."""
    with contextlib.suppress(TypeError):
        vars(error)["_render_traceback_"] = lambda: lines


def _query(shell: Any, line: str) -> Any:
    """Run a command."""
    command, *rest = _words(line) or ["jobs"]
    client = Client()
    if not {"-h", "--help"}.intersection(rest):
        if command == "jobs":
            return Jobs(client, client._ask("jobs", *rest)["jobs"])
        if command == "nodes" and not rest:
            return client.nodes()
        if command == "watch" and len(rest) == 1:
            return _watch(shell, client, rest[0])
    for text in _executable.chunks([command, *rest], None, to_stderr=False):
        print(text, end="", flush=True)
    return None


def _watch(shell: Any, client: Client, name: str) -> None:
    """Show the progress of a job or a map to its end. An interrupt only ends the display."""
    watched = shell.user_ns.get(name)
    job = watched if isinstance(watched, Job) else getattr(watched, "job", None)
    if name.isdecimal():
        job = client.job(int(name))
    if not isinstance(job, Job):
        raise UsageError(f"`{name}` is neither the id of a job nor a variable with a job or a map", "usage")
    live = _Live(shell)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            status = job.status()
            live.show(*described(f"job {job.id}", status))
            if status.ended:
                return
            time.sleep(_PAUSE)
