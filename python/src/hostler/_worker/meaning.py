"""What a map with a key stands for: digests of names, code and values, without what differs from run to run.

Line numbers and names of files, comments, the order of sets, the identity of equal texts and the ids of classes have no
part in it.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import pickle
import types
import typing
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
from cloudpickle import cloudpickle as by_value

from hostler._worker import pickling

# Bytes of a digest.
_BYTES = 16

# What Python itself stores in classes, and about the lines of code. `dataclass` writes sets into docstrings, in
# any order.
_INCIDENTAL = (
    "__doc__",
    "__firstlineno__",
    "__static_attributes__",
    "_abc_impl",
    "__annotate_func__",
    "__annotations_cache__",
)
_INCIDENTAL_OF_CODE = ("co_firstlineno", "co_linetable", "co_lnotab", "co_filename", "co_stacksize", "co_nlocals")


# The one that is written in Python, whose methods can be replaced.
_Base: Any = pickle._Pickler  # type: ignore[attr-defined,unused-ignore]


class _Pickler(_Base):  # type: ignore[misc]
    """Pickles values in a form that is only compared."""

    dispatch: ClassVar[dict[type, Any]] = dict(_Base.dispatch)
    dispatch_table = cloudpickle.Pickler.dispatch_table

    def memoize(self, obj: object) -> None:
        # Equal texts may be one object or several.
        if not isinstance(obj, (str, bytes)):
            super().memoize(obj)

    def save_set(self, obj: set[Any] | frozenset[Any]) -> None:
        """Save the elements in the order of their digests."""
        self.save((type(obj).__name__, sorted(of(item) for item in obj)))

    dispatch[set] = dispatch[frozenset] = save_set

    def reducer_override(self, obj: Any) -> Any:
        """Return what stands for an object."""
        if isinstance(obj, types.CodeType):
            names = sorted(name for name in dir(obj) if name.startswith("co_") and name not in _INCIDENTAL_OF_CODE)
            return str, tuple(getattr(obj, name) for name in names if not callable(getattr(obj, name)))
        if isinstance(obj, types.FunctionType):
            if by_value._should_pickle_by_reference(obj):
                return NotImplemented
            return str, (obj.__module__, obj.__code__), by_value._function_getstate(obj)
        if issubclass(type(obj), type):
            return self._class(obj)
        if type(obj) is pickling.Cached:
            return str, (obj.cache_parameters(),), obj.__wrapped__
        if pickling.is_sentinel(obj) and (place := pickling.place_of(obj)):
            return str, place
        if isinstance(obj, typing.TypeVar):
            # Without the id.
            return str, by_value._typevar_reduce(obj)[1][:5]
        return pickling.reduced(obj) or NotImplemented

    def _class(self, kind: type) -> Any:
        reduced = by_value._class_reduce(kind)
        if reduced is NotImplemented or len(reduced) == 2:
            return reduced
        make, arguments, (attributes, _), *_ = reduced
        kept = {
            name: value
            for name, value in attributes.items()
            if name not in _INCIDENTAL and type(value) is not types.MemberDescriptorType
        }
        # Without the id.
        return str, (kind.__module__, kind.__qualname__, make.__name__, *arguments[:-2]), kept


def of(value: object) -> str:
    """Return the digest of a value."""
    file = io.BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except RecursionError:
        # This one is written in Python, and needs more of the stack.
        return _digest(pickling.dumps(value))
    return _digest(file.getvalue())


class Values:
    """The digest of many values, one after another."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=_BYTES)

    def add(self, content: bytes) -> None:
        """Add a value in pickled form."""
        self._hash.update(len(content).to_bytes(8, "big") + content)

    def add_value(self, value: object) -> None:
        """Add a value."""
        self.add(of(value).encode())

    def digest(self) -> str:
        """Return the digest."""
        return self._hash.hexdigest()


def of_files(folder: Path) -> str:
    """Return the digest of all files below a folder. Of Python files, only the code counts."""
    values = Values()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.suffix == ".py":
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                content = ast.dump(ast.parse(content)).encode()
        values.add(path.relative_to(folder).as_posix().encode())
        values.add(content)
    return values.digest()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_BYTES).hexdigest()
