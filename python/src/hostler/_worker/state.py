"""What a program has set in its modules since their import: ``config.LR = 0.5``, and the same for classes in modules.

Modules travel as files, so a node would see what the files say. The caller compares the values of names with the
literals in the files, and sends those that differ, and names that the files do not bind. On the node, they are set when
the module has been imported.

Expressions without effects are computed again to be compared; see `hostler._worker.computed`. Other values that a file
computes, such as ``HOST = gethostname()``, are those of the node, unless code of another file sets them; see
`hostler._worker.stores`.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hostler._worker import computed, stores

# Functions that may bind any name.
_OPENING = ("globals", "vars", "locals", "exec", "setattr")

# Deeper values are not compared.
_DEEPEST = 20

# Larger values are not sent: they are caches and results, rather than configuration.
_MOST_ITEMS = 10_000
_MOST_BYTES = 1 << 20

_PLAIN = (bool, int, float, complex, str, bytes, type(None))

_OF_NUMBERS = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)

# Values of names that a file does not bind, or binds to something other than a literal.
_UNKNOWN: Any = object()
_UNBOUND: Any = object()

# For each file, its time and size, and its names.
_of_files: dict[str, tuple[tuple[int, int], Names]] = {}


class Names:
    """The names that the body of a module or a class binds.

    Attributes
    ----------
    values : dict
        The literals, and `_UNKNOWN` for anything else.
    classes : dict
        The bodies of the classes.
    objects : dict
        For names that a call of a class here binds: the class, and the attributes that the call gives the object.
    """

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self.values: dict[str, Any] = {}
        self.classes: dict[str, Names] = {}
        self.objects: dict[str, tuple[str, dict[str, Any]]] = {}
        # The functions of a class, and the names of its annotated attributes.
        self._functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._fields: list[str] = []
        # What the body binds to names, and the values of those that are computed.
        self.expressions: dict[str, ast.expr] = {}
        self.computed: dict[str, Any] = {}
        # What the file sets in other ones.
        self.stores: frozenset[stores.Store] = frozenset()
        # Functions and classes without decorators that the body binds once.
        self.defined: set[str] = set()
        # The calls that create objects.
        self._calls: dict[str, ast.Call] = {}
        # Where `from module import name` has found names: a module, as the statement spells it, and a name.
        self.imports: dict[str, tuple[str, str]] = {}
        # Whether it may bind names that cannot be seen: `from x import *`, `globals()`.
        self.is_open = False
        # Whether its functions may do so.
        self._has_opening = False
        self._add(body, is_certain=True)
        called = {getattr(node.func, "id", "") for node in _executed(body) if isinstance(node, ast.Call)}
        self.is_open |= not called.isdisjoint(_OPENING)
        if self._has_opening:
            harmless = {name for name, inner in self.classes.items() if not inner._has_opening}
            self.is_open |= not called.isdisjoint(self.values.keys() - harmless)
        for name, call in self._calls.items():
            self._add_object(name, call)

    def _add(self, body: Sequence[ast.stmt], is_certain: bool) -> None:
        for statement in body:
            if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                is_only = statement.name not in self.values and not statement.decorator_list
                self._rebind(statement.name)
                if is_only:
                    self.defined.add(statement.name)
                if isinstance(statement, ast.ClassDef):
                    self.classes[statement.name] = Names(statement.body)
                else:
                    self._functions[statement.name] = statement
                    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
                    self._has_opening |= any(getattr(call.func, "id", "") in _OPENING for call in calls)
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    self._bind(target, statement.value, is_certain)
            elif isinstance(statement, ast.AnnAssign):
                self._fields.append(getattr(statement.target, "id", ""))
                if statement.value is not None:
                    self._bind(statement.target, statement.value, is_certain)
            else:
                self._add_other(statement)
                if isinstance(statement, ast.ImportFrom):
                    source = "." * statement.level + (statement.module or "")
                    self.imports.update({it.asname or it.name: (source, it.name) for it in statement.names})

    def _bind(self, target: ast.expr, value: ast.expr, is_certain: bool) -> None:
        if isinstance(target, ast.Name):
            is_again = target.id in self.values
            known = self._evaluated(value) if is_certain else _UNKNOWN
            self._rebind(target.id)
            self.values[target.id] = known
            if is_certain:
                self.expressions[target.id] = value
            if isinstance(value, ast.Call) and is_certain and not is_again:
                self._calls[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its_value in zip(target.elts, value.elts, strict=True):
                self._bind(one, its_value, is_certain)
        else:
            self._forget(target)

    def _add_other(self, statement: ast.stmt) -> None:
        """Note what a statement may bind or change."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                self._forget(node)
            elif isinstance(node, ast.alias):
                self.is_open |= node.name == "*"
                self._rebind((node.asname or node.name).partition(".")[0])
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._rebind(node.name)
            elif isinstance(node, (ast.Call, ast.Subscript, ast.Attribute)):
                # `X.append(1)`, `change(X)`, `X["a"] = 1`, `X.a = 1`
                self._forget(node)

    def _forget(self, node: ast.expr) -> None:
        """Note that the value of a name is not the literal any more."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name):
                self._rebind(inner.id)

    def _rebind(self, name: str) -> None:
        self.values[name] = _UNKNOWN
        self.defined.discard(name)
        self._calls.pop(name, None)
        self.expressions.pop(name, None)
        self.imports.pop(name, None)

    def _add_object(self, name: str, call: ast.Call) -> None:
        """Note the attributes of an object that a call creates."""
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        body = self.classes.get(called) or (Names([]) if called == "SimpleNamespace" else None)
        if body is None or not all(keyword.arg for keyword in call.keywords):
            return
        given: dict[str, ast.expr] = {str(keyword.arg): keyword.value for keyword in call.keywords}
        create = body._functions.get("__init__")
        if create is None:
            given.update(zip(body._fields, call.args, strict=False))
            found = {**body.values, **{name: self._evaluated(value) for name, value in given.items()}}
            stored = body._stored("__post_init__")
        else:
            arguments = create.args
            positional = [it.arg for it in (*arguments.posonlyargs, *arguments.args)]
            defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
            optional = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            defaults.update((it.arg, value) for it, value in optional if value)
            given = {**defaults, **dict(zip(positional[1:], call.args, strict=False)), **given}
            values = {**self.values, **dict.fromkeys(positional, _UNKNOWN)}
            values.update((name, self._evaluated(value)) for name, value in given.items())
            found, stored = dict(body.values), body._stored("__init__")
            for statement in create.body:
                target = getattr(statement, "target", None) or getattr(statement, "targets", [None])[0]
                if isinstance(target, ast.Attribute) and stored.count(target.attr) == 1:
                    stored.remove(target.attr)
                    value = statement.value  # type: ignore[attr-defined]
                    is_argument = isinstance(value, ast.Name) and value.id in given
                    found[target.attr] = values[value.id] if is_argument else _known(value, values)
        self.objects[name] = (called, {**found, **dict.fromkeys(stored, _UNKNOWN)})

    def _stored(self, name: str) -> list[str]:
        """Return the attributes of objects that a method stores, with those of all methods if it calls any."""
        function = self._functions.get(name)
        nodes = list(ast.walk(function)) if function else []
        own = function.args.args[0].arg if function and function.args.args else ""
        calls = (node for node in nodes if isinstance(node, ast.Call))
        if any(getattr(it, "id", "") in (own, "super") for call in calls for it in ast.walk(call)):
            nodes = [node for other in self._functions.values() for node in ast.walk(other)]
        return [node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]

    def _evaluated(self, node: ast.expr) -> Any:
        return _known(node, self.values)


def _known(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of a literal, of a computation with numbers, or of a name of a number or a text."""
    if isinstance(node, ast.Name):
        value = names.get(node.id, _UNKNOWN)
        return value if isinstance(value, _PLAIN) else _UNKNOWN
    try:
        # The import has computed it as well, so it does not take long.
        is_computation = all(isinstance(part, _OF_NUMBERS) for part in ast.walk(node))
        return eval(compile(ast.Expression(node), "", "eval")) if is_computation else ast.literal_eval(node)
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return _UNKNOWN


def _executed(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the parts of a body that run with it, without those of its functions."""
    parts: list[ast.AST] = [*body]
    while parts:
        part = parts.pop()
        yield part
        if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            parts += ast.iter_child_nodes(part)


def changes(modules: Mapping[str, str], pickled: Callable[[object], bytes]) -> tuple[dict[str, bytes], list[str]]:
    """Return what the program has set in its modules.

    Parameters
    ----------
    modules
        Names and files of the modules that are sent.
    pickled
        Pickles a value.

    Returns
    -------
    tuple
        Pickled values by their places, such as ``config:Training.LR``; and the places whose value cannot be pickled,
        with the reason.
    """
    changed: dict[str, Any] = {}
    found: dict[str, bytes] = {}
    lost: list[str] = []
    known = {name: names for name, file in modules.items() if file.endswith(".py") and (names := _names(file))}
    for name, names in known.items():
        module = sys.modules.get(name)
        if isinstance(module, types.ModuleType):
            for place, value in _changed(vars(module), names, module.__name__):
                changed[f"{name}:{place}"] = value
    changed = {**dict(_stored(modules, known)), **changed}
    for place, value in changed.items():
        try:
            found[place] = _packed(value, pickled)
        except Exception as error:
            lost.append(f"{place.replace(':', '.')}: {error}")
    return found, lost


def _stored(modules: Mapping[str, str], known: Mapping[str, Names]) -> Iterator[tuple[str, Any]]:
    """Yield the places that code of the program sets, and their values, unless these are the literals of the files."""
    main = vars(sys.modules["__main__"])
    cells = main.get("In")
    its = [*(stores.of_cell(cell) for cell in (cells if isinstance(cells, list) else ()) if type(cell) is str)]
    if names := _names(main.get("__file__") or ""):
        its.append(names.stores)
    found = {(store, main.get("__package__")) for of_code in its for store in of_code}
    for name, names in known.items():
        if names.stores and name in sys.modules:
            package = vars(sys.modules[name]).get("__package__")
            found.update((store, package if store.owner.startswith(".") else None) for store in names.stores)
    for store, package in found:
        name, path = store.place(package) or ("sys", [])
        is_sent = name in modules
        # Of other modules, only what is put into them counts: they have much else that belongs to the machine.
        if name == "sys" or sys.modules[name] is sys.modules["__main__"] or not (is_sent or store.is_set):
            continue
        owner: Any = sys.modules[name]
        names = known.get(name)
        for part in path:
            owner, names = vars(owner).get(part), names.classes.get(part) if names else None
            if not hasattr(owner, "__dict__"):
                break
        else:
            wanted = [store.attribute] if store.attribute else list(vars(owner)) if is_sent else []
            for attribute in wanted:
                value = vars(owner).get(attribute, _UNBOUND)
                is_own = getattr(value, "__qualname__", "") == ".".join([*path, attribute])
                before = names.values.get(attribute, _UNKNOWN) if names else _UNKNOWN
                is_module = isinstance(value, types.ModuleType)
                if value is _UNBOUND or is_own or is_module or _is_same(before, value, _DEEPEST):
                    continue
                if store.attribute or not (callable(value) or attribute.startswith("__")):
                    yield f"{name}:{'.'.join([*path, attribute])}", value


def _packed(value: object, pickled: Callable[[object], bytes]) -> bytes:
    content = b"" if _is_large(value) else pickled(value)
    if _is_large(value) or len(content) > _MOST_BYTES:
        raise ValueError("it is too large; pass it as an argument")
    return content


def _is_large(value: object) -> bool:
    return isinstance(value, (list, tuple, dict, set, frozenset)) and len(value) > _MOST_ITEMS


def _names(file: str) -> Names | None:
    try:
        status = os.stat(file)
        version = (status.st_mtime_ns, status.st_size)
        known = _of_files.get(file)
        if known is None:
            if not _is_as_compiled(file, status):
                return None
            with open(file, "rb") as source:
                tree = ast.parse(source.read())
            known = _of_files[file] = (version, Names(tree.body))
            known[1].stores = stores.of(tree)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    # Of a file that was edited since, nobody knows what the program has imported.
    return known[1] if known[0] == version else None


def _is_as_compiled(file: str, status: os.stat_result) -> bool:
    """Whether a file has not been edited since Python has compiled it, as far as this is known."""
    try:
        with open(importlib.util.cache_from_source(file), "rb") as compiled:
            _, flags, time, size = struct.unpack("<4sIII", compiled.read(16))
    except (OSError, NotImplementedError, struct.error):
        return True
    return bool(flags) or (time, size) == (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)


def _changed(values: Mapping[str, Any], names: Names, module: str) -> Iterator[tuple[str, Any]]:
    """Yield names, and their values, that differ from those of the file."""
    for name, value in tuple(values.items()):
        is_of_main = _is_of_main(value)
        # Private names are caches and the like, which a module fills itself.
        if isinstance(value, types.ModuleType) or (
            name.startswith("_") and not (is_of_main and isinstance(value, types.FunctionType))
        ):
            continue
        before = names.values.get(name, _UNBOUND)
        if before is _UNKNOWN and name in names.expressions and name not in names.objects and not _is_large(value):
            if name not in names.computed:
                # What the program has set must not change what other names should have.
                known = {**names.values, **names.computed}
                unset = {other: it for other, it in known.items() if it is not _UNKNOWN}
                variables = {**vars(sys.modules[module]), **values, **unset}
                names.computed[name] = computed.value(names.expressions[name], variables, _UNKNOWN)
            before = names.computed[name]
        if is_of_main:
            yield name, value
        elif name in names.imports:
            if _is_other_than_imported(value, *names.imports[name], values):
                yield name, value
        elif name in names.classes and isinstance(value, type) and value.__module__ == module:
            inner = _changed(_own_attributes(value, names.classes[name]), names.classes[name], module)
            yield from ((f"{name}.{attribute}", it) for attribute, it in inner)
        elif name in names.defined and not names.is_open:
            # The program has put something else in its place.
            if getattr(value, "__globals__", None) is not values or value.__code__.co_name != name:
                yield name, value
        elif name in names.objects and before is _UNKNOWN:
            inner = _changed_object(value, *names.objects[name])
            yield from ((f"{name}.{attribute}", it) for attribute, it in inner)
        elif before is _UNBOUND:
            if not callable(value) and not names.is_open:
                yield name, value
        elif before is not _UNKNOWN and not _is_same(before, value, _DEEPEST):
            yield name, value


def _own_attributes(kind: type, names: Names) -> dict[str, Any]:
    """Return the attributes of a class, except for those that decorators and metaclasses add, or put in their place."""
    if issubclass(kind, enum.Enum):
        return {}
    return {
        name: value
        for name, value in vars(kind).items()
        if isinstance(value, type)
        or is_plain(value)
        or _is_of_main(value)
        or (name in names.values and not hasattr(type(value), "__get__"))
    }


def _is_of_main(value: Any) -> bool:
    """Whether the main program has defined a function or the class of an object. A module cannot have it by itself."""
    if isinstance(value, (types.MethodType, staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if isinstance(value, types.FunctionType):
        return value.__globals__ is vars(sys.modules["__main__"])
    return (value if isinstance(value, type) else type(value)).__module__ == "__main__"


def _is_other_than_imported(value: Any, source: str, name: str, values: Mapping[str, Any]) -> bool:
    """Whether a plain value is not, or not any more, that of the name that `from source import name` has read."""
    try:
        module = sys.modules.get(importlib.util.resolve_name(source, values.get("__package__") or None))
    except ImportError:
        return False
    if not isinstance(module, types.ModuleType) or name not in vars(module):
        return False
    return is_plain(value) and not _is_same(vars(module)[name], value, _DEEPEST)


def _changed_object(value: Any, kind: str, before: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield attributes of an object that were set since a module has created it."""
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or isinstance(value, type) or type(value).__name__ != kind:
        return
    for name, it in attributes.items():
        known = before.get(name, _UNBOUND)
        if known is not _UNKNOWN and (known is _UNBOUND or not _is_same(known, it, _DEEPEST)):
            yield name, it


def is_plain(value: object, depth: int = _DEEPEST) -> bool:
    """Whether a value consists of numbers, texts and containers."""
    if type(value) in _PLAIN:
        return True
    if depth == 0:
        return False
    if isinstance(value, (list, tuple, set, frozenset)):
        items: tuple[object, ...] = tuple(value)
    elif isinstance(value, dict):
        items = (*value.keys(), *value.values())
    else:
        return False
    return all(is_plain(item, depth - 1) for item in items)


def _is_same(one: object, other: object, depth: int) -> bool:
    """Whether two values are of the same types and equal, also if they are not numbers."""
    if type(one) is not type(other) or depth == 0:
        return False
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_is_same(*pair, depth - 1) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_is_same(one[key], other[key], depth - 1) for key in one)
    return one == other or (one != one and other != other)


# The node's side.

_LOADERS = (
    importlib.machinery.SourceFileLoader,
    importlib.machinery.SourcelessFileLoader,
    importlib.machinery.ExtensionFileLoader,
)

# Values of modules that were not imported yet, and what the values in modules were before.
_pending: dict[str, dict[str, bytes]] = {}
_before: dict[str, Any] = {}
_received: dict[str, bytes] = {}


#: Entered while a module that is a file is imported.
around_import: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext


class _Finder(importlib.abc.MetaPathFinder):
    """Sets values in a module when it has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module, whose loader then sets the changes."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        # Those of zip files share their loader.
        if spec is not None and isinstance(spec.loader, _LOADERS):
            execute = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                with around_import():
                    execute(module)
                _set_pending(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def receive(values: Mapping[str, bytes]) -> None:
    """Set values in modules, now or when they are imported.

    What an earlier call has set, and is not among these values, is again what it was before. Values are set again for
    each call: instances of a class of the main program are those of the class that the call has.
    """
    if not values and not _received:
        return
    for place in [place for place in _before if place not in values]:
        _assign(place, _before.pop(place))
    _received.clear()
    _received.update(values)
    _pending.clear()
    for place, content in values.items():
        _pending.setdefault(place.partition(":")[0], {})[place] = content
    watch_imports()
    for name in tuple(_pending):
        if module := sys.modules.get(name):
            _set_pending(module)


def watch_imports() -> None:
    """Set values in modules when they are imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        # Built-in modules stay before modules of the caller that have the same names.
        sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), _Finder())


def received() -> dict[str, bytes]:
    """Return what is set in modules now, or when they are imported."""
    return dict(_received)


def _set_pending(module: types.ModuleType) -> None:
    for place, content in _pending.pop(module.__name__, {}).items():
        before = _assign(place, pickle.loads(content))
        _before.setdefault(place, before)


def _assign(place: str, value: Any) -> Any:
    """Set a value, and return what it was before."""
    name, _, attributes = place.partition(":")
    *path, last = attributes.split(".")
    owner: Any = sys.modules[name]
    for part in path:
        owner = getattr(owner, part)
    # Not getattr, which would find attributes of a base, or what the attribute of a class is for its objects.
    before = vars(owner).get(last, _UNBOUND)
    if value is _UNBOUND:
        delattr(owner, last)
    else:
        setattr(owner, last, value)
    return before
