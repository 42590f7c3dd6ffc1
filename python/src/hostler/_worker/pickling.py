"""How functions, classes and values travel to nodes and back.

A call goes to a node through `dumps`, and what becomes of it comes back through `dumps_back`. `pickle` reads both.

- Functions and classes of the caller's main program travel by value. On the node, they are in ``__main__`` under the
  same names, so that other processes find them.
- On the way back, a class or a function of the caller is that of the caller: the one that was sent, or, in another
  process, the one with its name. It is never written to. What does not exist there is created.
- Objects that are compared by identity, such as `dataclasses.MISSING`, travel by name.
"""

from __future__ import annotations

import functools
import importlib
import io
import os
import pickle
import re
import sys
import types
import typing
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import cloudpickle
from cloudpickle import cloudpickle as by_value

from hostler._worker import classes, modules, state

if int(cloudpickle.__version__.partition(".")[0]) < 3:
    raise ImportError(
        f"hostler needs cloudpickle 3 or newer, and {cloudpickle.__file__} is {cloudpickle.__version__}: "
        "`pip install 'cloudpickle>=3'`"
    )

#: The type of functions with `functools.lru_cache`.
Cached = type(functools.lru_cache(len))

# Parameters of types besides `TypeVar`, which cloudpickle can pickle.
_PARAMETERS = tuple(vars(typing)[name] for name in ("ParamSpec", "TypeVarTuple") if name in vars(typing))

_Alias: Any = getattr(typing, "TypeAliasType", None)

# The place of the name of the file among the arguments of `types.CodeType`.
_FILE_NAME = 10

# The main program has the second name in processes that `multiprocessing` starts without a fork.
_MAIN = ("__main__", "__mp_main__")
by_value._PICKLE_BY_VALUE_MODULES.add(_MAIN[1])

_NAME = re.compile(r"[^\W\d]\w*")

# Variables of a module itself.
_OWN = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__", "__builtins__")


class Origin(NamedTuple):
    """Identifies a class or a function in all processes, and says where the caller's program has it, if anywhere."""

    token: str
    module: str | None
    name: str


# Classes and functions that were sent or have arrived; on nodes, the latest copy of a function.
_tokens: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_known: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
# Those that have arrived with a call, and where its caller has them.
_arrived: weakref.WeakKeyDictionary[Any, Origin] = weakref.WeakKeyDictionary()
# Classes and functions that `pickle` is creating from a result.
_new: weakref.WeakSet[Any] = weakref.WeakSet()


def _found(module: str | None, name: str) -> Any:
    """Return what a name in a module leads to; None if there is nothing."""
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _token(value: Any) -> str:
    token = _tokens.get(value)
    if token is None:
        token = _tokens[value] = uuid.uuid4().hex
        _known[token] = value
    return token


def _origin(value: Any) -> Origin:
    module, name = value.__module__, value.__qualname__
    is_named = "<" not in name and _found(module, name) is value
    return Origin(_token(value), module if is_named else None, name)


def _origin_back(value: Any) -> Origin:
    # What was created on a node has no name at the caller, even if there is something with the same one.
    return _arrived.get(value) or Origin(_token(value), None, value.__qualname__)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a call."""

    is_back = False
    origin = staticmethod(_origin)
    #: What travels by value even if it has a place in a module.
    placed: Any = None

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is types.CodeType:
            if not self.is_back:
                modules.note(obj)
            make, found = by_value._code_reduce(obj)
            # cloudpickle gives it another name of its file, which tracebacks show.
            return make, (*found[:_FILE_NAME], obj.co_filename, *found[_FILE_NAME + 1 :])
        if kind is io.TextIOWrapper and obj not in (sys.stdout, sys.stderr):
            # cloudpickle would send what is in it.
            state = "closed" if obj.closed else "open"
            raise TypeError(f"cannot pickle the {state} file {getattr(obj, 'name', 'without a name')!r}")
        if issubclass(kind, type):
            made = by_value._class_reduce(obj)
            return made if made is NotImplemented or len(made) == 2 else self._class(obj, *made)
        if kind is types.CellType:
            contents = by_value._cell_reduce(obj)[1]
            return (types.CellType, (), contents, None, None, _set_cell) if contents else (types.CellType, ())
        if kind is Cached:
            return self._cached(obj)
        if kind.__name__ == "memmap" and not self.is_back and getattr(obj, "mode", None) in ("r", "r+", "w+"):
            # What a function writes would not reach the file.
            return _read_only, (obj.view(kind.__base__), kind)
        if obj is not self.placed and is_sentinel(obj) and (place := place_of(obj)):
            return _at, place
        if obj is self.placed and kind is types.FunctionType and obj.__globals__["__name__"] != obj.__module__:
            # `functools.wraps` has given it the name of what it replaces.
            return self._dynamic_function_reduce(obj)
        return reduced(obj) or super().reducer_override(obj)

    def _class(self, kind: type, make: Any, arguments: Any, values: Any, *rest: Any) -> tuple[Any, ...]:
        attributes = values[0]
        if make is by_value._make_skeleton_class:
            # For an `__init_subclass__` that reads them.
            plain = {name: value for name, value in attributes.items() if state.is_plain(value)}
            keywords = {**plain, **arguments[3], "__qualname__": kind.__qualname__}
            if "__slots__" in attributes:
                slots = attributes.pop("__slots__")
                keywords["__slots__"] = slots if isinstance(slots, (str, dict)) else _slots(kind)
                for name, value in tuple(attributes.items()):
                    # Private names of slots are others than those in the class.
                    if type(value) is types.MemberDescriptorType and value.__objclass__ is kind:
                        del attributes[name]
            # Its fields are among the attributes.
            bases = kind.__bases__ if typing.NamedTuple in arguments[2] else arguments[2]
            make, arguments = classes.create, (*arguments[:2], bases, keywords)
            members = {}
        else:
            members = {name: dict(vars(member)) for name, member in kind.__members__.items()}  # type: ignore[attr-defined]
            make, arguments = (
                classes.create_enum,
                (*arguments[:3], classes.described(kind), arguments[4], classes.boundary(kind)),
            )
            for name in members:
                attributes.pop(name, None)
        create, set_state = (_class_back, _set_new_class) if self.is_back else (_class, _set_class)
        texts = (
            {} if self.is_back else _annotated(attributes.get("__annotations__"), vars(sys.modules[kind.__module__]))
        )
        return create, (self.origin(kind), make, arguments), (values, members, texts), None, None, set_state

    def _dynamic_function_reduce(self, func: types.FunctionType) -> tuple[Any, ...]:
        _, (*arguments, _), state, *_ = super()._dynamic_function_reduce(func)
        # The variables themselves, which other functions may share. cloudpickle would create some for each function.
        arguments.append(func.__closure__)
        state[1]["__closure__"] = None
        state[1]["__globals__"].update(_annotated(func.__annotations__, func.__globals__))
        create, set_state = (function_back, _set_new_function) if self.is_back else (_function, _set_function)
        return create, (self.origin(func), *arguments), state, None, None, set_state

    def _cached(self, obj: Any) -> Any:
        """Pickle a function with `functools.lru_cache`, without what it has stored."""
        function = obj.__wrapped__
        if obj.__module__ != "__main__" and _found(obj.__module__, obj.__qualname__) is obj:
            return NotImplemented
        if not isinstance(function, types.FunctionType) or by_value._should_pickle_by_reference(function):
            return _cached_with, (obj.cache_parameters(), function)
        create, arguments, state, *_, set_state = self._dynamic_function_reduce(function)
        return _cached, (obj.cache_parameters(), create, arguments), (set_state, state), None, None, _set_cached


def _annotated(annotations: Any, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the types that annotations written as texts name, for `typing.get_type_hints`."""
    names = {name for it in (annotations or {}).values() if type(it) is str for name in _NAME.findall(it)}
    if not names:
        return {}
    found = {name: variables[name] for name in names & variables.keys()}
    return {name: it for name, it in sorted(found.items()) if _is_type_of_main(it)}


def _is_type_of_main(value: Any) -> bool:
    is_module = isinstance(value, types.ModuleType)
    module = value.__name__ if is_module else getattr(value, "__module__", None)
    return (is_module or isinstance(value, type) or type(value).__module__ in ("types", "typing")) and (
        module in _MAIN or str(module).partition(".")[0] in sys.stdlib_module_names
    )


def reduced(value: Any) -> tuple[Any, ...] | None:
    """Reduce what neither `pickle` nor `cloudpickle` can pickle, or only by its name."""
    kind = type(value)
    if kind is functools.cached_property:
        # It has a lock before Python 3.12.
        return kind, (value.func,), {"attrname": value.attrname, "__doc__": value.__doc__}
    if kind in (weakref.WeakKeyDictionary, weakref.WeakValueDictionary):
        return kind, (), None, None, iter(list(value.items()))
    if isinstance(value, _of_argparse()):
        return _with_suppress(value)
    if isinstance(value, types.ModuleType) and sys.modules.get(value.__name__) is value:
        # cloudpickle does so for modules of no other class.
        return by_value.subimport, (value.__name__,)
    if isinstance(value, _of_machine(len(sys.modules))):
        raise TypeError(f"cannot pickle {kind.__name__!r} object, which only processes of this machine can share")
    return _of_main(value) if kind.__module__ in ("__main__", "typing") else None


class _BackPickler(_Pickler):
    """Pickles what becomes of a call."""

    is_back = True
    origin = staticmethod(_origin_back)


class _CellPickler(_BackPickler):
    """Pickles what becomes of a cell. Its functions take no variables along: they use those of the notebook."""

    def _dynamic_function_reduce(self, func: types.FunctionType) -> tuple[Any, ...]:
        found = super()._dynamic_function_reduce(func)
        if func.__globals__ is main_variables():
            found[2][1]["__globals__"] = {}
        return found


def pickler(file: Any, buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None) -> Any:
    """Return what pickles one value after another for calls."""
    return _Pickler(file, buffer_callback=buffer_callback)


def dumps(value: object) -> bytes:
    """Pickle a call, or a part of one."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def codes(value: object) -> list[types.CodeType]:
    """Return the code of the functions that travel by value with a value."""
    found: list[types.CodeType] = []

    class Noting(_Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if type(obj) is types.CodeType:
                found.append(obj)
            return super().reducer_override(obj)

    Noting(io.BytesIO()).dump(value)
    return found


def dumps_placed(value: object) -> bytes:
    """Pickle what the program has put into a module, where others are found by their places."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.placed = value
    pickler.dump(value)
    return file.getvalue()


def dumps_back(value: object, kind: type[_BackPickler] = _BackPickler) -> bytes:
    """Pickle what becomes of a call."""
    file = io.BytesIO()
    kind(file).dump(value)
    return file.getvalue()


def dumps_of_cell(value: object) -> bytes:
    """Pickle what becomes of a cell."""
    return dumps_back(value, _CellPickler)


def _slots(kind: type) -> tuple[str, ...]:
    """Return the names of slots, which may have been given by an iterator."""
    found = [name for name, value in vars(kind).items() if type(value) is types.MemberDescriptorType]
    return (*found, *(name for name in ("__dict__", "__weakref__") if name in vars(kind)))


def main_variables() -> dict[str, Any]:
    """Return the variables of the main program."""
    return vars(sys.modules["__main__"])


def main_values() -> dict[str, Any]:
    """Return a copy of the variables of the main program, without those that every module has."""
    return {name: value for name, value in main_variables().items() if name not in _OWN}


def clear_main() -> None:
    """Remove the variables that calls have brought into the main program of a node, which may be large."""
    for name in main_values():
        del main_variables()[name]


def forget() -> None:
    """Remove what calls have brought into this process. The next one creates its classes again."""
    clear_main()
    _known.clear()


def _arrive(value: Any, origin: Origin) -> None:
    _tokens[value] = origin.token
    _known[origin.token] = value
    _arrived[value] = origin
    if origin.module in _MAIN and "." not in origin.name:
        main_variables()[origin.name] = value


def _class(origin: Origin, make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    found = _known.get(origin.token)
    if found is None:
        found = make(*arguments)
    _arrive(found, origin)
    return found


def _class_back(origin: Origin, make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    found = _known.get(origin.token)
    if found is None:
        found = _found(origin.module, origin.name) if origin.module else None
    if not isinstance(found, type):
        found = make(*arguments)
        _tokens[found] = origin.token
        _known[origin.token] = found
        _new.add(found)
    return found


def _set_class(kind: Any, state: Any) -> None:
    of_class, of_members, annotated = state
    main_variables().update(annotated)
    by_value._class_setstate(kind, of_class)
    for name, attributes in of_members.items():
        vars(kind.__members__[name]).update(attributes)


def _set_new_class(kind: Any, state: Any) -> None:
    if kind in _new:
        _new.discard(kind)
        _set_class(kind, state)


def _function(origin: Origin, code: types.CodeType, variables: dict[str, Any], *rest: Any) -> types.FunctionType:
    if variables.get("__name__") in _MAIN:
        main = main_variables()
        main.update(variables)
        variables = main
    known = _known.get(origin.token)
    if known is not None and known.__closure__ and known.__closure__ is rest[-1]:
        # It is one of its own variables, so `pickle` creates it with them, and then a second time.
        return cast("types.FunctionType", known)
    function = types.FunctionType(code, variables, *rest)
    _arrive(function, origin)
    return function


def _set_cell(cell: types.CellType, contents: tuple[Any]) -> None:
    (cell.cell_contents,) = contents


def _set_function(function: types.FunctionType, state: Any) -> None:
    own = function.__globals__.get("__builtins__")
    by_value._function_setstate(function, state)
    if own is not None:
        function.__globals__["__builtins__"] = own


def function_back(origin: Origin, code: types.CodeType, variables: dict[str, Any], *rest: Any) -> types.FunctionType:
    """Return the caller's function, or create one that a node has made."""
    found = _known.get(origin.token)
    if found is None:
        found = _found(origin.module, origin.name) if origin.module else None
    if not isinstance(found, types.FunctionType):
        found = types.FunctionType(code, variables, *rest)
        _new.add(found)
    return found


def _set_new_function(function: types.FunctionType, state: Any) -> None:
    if function in _new:
        _new.discard(function)
        _set_function(function, state)


def _cached(parameters: dict[str, Any], create: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return functools.lru_cache(**parameters)(create(*arguments))


def _cached_with(parameters: dict[str, Any], function: Callable[..., Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _set_cached(cached: Any, state: tuple[Callable[..., None], Any]) -> None:
    set_state, of_function = state
    set_state(cached.__wrapped__, of_function)
    functools.update_wrapper(cached, cached.__wrapped__)


def is_sentinel(value: Any) -> bool:
    """Whether a value has nothing but its identity."""
    kind = type(value)
    return (
        getattr(kind, "__eq__", None) is object.__eq__
        and not getattr(value, "__dict__", None)
        and not has_hidden_state(kind)
    )


def has_hidden_state(kind: type) -> bool:
    """Whether objects of a class have state outside of their ``__dict__``."""
    # The offsets are negative if the reference is not a part of this size.
    references = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return bool(kind.__itemsize__) or kind.__basicsize__ > object.__basicsize__ + references * tuple.__itemsize__


def _of_main(value: Any) -> tuple[Any, ...] | None:
    """Pickle what pickle would only name, and the main program has: a `typing.NewType`, or an object of its classes."""
    kind: Any = type(value)
    if kind is typing.TypeVar or (kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__):
        return None
    name = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if kind in _PARAMETERS and _found(value.__module__, name) is not value:
        # Only a function or a class has it: `def f[**P]()`.
        return kind, (name,)
    if not isinstance(name, str) or value.__module__ != "__main__" or _found("__main__", name) is not value:
        return None
    if kind in _PARAMETERS:
        return _in_main, (name, kind, name)
    if kind is typing.NewType:
        return _in_main, (name, kind, value.__name__, value.__supertype__)
    if kind is _Alias:
        make = functools.partial(kind, type_params=value.__type_params__)
        return _in_main, (name, make, value.__name__, value.__value__)
    return _in_main, (name, _restored, kind, getattr(value, "__dict__", {}))


def _in_main(name: str, make: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the main program has under a name, or create it."""
    found = _found("__main__", name)
    if found is None:
        # `typing` takes the module of its objects from the code that creates them.
        found = eval("make(*arguments)", {"__name__": "__main__", "make": make, "arguments": arguments})
        main_variables()[name] = found
    return found


def _restored(kind: Any, attributes: dict[str, Any]) -> Any:
    made = kind.__new__(kind)
    made.__dict__.update(attributes)
    return made


def _read_only(array: Any, kind: type) -> Any:
    array = array.view(kind)
    array.flags.writeable = False
    return array


@functools.lru_cache(maxsize=1)
def _of_machine(_: int) -> tuple[type, ...]:
    """Return the classes of objects whose copies on another machine would lead nowhere, or to something else."""
    found = (
        (sys.modules.get(f"multiprocessing.{module}"), names)
        for module, names in (
            ("connection", ("Connection",)),
            ("managers", ("BaseProxy",)),
            ("shared_memory", ("SharedMemory", "ShareableList")),
        )
    )
    return tuple(getattr(module, name) for module, names in found for name in names if hasattr(module, name))


def _of_argparse() -> tuple[type, ...]:
    found = sys.modules.get("argparse")
    return (found.Action, found._ActionsContainer) if found else ()


def _with_suppress(value: Any) -> tuple[Any, ...]:
    """Pickle a part of `argparse`, which compares a text by its identity."""
    suppress = sys.modules["argparse"].SUPPRESS
    create, arguments, state, *rest = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    state = {name: _Suppress() if found is suppress else found for name, found in state.items()}
    return create, arguments, state, *rest


class _Suppress:
    def __reduce__(self) -> tuple[Any, ...]:
        return _at, ("argparse", "SUPPRESS")


_places: dict[int, tuple[str, str]] = {}
_seen_modules = 0


def place_of(value: Any) -> tuple[str, str] | None:
    """Return module and name that lead to a value on every node; None if there are none."""
    global _seen_modules
    own = type(value).__module__
    for name, found in list(vars(sys.modules[own]).items()) if own in sys.modules and own != "__main__" else ():
        if found is value:
            return own, name
    if len(sys.modules) != _seen_modules:
        _seen_modules = len(sys.modules)
        _places.clear()
        for module_name, module in list(sys.modules.items()):
            # The main program has a second name once `multiprocessing` is imported.
            if isinstance(module, types.ModuleType) and module is not sys.modules["__main__"]:
                for name, found in list(vars(module).items()):
                    if is_sentinel(found):
                        _places.setdefault(id(found), (module_name, name))
    place = _places.get(id(value))
    return place if place and _found_in(*place) is value else None


def _found_in(module: str, name: str) -> Any:
    return vars(sys.modules[module]).get(name)


def _at(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class _Main(types.ModuleType):
    """The main program of a node, which processes that a function starts with `spawn` or `forkserver` can import."""

    @property
    def __file__(self) -> str:
        """Return the caller's script, or, for such a process, a file that creates the same variables."""
        if sys._getframe(1).f_globals.get("__name__", "").endswith(".spawn"):
            return _write_main()
        try:
            return cast("str", vars(self)["__file__"])
        except KeyError:
            raise AttributeError("__file__") from None

    @__file__.setter
    def __file__(self, value: str) -> None:
        vars(self)["__file__"] = value


_home = ""
_count = 0


def be_main_of(home: str) -> None:
    """Let processes that a function starts find what is in ``__main__``; they read files in this directory."""
    global _home
    _home = home
    sys.modules[_MAIN[1]] = sys.modules["__main__"]
    sys.modules["__main__"].__class__ = _Main


def _write_main() -> str:
    global _count
    _count += 1
    path = os.path.join(_home, f"main-{os.getpid()}-{_count}.py")
    values = main_values()
    try:
        content = dumps(values)
    except Exception:
        content = dumps({name: value for name, value in values.items() if _can_be_pickled(value)})
    os.makedirs(_home, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"__import__({state.__name__!r}, fromlist=['']).receive({state.received()!r})\n")
        file.write(f"globals().update(__import__('pickle').loads({content!r}))\n")
    return path


def _can_be_pickled(value: object) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True
