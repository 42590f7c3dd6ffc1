"""Modules of the package do not import each other in a circle, also not for their types."""

from __future__ import annotations

import ast
from pathlib import Path

import hostler

PACKAGE = Path(hostler.__file__).parent


def modules() -> dict[str, Path]:
    """Return the files of all modules but the package itself, which imports any of them when it is used."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        found[name] = path
    del found["hostler"]
    return found


def imported(path: Path, names: set[str]) -> set[str]:
    """Return those of the modules that a file imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & names


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = modules()
    uses = {name: imported(path, set(files)) - {name} for name, path in files.items()}
    # What imports only modules without circles is in none itself.
    while free := {name for name, needs in uses.items() if not needs & set(uses)}:
        for name in free:
            del uses[name]
    # What nothing in a circle imports is in none either.
    while ends := set(uses) - {need for needs in uses.values() for need in needs}:
        for name in ends:
            del uses[name]
    assert not uses, {name: needs & set(uses) for name, needs in uses.items()}
