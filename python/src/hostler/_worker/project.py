"""The project folder of a map: function, inputs, modules that are not installed, and the Python environment.

The executable captures the folder; nothing here hashes or packs. `hostler._worker.wire` names the folder's files.
"""

from __future__ import annotations

import array
import base64
import contextlib
import functools
import importlib.metadata
import inspect
import io
import json
import os
import pickle
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import cloudpickle
from cloudpickle import cloudpickle as by_value

from hostler import _DIRECTORY
from hostler._worker import helper, meaning, modules, parts, pickling, state, wire
from hostler._worker.task import Starred
from hostler.errors import PicklingError, UsageError
from hostler.options import Options

#: ``"own"``: the caller's interpreter; ``"build"``: an environment with the caller's packages, or with these packages.
Environment = str | Sequence[str] | None

# The worker imports its own modules before those of the caller can be found, which may have the same names.
_MAIN = """import os, sys

sys.path[0 : not getattr(sys.flags, "safe_path", False)] = [os.path.abspath("worker")]
from hostler._worker.task import main

main()
"""

# Up to this many inputs of these types, and of about this size, are pickled together, which is much faster: a call that
# changes its input could not change the next one.
_GROUP = 1000
_GROUP_BYTES = 1 << 20
_NUMBERS = frozenset({bool, complex, float, type(None)})
_TEXTS = frozenset({bytes, str})

# Where Debian and Fedora put the Python packages of the operating system, and what calls itself their installer.
_SYSTEM_PLACE = re.compile(r"/usr/lib(64)?/python3(\.\d+)?/(dist|site)-packages(/|$)")
_SYSTEM_INSTALLERS = ("debian", "rpm")


def dumps(what: str, value: object, parts: Iterable[tuple[str, object]] = ()) -> bytes:
    """Pickle a value that the user passed.

    Raises
    ------
    PicklingError
        If the value cannot be pickled. It names the first of the parts that cannot, or the value.
    """
    try:
        return pickling.dumps(value)
    except Exception as error:
        for part in parts:
            dumps(*part)
        function = value[0] if isinstance(value, tuple) and value else value
        name = getattr(function, "__qualname__", None) or f"a {type(function).__qualname__}"
        raise PicklingError(
            f"{what} cannot be pickled: {name}: {_variable_that_fails(function)}{error}",
            "pickling",
            ("open files, locks, generators and connections inside the function, not outside",),
        ) from error


def _variable_that_fails(function: object) -> str:
    """Name the first variable of a function that cannot be pickled, for a message."""
    # Only for a message: what is odd here was odd before.
    with contextlib.suppress(Exception):
        for name, value in captured(cast("Callable[..., object]", function)).items():
            try:
                pickling.dumps(value)
            except Exception:
                return f"its variable `{name}`: "
    return ""


def captured(function: Callable[..., object]) -> dict[str, Any]:
    """Return the variables that a function uses from outside and that are pickled with it."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    function = getattr(function, "__func__", function)
    try:
        enclosing = inspect.getclosurevars(function).nonlocals
    except TypeError:
        # Built in, or an object that can be called.
        return {}
    if by_value._should_pickle_by_reference(function):
        # It uses those of its module on the node.
        return {}
    variables: dict[str, Any] = getattr(function, "__globals__", {})
    # As pickled: attributes with the name of a variable do not count, and functions inside this one do.
    used = by_value._extract_code_globals(getattr(function, "__code__", None))
    return {
        name: value
        for name, value in {**{name: variables[name] for name in used if name in variables}, **enclosing}.items()
        if not (inspect.ismodule(value) or inspect.isroutine(value) or inspect.isclass(value))
    }


def packed_call(
    call: tuple[Any, Any, Any], store: parts.Store | None, values: Mapping[str, bytes] | None
) -> parts.Work:
    """Pickle a call of an executor; see `hostler._worker.parts`.

    Raises
    ------
    PicklingError
        If it cannot be pickled.
    """
    try:
        return parts.packed(call, store, values)
    except Exception:
        # It fails again, and says what is wrong.
        dumps("the call", call)
        raise


def pickled_inputs(
    inputs: Iterable[tuple[object, ...]], stand_for: meaning.Values | None = None
) -> Iterator[tuple[int, bytes]]:
    """Pickle inputs one after another, or in groups of small ones. Yield how many inputs these are, and the pickle.

    Parameters
    ----------
    inputs
        The inputs.
    stand_for
        Gets all of them as well.

    Raises
    ------
    PicklingError
        If one cannot be pickled.
    """
    file = io.BytesIO()
    # One for all: a new one for each input would take twice as long.
    pickler = pickling.pickler(file)
    group: list[tuple[object, ...]] = []
    before = size = 0
    # Each is pickled before the next one is read, unless nothing can change it.
    for value in inputs:
        added = _flat_size(value)
        if stand_for is not None:
            stand_for.add(_pickled_group([value])) if added is not None else stand_for.add_value(value)
        if added is None:
            try:
                pickler.dump(value)
                content = file.getvalue()
            except Exception:
                # It fails again, and says what is wrong.
                content = dumps(f"input {before + len(group)}", value)
                pickler = pickling.pickler(file)
            file.seek(0)
            file.truncate()
            pickler.clear_memo()
            # Here cloudpickle remembers the globals of functions, by addresses that others may have later.
            pickler.globals_ref.clear()
        if group and (added is None or size + added > _GROUP_BYTES or len(group) == _GROUP):
            yield len(group), _pickled_group(group)
            before += len(group)
            group, size = [], 0
        if added is None:
            yield 1, content
            before += 1
            del content
            continue
        group.append(value)
        size += added
        if size > _GROUP_BYTES:
            # A large one is not kept while the next one is read.
            del value
            yield 1, _pickled_group(group)
            before += 1
            group, size = [], 0
    if group:
        yield len(group), _pickled_group(group)


def _flat_size(values: tuple[object, ...]) -> int | None:
    """Return about how many bytes numbers and texts have; None if there is anything else among them."""
    size = 0
    for value in values:
        kind = type(value)
        if kind is int:
            size += 8 + (cast("int", value).bit_length() >> 3)
        elif kind in _TEXTS:
            size += 8 + len(cast("str | bytes", value))
        elif kind in _NUMBERS:
            size += 8
        else:
            return None
    return size


def _pickled_group(group: list[tuple[object, ...]]) -> bytes:
    """Pickle inputs of numbers and texts. Equal ones give equal bytes, whether or not they are the same objects."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True
    pickler.dump(group if len(group) > 1 else group[0])
    return file.getvalue()


def write_call(
    folder: Path,
    function: Callable[..., object],
    inputs: Iterable[tuple[object, ...]],
    stand_for: meaning.Values | None = None,
) -> int:
    """Pickle a function and the arguments of its calls into the folder of a map. Return the number of calls."""
    with open(folder / wire.FUNCTION, "wb") as file:
        try:
            pickling.pickler(file).dump(Starred(function))
        except Exception:
            # It fails again, and says what is wrong.
            dumps("the function", function)
            raise
    # For each group: the number of its first input, and where it begins.
    count = end = 0
    groups = array.array("Q", [count, end])
    with open(folder / wire.INPUTS, "wb") as file:
        for added, work in pickled_inputs(inputs, stand_for):
            count += added
            end += file.write(work)
            groups.extend((count, end))
    (folder / wire.GROUPS).write_bytes(groups.tobytes())
    return count


def write_program(folder: Path, settings: wire.Settings) -> None:
    """Write the program of a task, and all modules that are not installed."""
    (folder / wire.SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    (folder / "main.py").write_text(_MAIN, encoding="utf-8")
    for package in (Path(__file__).parents[1], Path(cloudpickle.__file__).parent):
        shutil.copytree(package, folder / "worker" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    left_out = modules.ship(folder / wire.MODULES)
    if left_out:
        warnings.warn(f"not sent with the function: {'; '.join(left_out)}", stacklevel=2)


def write_environment(folder: Path, environment: Environment) -> list[str]:
    """Write the files that describe the Python environment. Return the entry point and its arguments.

    Raises
    ------
    UsageError
        If there is no such environment.
    """
    if environment == "own":
        return [interpreter(), "--", *helper.flags(), "main.py"]
    if isinstance(environment, str) and environment != "build":
        raise UsageError(
            f"there is no environment `{environment}`",
            "usage",
            ('choose "own", "build" or a list of requirements, e.g. ["numpy==2.1.0"]',),
        )
    requirements = installed() if isinstance(environment, str) else list(environment or [])
    (folder / ".python-version").write_text(python_version() + "\n", encoding="utf-8")
    if requirements:
        (folder / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    return ["main.py"]


def interpreter() -> str:
    """Return the absolute path of this interpreter.

    Raises
    ------
    UsageError
        If the program has none, as one that only contains Python.
    """
    if not (sys.executable and os.access(_executable_path(), os.X_OK)):
        raise UsageError(
            f"this program has no Python interpreter for its functions: `sys.executable` is {sys.executable!r}",
            "usage",
            (
                f"set `sys.executable` to the path of a Python {python_version()} with the packages of the program",
                'or choose environment="build" on a cluster, or a list of requirements',
            ),
        )
    return _executable_path()


def _executable_path() -> str:
    # Without `..`, which the executable `hostler` refuses.
    return os.path.abspath(os.path.join(_DIRECTORY, sys.executable or ""))


def described_environment(folder: Path, environment: Environment) -> str:
    """Return a digest of what `write_environment` has written."""
    files = [folder / ".python-version", folder / "requirements.txt"]
    own = interpreter() if environment == "own" else ""
    return meaning.of([own, *(it.read_text() for it in files if it.exists())])


def state_of_modules(files: Mapping[str, str] | None = None) -> tuple[dict[str, bytes], list[str]]:
    """Return what the program has set in the modules that are sent, and what of it cannot be sent.

    Parameters
    ----------
    files
        Names and files of the modules, if they are known.
    """
    return state.changes(modules.files() if files is None else files, pickling.dumps_placed)


def described_state() -> str:
    """Return a digest of what the program has set in the modules that are sent."""
    files = modules.files()
    sent, _ = state_of_modules(files)
    digests, _ = state.changes(files, lambda value: meaning.of(value).encode())
    return meaning.of(sorted((place, digest) for place, digest in digests.items() if place in sent))


def packed_state() -> dict[str, str]:
    """Return what the program has set in the modules that are sent, and warn about what cannot be sent."""
    found, lost = state_of_modules()
    warn_of_state(lost)
    return {place: base64.b64encode(content).decode() for place, content in found.items()}


def warn_of_state(lost: list[str]) -> None:
    """Warn about values that cannot be sent."""
    if lost:
        warnings.warn(f"values that were set in modules are not sent: {'; '.join(lost)}", stacklevel=3)


def check_sandbox(environment: Environment, options: Options) -> None:
    """Check that a job can have this environment.

    Raises
    ------
    UsageError
        If this interpreter was chosen and the sandbox hides it.
    """
    if environment != "own":
        return
    has_image = options.get("image") is not None
    hidden = tuple(os.path.join(place, "") for place in ("/home", "/root", "/tmp", os.path.expanduser("~")))
    if not has_image and not (options.get("sandbox") and any(path.startswith(hidden) for path in _interpreter())):
        return
    what = "an image has its own interpreter" if has_image else f"a sandbox hides {_executable_path()}"
    raise UsageError(
        f'environment="own" does not work here: {what}',
        "usage",
        ('choose environment="build", or a list of requirements such as ["numpy==2.1.0"]',),
    )


def default_environment(is_embedded: bool, options: Options) -> Environment:
    """Return the environment if none was chosen: this interpreter, if the nodes are on this machine and it works there.

    Parameters
    ----------
    is_embedded
        Whether the nodes are those of ``hostler up``.
    options
        Those of the job.
    """
    is_hidden = options.get("image") is not None or (options.get("sandbox") and _is_hidden())
    return "own" if is_embedded and not is_hidden else "build"


def _is_hidden() -> bool:
    """Whether a sandbox, which shows only the programs of the system, hides this interpreter or its packages."""
    return not all(path.startswith(("/usr/", "/bin/")) for path in _interpreter())


def _interpreter() -> list[str]:
    """Return the paths that this interpreter needs."""
    found = [_executable_path(), os.path.realpath(_executable_path())]
    return [*found, *(os.path.join(prefix, "") for prefix in (sys.prefix, sys.base_prefix))]


def python_version() -> str:
    """Return the minor version of this Python, e.g. ``3.12``. Pickled functions need the same one."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def installed() -> list[str]:
    """Return the installed distributions as requirements, as ``pip freeze`` does.

    Editable ones are left out: their modules travel as files. So are `hostler` and `cloudpickle`, and what `left_out`
    returns.
    """
    found: dict[str, str] = {}
    for name, distribution in _distributions().items():
        origin: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable") or _is_left_out(distribution):
            continue
        vcs = origin.get("vcs_info")
        source = f" @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else f"=={distribution.version}"
        found[name] = name + source
    return sorted(found.values())


def left_out() -> list[str]:
    """Return packages of the operating system that the program has not imported. Many are in no package index."""
    return sorted(name for name, distribution in _distributions().items() if _is_left_out(distribution))


def _distributions() -> dict[str, importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name and name not in ("hostler", "cloudpickle", "pip"):
            # The first one on the path is the one that is imported.
            found.setdefault(name, distribution)
    return found


def _is_left_out(distribution: importlib.metadata.Distribution) -> bool:
    place = os.path.abspath(str(distribution.locate_file("")))
    installer = (distribution.read_text("INSTALLER") or "").strip()
    if not (_SYSTEM_PLACE.match(place) or installer in _SYSTEM_INSTALLERS):
        return False
    files = distribution.files or []
    names = (distribution.read_text("top_level.txt") or "").split()
    names += {file.parts[0].partition(".")[0] for file in files if file.suffix in (".py", ".so")}
    names.append(distribution.metadata["Name"].replace("-", "_"))
    return modules.imported().union(sys.modules).isdisjoint(names)
