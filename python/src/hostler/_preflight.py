"""What would be sent with a function, and what would not work, before anything runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hostler._worker import batch, modules, pickling, project
from hostler._worker.batch import Settings
from hostler._worker.project import Environment
from hostler.client import Client
from hostler.errors import HostlerError, PicklingError, UsageError


@dataclass(frozen=True)
class Preflight:
    """What `map` and `Executor` would send with a function; printed as a table.

    Attributes
    ----------
    function : int
        Bytes of the pickled function, with everything that it captures.
    captures : dict
        Bytes of each variable that the function uses from outside, if pickled alone, the largest first. Values that
        cannot be pickled are among the problems instead.
    modules : dict
        Bytes of each module that is sent because it is not installed, the largest first. Workers of an `Executor` have
        those of all functions that this program has sent to executors.
    state : dict
        Bytes of each value that the program has set in these modules since their import, such as ``config.LR``.
    python : str
        The minor version of Python, which nodes must have, e.g. ``3.12``.
    environment : str or tuple of str
        ``own``, with the interpreter in `interpreter`, or the packages that each node installs.
    interpreter : str or None
        Path of the interpreter on the nodes, with ``own``.
    nodes : tuple of str
        Nodes that have this Python; with ``own`` all nodes, which must have the interpreter at the same path.
    left_out : tuple of str
        Packages of the operating system that are not installed on nodes, since the program has not imported them.
    problems : tuple of str
        What would not work.
    """

    function: int
    captures: dict[str, int]
    modules: dict[str, int]
    state: dict[str, int]
    python: str
    environment: str | tuple[str, ...]
    interpreter: str | None
    nodes: tuple[str, ...]
    left_out: tuple[str, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        if self.environment == "own":
            packages = f"own: {self.interpreter or 'none'}"
        else:
            packages = f"built on each node, {len(self.environment)} packages"
        rows = [
            ("function", _size(self.function)),
            *(("captures", f"{name}, {_size(size)}") for name, size in self.captures.items()),
            *(("sends", f"module {name}, {_size(size)}") for name, size in self.modules.items()),
            *(("sets", f"{place} as it is now, {_size(size)}") for place, size in self.state.items()),
            ("Python", f"{self.python} on {', '.join(self.nodes) or 'no node'}"),
            ("environment", packages),
            *([("left out", f"not imported: {', '.join(self.left_out)}")] if self.left_out else []),
            *(("problem", problem) for problem in self.problems),
        ]
        return "\n".join(f"{label:<12} {text}" for label, text in rows)


@modules.only()
def preflight(
    function: Callable[..., object], *, environment: Environment = None, client: Client | None = None
) -> Preflight:
    """Return what would be sent with a function, and what would not work. Nothing is sent, and nothing runs.

    Parameters
    ----------
    function
        As for `map`.
    environment, client
        As for `map`.

    Raises
    ------
    UnreachableError
        If no cluster is running.
    """
    client = client or Client()
    problems: list[str] = []
    captures: dict[str, int] = {}
    for name, value in project.captured(function).items():
        try:
            captures[name] = len(project.dumps(f"the variable `{name}`", value))
        except PicklingError as error:
            problems.append(error.message)
    size = 0
    try:
        size = len(project.dumps("the function", function))
        missing = modules.not_found(pickling.codes(function))
        problems += [f"the module {name} is imported, and does not exist here" for name in missing]
    except PicklingError as error:
        # The variable that is the cause is named already.
        problems += [error.message] if not problems else []
    sizes: dict[str, int] = {}
    state, lost = project.state_of_modules()
    problems += [f"set in a module, and not sent: {value}" for value in lost]
    with tempfile.TemporaryDirectory(prefix="hostler-preflight-") as directory:
        folder = Path(directory)
        try:
            problems += [f"not sent: {part}" for part in modules.ship(folder / "modules")]
            sizes = {path.stem: _bytes(path) for path in (folder / "modules").iterdir()}
        except HostlerError as error:
            problems.append(error.message)
        environment = batch.on(client.info(), Settings(client, environment, {})).environment
        is_own, interpreter = environment == "own", None
        if is_own:
            try:
                interpreter = project.interpreter()
            except UsageError as error:
                problems.append(error.message)
        else:
            project.write_environment(folder, environment)
        requirements = folder / "requirements.txt"
        packages = tuple(requirements.read_text(encoding="utf-8").split("\n")[:-1]) if requirements.exists() else ()
    version = project.python_version()
    # The head does not know whether a node has the caller's interpreter.
    nodes = tuple(node.name for node in client.nodes() if is_own or f"python{version}" in node.features)
    if not nodes and not is_own:
        problems.append(f"no node has Python {version}")
    return Preflight(
        function=size,
        captures=_largest_first(captures),
        modules=_largest_first(sizes),
        state=_largest_first({place.replace(":", "."): len(content) for place, content in state.items()}),
        python=version,
        environment="own" if is_own else packages,
        interpreter=interpreter,
        nodes=nodes,
        left_out=tuple(project.left_out()) if environment == "build" else (),
        problems=tuple(problems),
    )


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def _largest_first(sizes: dict[str, int]) -> dict[str, int]:
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def _size(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
