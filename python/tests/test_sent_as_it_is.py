"""What a program has set and what its functions import later is on nodes as it is here."""

from __future__ import annotations

import ast
import importlib.util
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import types
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any, cast

import pytest

import hostler
from hostler._worker import link, modules, pickling, state, stores

K = {"cpus": 1, "memory": "200M"}

CONFIG = """
import dataclasses, os, types
import defaults
from defaults import RATE
LR = 0.1
STEPS = 10 * 60
LAYERS = [1, 2]
NAMES = {"a": 1}
HOME = os.environ.get("PLACE", "none")
NOTHING = None
class Training:
    LR = 0.1
    class Inner:
        DEPTH = 3
@dataclasses.dataclass
class Settings:
    lr: float = 0.1
    layers: list = dataclasses.field(default_factory=list)
class Plain:
    def __init__(self):
        self.lr = 0.1
        self.home = os.getcwd()
settings = Settings()
given = Settings(lr=0.3)
space = types.SimpleNamespace(lr=0.1, place=os.getcwd())
plain = Plain()
def set_steps(steps):
    global STEPS
    STEPS = steps
def set_all(**values):
    globals().update(values)
def double(number):
    return 2 * number
"""

#: What a script sets in `config`, and an expression that a function returns.
STATE = [
    ("config.LR = 0.5", "config.LR"),
    ("config.set_steps(7)", "config.STEPS"),
    ("config.LAYERS.append(3)", "config.LAYERS"),
    ("config.NAMES['b'] = 2", "config.NAMES"),
    ("config.NOTHING = {'a': (1, 2)}", "config.NOTHING"),
    ("config.NEW = 'new'", "config.NEW"),
    ("import argparse; config.args = argparse.Namespace(lr=3)", "config.args.lr"),
    ("config.Training.LR = 0.5", "config.Training.LR"),
    ("config.Training.MORE = 1", "config.Training.MORE"),
    ("config.Training.Inner.DEPTH = 4", "config.Training.Inner.DEPTH"),
    ("config.settings.lr = 0.5", "config.settings.lr"),
    ("config.given.lr = 0.5", "config.given.lr"),
    ("config.space.lr = 0.5", "config.space.lr"),
    ("config.space.new = 1", "config.space.new"),
    ("config.plain.lr = 0.5", "config.plain.lr"),
    ("config.Settings.lr = 0.7", "config.Settings.lr"),
    ("config.LR = float('nan')", "config.LR != config.LR"),
    ("config.set_all(ADDED=8)", "config.ADDED"),
    ("config.RATE = 3", "(config.RATE, config.defaults.RATE)"),
    ("config.defaults.RATE = 4", "(config.RATE, config.defaults.RATE)"),
    ("config.double = lambda number: 3 * number", "config.double(2)"),
    (
        "import functools; before = config.double\n"
        "config.double = functools.wraps(before)(lambda number: 1 + before(number))",
        "config.double(2)",
    ),
    ("config.Plain.read = lambda self: self.lr", "config.Plain().read()"),
    ("config.Plain.__len__ = lambda self: 7", "len(config.Plain())"),
    ("config.Training.kind = staticmethod(lambda: 4)", "config.Training.kind()"),
    ("", "(hasattr(config.Plain, '__len__'), hasattr(config.Training, 'kind'), config.double(2))"),
    ("", "(config.LR, config.STEPS, config.settings.lr, config.given.lr, config.Training.LR)"),
]

#: Files, the body of a function, and what it returns.
IMPORTS: list[tuple[dict[str, str], str, object]] = [
    ({"helpers.py": "X = 1"}, "import helpers; return helpers.X", 1),
    ({"helpers.py": "X = 1"}, "import importlib; return importlib.import_module('helpers').X", 1),
    ({"helpers.py": "X = 1"}, "return __import__('helpers').X", 1),
    (
        {"helpers.py": "def f():\n    import other\n    return other.X", "other.py": "X = 2"},
        "import helpers; return helpers.f()",
        2,
    ),
    (
        {"src/model.py": "def f():\n    from . import extra\n    return extra.X", "src/extra.py": "X = 3"},
        "from src import model; return model.f()",
        3,
    ),
    ({"src/a/b.py": "X = 4"}, "import src.a.b; return src.a.b.X", 4),
    ({"plugins/one.py": "X = 5"}, "import importlib; return importlib.import_module(f'plugins.{\"one\"}').X", 5),
    (
        {"pkg/__init__.py": "", "pkg/data.txt": "6"},
        "import pkg, os; return int(open(os.path.join(os.path.dirname(pkg.__file__), 'data.txt')).read())",
        6,
    ),
]


def run(folder: Path, script: str, *arguments: str) -> str:
    (folder / "script.py").write_text(script)
    variables = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, "script.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_set_in_modules_is_set_on_nodes(client: hostler.Client, tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "defaults.py").write_text("RATE = 1\n")
    cases = "".join(f"    ({change!r}, lambda _: {read}),\n" for change, read in STATE)
    functions = "\n".join(f"def read_{at}(_): return {read}" for at, (_, read) in enumerate(STATE))
    (tmp_path / "readers.py").write_text(f"import config\n{functions}\n")
    script = f"""
import importlib, json, hostler, config, readers
cases = [
{cases}]
found = []
with hostler.Executor.local(1) as local, hostler.Executor(1, **{K!r}) as executor:
    for at, (change, read) in enumerate(cases):
        importlib.reload(config)
        exec(change)
        named = getattr(readers, f"read_{{at}}")
        found.append([repr(named(0)), *(repr(run(f, [0])) for f in (named, read) for run in (
            lambda f, x: next(local.map(f, x)), lambda f, x: next(executor.map(f, x)),
            *([lambda f, x: next(hostler.map(f, x, **{K!r}))] if at % 4 == 0 or not change else []),
        ))])
print(json.dumps(found))
"""
    for (change, _), (here, *there) in zip(STATE, json.loads(run(tmp_path, script)), strict=True):
        assert set(there) == {here}, change


@pytest.mark.parametrize(("files", "body", "expected"), IMPORTS)
def test_modules_that_only_the_function_imports_are_sent(
    client: hostler.Client, tmp_path: Path, files: dict[str, str], body: str, expected: object
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = f"""
import json, hostler
def work(_):
    {body}
with hostler.Executor.local(1) as local:
    found = [next(local.map(work, [0])), next(hostler.map(work, [0], **{K!r}))]
print(json.dumps([*found, hostler.preflight(work).problems]))
"""
    assert json.loads(run(tmp_path, script)) == [expected, expected, []]


PROGRAM = """
import concurrent.futures, multiprocessing, hostler, config
class Kind:
    def read(self): return FACTOR
def hook(): return FACTOR * 2
def in_child(_): return config.LR
def work(_):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return isinstance(config.OBJECT, Kind), config.OBJECT.read(), config.HOOK(), *pool.map(in_child, [0])
def first(_):
    import one
    return one.X
def second(_):
    import two
    return two.X
def third(_):
    import folder.three
    return folder.three.X
if __name__ == "__main__":
    FACTOR = 5
    config.LR, config.OBJECT, config.HOOK = 0.5, Kind(), hook
    with hostler.Executor.local(1) as local:
        found = [*local.map(work, range(2)), *hostler.map(work, range(2), chunksize=2, cpus=2, memory="300M")]
        assert found == [(True, 5, 10, 0.5)] * 4, found
        assert [*local.map(first, [0]), *local.map(second, [0]), *local.map(third, [0])] == [1, 2, 3]
    named = hostler.map(in_child, [0], key="with values", cpus=1, memory="200M")
    assert hostler.map(in_child, [0], key="with values", cpus=1, memory="200M").job.id == named.job.id
    config.LR = 0.7
    try:
        hostler.map(in_child, [0], key="with values", cpus=1, memory="200M")
    except hostler.RefusedError as error:
        print(error.message)
"""


def test_values_belong_to_the_program_of_their_call(client: hostler.Client, tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("LR = 0.1\nOBJECT = None\nHOOK = None\n")
    (tmp_path / "one.py").write_text("X = 1\n")
    for name in ("two", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "two/__init__.py").write_text("X = 2\n")
    (tmp_path / "folder/three.py").write_text("X = 3\n")
    assert "and other values set in modules" in run(tmp_path, PROGRAM)


def test_what_is_no_file_in_a_package_is_left_out_with_a_warning(client: hostler.Client, tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("def f(x):\n    return x + 1\n")
    (package / "dangling").symlink_to("/no/such/data")
    (package / "again").symlink_to(package)
    os.mkfifo(package / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(package / "socket"))
    script = f"""
import json, warnings, hostler, pkg
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = list(hostler.map(pkg.f, [1], **{K!r}))
print(json.dumps([found, [str(it.message) for it in caught], hostler.preflight(pkg.f).problems]))
"""
    found, warned, problems = json.loads(run(tmp_path, script))
    assert found == [2]
    for name in ("dangling", "again", "pipe", "socket"):
        assert any(f"pkg/{name}: " in line for line in warned), warned
        assert any(f"pkg/{name}: " in line for line in problems), problems


def test_preflight_promises_only_what_is_sent(client: hostler.Client, tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("LR = 0.1\nOTHER = 1\nLOCK = None\ndef step(x):\n    return LR * x\n")
    script = f"""
import json, threading, warnings, hostler, config
config.LR, config.LOCK = 0.5, threading.Lock()
def work(_):
    import surely_missing
found, missing = hostler.preflight(config.step), hostler.preflight(work)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    result = list(hostler.map(config.step, [1], **{K!r}))
warned = [str(it.message) for it in caught]
print(json.dumps([found.captures, list(found.state), str(found), found.problems, missing.problems, result, warned]))
"""
    captures, set_, text, problems, missing, result, warned = json.loads(run(tmp_path, script))
    assert (captures, set_, result) == ({}, ["config.LR"], [0.5])
    assert "sets         config.LR as it is now" in text
    assert any("config.LOCK" in problem for problem in problems)
    assert any("config.LOCK" in warning for warning in warned)
    assert any("surely_missing" in problem for problem in missing)


def test_values_that_a_module_computes_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "computed_by_this_test"
    (tmp_path / f"{name}.py").write_text(
        "import os\nfrom os.path import *\nHERE = __file__\nA, B = 1, 2\nfor I in range(3): pass\nX = []\nX.append(1)\n"
        "Y = 1\nY += 1\nif HERE: Z = 1\ntry:\n    import json\nexcept ImportError:\n    json = None\n"
        "_cache = {}\nN: int = 3\nclass C:\n    __slots__ = ()\n    def f(self): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(name)
    module._cache["a"] = 1
    assert state.changes({name: str(module.__file__)}, repr) == ({}, [])  # type: ignore[arg-type]
    monkeypatch.setattr(module, "N", 4)
    assert list(state.changes({name: str(module.__file__)}, lambda _: b"")[0]) == [f"{name}:N"]
    monkeypatch.setattr(module, "N", list(range(20_000)))
    assert "too large" in state.changes({name: str(module.__file__)}, lambda _: b"")[1][0]


@pytest.mark.parametrize(
    ("code", "owner", "attribute"),
    [
        ("import config; config.A = 1", "config", "A"),
        ("import config; config.A += 1", "config", "A"),
        ("import pkg.sub; pkg.sub.A.b = 1", "pkg.sub.A", "b"),
        ("import pkg.sub as other; other.A[0].b = 1", "pkg.sub", "A"),
        ("from . import config; config.A[1] = 1", ".config", "A"),
        ("from .pkg import config; config.A.append(1)", ".pkg.config", "A"),
        ("from config import A; A['b'] = 1", "config", "A"),
        ("from config import A; A.update(b=1)", "config", "A"),
        ("def f():\n    import config as c\n    own = c.A\n    own.b = 1", "config.A", "b"),
        ("import config; setattr(config, 'A', 1)", "config", "A"),
        ("import config; setattr(config, name, 1)", "config", ""),
        ("import config; vars(config)['A'] = 1", "config", ""),
        ("import config; config.__dict__.update(A=1)", "config", ""),
        ("import config; patch.object(config, 'A', 1)", "config", "A"),
        ("patch('pkg.config.A', 1)", "pkg.config", "A"),
        ("def f(args):\n    args.A = 1", None, None),
        ("import config; self.A = config.A; getattr(config, 'A'); print(vars(config), config.A)", None, None),
    ],
)
def test_what_code_sets_is_found(code: str, owner: str | None, attribute: str | None) -> None:
    assert {store[:2] for store in stores.of(ast.parse(code))} == ({(owner, attribute)} if owner else set())


def test_values_return_when_the_caller_sets_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle
    import types

    module = types.ModuleType("set_by_this_test")
    module.LR = 0.1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    state.receive({f"{module.__name__}:LR": pickle.dumps(0.5), f"{module.__name__}:NEW": pickle.dumps(1)})
    assert (module.LR, module.NEW) == (0.5, 1)
    state.receive({f"{module.__name__}:LR": pickle.dumps(0.7)})
    assert (module.LR, hasattr(module, "NEW")) == (0.7, False)
    state.receive({})
    assert module.LR == 0.1


def test_interpreter_with_dots_in_its_path_works(client: hostler.Client, tmp_path: Path) -> None:
    place = Path(sys.executable).parent
    dotted = f"{place}/../{place.name}/{Path(sys.executable).name}"
    (tmp_path / "script.py").write_text(f"import hostler; print(list(hostler.map(abs, [-1], **{K!r})))")
    done = subprocess.run([dotted, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[1]\n", "")


def test_environment_of_a_sandbox_is_one_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    from hostler._worker import project

    monkeypatch.setattr(sys, "executable", "/home/me/venv/bin/python")
    assert project.default_environment(True, {}) == "own"
    assert project.default_environment(True, {"sandbox": True}) == "build"
    assert project.default_environment(True, {"image": "docker://python:3.12"}) == "build"
    for options in ({"sandbox": True}, {"image": "docker://python:3.12"}):
        with pytest.raises(hostler.UsageError, match='environment="own" does not work here') as caught:
            hostler.Executor(environment="own", **options)
        assert 'environment="build"' in caught.value.hints[0]
    project.check_sandbox("build", {"sandbox": True})


def test_packages_of_the_system_are_left_out_unless_they_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata

    from hostler._worker import project

    for name, installer in (("cupshelpers", "debian"), ("pytest", "debian"), ("unused", "pip")):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "INSTALLER").write_text(installer)
    found = list(importlib.metadata.distributions(path=[str(tmp_path)]))
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    assert project.installed() == ["pytest==1.0", "unused==1.0"]
    assert project.left_out() == ["cupshelpers"]


def test_flags_of_python_are_those_of_the_caller(client: hostler.Client, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys, hostler\n"
        "def flags(_): return sys.flags.optimize, sys.warnoptions\n"
        f"print(*hostler.map(flags, [0], **{K!r}))\n"
        "with hostler.Executor.local(1) as executor: print(executor.submit(flags, 0).result())\n"
    )
    command = [sys.executable, "-O", "-W", "error", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(1, ['error'])\n(1, ['error'])\n", "")


def test_hash_seed_and_encoding_are_those_of_the_caller(client: hostler.Client, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys, hostler\n"
        "def look(_): return hash('a'), sys.flags.utf8_mode\n"
        f"print(look(0) == next(hostler.map(look, [0], **{K!r})), sys.flags.utf8_mode)\n"
    )
    variables = {**os.environ, "PYTHONHASHSEED": "5", "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=variables)
    assert (done.stdout, done.stderr) == ("True 1\n", "")


def test_what_only_processes_of_a_machine_share_is_refused() -> None:
    one, other = multiprocessing.Pipe()
    memory = shared_memory.SharedMemory(create=True, size=1)
    with one, other, multiprocessing.Manager() as manager, hostler.Executor.local(1) as executor:
        for value in (one, memory, manager.list(), manager.Namespace(), manager.Queue()):
            with pytest.raises(
                hostler.PicklingError, match=r"variable `value`: .* processes of this machine can share"
            ):
                executor.submit(lambda: value)  # noqa: B023
    memory.close()
    memory.unlink()


def test_arrays_that_are_mapped_from_files_can_only_be_read(tmp_path: Path) -> None:
    script = """
import numpy as np, hostler
np.arange(3).tofile("numbers")
def write(array):
    array[0] = 5
    return array.sum()
def read(array): return type(array) is np.memmap and int(array.sum())
with hostler.Executor.local(1) as executor:
    for mode in ("r", "r+", "c"):
        array = np.memmap("numbers", dtype=int, mode=mode)
        print(mode, executor.submit(read, array[1:]).result(), executor.submit(write, array).exception())
print(0)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    refused = "assignment destination is read-only"
    assert done.stdout == f"r 3 {refused}\nr+ 3 {refused}\nc 3 None\n0\n", done.stderr


def test_functions_that_a_module_replaces_itself_are_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "replaces.py"
    file.write_text(
        "import functools\n"
        "def root(x): pass\n"
        "try:\n    from math import sqrt as root\nexcept ImportError:\n    pass\n"
        "def again(x): pass\nagain = len\n"
        "@functools.cache\ndef kept(): pass\n"
        "def plain(): pass\nclass Plain: pass\n"
    )
    spec = importlib.util.spec_from_file_location("replaces", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "replaces", module)
        spec.loader.exec_module(module)
        assert state.changes({"replaces": str(file)}, pickling.dumps_placed) == ({}, [])
        vars(module).update(plain=len, Plain=dict)
        assert set(state.changes({"replaces": str(file)}, pickling.dumps_placed)[0]) == {
            "replaces:plain",
            "replaces:Plain",
        }


def test_imports_in_code_are_found() -> None:
    def work() -> None:
        import importlib
        import xml.dom  # noqa: F401

        importlib.import_module("a.b")
        (lambda: __import__("c"))()

    found = {("xml.dom", True), ("a.b", False), ("c", False)}
    assert found <= set(modules._imports(work.__code__, ""))


def test_what_many_calls_capture_is_kept_and_sent_once(tmp_path: Path) -> None:
    script = """
import resource, sys, hostler
import numpy as np
X = np.ones(4_000_000)
TEXT = bytes(30_000_000)
LIST = list(range(500_000))
def first(i): return float(X[i]) + TEXT[i]
def second(i, table): return float(table[i])
def third(i): return LIST[i]
def change(table): table[0] += 1; return float(table[0]), table.flags.writeable
def is_writeable(table): return table.flags.writeable
def same(one, other): return one is other
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
with hostler.Executor.local(2) as executor:
    before = peak()
    for _ in range(2):
        assert list(executor.map(first, range(25))) == [1.0] * 25
        assert list(executor.map(second, range(25), [X] * 25)) == [1.0] * 25
        assert list(executor.map(third, range(25))) == list(range(25))
    grown = peak() - before
    # Each call has the values of its submission, and an array of its own.
    futures = []
    for value in (1.0, 1.0, 1.0, 5.0, 5.0, 5.0):
        X[0] = value
        futures.append(executor.submit(change, X))
    assert [it.result() for it in futures] == [(2.0, True)] * 3 + [(6.0, True)] * 3
    other = LIST.copy()
    for _ in range(3):
        assert executor.submit(same, other, other).result()
        assert not executor.submit(same, other, LIST).result()
        assert executor.submit(same, X, X).result()
    X.flags.writeable = False
    assert [executor.submit(is_writeable, X).result() for _ in range(4)] == [False] * 4
print(grown)
"""
    # Each map would add 25 times about 30 MB otherwise.
    assert int(run(tmp_path, script)) < 700


def test_asyncio_can_send_large_pieces_without_copies_of_the_rest() -> None:
    # From Python 3.12 on, it copies the rest of `bytes` each time that it has sent a piece.
    written: list[object] = []
    worker = link.Worker(cast("Any", None), cast("Any", None), 0)
    worker._output = cast("Any", types.SimpleNamespace(write=written.append))
    worker._write(b"piece")
    assert [type(it) for it in written] == [memoryview]


def test_calls_in_pieces_survive_lost_connections_and_nesting(client: hostler.Client, tmp_path: Path) -> None:
    script = f"""
import hostler
TEXT = bytes(range(256)) * 1000
def inner(i): return TEXT[i]
def outer(executor, i): return executor.submit(inner, i).result() + sum(executor.map(inner, range(3)))
with hostler.Executor(2, **{K!r}) as executor:
    futures = [executor.submit(outer, executor, i) for i in range(6)]
    assert [it.result() for it in futures] == [i + 3 for i in range(6)]
    assert list(executor.map(inner, range(50))) == list(range(50))
    for pool in executor._pools:
        for worker in tuple(pool.workers):
            pool._loop.call_soon_threadsafe(worker.close)
    assert list(executor.map(inner, range(50))) == list(range(50))
"""
    run(tmp_path, script)
