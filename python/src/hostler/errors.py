"""Exceptions. Each says what happened, and has hints on what to do."""

from __future__ import annotations

import pickle
import re

# Nodes write parts of the messages, and terminals show them. As in the output of ``hostler``, control characters and
# marks that change the direction of text are escaped; line breaks and tabs are not.
_DECEPTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text that only shows characters on a terminal, whoever wrote it."""
    return _DECEPTIVE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class HostlerError(Exception):
    """Base class of all exceptions of this package.

    Parameters
    ----------
    message
        What happened and why.
    code
        Kind of error, for programs: ``failed``, ``usage``, ``unreachable``, ``refused``, ``mismatch``, ``executable``,
        ``job_failed``, ``pickling`` or ``remote``. If the head refused a request: the code of its answer, such as
        ``no_such_job`` or ``never_fits``.
    hints
        What to do, one hint per item.

    Attributes
    ----------
    message : str
    code : str
    hints : tuple of str
    """

    def __init__(self, message: str, code: str = "failed", hints: tuple[str, ...] = ()) -> None:
        message, hints = printable(message), tuple(printable(hint) for hint in hints)
        super().__init__(message, code, hints)
        self.message = message
        self.code = code
        self.hints = hints

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"hint: {hint}" for hint in self.hints)])


class UsageError(HostlerError):
    """An argument or the configuration is invalid. Nothing was done."""


class UnreachableError(HostlerError):
    """No cluster is running, or the head cannot be reached."""


class RefusedError(HostlerError):
    """The head refused the request, e.g. because no node can ever run the job."""


class MismatchError(HostlerError):
    """The package, the executable and the head have different versions, or the server is not a trusted head."""


class ExecutableError(HostlerError):
    """The executable ``hostler`` does not exist or does not work."""


class JobFailedError(HostlerError):
    """A job or an array task ended without completing."""


class PicklingError(HostlerError, pickle.PicklingError):
    """A function, an input or a result cannot be pickled."""


class RemoteError(HostlerError):
    """A function raised an exception on a node that cannot be recreated here.

    The message has the class and the text of the original exception; ``__cause__`` has its traceback.
    """


class RemoteTraceback(Exception):
    """The traceback of an exception on a node, as the cause of that exception here."""

    def __init__(self, text: str) -> None:
        self.text = printable(text)
        super().__init__(self.text)

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
