"""Keeps calls apart from the worker: from its files, its modules and its processes."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from hostler._worker import pickling, state, wire

# Functions may put another one in its place.
_getpid = os.getpid

#: The folder of the task, with the directory `worker` of this package. Functions may change the directory.
HOME = Path(__file__).parents[3]

# What each call starts with: as at the start of the worker, and as modules have changed it when they were imported.
_variables: dict[bytes, bytes] = {}
_path: list[str] = []
_arguments: list[str] = []
_mask = 0o022
_limits: dict[int, tuple[int, int]] = {}

# The directory of the call, its state at the start, and numbers for those to come.
_directory = ""
_state: object = None
_numbers = itertools.count()


def prepare(settings: wire.Settings) -> None:
    """Let functions import the caller's modules. The worker has imported its own, which may have the same names."""
    global _mask
    place = HOME / wire.MODULES
    names = {path.name.partition(".")[0] for path in place.iterdir()} if place.is_dir() else set()
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]
    sys.path.insert(0, str(place))
    _variables.update(os.environb)
    _path.extend(sys.path)
    _arguments.extend(settings["argv"])
    for name, text in settings["texts"].items():
        # Without a time, so that no file of the node replaces it.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    _mask = _umask()
    _limits.update({it: resource.getrlimit(it) for name, it in vars(resource).items() if name.startswith("RLIMIT_")})
    state.around_import = _importing
    state.watch_imports()
    pickling.clear_main()
    pickling.be_main_of(str(HOME / f"main-{_getpid()}"))


def run(call: Callable[[], Any]) -> Any:
    """Run a call in an empty directory of its own, with variables and paths of its own, and return its result."""
    if _path:
        _restore()
    _enter_empty_directory()
    value, error = outcome(call)
    _restore_limits()
    if error is not None:
        raise error
    return value


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Keep what a module changes for later calls, which do not import it again."""
    global _mask
    variables, path, mask = dict(os.environb), sys.path.copy(), _umask()
    try:
        yield
    finally:
        if (changed_mask := _umask()) != mask:
            _mask = changed_mask
        changed = dict(os.environb)
        for name in variables.keys() - changed.keys():
            _variables.pop(name, None)
        _variables.update(changed.items() - variables.items())
        if path != sys.path:
            _path[:] = [it for it in _path if it in sys.path or it not in path]
            for at, it in enumerate(sys.path):
                if it not in path and it not in _path:
                    _path.insert(at, it)


def outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return the result and the exception of a call. A process that it has forked ends here."""
    process = _getpid()
    value, error = None, None
    try:
        value = call()
    # As in concurrent.futures, also SystemExit and KeyboardInterrupt belong to the caller.
    except BaseException as raised:
        error = raised
    if _getpid() != process:
        _exit(error)
    return value, error


def clean_up(process: int) -> None:
    """Remove the files of the calls that a process has run."""
    os.chdir(HOME)
    for place in (*HOME.glob(f"work-{process}-*"), HOME / f"main-{process}"):
        _remove(str(place))


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


def _restore() -> None:
    """Undo what earlier calls have changed in the process."""
    # The dictionary in it: reading all variables would take longer than many calls.
    variables = vars(os.environb)["_data"]
    if variables != _variables:
        for name in variables.keys() - _variables.keys():
            del os.environb[name]
        os.environb.update(dict(_variables.items() - variables.items()))
    sys.path[:], sys.argv = _path, _arguments.copy()
    os.umask(_mask)


def _restore_limits() -> None:
    """Undo what a call has done to limits and timers: they would stop the record of this call, or the next call."""
    for limit, before in _limits.items():
        if (now := resource.getrlimit(limit)) != before:
            try:
                resource.setrlimit(limit, before)
            except (ValueError, OSError):
                # Only root can raise a hard limit again.
                soft = before[0] if before[0] != resource.RLIM_INFINITY and before[0] < now[1] else now[1]
                resource.setrlimit(limit, (soft, now[1]))
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)


def _enter_empty_directory() -> None:
    """Enter a directory where no earlier call, and no process that one has started, has a file or can create one."""
    global _directory, _state
    with contextlib.suppress(OSError):
        os.chdir(_directory)
        # A new one takes longer than many calls.
        if _state == _state_now() and not os.listdir():
            return
    os.chdir(HOME)
    if _directory:
        _remove(_directory)
    while True:
        _directory = str(HOME / f"work-{_getpid()}-{next(_numbers)}")
        # Of a process with the same id, there may be one that could not be removed.
        with contextlib.suppress(FileExistsError):
            os.mkdir(_directory)
            break
    os.chdir(_directory)
    _state = _state_now()


def _state_now() -> object:
    """Return what changes if the current directory gets another mode, or this process has started others."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        # Those that it has waited for have used some time, unless the kernel does not count them.
        if signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
            return os.stat(".").st_mode, resource.getrusage(resource.RUSAGE_CHILDREN)
    # There is a child: a new object, which equals no other one.
    return object()


def _remove(place: str) -> None:
    """Remove a directory, also what it makes hard to remove. What nevertheless cannot be removed stays."""
    with contextlib.suppress(OSError):
        os.rmdir(place)
        return
    with contextlib.suppress(OSError):
        os.chmod(place, 0o700)
    for folder, names, _ in os.walk(place):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(place, ignore_errors=True)


def _exit(error: BaseException | None) -> NoReturn:
    """End a process that a function has forked, as Python would, and not as another worker."""
    code = error.code if isinstance(error, SystemExit) else 1 if error else 0
    with contextlib.suppress(BaseException):
        if isinstance(code, str):
            print(code, file=sys.stderr)
        elif error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(type(error), error, error.__traceback__)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)
