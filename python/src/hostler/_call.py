"""The calls of an `Executor`, and their futures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

R = TypeVar("R")


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


@dataclass(frozen=True)
class Call:
    """A pickled call and its future."""

    work: bytes
    future: Future[Any]


def fail(calls: Iterable[Call], error: BaseException) -> None:
    """Fail calls that have no result."""
    for call in calls:
        # What a callback of the caller raises may not keep others from learning of it.
        with contextlib.suppress(BaseException):
            call.future.settle(error=error)
