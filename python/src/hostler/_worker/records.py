"""Reads the records of results; `hostler._worker.wire` writes them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from hostler._worker import wire
from hostler.errors import RemoteError, RemoteTraceback


@dataclass(frozen=True)
class Outcome:
    """What became of one input."""

    index: int
    value: Any = None
    error: BaseException | None = None
    #: Whether the function may have been called.
    has_begun: bool = True


def is_header(header: wire.Header, size: int) -> bool:
    """Whether this has the fields of a header of a record in a file of `size` bytes."""
    return (
        type(header["input"]) is type(header["bytes"]) is int
        and 0 <= header["bytes"] <= size
        and isinstance(header["kind"], str)
        and isinstance(header["error"], str)
        and isinstance(header["traceback"], str)
    )


def outcome_of(header: wire.Header, content: bytes, trusted: bool) -> Outcome:
    """Return what a record says."""
    index = header["input"]
    if header["kind"] == "error":
        failure = wire.Failure(header["error"], header["traceback"], content if trusted else b"")
        return Outcome(index, error=recreated(failure))
    try:
        return Outcome(index, value=wire.load(content, trusted))
    except BaseException as error:
        _stop_if_interrupted(error)
        failed = RemoteError(f"the result of input {index} cannot be read here: {wire.described(error)}", "remote")
        failed.__cause__ = error
        return Outcome(index, error=failed)


def recreated(failure: wire.Failure) -> BaseException:
    """Return the exception of a task, whose pickle may be missing, with its traceback as the cause."""
    error: BaseException | None = None
    if failure.content:
        try:
            found = wire.load(failure.content, True)
            error = found if isinstance(found, BaseException) else None
        except BaseException as raised:
            # Its class may exist only on the node.
            _stop_if_interrupted(raised)
    if error is None:
        error = RemoteError(failure.text, "remote")
    error.__cause__ = RemoteTraceback(failure.traceback)
    return error


def _stop_if_interrupted(error: BaseException) -> None:
    """Raise it again if it can be the user's Ctrl-C. Anything else that a result calls here may not end this thread."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
