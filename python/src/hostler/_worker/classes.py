"""How classes of the main program are created on nodes: without what the program runs when it creates them.

What `__init_subclass__` or a metaclass has done is among the attributes of the class and of others, which travel too.
Members of an enumeration have what they have here: a class with `__new__` or `__init__`, or with a data type such as
`str`, does not have what its members were made from.
"""

from __future__ import annotations

import contextlib
import enum
import os
import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any

# What creates members here, and is in the class only while it is created.
_TEMPORARY = ("__init__", "__new_member__", "__reduce_ex__")

# Held while hooks are replaced.
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def create(meta: Any, name: str, bases: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
    """Create a class. The rest of its attributes are set afterwards."""
    resolved = types.resolve_bases(bases)
    own = {} if resolved is bases else {"__orig_bases__": bases}
    first = next(kind for kind in meta.__mro__ if kind.__module__ != "__main__")
    body = first.__prepare__(name, resolved)
    body.update({**attributes, **own})
    with _without_hooks(resolved):
        found = first.__new__(meta, name, resolved, body)
        first.__init__(found, name, resolved, body)
    return found


@contextlib.contextmanager
def _without_hooks(bases: tuple[Any, ...]) -> Iterator[None]:
    """Let no class of the main program run its `__init_subclass__`."""
    kinds = {kind for base in bases for kind in base.__mro__ if kind.__module__ == "__main__"}
    with _lock:
        hooks = {kind: vars(kind)["__init_subclass__"] for kind in kinds if "__init_subclass__" in vars(kind)}
        for kind in hooks:
            type.__setattr__(kind, "__init_subclass__", classmethod(lambda kind, **_: None))
        try:
            yield
        finally:
            for kind, hook in hooks.items():
                type.__setattr__(kind, "__init_subclass__", hook)


def described(kind: Any) -> dict[str, tuple[tuple[Any, ...] | None, Any]]:
    """Return the data and the value of each member, also of those that are other names for one."""
    return {name: (_data(member, kind._member_type_), member._value_) for name, member in kind.__members__.items()}


def _data(member: Any, kind: Any) -> tuple[Any, ...] | None:
    """Return the arguments that give an object of the data type; None if it has no data but attributes."""
    if kind.__new__ is object.__new__:
        return None
    if hasattr(kind, "__getnewargs__"):
        found: tuple[Any, ...] = kind.__getnewargs__(member)
        return found
    arguments: tuple[Any, ...] = kind.__reduce__(member)[1]
    return arguments


def boundary(kind: Any) -> Any:
    """Return what a class of flags does with other bits; None for other classes, and before Python 3.11."""
    return vars(kind).get("_boundary_") if issubclass(kind, enum.Flag) else None


def create_enum(
    bases: tuple[type, ...],
    name: str,
    qualname: str,
    members: Mapping[str, tuple[tuple[Any, ...] | None, Any]],
    module: str,
    boundary: Any,
) -> Any:
    """Create a class with these members. Their attributes, and its own, are set afterwards."""
    descriptions = list(members.values())

    def make(kind: Any, number: int) -> Any:
        data, value = descriptions[number]
        made = object.__new__(kind) if data is None else kind._member_type_.__new__(kind, *data)
        made._value_ = value
        return made

    meta: Any = type(bases[-1])
    keywords = {} if boundary is None else {"boundary": boundary}
    body = meta.__prepare__(name, bases, **keywords)
    body.update({"__module__": module, "__qualname__": qualname, "__reduce_ex__": enum.Enum.__reduce_ex__})
    if members:
        body.update({"__new__": make, "__init__": lambda *_: None})
    for number, member in enumerate(members):
        body[member] = number
    found = meta.__new__(meta, name, bases, body, **keywords)
    for attribute in _TEMPORARY:
        if attribute in vars(found):
            delattr(found, attribute)
    return found
