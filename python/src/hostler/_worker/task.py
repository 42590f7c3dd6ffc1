"""What runs on a node: calls a function with the inputs of one array task, and records what it returns.

The inputs run in a process of their own. If one of them ends it, a new process runs the rest.
"""

from __future__ import annotations

import array
import base64
import bisect
import functools
import json
import mmap
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from hostler._worker import apart, pickling, state, wire

#: Up to this size, the function is unpickled for each input, and what it changes is not there for the next one. Of
#: larger ones, that would take longer than many calls.
FRESH_BYTES = 16 << 20

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Starred:
    """Calls a function with the items of a tuple."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function

    def __call__(self, values: tuple[Any, ...]) -> object:
        return self.function(*values)


def main() -> None:
    """Run the array task that the environment names."""
    settings: wire.Settings = json.loads((apart.HOME / wire.SETTINGS).read_text(encoding="utf-8"))
    wanted, own = tuple(settings["python"]), tuple(sys.version_info[:3])
    if own[:2] != wanted[:2]:
        sys.exit(f"this node runs Python {_dotted(own)}, but the function was pickled with {_dotted(wanted)}")
    if own != wanted:
        print(f"hostler: warning: Python {_dotted(own)} instead of {_dotted(wanted)}", file=sys.stderr)
    chunksize = settings["chunksize"]
    if chunksize is None:
        from hostler._worker.server import serve

        is_helper = sys.argv[1:] == ["helper"]
        apart.prepare(settings)
        serve(settings, is_helper)
        return
    groups = array.array("Q", (apart.HOME / wire.GROUPS).read_bytes())
    task = int(os.environ["HOSTLER_ARRAY_INDEX"])
    first = settings["only"][task] if settings["only"] else task * chunksize
    end = min(first + chunksize, groups[-2])
    size = wire.PROGRESS_FORM.size
    with open(apart.HOME / wire.PROGRESS, "w+b") as file:
        file.truncate(size)
        progress = mmap.mmap(file.fileno(), size)
    with open(apart.HOME / wire.RESULTS, "wb") as records, progress:
        wire.PROGRESS_FORM.pack_into(progress, 0, first, 0)
        _supervise(end, records, progress)
        apart.prepare(settings)
        try:
            _run(groups, end, records, progress, settings)
        finally:
            apart.clean_up(os.getpid())


def _supervise(end: int, records: IO[bytes], progress: mmap.mmap) -> None:
    """Return in a new process, which runs inputs. If an input ends it, return in another one, for those after it.

    This process ends with the exit code of the first one that an input has ended.
    """
    code = 0
    told: list[int] = []
    before = {number: signal.signal(number, lambda number, _: told.append(number)) for number in _SIGNALS}
    while True:
        worker = os.fork()
        if worker == 0:
            for number, handler in before.items():
                signal.signal(number, handler)
            return
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        apart.clean_up(worker)
        code = code or (128 - status if status < 0 else status)
        index, size = wire.PROGRESS_FORM.unpack_from(progress)
        if index < end and not told:
            # The exit code and the message of the task are about one of them.
            how = f"signal {-status}" if status < 0 else f"exit code {status}"
            print(f"hostler: input {index} ended its process with {how}", file=sys.stderr)
        if index + 1 >= end or told:
            os._exit(code)
        # It may have written a part of another record.
        records.truncate(size)
        records.seek(size)
        wire.PROGRESS_FORM.pack_into(progress, 0, index + 1, size)


def _run(groups: array.array[int], end: int, records: IO[bytes], progress: mmap.mmap, settings: wire.Settings) -> None:
    """Run the inputs that have not run."""
    file = apart.HOME / wire.FUNCTION
    values = {place: base64.b64decode(content) for place, content in settings["state"].items()}
    load: Callable[[], Callable[[Any], Any]]
    if file.stat().st_size <= FRESH_BYTES:
        load = functools.partial(_function, file.read_bytes(), values)
    else:
        # The pickle does not stay in memory.
        load = functools.cache(lambda: _function(file.read_bytes(), values))
    first, _ = wire.PROGRESS_FORM.unpack_from(progress)
    for index, load_input in _inputs(groups, first, end - first):
        wire.PROGRESS_FORM.pack_into(progress, 0, index, records.tell())
        call = functools.partial(_call, load, load_input)
        records.write(wire.record(index, functools.partial(apart.run, call), settings["trusted"]))
        records.flush()
    wire.PROGRESS_FORM.pack_into(progress, 0, end, records.tell())


def _function(content: bytes, values: dict[str, bytes]) -> Callable[[Any], Any]:
    pickling.forget()
    state.receive(values)
    function: Callable[[Any], Any] = pickle.loads(content)
    return function


def _inputs(groups: array.array[int], first: int, count: int) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Yield inputs, and functions that load them: nothing keeps a large input while the function runs."""
    firsts, offsets = groups[::2], groups[1::2]
    with open(apart.HOME / wire.INPUTS, "rb") as file:
        for group in range(bisect.bisect_right(firsts, first) - 1, len(firsts) - 1):
            start, end = firsts[group], firsts[group + 1]
            if start >= first + count:
                return
            file.seek(offsets[group])
            size = offsets[group + 1] - offsets[group]
            if end - start == 1:
                yield start, functools.partial(_read, file, size)
                continue
            inputs = _read(file, size)
            for index in range(max(start, first), min(end, first + count)):
                yield index, functools.partial(inputs.__getitem__, index - start)


def _read(file: IO[bytes], size: int) -> Any:
    return pickle.loads(file.read(size))


def _call(load: Callable[[], Callable[[Any], Any]], load_input: Callable[[], Any]) -> Any:
    return load()(load_input())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)
