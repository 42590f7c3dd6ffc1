"""What runs a cell of a notebook on a node, and what carries variables there and back; see `hostler.jupyter.magic`.

The cell runs in ``__main__``, as in a notebook: functions that refer to other variables find them there, and processes
that the cell starts find its functions. Afterwards, each variable that is new, has another value or was changed in
place goes back, all in one pickle, so that objects that two variables share stay shared.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import dataclasses
import functools
import hashlib
import importlib
import inspect
import io
import linecache
import os
import pickle
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType, TracebackType
from typing import Any

from hostler._worker import apart, pickling, wire


@dataclass
class Cell:
    """A cell, and what it needs.

    Attributes
    ----------
    source : str
    name : str
        File name in tracebacks.
    flags : int
        Compiler flags of the notebook's ``from __future__ import``.
    shows_value : bool
        Whether the value of a last expression goes back.
    imports : tuple of str
        Submodules that the notebook has imported.
    variables : bytes
        A pickled dictionary.
    """

    source: str
    name: str
    flags: int
    shows_value: bool
    imports: tuple[str, ...]
    variables: bytes


@dataclass(frozen=True)
class Done:
    """What comes back.

    Attributes
    ----------
    values : bytes
        The pickled variables as a dictionary, the value of the last expression, and the pickled arguments
        of each call of `display`.
    modules : dict
        Imported modules by variable.
    deleted : tuple of str
    lost : dict
        Variables that cannot be pickled, and why.
    node : str
    failure : wire.Failure or None
        The exception, with its traceback from the cell on.
    """

    values: bytes
    modules: dict[str, str]
    deleted: tuple[str, ...]
    lost: dict[str, str]
    node: str
    failure: wire.Failure | None


@dataclass(frozen=True)
class Text:
    """Stands for a value that cannot be pickled."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Figure:
    """A figure of matplotlib."""

    png: bytes

    def __repr__(self) -> str:
        return "<figure>"

    def _repr_png_(self) -> bytes:
        return self.png


class _Handle:
    """Stands for what IPython returns for something that is displayed with an id."""

    def __init__(self, displayed: list[bytes], display_id: str) -> None:
        self._displayed = displayed
        self.display_id = display_id

    def display(self, *objects: object, **keywords: Any) -> None:
        """Display something else with the same id."""
        self._displayed.append(_as_it_is(objects, {**keywords, "display_id": self.display_id}))

    def update(self, *objects: object, **keywords: Any) -> None:
        """Display something else in its place."""
        self.display(*objects, **keywords, update=True)


def _display(displayed: list[bytes], *objects: object, **keywords: Any) -> _Handle | None:
    """Note what a cell displays, with all arguments of `display`, for the notebook."""
    display_id = keywords.get("display_id")
    if display_id is True:
        display_id = keywords["display_id"] = os.urandom(16).hex()
    displayed.append(_as_it_is(objects, keywords))
    return _Handle(displayed, display_id) if display_id else None


def _display_with_ipython(displayed: list[bytes]) -> None:
    """Have the functions of IPython do as `display`, if the node has it. Without a shell, they would print."""
    try:
        places = [importlib.import_module(f"IPython.{name}") for name in ("core.display_functions", "display")]
    except ImportError:
        return

    # With their names, the notebook gets its own ones for them.
    @functools.wraps(places[0].display)
    def display(*objects: object, **keywords: Any) -> _Handle | None:
        return _display(displayed, *objects, **keywords)

    @functools.wraps(places[0].publish_display_data)
    def publish_display_data(data: object, metadata: object = None, **keywords: Any) -> None:
        _display(displayed, data, raw=True, metadata=metadata, **keywords)

    for place in places:
        vars(place).update(display=display, publish_display_data=publish_display_data)


def compiled(source: str, name: str, flags: int) -> tuple[CodeType, CodeType | None]:
    """Compile a cell: everything before a last expression, and that expression.

    Raises
    ------
    SyntaxError
        If the cell is not Python.
    """
    # dont_inherit: the flags of this module are not those of the notebook.
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = compile(tree, name, "exec", flags, dont_inherit=True)
    if not isinstance(last, ast.Expr):
        return body, None
    return body, compile(ast.Expression(last.value), name, "eval", flags, dont_inherit=True)


def load(content: bytes, namespace: dict[str, Any]) -> Any:
    """Unpickle values of a node. Functions of cells get this namespace as their global variables."""
    return _Unpickler(io.BytesIO(content), namespace).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, namespace: dict[str, Any]) -> None:
        super().__init__(file)
        self._namespace = namespace

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if found is not pickling.function_back:
            return found

        def make(origin: pickling.Origin, code: CodeType, variables: dict[str, Any], *rest: Any) -> FunctionType:
            is_notebook = variables.get("__name__") == "__main__"
            return pickling.function_back(origin, code, self._namespace if is_notebook else variables, *rest)

        return make


def run(cell: Cell) -> Done:
    """Run a cell. Its exception is part of what is returned."""
    for module in cell.imports:
        importlib.import_module(module)
    displayed: list[bytes] = []
    vars(builtins)["display"] = functools.partial(_display, displayed)
    # To import it takes a moment.
    if "IPython" in cell.source or b"IPython" in cell.variables:
        _display_with_ipython(displayed)
    # Values that were set in modules may have brought variables.
    namespace = pickling.main_variables()
    namespace.update(pickle.loads(cell.variables))
    # The memory belongs to the cell.
    cell.variables = b""
    before = {name: (value, _fingerprint(value)) for name, value in pickling.main_values().items()}
    linecache.cache[cell.name] = (len(cell.source), None, cell.source.splitlines(keepends=True), cell.name)
    # As in a notebook, also SystemExit and KeyboardInterrupt belong to the cell.
    value, error = apart.outcome(
        lambda: _evaluate(compiled(cell.source, cell.name, cell.flags), namespace),
    )
    displayed += [_as_it_is((figure,), {}) for figure in _figures()]
    after = pickling.main_values()
    changed = {
        name: value
        for name, value in after.items()
        if name not in before or before[name][0] is not value or before[name][1] != _fingerprint(value)
    }
    modules = {name: value.__name__ for name, value in changed.items() if isinstance(value, ModuleType)}
    values = {name: value for name, value in changed.items() if name not in modules}
    # The functions among the values must not take all variables that they mention along.
    pickling.clear_main()
    packed, lost = _packed(values, value if cell.shows_value else None, displayed)
    return Done(
        values=packed,
        modules=modules,
        deleted=tuple(name for name in before if name not in after),
        lost=lost,
        node=os.environ.get("HOSTLER_NODE", ""),
        failure=dataclasses.replace(wire.failure(error), traceback=_traceback(error, cell.name)) if error else None,
    )


def _evaluate(parts: Iterable[CodeType | None], namespace: dict[str, Any]) -> Any:
    codes = [code for code in parts if code is not None]

    async def evaluate() -> Any:
        value = None
        for code in codes:
            value = eval(code, namespace)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    if any(code.co_flags & inspect.CO_COROUTINE for code in codes):
        return asyncio.run(evaluate())
    value = None
    for code in codes:
        value = eval(code, namespace)
    return value


def _fingerprint(value: object) -> bytes:
    """Return a digest of a value, to see later whether it was changed. False alarms only cost time."""
    if isinstance(value, (ModuleType, FunctionType, type)):
        return b""
    digest = hashlib.blake2b()

    class Sink:
        def write(self, content: bytes) -> None:
            digest.update(content)

    try:
        pickling.pickler(Sink()).dump(value)
    except Exception:
        return b""
    return digest.digest()


def _figures() -> list[Figure | Text]:
    """Return the open figures of matplotlib."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    found: list[Figure | Text] = []
    for number in pyplot.get_fignums():
        image = io.BytesIO()
        try:
            pyplot.figure(number).savefig(image, format="png", bbox_inches="tight")
        except Exception as error:
            # Text in a figure may have a wrong formula.
            found.append(Text(f"figure {number} cannot be drawn: {wire.described(error)}"))
        else:
            found.append(Figure(image.getvalue()))
    return found


def _packed(values: dict[str, Any], value: object, displayed: list[bytes]) -> tuple[bytes, dict[str, str]]:
    """Pickle what goes back. Return also the variables that cannot be pickled, and why."""
    try:
        return pickling.dumps_of_cell((values, value, displayed)), {}
    except Exception:
        lost = {name: why for name, found in values.items() if (why := _refusal(found))}
        kept = {name: found for name, found in values.items() if name not in lost}
        return pickling.dumps_of_cell((kept, _shown(value), displayed)), lost


def _as_it_is(objects: tuple[object, ...], keywords: dict[str, Any]) -> bytes:
    """Pickle arguments of `display`, which the cell may change afterwards."""
    try:
        return pickling.dumps_of_cell((objects, keywords))
    except Exception:
        kept = {name: value for name, value in keywords.items() if not _refusal(value)}
        return pickling.dumps_of_cell((tuple(_shown(value) for value in objects), kept))


def _shown(value: object) -> object:
    return Text(_repr(value)) if _refusal(value) else value


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<a {type(value).__qualname__}; its repr failed: {wire.described(error)}>"


def _refusal(value: object) -> str:
    try:
        pickling.dumps_of_cell(value)
    except Exception as error:
        return f"a {type(value).__qualname__} cannot be pickled: {error}"
    return ""


def _traceback(error: BaseException, name: str) -> str:
    """Return the traceback from the cell on."""
    start: TracebackType | None = error.__traceback__
    while start and start.tb_frame.f_code.co_filename != name:
        start = start.tb_next
    return "".join(traceback.format_exception(type(error), error, start))
