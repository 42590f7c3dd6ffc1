"""Which attributes of modules, and of what is in them, the code of a program sets.

A value that a file computes, such as ``ROOT = Path("data")``, cannot be compared with the file. The code of other files
shows whether the program sets it: ``config.ROOT = …``, ``setattr(config, "ROOT", …)``, ``mock.patch("config.ROOT")``,
``config.OPTIONS["lr"] = …``.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import sys
from collections.abc import Iterator
from typing import NamedTuple

# Functions that only read an attribute.
_READING = ("getattr", "hasattr", "getattr_static")

# Methods that change a container.
_CHANGING = (
    "add",
    "append",
    "appendleft",
    "clear",
    "extend",
    "insert",
    "pop",
    "remove",
    "setdefault",
    "sort",
    "update",
)


class Store(NamedTuple):
    """What code sets. The owner is the name of a module, perhaps relative, and of attributes in it."""

    owner: str
    #: Empty if the code computes it.
    attribute: str
    #: Whether it is set, rather than changed.
    is_set: bool

    def place(self, package: str | None) -> tuple[str, list[str]] | None:
        """Return the imported module, and the names that lead from it to the owner; None if it is not imported."""
        with contextlib.suppress(ImportError):
            owner = importlib.util.resolve_name(self.owner, package) if self.owner.startswith(".") else self.owner
            parts = owner.split(".")
            for count in range(len(parts), 0, -1):
                if (module := ".".join(parts[:count])) in sys.modules:
                    return module, parts[count:]
        return None


@functools.cache
def of_cell(text: str) -> frozenset[Store]:
    """Return what a cell of a notebook sets."""
    try:
        return of(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()


def of(tree: ast.AST) -> frozenset[Store]:
    """Return what code sets through names that it has imported."""
    found = _Names()
    nodes = list(ast.walk(tree))
    for node in nodes:
        found.add(node)
    return frozenset(store for node in nodes for store in found.stores(node) if store.owner)


class _Names:
    """The names in a file that stand for modules, or for what is imported from them."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def add(self, node: ast.AST) -> None:
        """Note the names that a statement binds."""
        if isinstance(node, ast.Import):
            for it in node.names:
                top = it.name.partition(".")[0]
                self._places[it.asname or top] = it.name if it.asname else top
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (f"{node.module}." if node.module else "")
            self._places.update({it.asname or it.name: source + it.name for it in node.names})
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and node.value and (place := self._place(node.value)):
                self._places.setdefault(target.id, place)

    def stores(self, node: ast.AST) -> Iterator[Store]:
        """Yield what an expression sets."""
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            yield self._target(node)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first, second = (*node.args, None, None)[:2]
            name = getattr(second, "value", None)
            place = getattr(first, "value", None)
            if isinstance(node.func, ast.Attribute) and called in _CHANGING:
                yield self._target(node.func.value, is_set=False)
            elif (called == "setattr" and first) or (isinstance(name, str) and called not in _READING):
                yield Store(self._place(first), name if isinstance(name, str) else "", is_set=True)
            elif isinstance(place, str) and "." in place.strip("."):
                yield Store(*place.rpartition(".")[::2], is_set=True)

    def _target(self, node: ast.expr, is_set: bool = True) -> Store:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "vars" and node.args:
            return Store(self._place(node.args[0]), "", is_set=True)
        if isinstance(node, ast.Name):
            return Store(*self._places.get(node.id, "").rpartition(".")[::2], is_set)
        if isinstance(node, ast.Attribute) and (owner := self._place(node.value)):
            return Store(owner, node.attr if node.attr != "__dict__" else "", is_set)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            # `config.LAYERS[0].size = 1`
            return self._target(node.value, is_set=False)
        return Store("", "", is_set)

    def _place(self, node: ast.expr | None) -> str:
        """Return where an expression leads to; nothing if that is not known."""
        if isinstance(node, ast.Name):
            return self._places.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = self._place(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module" and node.args:
            name = getattr(node.args[0], "value", None)
            return name if isinstance(name, str) else ""
        return ""
