"""What expressions of a module give now, if they have no effects: ``Path("data")``, ``os.environ.get("PLACE", "cpu")``.

A value that differs was set since the import.
"""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import types
from collections.abc import Mapping
from typing import Any

# Where classes are whose objects have no effects when they are created, and functions that only compute.
_PURE = ("builtins", "collections", "datetime", "decimal", "fractions", "pathlib", "posixpath", "uuid")

# Those among them that have effects, or that return what differs each time.
_IMPURE = (
    "breakpoint",
    "compile",
    "delattr",
    "eval",
    "exec",
    "input",
    "iter",
    "next",
    "object",
    "open",
    "print",
    "setattr",
)

# Objects of these types are not changed by their methods.
_FIXED = (str, bytes, int, float, complex, tuple, frozenset)
_OF_PATHS = (*dir(pathlib.PurePath), "absolute", "expanduser", "home", "resolve")

_EFFECTS = (ast.Await, ast.Lambda, ast.NamedExpr, ast.Yield, ast.YieldFrom)


def value(expression: ast.expr, variables: Mapping[str, Any], otherwise: Any) -> Any:
    """Return what an expression gives in a module; something else if it may have effects, or differs each time."""
    # Its errors are those of any code.
    with contextlib.suppress(Exception):
        # From the inside, so that nothing is called before it was looked at.
        for part in reversed(list(ast.walk(expression))):
            if isinstance(part, _EFFECTS):
                return otherwise
            if isinstance(part, ast.Call) and not _is_pure(_evaluated(part.func, variables)):
                return otherwise
        found = _evaluated(expression, variables)
        # Sentinels and iterators differ.
        if found == _evaluated(expression, variables):
            return found
    return otherwise


def _evaluated(expression: ast.expr, variables: Mapping[str, Any]) -> Any:
    return eval(compile(ast.Expression(expression), "<module>", "eval"), dict(variables))


def _is_pure(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    its = getattr(function, "__self__", None)
    if function is os.getenv or (its is os.environ and name == "get"):
        return True
    if name in _IMPURE:
        return False
    if its is None or isinstance(its, types.ModuleType):
        return function.__module__ in _PURE
    kind = its if isinstance(its, type) else type(its)
    if issubclass(kind, pathlib.PurePath):
        return name in _OF_PATHS
    return kind in _FIXED or kind.__module__ in ("datetime", "decimal", "fractions")
