"""Run methods of an object on a node, and have its changed state back."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hostler._worker import method as on_node
from hostler._worker import modules, pickling, project
from hostler._worker.batch import Batch, Settings
from hostler._worker.project import Environment
from hostler._worker.records import recreated
from hostler.client import Client
from hostler.errors import RemoteError, UsageError
from hostler.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


def delegate(
    target: T,
    *,
    shared: bool = False,
    output: bool = True,
    environment: Environment = None,
    client: Client | None = None,
    **options: Unpack[Options],
) -> T:
    """Return a stand-in for an object whose methods run on a node. Each call is a job, and waits for its end.

    The object travels to the node with the arguments. Afterwards, the attributes of the object here are those of the
    object there, also if the method raised an exception. Attributes that are read from the stand-in, or assigned to it,
    are those of the object here. Methods whose names begin with an underscore run here. A function works as well.

    Parameters
    ----------
    target
        The object. It must be possible to pickle it, and all of its state must be in its ``__dict__``.
    shared
        Run in the present working directory, which the node must have at the same path, as on a shared disk. Otherwise
        each call runs in an empty directory.
    output
        Print what the method wrote to stdout and stderr, at its end.
    environment, client
        As for `map`.
    **options
        Resources of the job: ``cpus``, ``memory``, ``sandbox`` and others of `hostler.options.Options`.

    Raises
    ------
    UsageError
        If this is a module or a class, or if the state of the object cannot be replaced.

    Examples
    --------
    >>> on_node = hostler.delegate(experiment, cpus=4, memory="8G", sandbox=True)
    >>> on_node.run(repetitions=10)
    >>> experiment.results
    """
    _check(target)
    settings = Settings(client or Client(), environment, options)
    return cast("T", _Delegate(target, settings, os.getcwd() if shared else None, output))


def _check(target: object) -> None:
    """Refuse what would not come back."""
    if isinstance(target, (ModuleType, type)):
        what = "class" if isinstance(target, type) else "module"
        raise UsageError(f"{target.__name__} is a {what}", "usage", ("delegate an object or a function",))
    if _is_function(target):
        return
    kind = type(target)
    if not hasattr(target, "__dict__"):
        raise UsageError(
            f"a {kind.__qualname__} has no `__dict__`, so its state cannot be replaced",
            "usage",
            ("delegate an object of a class without `__slots__`, or a function",),
        )
    if pickling.has_hidden_state(kind):
        raise UsageError(
            f"a {kind.__qualname__} has state outside of its `__dict__`, which would not come back: its class has "
            "`__slots__`, or is derived from a built-in one such as `list`",
            "usage",
            ("delegate an object that has this one as an attribute", "use `hostler.map` and return the object"),
        )


def _is_function(target: object) -> bool:
    """Whether this is only called, and has no state."""
    return inspect.isroutine(target) or isinstance(target, functools.partial)


class _Delegate:
    """Stands for an object."""

    def __init__(self, target: object, settings: Settings, directory: str | None, output: bool) -> None:
        vars(self).update(_target=target, _settings=settings, _directory=directory, _output=output)

    def __repr__(self) -> str:
        return f"<{self._target!r} on a node>"

    def __getattr__(self, name: str) -> Any:
        # Private names are what Python and notebooks ask of every object.
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._target, name)
        if name.startswith("_") or not callable(value):
            return value
        return functools.wraps(value)(functools.partial(self._call, name))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._target, name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._call("__call__", *arguments, **keywords)

    @modules.only()
    def _call(self, method: str, /, *arguments: Any, **keywords: Any) -> Any:
        target = self._target
        _check_returns(target if _is_function(target) else getattr(target, method))
        packed = _pickled(target, arguments, keywords)
        call = on_node.Call(packed, method, self._directory)
        name = getattr(target, "__name__", type(target).__name__)
        with Batch(on_node.run, [(call,)], name if method == "__call__" else method, self._settings) as batch:
            (outcome,) = batch.outcomes()
        if self._output:
            for kind, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
                print(batch.job.logs(cast("Any", kind)), end="", file=stream)
        if outcome.error is not None:
            raise outcome.error
        if not isinstance(outcome.value, on_node.Done):
            raise RemoteError(f"job {batch.job.id} returned something else than the state of an object", "remote")
        return _received(target, outcome.value)


def _check_returns(function: object) -> None:
    """Refuse functions that return before they have run."""
    for what, is_one in (
        ("a coroutine", inspect.iscoroutinefunction),
        ("a generator", inspect.isgeneratorfunction),
        ("an asynchronous generator", inspect.isasyncgenfunction),
    ):
        if is_one(function):
            name = getattr(function, "__qualname__", repr(function))
            raise UsageError(
                f"{name} returns {what}, which cannot come back from a node",
                "usage",
                ("delegate a function that runs it to its end and returns what it yields",),
            )


def _pickled(target: object, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
    parts = [
        *((f"the attribute `{name}`", value) for name, value in getattr(target, "__dict__", {}).items()),
        *((f"argument {number}", value) for number, value in enumerate(arguments)),
        *((f"the argument `{name}`", value) for name, value in keywords.items()),
    ]
    return project.dumps("the object", (target, arguments, keywords), parts)


def _received(target: object, done: on_node.Done) -> Any:
    """Replace the state of the object, and return the result."""
    try:
        result, other = pickle.loads(done.values)
    except Exception as error:
        raise RemoteError(f"the result of the call cannot be read here: {error}", "remote") from error
    # What is pickled by its name, such as a logger or a member of an enumeration, is the same object.
    if other is not target and not _is_function(target):
        state = dict(vars(other))
        vars(target).clear()
        vars(target).update(state)
    if done.failure:
        failure = recreated(done.failure)
        raise failure from failure.__cause__
    # Methods that return their object return the one that is here.
    return target if result is other else result
