"""What runs on a node: calls a function with the inputs of one array task, and records what it returns."""

from __future__ import annotations

import array
import bisect
import functools
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from hostler._worker.wire import FUNCTION, GROUPS, INPUTS, RESULTS, SETTINGS, Settings, record


def main() -> None:
    """Run the array task that the environment names."""
    settings: Settings = json.loads(Path(SETTINGS).read_text(encoding="utf-8"))
    wanted, own = tuple(settings["python"]), tuple(sys.version_info[:3])
    if own[:2] != wanted[:2]:
        sys.exit(f"this node runs Python {_dotted(own)}, but the function was pickled with {_dotted(wanted)}")
    if own != wanted:
        print(f"hostler: warning: Python {_dotted(own)} instead of {_dotted(wanted)}", file=sys.stderr)
    chunksize = settings["chunksize"]
    if chunksize is None:
        from hostler._worker.server import serve

        serve(settings, is_helper=sys.argv[1:] == ["helper"])
        return
    task = int(os.environ["HOSTLER_ARRAY_INDEX"])
    with open(RESULTS, "wb") as records:
        for index, load_input in _inputs(task * chunksize, chunksize):
            records.write(record(index, functools.partial(_call, load_input), settings["trusted"]))
            records.flush()


@functools.cache
def _function() -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = pickle.loads(Path(FUNCTION).read_bytes())
    return function


def _inputs(first: int, count: int) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Yield inputs, and functions that load them: nothing keeps a large input while the function runs."""
    groups = array.array("Q", Path(GROUPS).read_bytes())
    firsts, offsets = groups[::2], groups[1::2]
    with open(INPUTS, "rb") as file:
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


def _call(load_input: Callable[[], Any]) -> Any:
    return _function()(load_input())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)
