"""The calls of an `Executor`, and their futures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hostler._worker.parts import Work

R = TypeVar("R")

# What errors show of the arguments of a call.
_SHOWN = 4
_SHOWN_CHARACTERS = 40
_NUMBERS = (bool, int, float, type(None))


class Future(concurrent.futures.Future[R]):
    """The future of a call. Those who wait for it learn at once that it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._changing = threading.RLock()

    def cancel(self) -> bool:
        """Cancel the call unless a worker has it."""
        with self._changing:
            if not self.cancelled():
                if not super().cancel():
                    return False
                self.set_running_or_notify_cancel()
            return True

    def start(self) -> bool:
        """Mark the future as running. Return False if it is cancelled."""
        with self._changing:
            return not self.cancelled() and (self.running() or self.set_running_or_notify_cancel())

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result, unless the future is cancelled."""
        if not self.start():
            return
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


@dataclass(eq=False)
class Call:
    """A pickled call and its future."""

    work: Work
    future: Future[Any]
    #: How errors name it.
    name: str = ""
    #: How many calls wait for it: one that another call has submitted has one more than that. The result of such a call
    #: is its record, which nothing unpickles here.
    depth: int = 0
    #: Its place among the waiting calls: the deepest first, so that few calls wait for others at the same time.
    order: tuple[int, int] = (0, 0)
    #: Calls that it has submitted and that have not ended, by their ids.
    children: dict[int, Call] = field(default_factory=dict)
    #: The call that has submitted it.
    parent: Call | None = None
    #: Whether it was lost with a worker that died because of another call. It runs again, beside no other call, once.
    is_alone: bool = False

    @property
    def what(self) -> str:
        """What an error says that it has failed with."""
        return f"the call {self.name} has no result" if self.name else "the call has no result"

    def belongs_to(self, other: Call) -> bool:
        """Whether another call, or one that it has submitted and so on, has submitted this one; or it is the same."""
        call: Call | None = self
        while call is not None and call is not other:
            call = call.parent
        return call is other

    def may_share(self, others: Iterable[Call]) -> bool:
        """Whether it may run in the same worker as others."""
        return all(
            not (self.is_alone or other.is_alone) or self.belongs_to(other) or other.belongs_to(self)
            for other in others
        )

    def abandon(self) -> int:
        """Cancel what it has submitted and no worker has, and return the number. Nobody could take the results."""
        return sum(not child.future.done() and child.future.cancel() for child in tuple(self.children.values()))


def named(function: Any, arguments: tuple[Any, ...]) -> str:
    """Return how errors name a call: the function, and arguments that are short."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name}({', '.join(_shown(argument) for argument in arguments[:_SHOWN])})"


def _shown(argument: Any) -> str:
    is_short = type(argument) in _NUMBERS or (type(argument) in (bytes, str) and len(argument) <= _SHOWN_CHARACTERS)
    return repr(argument) if is_short else "…"


def fail(calls: Iterable[Call], error: BaseException) -> None:
    """Fail calls that have no result."""
    for call in calls:
        call.abandon()
        # What a callback of the caller raises may not keep others from learning of it.
        with contextlib.suppress(BaseException):
            call.future.settle(error=error)
