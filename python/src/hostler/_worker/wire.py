"""What passes between a caller and its tasks: the files of a map's folder, settings, and the records of results.

A record is a line of JSON, followed by as many bytes as the line says: the pickled or JSON result, or the pickled
exception. Each record is written at once, so that the results of a task that is killed are not lost.
"""

from __future__ import annotations

import json
import pickle
import struct
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from hostler._worker import pickling

#: Files of the project folder; see `hostler._worker.project`.
SETTINGS = "settings.json"
FUNCTION = "function.pickle"
INPUTS = "inputs.pickle"
GROUPS = "inputs.groups"
RESULTS = "results"
PROGRESS = "progress"
MODULES = "modules"

#: What is in the file `PROGRESS`: the input that runs, and the size of the file with the records of those before it.
PROGRESS_FORM = struct.Struct("QQ")

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
    #: `sys.argv` of the caller.
    argv: list[str]
    #: Texts of the files of the caller's functions, by their names, for tracebacks and `inspect.getsource`.
    texts: dict[str, str]
    #: Inputs per array task; None if the task waits for calls (see `hostler._worker.server`).
    chunksize: int | None
    #: Inputs to run, one for each task; none for all of them.
    only: list[int]
    #: Whether results are pickled; otherwise they are JSON.
    trusted: bool
    #: Whether the task is a process of the caller's machine, which ends with the caller.
    local: bool
    #: What the caller has set in its modules, in base 64; see `hostler._worker.state`.
    state: dict[str, str]
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


@dataclass(frozen=True)
class Failure:
    """An exception as it travels: class and text, traceback, and the exception as a pickle, or nothing."""

    text: str
    traceback: str
    content: bytes


def failure(error: BaseException) -> Failure:
    """Return an exception as it travels."""
    return Failure(described(error), formatted(error), packed_error(error))


def load(content: bytes, trusted: bool) -> Any:
    """Return a result of a task."""
    return pickle.loads(content) if trusted else json.loads(content)


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
        is_flat = type(value) in _FLAT
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL) if is_flat else pickling.dumps_back(value)
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
        content = pickling.dumps_back(error)
        pickle.loads(content)
    except BaseException:
        return b""
    return content
