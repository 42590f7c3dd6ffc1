"""The project folder of a map: function, inputs, modules that are not installed, and the Python environment.

The executable captures the folder; nothing here hashes or packs. `hostler._worker.wire` names the folder's files.
"""

from __future__ import annotations

import array
import contextlib
import importlib.metadata
import io
import json
import os
import pickle
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import cloudpickle

from hostler._worker import meaning, pickling, wire
from hostler.errors import PicklingError, UsageError

#: ``"own"``: the caller's interpreter; ``"build"``: an environment with the caller's packages, or with these packages.
Environment = str | Sequence[str] | None

# The worker imports its own modules before those of the caller can be found, which may have the same names.
_MAIN = """import os, sys

sys.path[0 : not getattr(sys.flags, "safe_path", False)] = [os.path.abspath("worker")]
from hostler._worker.task import main

main()
"""

# Larger packages are data, which belongs into a project folder or on a shared disk.
_MODULE_BYTES = 64 << 20

# Up to this many inputs of these types, and of about this size, are pickled together, which is much faster: a call that
# changes its input could not change the next one.
_GROUP = 1000
_GROUP_BYTES = 1 << 20
_NUMBERS = frozenset({bool, complex, float, type(None)})
_TEXTS = frozenset({bytes, str})

# What the worker itself consists of.
_OWN = ("hostler", "cloudpickle")


def dumps(what: str, value: object) -> bytes:
    """Pickle a value that the user passed.

    Raises
    ------
    PicklingError
        If the value cannot be pickled.
    """
    try:
        return pickling.dumps(value)
    except Exception as error:
        name = getattr(value, "__qualname__", None) or f"a {type(value).__qualname__}"
        raise PicklingError(
            f"{what} cannot be pickled: {name}: {error}",
            "pickling",
            ("open files, locks, generators and connections inside the function, not outside",),
        ) from error


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


def write_inputs(folder: Path, function: bytes, inputs: Iterable[tuple[int, bytes]]) -> int:
    """Write the pickled function and inputs. Return the number of inputs."""
    # For each group: the number of its first input, and where it begins.
    count = end = 0
    groups = array.array("Q", [count, end])
    with open(folder / wire.INPUTS, "wb") as file:
        for added, work in inputs:
            count += added
            end += file.write(work)
            groups.extend((count, end))
    (folder / wire.GROUPS).write_bytes(groups.tobytes())
    (folder / wire.FUNCTION).write_bytes(function)
    return count


def write_program(folder: Path, settings: wire.Settings) -> None:
    """Write the program of a task, and all modules that are not installed."""
    (folder / wire.SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    (folder / "main.py").write_text(_MAIN, encoding="utf-8")
    for package in (Path(__file__).parents[1], Path(cloudpickle.__file__).parent):
        shutil.copytree(package, folder / "worker" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    ship_modules(folder / wire.MODULES)


def write_environment(folder: Path, environment: Environment) -> list[str]:
    """Write the files that describe the Python environment. Return the entry point and its arguments.

    Raises
    ------
    UsageError
        If there is no such environment.
    """
    if environment == "own":
        return [sys.executable, "--", "main.py"]
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


def described_environment(folder: Path, environment: Environment) -> str:
    """Return a digest of what `write_environment` has written."""
    files = [folder / ".python-version", folder / "requirements.txt"]
    return meaning.of(
        [sys.executable if environment == "own" else "", *(it.read_text() for it in files if it.exists())]
    )


def python_version() -> str:
    """Return the minor version of this Python, e.g. ``3.12``. Pickled functions need the same one."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def installed() -> list[str]:
    """Return the installed distributions as requirements, as ``pip freeze`` does.

    Editable ones are left out: their modules travel as files. So are `hostler` and `cloudpickle`.
    """
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if not name or name in ("hostler", "cloudpickle", "pip"):
            continue
        origin: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            continue
        vcs = origin.get("vcs_info")
        source = f" @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else f"=={distribution.version}"
        # The first one on the path is the one that is imported.
        found.setdefault(name, name + source)
    return sorted(found.values())


def ship_modules(target: Path) -> None:
    """Copy the imported modules that are not installed."""
    target.mkdir()
    places = _installed_places()
    for name, module in sorted(sys.modules.items()):
        if name == "__main__" or "." in name or not isinstance(module, ModuleType):
            continue
        # Not getattr: some modules import others when they are asked for an attribute that they lack.
        file = vars(module).get("__file__")
        if name in _OWN:
            continue
        if file and os.path.isfile(file) and not _is_below(file, places):
            _copy_module(name, module, target)
        elif file is None and "__path__" in vars(module):
            _copy_namespace(name, target, places)


def shipped_modules() -> dict[str, str]:
    """Return names and files of the modules that `ship_modules` copies now."""
    places = _installed_places()
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) and name != "__main__" else None
        if file and not _is_below(file, places) and os.path.isfile(file):
            found[name] = file
    return found


def versions(modules: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Return time and size of the files of modules, which an edit changes. Deleted files are left out."""
    found: dict[str, tuple[int, int]] = {}
    for name, file in modules.items():
        with contextlib.suppress(OSError):
            status = os.stat(file)
            found[name] = (status.st_mtime_ns, status.st_size)
    return found


def is_installed(file: str) -> bool:
    """Whether this file of a module belongs to the standard library or to an installed package."""
    return _is_below(file, _installed_places())


def _copy_module(name: str, module: ModuleType, target: Path) -> None:
    file = Path(str(module.__file__))
    if "__path__" not in vars(module):
        # A module loaded from a file with another name is found by its own name; an extension keeps its suffixes.
        suffix = ".py" if file.suffix == ".py" else file.name.removeprefix(file.name.split(".")[0])
        shutil.copyfile(file, target / f"{name}{suffix}")
        return
    size = sum(entry.stat().st_size for entry in file.parent.rglob("*") if entry.is_file())
    if size > _MODULE_BYTES:
        raise UsageError(
            f"the package {name} in {file.parent} has {size >> 20} MiB, and is not installed",
            "usage",
            (f"install it, or move its data elsewhere: at most {_MODULE_BYTES >> 20} MiB are sent with a function",),
        )
    # Files such as .gitignore would leave out parts of the package.
    shutil.copytree(file.parent, target / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))


def _copy_namespace(name: str, target: Path, places: tuple[str, ...]) -> None:
    """Copy the imported modules of a namespace package, whose directory may contain anything."""
    for full_name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not full_name.startswith(f"{name}.") or not file or _is_below(file, places):
            continue
        relative = Path(*full_name.split("."))
        copy = target / relative / "__init__.py" if hasattr(module, "__path__") else target / f"{relative}.py"
        if Path(file).suffix == ".py":
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _installed_places() -> tuple[str, ...]:
    """Return the directories of the standard library and of installed packages."""
    places = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({path + os.sep for place in places for path in (os.path.abspath(place), os.path.realpath(place))})


def _is_below(file: str, places: tuple[str, ...]) -> bool:
    # Installed files may be links to elsewhere, and their directories as well.
    return os.path.abspath(file).startswith(places) or os.path.realpath(file).startswith(places)
