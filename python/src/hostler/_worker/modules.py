"""The modules that travel with a function: those of the program that are not installed.

These are the imported ones, and those that the functions and modules import when they run: by a statement, or by a name
that is given to `importlib.import_module`. Modules travel as files; what the program has set in them since the import
is in `hostler._worker.state`.
"""

from __future__ import annotations

import contextlib
import contextvars
import dis
import importlib.machinery
import importlib.util
import itertools
import linecache
import os
import shutil
import site
import stat
import sys
import sysconfig
import weakref
import zipimport
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from hostler.errors import UsageError

# Larger packages are data, which belongs into a project folder or on a shared disk.
_MODULE_BYTES = 64 << 20

# What the worker itself consists of.
_OWN = ("hostler", "cloudpickle")

# Directories that are not a part of a package. Files such as .gitignore would leave out parts of it, so no file whose
# name begins with a dot is sent.
_NO_PARTS = ("__pycache__", "node_modules")

_SUFFIXES = (".py", ".so", ".pyi")

# Top-level names that the code of functions imports when it runs: of all functions sent so far, or of those of one map.
_all: set[str] = set()
_imported: contextvars.ContextVar[set[str]] = contextvars.ContextVar("imported")
_of_codes: weakref.WeakKeyDictionary[CodeType, set[str]] = weakref.WeakKeyDictionary()

# Names of the files of all functions sent so far.
_code_files: set[str] = set()

# For each file, its time and size, and what it imports.
_of_files: dict[str, tuple[tuple[int, int], tuple[str, ...]]] = {}


class Source(NamedTuple):
    """A top-level module or package."""

    name: str
    #: A file, or directories of a package.
    paths: tuple[Path, ...]
    #: Whether it is a package without `__init__.py`, whose directory may contain anything.
    is_namespace: bool = False


@contextlib.contextmanager
def only(names: set[str] | None = None) -> Iterator[set[str]]:
    """Keep what is pickled in the block apart: the modules to send are those that its own functions import.

    Parameters
    ----------
    names
        The names of an earlier block, which goes on. Without them, the block is a part of one around it, if any.
    """
    names = _imported.get(set()) if names is None else names
    token = _imported.set(names)
    try:
        yield names
    finally:
        _imported.reset(token)


def note(code: CodeType) -> None:
    """Remember what the code of a function imports. Called for each code that is sent by value."""
    names = _of_codes.get(code)
    if names is None:
        names = _of_codes[code] = {name.partition(".")[0] for name, _ in _imports(code, "")}
    imported().update(names)
    _code_files.add(code.co_filename)


def texts() -> dict[str, str]:
    """Return the files, or cells of a notebook, of the functions sent so far, by their names in tracebacks."""
    return {name: text for name in sorted(_code_files) if (text := "".join(linecache.getlines(name)))}


def imported() -> set[str]:
    """Return the top-level names that functions import when they run: all functions sent so far, or those of `only`."""
    return _imported.get(_all)


def count() -> int:
    """Return a number that changes when there may be other modules to send."""
    return len(sys.modules) + len(imported())


def not_found(codes: Iterable[CodeType]) -> list[str]:
    """Return modules that code imports by a statement when it runs, and that do not exist here."""
    imports = itertools.chain.from_iterable(_imports(code, "") for code in codes)
    names = {name.partition(".")[0] for name, is_statement in imports if is_statement}
    return sorted(name for name in names if name and name not in sys.modules and _spec(name) is None)


def sources() -> list[Source]:
    """Return the modules to send, sorted by name."""
    places = _installed_places()
    found: dict[str, Source] = {}
    for name, module in _imported_now():
        if "." not in name:
            # Not getattr: some modules import others when they are asked for an attribute that they lack.
            file, path = vars(module).get("__file__"), vars(module).get("__path__")
            _add(found, name, file, path, places)
    searched: set[str] = set()
    # Those that have put another object in their place can be found by their names only.
    known = {name for name, module in sys.modules.items() if module is None or isinstance(module, ModuleType)}
    wanted = imported() | {name for name in sys.modules if "." not in name} - known
    while wanted or len(searched) < len(found):
        for name in sorted(wanted - set(found) - known):
            spec = _spec(name)
            if spec is not None:
                _add(found, name, spec.origin, spec.submodule_search_locations, places)
        wanted = set()
        for name in sorted(set(found) - searched):
            searched.add(name)
            wanted.update(top for top in _imports_of(found[name]) if top not in found and top not in known)
    return [found[name] for name in sorted(found)]


def files() -> dict[str, str]:
    """Return names and files of the modules to send, as far as an edit of them counts."""
    found: dict[str, str] = {}
    for source in sources():
        first = source.paths[0]
        found[source.name] = str(first / "__init__.py" if first.is_dir() and not source.is_namespace else first)
    places = _installed_places()
    for name, module in _imported_now():
        file = vars(module).get("__file__")
        if file and not _is_below(file, places) and os.path.isfile(file):
            found[name] = file
    return found


def versions(modules: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Return time and size of the files of modules, which an edit changes. Deleted files are left out."""
    found: dict[str, tuple[int, int]] = {}
    for name, file in modules.items():
        with contextlib.suppress(OSError):
            status = os.stat(file)
            # Other files in the directory of a package change these of the directory.
            found[name] = (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_mtime_ns, status.st_size)
    return found


def ship(target: Path) -> list[str]:
    """Copy the modules to send. Return what was left out, and why.

    Raises
    ------
    UsageError
        If a package is too large.
    """
    target.mkdir()
    places = _installed_places()
    left_out = [
        f"{name}: a module in a zip file"
        for name, module in _imported_now()
        if isinstance(vars(module).get("__loader__"), zipimport.zipimporter)
        and "." not in name
        and not _is_below(str(module.__file__), places)
    ]
    for source in sources():
        _copy(source, target, left_out)
    return left_out


def _imported_now() -> list[tuple[str, ModuleType]]:
    """Return the imported modules without the worker and the main program, which `multiprocessing` names twice."""
    main = sys.modules["__main__"]
    return [
        (name, module)
        for name, module in sorted(sys.modules.items())
        if isinstance(module, ModuleType) and module is not main and name.partition(".")[0] not in _OWN
    ]


def _add(
    found: dict[str, Source], name: str, file: str | None, path: Iterable[str] | None, places: tuple[str, ...]
) -> None:
    """Add a module that is not installed."""
    if file and os.path.isfile(file):
        if not _is_below(file, places):
            found[name] = Source(name, (Path(file) if path is None else Path(file).parent,))
    elif path is not None and not (file and file != "namespace"):
        own = tuple(Path(it) for it in path if os.path.isdir(it) and not _is_below(os.path.join(it, ""), places))
        if own:
            found[name] = Source(name, own, is_namespace=True)


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        is_replaced = not isinstance(sys.modules.get(name), ModuleType | None)
        return importlib.machinery.PathFinder.find_spec(name) if is_replaced else importlib.util.find_spec(name)
    return None


def _imports_of(source: Source) -> set[str]:
    """Return the top-level names that the files of a module import."""
    found: set[str] = set()
    for path in source.paths:
        for file in [path] if path.is_file() else _python_files(path):
            found.update(name.partition(".")[0] for name in _imports_of_file(str(file), source.name))
    return found


def _python_files(directory: Path) -> Iterator[Path]:
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if _is_part(os.path.join(place, name), name)]
        yield from (Path(place, name) for name in names if name.endswith(".py"))


def _imports_of_file(file: str, package: str) -> tuple[str, ...]:
    if not file.endswith(".py"):
        return ()
    try:
        status = os.stat(file)
        version = (status.st_mtime_ns, status.st_size)
        if _of_files.get(file, (None,))[0] != version:
            code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
            _of_files[file] = (version, tuple({name: None for name, _ in _imports(code, package)}))
    except (OSError, SyntaxError, ValueError, RecursionError):
        # Python says so if the function imports it.
        return ()
    return _of_files[file][1]


def _imports(code: CodeType, package: str) -> Iterator[tuple[str, bool]]:
    """Yield the names that code imports by a statement, and those that it may give to `importlib.import_module`."""
    if not {"import_module", "__import__"}.isdisjoint(code.co_names):
        # `f"plugins.{name}"` has the constant "plugins.".
        texts = (text.strip(".") for text in code.co_consts if isinstance(text, str))
        yield from ((text, False) for text in texts if text and all(part.isidentifier() for part in text.split(".")))
    before: list[object] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level = next((it for it in reversed(before) if isinstance(it, int)), 0)
            name = str(instruction.argval)
            yield (package if level and package else name), True
        before = [
            *before[-3:],
            instruction.argval if "CONST" in instruction.opname or "INT" in instruction.opname else "",
        ]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports(constant, package)


def _copy(source: Source, target: Path, left_out: list[str]) -> None:
    path = source.paths[0]
    if path.is_file():
        # A module loaded from a file with another name is found by its own name; an extension keeps its suffixes.
        suffix = ".py" if path.suffix == ".py" else path.name.removeprefix(path.name.split(".")[0])
        _copy_file(path, target / f"{source.name}{suffix}", left_out)
        return
    for place in source.paths:
        size = _size(place)
        if size > _MODULE_BYTES and not source.is_namespace:
            raise UsageError(
                f"the package {source.name} in {place} has {size >> 20} MiB, and is not installed",
                "usage",
                (f"install it, or move its data elsewhere: at most {_MODULE_BYTES >> 20} MiB travel with a function",),
            )
        suffixes = _SUFFIXES if size > _MODULE_BYTES else None
        if suffixes:
            left_out.append(f"{place}: only modules of it are sent, since it has {size >> 20} MiB")
        _copy_tree(place, target / source.name, (os.path.realpath(place),), suffixes, left_out)


def _copy_tree(
    source: Path, target: Path, above: tuple[str, ...], suffixes: tuple[str, ...] | None, left_out: list[str]
) -> None:
    """Copy a directory with the targets of its links. Anything but files and directories is left out."""
    target.mkdir(exist_ok=True)
    try:
        entries = sorted(os.scandir(source), key=lambda entry: entry.name)
    except OSError as error:
        left_out.append(f"{source}: {error.strerror}")
        return
    for entry in entries:
        if not _is_part(entry.path, entry.name):
            continue
        try:
            mode = entry.stat().st_mode
        except OSError as error:
            what = "a link that leads nowhere" if entry.is_symlink() else error.strerror
            left_out.append(f"{entry.path}: {what}")
            continue
        if stat.S_ISDIR(mode):
            real = os.path.realpath(entry.path)
            if real in above:
                left_out.append(f"{entry.path}: a link to a directory that contains it")
            else:
                _copy_tree(Path(entry.path), target / entry.name, (*above, real), suffixes, left_out)
        elif not stat.S_ISREG(mode):
            left_out.append(f"{entry.path}: neither a file nor a directory")
        elif suffixes is None or entry.name.endswith(suffixes):
            _copy_file(Path(entry.path), target / entry.name, left_out)


def _copy_file(source: Path, target: Path, left_out: list[str]) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        left_out.append(f"{source}: {error.strerror or error}")


def _is_part(path: str, name: str) -> bool:
    """Whether a file or a directory is a part of the package that contains it."""
    return not (name in _NO_PARTS or name.startswith(".") or os.path.exists(os.path.join(path, "pyvenv.cfg")))


def _size(directory: Path) -> int:
    size = 0
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if _is_part(os.path.join(place, name), name)]
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(place, name))
                size += status.st_size if stat.S_ISREG(status.st_mode) and not name.startswith(".") else 0
    return size


def _installed_places() -> tuple[str, ...]:
    """Return the directories of the standard library and of installed packages."""
    places = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({path + os.sep for place in places for path in (os.path.abspath(place), os.path.realpath(place))})


def _is_below(file: str, places: tuple[str, ...]) -> bool:
    # Installed files may be links to elsewhere, and their directories as well.
    return os.path.abspath(file).startswith(places) or (os.path.realpath(file) + os.sep).startswith(places)
