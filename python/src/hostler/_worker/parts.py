"""Calls of an `Executor` in pieces: what many calls have in common is kept once, and sent once to each worker.

A call is the pickled function and arguments. If these are large, function and arguments are pieces of their own, and so
are the contents of arrays. A large piece that comes a second time is a `Part`: calls refer to it by a hash of its
content, so it does not matter whether it is the same object. The first one travels within its call, because a worker
has to keep parts in memory while their function runs.
"""

from __future__ import annotations

import collections
import hashlib
import io
import pickle
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from hostler._worker import pickling, state

# Smaller pieces travel within their calls.
_LARGE = 1 << 16

# Hashes of large pieces that were seen.
_MOST_SEEN = 4096

# Parts that no call needs any more are kept for the next one, up to so many bytes of the latest.
_KEPT_BYTES = 256 << 20

# What a call in pieces begins with. A pickle begins with another byte.
_IN_PIECES = b"P"

# Pieces of the pickle, of the arrays, and what is set in modules. A piece is its content, or the hash of a part.
_Piece = bytes | str
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
        self._lock = threading.Lock()

    def part(self, content: bytes | memoryview) -> Part | None:
        """Return the part with this content; None if it was not seen before."""
        digest = hashlib.sha256(content).hexdigest()
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
    arrays = [(store.part(buffer.raw()) or bytes(buffer.raw()), not buffer.raw().readonly) for buffer in buffers]
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
        return piece.digest if isinstance(piece, Part) else bytes(piece)

    call: _Call = ([named(it) for it in pieces], [(named(it), is_writable) for it, is_writable in arrays], values)
    return Work(_IN_PIECES + pickle.dumps(call, pickle.HIGHEST_PROTOCOL), tuple(dict.fromkeys(parts)))


def completed(head: bytes, parts: Mapping[str, bytes]) -> list[Any]:
    """Return a call that has arrived, with its parts, in a list that `taken` empties."""
    if not head.startswith(_IN_PIECES):
        return [head]
    pieces, arrays, values = pickle.loads(memoryview(head)[1:])

    def found(piece: _Piece) -> bytes:
        return parts[piece] if isinstance(piece, str) else piece

    return [([found(it) for it in pieces], [(found(it), is_writable) for it, is_writable in arrays], values)]


def joined(call: list[Any]) -> bytes:
    """Return a call that has arrived as one that has no parts."""
    return call[0] if isinstance(call[0], bytes) else _IN_PIECES + pickle.dumps(call[0], pickle.HIGHEST_PROTOCOL)


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
    buffers = [bytearray(array) if is_writable else array for array, is_writable in arrays]
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
