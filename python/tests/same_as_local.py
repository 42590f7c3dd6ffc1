"""Runs each case in one way, and prints what it returns as JSON: `python main.py local|pool|map|executor`.

A case gets a function that calls another one with each input, as the built-in `map` does.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import enum
import functools
import importlib
import inspect
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, NewType, ParamSpec, TypeVar
from unittest import mock

import hostler

# Modules that the test writes beside this program. `secrets` has the name of one of the standard library.
beside: Any = importlib.import_module("beside")
secrets: Any = importlib.import_module("secrets")
lazy: Any = importlib.import_module("lazy")
replaced: Any = importlib.import_module("replaced")
UNSET = beside.UNSET

Run = Callable[..., Iterator[Any]]
CASES: dict[str, Callable[[Run], object]] = {}


def case(function: Callable[[Run], object]) -> Callable[[Run], object]:
    CASES[function.__name__] = function
    return function


@dataclass
class Base:
    name: str
    layers: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class ByKeyword:
    size: int


class Counter:
    seen = 0
    registry: ClassVar[dict[str, int]] = {}

    def __init__(self, number: int) -> None:
        self.number = number


class Plugin:
    known: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        Plugin.known.append(cls.__name__)


class Reader(Plugin):
    pass


class Named:
    by_name: ClassVar[dict[str, type]] = {}
    name: str

    def __init_subclass__(cls, /, order: int) -> None:
        Named.by_name[f"{cls.name}{order}"] = cls


class First(Named, order=1):
    name = "first"


class Registering(type):
    names: ClassVar[list[str]] = []

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], *, label: str) -> Registering:
        cls.names.append(label + body["suffix"])
        return super().__new__(cls, name, bases, body)


class Registered(metaclass=Registering, label="a"):
    suffix = "b"


@dataclass(slots=True)
class Slotted:
    size: float


class Private:
    __slots__ = ("__hidden", "shown")

    def __init__(self) -> None:
        self.shown, self.__hidden = 1, 2

    def total(self) -> int:
        return self.shown + self.__hidden


class Derived(Private):
    __slots__ = ("more",)


class Point(NamedTuple):
    x: int
    y: int = 0


class Outer:
    class Inner:
        def __init__(self, value: int) -> None:
            self.value = value


@dataclass
class Sized:
    size: str
    legs: int


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Planet(enum.Enum):
    EARTH = (1, 2)
    MARS = (3, 4)
    RED = (3, 4)

    def __init__(self, mass: int, radius: int) -> None:
        self.mass, self.radius = mass, radius


class Coordinate(bytes, enum.Enum):
    label: str

    def __new__(cls, value: int, label: str) -> Coordinate:
        made = bytes.__new__(cls, [value])
        made._value_, made.label = value, label
        return made

    X = (7, "x")


@dataclass
class Tree:
    color: Color
    kids: tuple[Tree, ...] | None = None


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    ALL = 3


class Animal(Sized, enum.Enum):
    DOG = ("medium", 4)


class Length(timedelta, enum.Enum):
    WEEK = 7


UserId = NewType("UserId", int)
T = TypeVar("T")
P = ParamSpec("P")


class Box(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value


def passed_on(function: Callable[P, T]) -> Callable[P, T]:
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    return inner


# The syntax of Python 3.12.
if sys.version_info >= (3, 12):
    exec("""
def passed_on[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)
    return inner
class Box[U]:
    def __init__(self, value: U) -> None:
        self.value = value
type Many[Z] = list[Z]
""")
else:
    Many = list


class Unknown:
    def __reduce__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


class OwnError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def square(number: int) -> int:
    return number * number


def with_pool(kind: str) -> list[int]:
    with multiprocessing.get_context(kind).Pool(2) as pool:
        return pool.map(square, range(3))


def with_objects_in_pool(kind: str) -> list[int]:
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(kind)) as pool:
        return [it.value for it in pool.map(Outer.Inner, range(2))]


@functools.cache
def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


@case
def default_factories_of_inherited_fields(run: Run) -> object:
    def build(number: int) -> tuple[list[str], int]:
        @dataclass
        class Sub(Base):
            depth: int = 0

        sub = Sub("x", depth=number)
        return sub.layers, sub.depth

    return list(run(build, [1, 2]))


@case
def required_fields(run: Run) -> object:
    def required(kind: Any) -> list[str]:
        absent = dataclasses.MISSING
        return [it.name for it in dataclasses.fields(kind) if it.default is absent and it.default_factory is absent]

    found = list(run(required, [Base, ByKeyword]))
    list(run(Base, ["returned"]))
    return found, required(Base)


@case
def sentinels_of_modules(run: Run) -> object:
    def look(_: int, value: object = UNSET) -> tuple[bool, bool, bool]:
        empty = inspect.signature(square).parameters["number"].default
        return value is beside.UNSET, beside.is_unset(UNSET), empty is inspect.Parameter.empty

    return list(run(look, [0]))


@case
def class_attributes_of_the_caller(run: Run) -> object:
    Counter.seen = 0
    for counter in run(Counter, range(4)):
        Counter.seen += 1
        Counter.registry[str(counter.number)] = Counter.seen
    return Counter.seen, sorted(Counter.registry)


@case
def registries_of_subclasses(run: Run) -> object:
    found = list(run(lambda _: Reader(), [0, 1]))
    (there,) = run(lambda _: (Reader, First, list(Named.by_name), Registered, Registering.names, Plugin.known), [0])
    return [type(it) is Reader for it in found], Plugin.known, there[2:3], there[4:], there[3] is Registered


@case
def slotted_classes(run: Run) -> object:
    kinds = list(run(lambda kind: kind(), [Private, Derived]))
    more = list(run(Slotted, [1.5]))
    return [it.total() for it in kinds], more[0] == Slotted(1.5), hasattr(more[0], "__dict__"), [*run(Point, [1])]


@case
def identities(run: Run) -> object:
    def give(which: int) -> object:
        return (Color.RED, Outer.Inner(1), square, Base("x"), Outer.Inner, len)[which]

    color, inner, function, base, kind, builtin = run(give, range(6))
    return (
        color is Color.RED,
        isinstance(inner, Outer.Inner),
        function is square,
        base == Base("x"),
        kind is Outer.Inner,
        builtin is len,
    )


@case
def objects_that_pickle_names(run: Run) -> object:
    def look(user: UserId) -> tuple[object, ...]:
        return UserId(user), UNKNOWN, UserId

    ((user, unknown, kind),) = run(look, [UserId(3)])
    return user, unknown is UNKNOWN, kind is UserId, list(run(lambda it: it is UNKNOWN, [UNKNOWN]))


@passed_on
def boxed(number: int) -> Box[int]:
    return Box[int](number)


@case
def parameters_of_types(run: Run) -> object:
    (found,) = run(boxed, [3])
    (names,) = run(lambda _: (T, P, Many[int]), [0])
    return found.value, type(found) is Box, names[0] is T, names[1] is P, str(names[2])


def grow(tree: Tree, color: Color) -> Iterator[Tree]:
    yield Tree(color, (tree,))


@case
def annotations_that_are_texts(run: Run) -> object:
    (found,) = run(lambda it: {**typing.get_type_hints(it), **typing.get_type_hints(grow)}, [Tree])
    return found["color"] is Color, found["tree"] is Tree, sorted(found)


@case
def modules_of_other_classes(run: Run) -> object:
    def look(_: int) -> tuple[object, ...]:
        again = importlib.import_module("replaced")
        return lazy.anything, replaced.value, again.value

    return list(run(look, [0]))


@case
def functions_and_classes_of_modules_that_were_replaced(run: Run) -> object:
    with set_in(beside, is_unset=square, Near=Base):
        return list(run(lambda number: (beside.is_unset(number), beside.Near("x").name), [3]))


@contextlib.contextmanager
def set_in(owner: Any, **values: Any) -> Iterator[None]:
    """Set attributes for a while."""
    before = vars(owner).copy()
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            setattr(owner, name, before[name])


@case
def objects_of_modules_that_were_changed(run: Run) -> object:
    def look(_: int) -> list[dict[str, Any]]:
        return [{**vars(it), "path": str(vars(it).get("path"))} for it in (beside.config, beside.other, beside.fields)]

    found = list(run(look, [0]))
    with set_in(beside.config, rate=0.5), set_in(beside.other, seed=6), set_in(beside.fields, rate=1):
        found += run(look, [0])
        beside.config.update(0.7)
        beside.config.path = Path("set")
        config = beside.other
        config.path = Path("by another name")
        found += run(look, [0])
    put_back(beside.config, {"path": Path("own")})
    put_back(config, {"path": Path("own")})
    return found


NAMES = ("ROOT", "DAY", "TENTH", "PLACE", "TYPE", "KIND", "TEXT", "LIST", "EITHER", "_hidden", "OPTIONS")


def put_back(owner: Any, values: dict[str, Any]) -> None:
    vars(owner).update(values)


def zero() -> float:
    return 0.0


def read_computed(_: object) -> list[object]:
    return [repr(getattr(beside, name)) for name in NAMES]


@case
def computed_values_of_modules_that_were_set(run: Run) -> object:
    found = list(run(read_computed, [0]))
    before = {name: getattr(beside, name) for name in NAMES}
    beside.ROOT, beside.DAY, beside.TENTH = Path("other"), date(2025, 1, 1), Decimal("0.5")
    beside.PLACE, beside.TYPE, beside.KIND, beside.TEXT = "gpu", int, beside.Kind.TWO, "set"
    beside._hidden = [2]
    beside.LIST.append(9)
    beside.OPTIONS["rate"] = 2
    setattr(beside, "EITHER", 3)  # noqa: B010
    found += run(read_computed, [0])
    beside.LIST.pop()
    beside.OPTIONS["rate"] = 1
    put_back(beside, before)
    for name in ("ROOT", "DAY", "TENTH", "PLACE", "TYPE", "KIND", "TEXT", "LIST", "EITHER"):
        with set_in(beside, **{name: [name]}):
            found += run(read_computed, [0])
    return found + list(run(read_computed, [0]))


@case
def values_of_modules_that_were_patched(run: Run) -> object:
    with mock.patch("beside.ROOT", Path("patched")), mock.patch.object(beside, "TENTH", Decimal(3)):
        found = list(run(read_computed, [0]))
    with mock.patch("time.time", zero), mock.patch.object(json.JSONEncoder, "default", size_of_three):
        found += run(lambda _: [time.time(), json.dumps({1})], [0])
    return found, list(run(lambda _: [time.time() > 0], [0]))


class Member(beside.Family):  # type: ignore[misc]
    pass


def size_of_three(*_: object) -> int:
    return 3


@case
def attributes_of_classes_of_modules(run: Run) -> object:
    def look(_: int) -> tuple[object, ...]:
        family = beside.Family
        kinds = family.members, list(family.names.values()), [Member, Member]
        sizes = family().size(), beside.Tuple().twice(), beside.Slots(2).size
        return [it is Member for kind in kinds for it in kind], vars(family.first or family()), sizes, family.handlers

    found = list(run(look, [0]))
    with set_in(beside.Family, first=beside.Config(0.5), size=size_of_three, handlers=[len, beside.is_unset]):
        found += run(look, [0])
    return [(*it[:3], len(it[3])) for it in found], [it[3] == [len, beside.is_unset] for it in found]


@case
def enumerations(run: Run) -> object:
    def look(_: int) -> tuple[object, ...]:
        planet: Any = Planet
        coordinate: Any = Coordinate
        return (
            (Planet.MARS.mass, planet((1, 2)).radius, Planet["RED"].name, list(Planet.__members__)),
            (bytes(Coordinate.X), Coordinate.X.label, coordinate(7).name),
            (Access.ALL.name, (Access.READ | Access.WRITE) is Access.ALL, list(Access.__members__)),
            (Animal.DOG.legs, Length.WEEK.days),
        )

    given = [Planet.RED, Coordinate.X, Access.READ, Access.ALL, Animal.DOG, Length.WEEK]
    back = list(run(lambda it: it, given))
    return list(run(look, [0])), [one is other for one, other in zip(back, given, strict=True)]


@case
def exceptions_of_the_program(run: Run) -> object:
    def fail(code: int) -> None:
        raise OwnError(code)

    try:
        list(run(fail, [3]))
    except OwnError as error:
        return type(error) is OwnError, error.code
    return None


@case
def pools_inside(run: Run) -> object:
    kinds = ["fork", "spawn", "forkserver"]
    return list(run(with_pool, kinds, cpus=2)), list(run(with_objects_in_pool, kinds, cpus=2))


@case
def pickling_inside(run: Run) -> object:
    def copy(number: int) -> tuple[Any, bool, Any]:
        inner = pickle.loads(pickle.dumps(Outer.Inner(number)))
        return inner.value, pickle.loads(pickle.dumps(square)) is square, sys.modules["__main__"].square(number)

    return list(run(copy, [3]))


@case
def names_that_the_program_lacks(run: Run) -> object:
    return list(run(lambda _: sorted({"main", "site", "wire"} & set(globals())), [0]))


@case
def cached_functions(run: Run) -> object:
    return list(run(fibonacci, [10, 20]))


def counter() -> tuple[Callable[[], None], Callable[[], int]]:
    number = 0

    def add() -> None:
        nonlocal number
        number += 1

    def get() -> int:
        return number

    return add, get


@case
def variables_that_functions_share(run: Run) -> object:
    add, get = counter()

    def both(_: int) -> int:
        add()
        add()
        return get()

    def recursive(number: int) -> tuple[int, bool]:
        @functools.cache
        def factorial(number: int) -> int:
            return number * factorial(number - 1) if number else 1

        return factorial(number), same(same)

    def same(function: object) -> bool:
        return function is same

    found = list(run(both, [0])), list(run(recursive, [3]))
    ((one, other),) = run(lambda _: counter(), [0])
    one()
    return found, other()


@case
def variables_that_methods_share(run: Run) -> object:
    limit = 1

    class Own:
        def raise_limit(self) -> Own:
            nonlocal limit
            limit += 1
            return self

        def read(self) -> tuple[int, type]:
            return limit, __class__  # type: ignore[name-defined]

    (found,) = run(lambda own: own.raise_limit().read(), [Own()])
    return found[0], found[1] is Own


@case
def arguments_of_the_program(run: Run) -> object:
    def change(_: int) -> list[str]:
        found = sys.argv.copy()
        sys.argv = ["changed"]
        return found

    before = sys.argv
    found = [*run(change, [0]), *run(lambda _: sys.argv, [0])] if run in (on_nodes, on_workers) else [before, before]
    return [it == before for it in found]


@case
def directories_of_the_function(run: Run) -> object:
    def make(_: int) -> list[str]:
        os.makedirs("results", exist_ok=True)
        with open("results/settings.json", "w") as file:
            file.write("{}")
        return os.listdir("results")

    return list(run(make, range(3)))


@case
def directory_is_emptied_removed_and_changed(run: Run) -> object:
    def spoil(how: int) -> int:
        os.makedirs("own", exist_ok=True)
        os.chdir("own")
        place = os.getcwd()
        if how == 0:
            shutil.rmtree(place)
        elif how == 1:
            os.chdir("/")
        elif how == 2:
            os.chmod(place, 0)
        elif how == 3:
            for name in ("results", "main.py", "inputs.pickle", "function.pickle", "settings.json"):
                with open(name, "w") as file:
                    file.write("of the function")
        return how

    return list(run(spoil, range(4)))


@case
def directories_that_a_child_or_a_mode_keeps(run: Run) -> object:
    def leave(number: int) -> tuple[list[str], list[str]]:
        found = os.listdir()
        late = "sleep 0.3; echo of another call > late"
        if number == 0:
            # When the call has ended, it has another parent.
            subprocess.run(["sh", "-c", f"({late}) >/dev/null &"], check=True)
        elif number == 1:
            subprocess.Popen(["sh", "-c", late])
        else:
            os.mkdir("cache", 0o500)
            time.sleep(0.6)
        return found, os.listdir()

    return list(run(leave, range(4)))


@case
def sources_of_functions(run: Run) -> object:
    def look(_: int) -> tuple[object, ...]:
        (frame,) = traceback.extract_stack(limit=1)
        return inspect.getsource(square), inspect.getsource(look), frame.filename, frame.line

    return list(run(look, [0]))


@case
def modules_with_names_of_the_worker(run: Run) -> object:
    return list(run(lambda _: secrets.API_KEY, [0]))


@case
def lambdas_of_nodes_use_what_they_have_captured(run: Run) -> object:
    (times,) = run(lambda factor: lambda number: factor * number, [3])
    return [times(2)]


def in_new_directory(function: Callable[[Any], Any], value: Any) -> Any:
    os.chdir(tempfile.mkdtemp(dir=SCRATCH))
    return function(value)


def local(function: Callable[[Any], Any], inputs: Iterable[Any], **_: Any) -> Iterator[Any]:
    return map(functools.partial(in_new_directory, function), inputs)


def pool(function: Callable[[Any], Any], inputs: Iterable[Any], **_: Any) -> Iterator[Any]:
    """Run in processes that are forked, which can have no local functions."""
    if "<" in getattr(function, "__qualname__", ""):
        return local(function, inputs)
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as executor:
        return executor.map(functools.partial(in_new_directory, function), inputs)


def on_nodes(function: Callable[[Any], Any], inputs: Iterable[Any], cpus: int = 1) -> Iterator[Any]:
    return hostler.map(function, inputs, cpus=cpus, memory="300M", chunksize=4)


def on_workers(function: Callable[[Any], Any], inputs: Iterable[Any], cpus: int = 1) -> Iterator[Any]:
    with hostler.Executor(2, cpus=cpus, memory="300M") as executor:
        return executor.map(function, inputs)


SCRATCH = ""
RUNS: dict[str, Run] = {"local": local, "pool": pool, "map": on_nodes, "executor": on_workers}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as SCRATCH:
        print(json.dumps({name: repr(function(RUNS[sys.argv[1]])) for name, function in CASES.items()}))
