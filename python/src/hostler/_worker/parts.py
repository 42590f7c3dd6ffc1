"""Calls of an `Executor` in pieces: what many calls have in common is kept once, and sent once to each worker.

A call is the pickled function and arguments. If these are large, function and arguments are pieces of their own, and so
are the contents of arrays. A large piece that comes a second time is a `Part`: calls refer to it by a hash of its
content, so it does not matter whether it is the same object. The first one travels within its call, because a worker
has to keep parts in memory while their function runs. A worker maps large parts into each call instead of copying them.
"""

from __future__ import annotations

import collections
import hashlib
import io
import mmap
import os
import pickle
import threading
import weakref
from collections.abc import Mapping
from typing import IO, Any

from hostler._worker import pickling, state

# Smaller pieces travel within their calls.
_LARGE = 1 << 16

# Parts from this size on are mapped. Each takes a file descriptor of the worker.
_MAPPED = 8 << 20

# Hashes of large pieces that were seen.
_MOST_SEEN = 4096

# Parts that no call needs any more are kept for the next one, up to so many bytes of the latest.
_KEPT_BYTES = 256 << 20

# What a call in pieces begins with. A pickle begins with another byte.
_IN_PIECES = b"P"

#: A part at a worker: its content, or a file with it.
Kept = bytes | IO[bytes]

# Pieces of the pickle, of the arrays, and what is set in modules. A piece is its content, or the hash of a part.
_Piece = bytes | bytearray | pickle.PickleBuffer | str
_Call = tuple[list[_Piece], list[tuple[_Piece, bool]], Mapping[str, bytes] | None]


class Part:
    """A piece that several calls have."""

    __slots__ = ("__weakref__", "content", "digest")

    def __init__(self, digest: str, content: bytes) -> None:
        self.digest = digest
        self.content = content


class Work:
    """A pickled call.

    Attributes
    ----------
    head : bytes
        All of it but the parts.
    parts : tuple of Part
    """

    __slots__ = ("head", "parts")

    def __init__(self, head: bytes, parts: tuple[Part, ...] = ()) -> None:
        self.head = head
        self.parts = parts


class Store:
    """The parts of an executor's calls."""

    def __init__(self) -> None:
        self._seen: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._parts: weakref.WeakValueDictionary[str, Part] = weakref.WeakValueDictionary()
        self._kept: collections.OrderedDict[str, Part] = collections.OrderedDict()
        # The latest one of each size.
        self._latest: weakref.WeakValueDictionary[int, Part] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def part(self, content: bytes | memoryview) -> Part | None:
        """Return the part with this content; None if it was not seen before."""
        with self._lock:
            latest = self._latest.get(len(content))
        # To compare takes an eighth of the time of a hash.
        is_latest = latest is not None and latest.content.startswith(content)
        digest = latest.digest if latest and is_latest else hashlib.sha256(content).hexdigest()
        with self._lock:
            is_new = digest not in self._seen
            self._seen[digest] = None
            self._seen.move_to_end(digest)
            if len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)
            if is_new:
                return None
            part = self._parts.get(digest)
            if part is None:
                part = self._parts[digest] = Part(digest, bytes(content))
            self._latest[len(content)] = part
            self._keep(part)
            return part

    def _keep(self, part: Part) -> None:
        self._kept[part.digest] = part
        self._kept.move_to_end(part.digest)
        size = sum(len(kept.content) for kept in self._kept.values())
        while size > _KEPT_BYTES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            size -= len(dropped.content)


def packed(call: tuple[Any, Any, Any], store: Store | None, values: Mapping[str, bytes] | None) -> Work:
    """Pickle a call.

    Parameters
    ----------
    call
        Function, arguments and keyword arguments.
    store
        The parts of the executor. Without them, the call has none.
    values
        What the program has set in modules; None if the worker may leave them as they are.
    """
    if store is None:
        return _in_pieces([pickling.dumps(call)], [], values)
    buffers: list[pickle.PickleBuffer] = []
    (whole,) = _dumped([call], buffers)
    pieces: list[bytes | memoryview | Part] = [whole]
    if len(whole) > _LARGE:
        function, arguments, keywords = call
        del whole
        buffers.clear()
        pieces = [
            store.part(it) or it if len(it) > _LARGE else it
            for it in _dumped([function, *arguments, keywords], buffers)
        ]
    raws = [buffer.raw() for buffer in buffers]
    arrays = [(store.part(raw) or pickle.PickleBuffer(raw), not raw.readonly) for raw in raws]
    return _in_pieces(pieces, arrays, values)


def _dumped(values: list[Any], buffers: list[pickle.PickleBuffer]) -> list[bytes]:
    """Pickle values one after another; what they share is the same object there as well."""

    def is_inside(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as raw:
            is_small = raw.nbytes <= _LARGE
        if not is_small:
            buffers.append(buffer)
        return is_small

    file = io.BytesIO()
    writer = pickling.pickler(file, is_inside)
    found = []
    for value in values:
        writer.dump(value)
        found.append(file.getvalue())
        file.seek(0)
        file.truncate()
    return found


def _in_pieces(pieces: list[Any], arrays: list[tuple[Any, bool]], values: Mapping[str, bytes] | None) -> Work:
    if len(pieces) == 1 and isinstance(pieces[0], bytes) and not arrays and values is None:
        return Work(pieces[0])
    parts = [it for it in (*pieces, *(array for array, _ in arrays)) if isinstance(it, Part)]

    def named(piece: Any) -> _Piece:
        return piece.digest if isinstance(piece, Part) else piece

    call: _Call = ([named(it) for it in pieces], [(named(it), is_writable) for it, is_writable in arrays], values)
    return Work(_dumped_pieces(call), tuple(dict.fromkeys(parts)))


def _dumped_pieces(call: _Call) -> bytes:
    file = io.BytesIO()
    file.write(_IN_PIECES)
    pickle.dump(call, file, pickle.HIGHEST_PROTOCOL)
    return file.getvalue()


def kept(content: memoryview) -> Kept:
    """Return a part that has arrived, for `completed`."""
    if len(content) < _MAPPED:
        return bytes(content)
    file = os.fdopen(os.memfd_create("hostler-part"), "w+b")
    file.write(content)
    file.flush()
    return file


def completed(head: bytes, parts: Mapping[str, Kept]) -> list[Any]:
    """Return a call that has arrived, with its parts, in a list that `taken` empties."""
    if not head.startswith(_IN_PIECES):
        return [head]
    pieces, arrays, values = pickle.loads(memoryview(head)[1:])

    def found(piece: _Piece) -> Any:
        part = parts[piece] if isinstance(piece, str) else piece
        # What a call changes, only that call sees.
        return mmap.mmap(part.fileno(), 0, mmap.MAP_PRIVATE) if isinstance(part, io.IOBase) else part

    return [([found(it) for it in pieces], [(found(it), is_writable) for it, is_writable in arrays], values)]


def joined(call: list[Any]) -> bytes:
    """Return a call that has arrived as one that has no parts."""
    if isinstance(call[0], bytes):
        return call[0]
    pieces, arrays, values = call[0]
    return _dumped_pieces(
        ([bytes(it) for it in pieces], [(bytes(it), is_writable) for it, is_writable in arrays], values)
    )


def taken(call: list[Any]) -> tuple[Any, Any, Any]:
    """Unpickle a call that has arrived, and set what it sets in modules. Nothing keeps its pickled form."""
    content = call.pop()
    if isinstance(content, bytes):
        function, arguments, keywords = pickle.loads(content)
        return function, arguments, keywords
    pieces, arrays, values = content
    del content
    if values is not None:
        state.receive(values)
    # As at the caller, arrays can be written to, and no other call sees that.
    buffers = [_of_call(array) if is_writable else memoryview(array).toreadonly() for array, is_writable in arrays]
    arrays.clear()
    if len(pieces) == 1:
        function, arguments, keywords = pickle.loads(pieces.pop(), buffers=buffers)
        return function, arguments, keywords
    file = io.BytesIO(b"".join(pieces))
    count = len(pieces)
    pieces.clear()
    unpickler = pickle.Unpickler(file, buffers=buffers)
    function, *arguments, keywords = [unpickler.load() for _ in range(count)]
    return function, tuple(arguments), keywords


def _of_call(array: Any) -> Any:
    """Return an array to which only one call writes."""
    return bytearray(array) if isinstance(array, bytes) else array
