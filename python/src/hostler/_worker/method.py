"""What `hostler.delegate` runs on a node: one call of a method."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass

from hostler._worker import apart, pickling, wire


@dataclass(frozen=True)
class Call:
    """A call of a method.

    Attributes
    ----------
    target : bytes
        The pickled object, arguments and keyword arguments.
    method : str
    directory : str or None
        Working directory.
    """

    target: bytes
    method: str
    directory: str | None


@dataclass(frozen=True)
class Done:
    """What became of a call.

    Attributes
    ----------
    values : bytes
        The result and the object, pickled together, because they may share objects.
    failure : wire.Failure or None
        Its exception.
    """

    values: bytes
    failure: wire.Failure | None


def run(call: Call) -> Done:
    """Call the method. Its exception is part of what is returned."""
    target, arguments, keywords = pickle.loads(call.target)
    if call.directory:
        os.chdir(call.directory)
    result, raised = apart.outcome(lambda: getattr(target, call.method)(*arguments, **keywords))
    return Done(_packed(result, target), wire.failure(raised) if raised else None)


def _packed(result: object, target: object) -> bytes:
    try:
        return pickling.dumps_back((result, target))
    except Exception:
        from hostler._worker import project

        for what, value in (
            ("the result", result),
            *((f"the attribute `{name}`", it) for name, it in getattr(target, "__dict__", {}).items()),
        ):
            project.dumps(f"{what} of the call", value)
        raise
