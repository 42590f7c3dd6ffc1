"""What passes between an `Executor` and its workers; see `hostler._worker.server`."""

from __future__ import annotations

import json
import struct

from hostler._worker import wire

#: Number, results that the caller has, and bytes that follow.
FRAME = struct.Struct("<qQQ")

#: Numbers from here on are those of calls that run in a process of their own, beside those that wait for others.
BESIDE = 1 << 62

#: Commands: nothing but the number of results; give back calls that have not begun; end; take the record of a call
#: that was submitted here.
RECEIVED = -1
RECALL = -2
END = -3
REPLY = -4

#: A piece that calls refer to: its hash, and the content; and one that none refers to any more. Those of a connection
#: end with it.
PART = -5
DROP = -6
#: Bytes of a hash.
DIGEST = 32

#: The kind of a record for a call that has not begun and is given back, and for one whose process has died.
RETURNED = "returned"
LOST = "lost"

#: Kinds of records with the number of a call that was submitted here: the number of the call that has submitted it, and
#: the pickled call; cancel it; its record has arrived.
SUBMITTED = "submitted"
CANCEL = "cancel"
KNOWN = "known"
NUMBER = struct.Struct("<q")

#: Kinds of such records from the caller: the call was cancelled; it cannot be cancelled any more.
CANCELLED = "cancelled"
GOES_ON = "goes on"


def packed(number: int, kind: str, content: bytes = b"", error: str = "", traceback: str = "") -> bytes:
    """Return a record."""
    header = wire.Header(input=number, kind=kind, bytes=len(content), error=error, traceback=traceback)
    return json.dumps(header).encode() + b"\n" + content
