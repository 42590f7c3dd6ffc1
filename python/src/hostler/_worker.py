"""What runs on a node: calls a function with the inputs of one array task, and records what it returns.

A record is a line of JSON, followed by as many bytes as the line says: the pickled or JSON result, or the pickled
exception. Each record is written at once, so that the results of a task that is killed are not lost.
"""

from __future__ import annotations

import array
import bisect
import functools
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypedDict

import cloudpickle

#: Files of the project folder; see `hostler._project`.
SETTINGS = "settings.json"
FUNCTION = "function.pickle"
INPUTS = "inputs.pickle"
GROUPS = "inputs.groups"
RESULTS = "results"


# Most characters of the text of an exception, and of its traceback. With these, a header has less than 1 MiB.
_MOST_CHARACTERS = 40_000


# The record of a value: a `Header` as JSON, and the value.
_VALUE = b'{"input": %d, "kind": "value", "bytes": %d, "error": "", "traceback": ""}\n%b'

# Values of these types contain no others.
_FLAT = frozenset({bool, bytes, complex, float, int, str, type(None)})


class Settings(TypedDict):
    """How a task runs."""

    #: Version of the caller's Python.
    python: list[int]
    #: Inputs per array task; None if the task waits for calls (see `hostler._server`).
    chunksize: int | None
    #: Whether results are pickled; otherwise they are JSON.
    trusted: bool
    #: Whether the task is a process of the caller's machine, which ends with the caller.
    local: bool
    #: What the caller's executor asks for: address of the head, environment and options, except for variables.
    asks: list[Any]


class Header(TypedDict):
    """The line before a result."""

    #: Index of the input among all inputs.
    input: int
    #: ``value``, or ``error`` for an exception.
    kind: str
    #: Number of bytes that follow. An exception that cannot be pickled has none.
    bytes: int
    #: Class and text of an exception, and its traceback.
    error: str
    traceback: str


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
        from hostler._server import serve

        serve(settings, is_helper=sys.argv[1:] == ["helper"])
        return
    task = int(os.environ["HOSTLER_ARRAY_INDEX"])
    with open(RESULTS, "wb") as records:
        for index, load_input in _inputs(task * chunksize, chunksize):
            records.write(record(index, functools.partial(_call, load_input), settings["trusted"]))
            records.flush()


def load(content: bytes, trusted: bool) -> Any:
    """Return a result of a task."""
    return pickle.loads(content) if trusted else json.loads(content)


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


def record(index: int, call: Callable[[], Any], trusted: bool) -> bytes:
    """Call a function, and return the record of its result or exception."""
    try:
        content = _packed(call(), trusted)
    # As in concurrent.futures, also SystemExit and KeyboardInterrupt belong to the caller.
    except BaseException as error:
        content = packed_error(error) if trusted else b""
        header = Header(
            input=index,
            kind="error",
            bytes=len(content),
            error=described(error)[:_MOST_CHARACTERS],
            traceback=formatted(error)[-_MOST_CHARACTERS:],
        )
        return json.dumps(header).encode() + b"\n" + content
    return _VALUE % (index, len(content), content)


def _packed(value: object, trusted: bool) -> bytes:
    try:
        if not trusted:
            return json.dumps(value).encode()
        # Many functions return numbers, and take less time than cloudpickle.
        return bytes((pickle if type(value) in _FLAT else cloudpickle).dumps(value, pickle.HIGHEST_PROTOCOL))
    except Exception as error:
        form = "pickled" if trusted else "written as JSON"
        raise pickle.PicklingError(f"the result, a {type(value).__qualname__}, cannot be {form}: {error}") from error


def described(error: BaseException) -> str:
    """Return class and text of an exception."""
    try:
        text = str(error)
    except Exception:
        text = "<its text cannot be read>"
    return f"{type(error).__module__}.{type(error).__qualname__}: {text}".removeprefix("builtins.")


def formatted(error: BaseException) -> str:
    """Return the traceback of an exception."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def packed_error(error: BaseException) -> bytes:
    """Pickle an exception if it survives that, which classes with other constructors do not."""
    try:
        content: bytes = cloudpickle.dumps(error)
        pickle.loads(content)
    except BaseException:
        return b""
    return content


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)
