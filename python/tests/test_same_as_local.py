"""Runs the cases of `same_as_local.py` here, in a process pool and on a cluster, and compares."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hostler

PROGRAM = Path(__file__).with_name("same_as_local.py")
CASES = re.findall(r"@case\ndef (\w+)", PROGRAM.read_text(encoding="utf-8"))
WAYS = ("pool", "map", "executor")


def run(*arguments: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def found(client: hostler.Client, cases: Path) -> dict[str, dict[str, str]]:
    return {way: json.loads(run(cases, way)) for way in ("local", *WAYS)}


@pytest.mark.parametrize("case", CASES)
def test_result_is_that_of_a_local_run(found: dict[str, dict[str, str]], case: str) -> None:
    assert {way: found[way][case] for way in WAYS} == dict.fromkeys(WAYS, found["local"][case])


def test_processes_and_states_of_functions_stay_their_own(client: hostler.Client, cases: Path) -> None:
    assert json.loads(run(cases.with_name("only_on_nodes.py"))) == {
        "children of functions": [3, 1, 0],
        "children of calls": [3, 1, 0],
        "draw with each chunksize": True,
        "count with each chunksize": True,
        "changes of the process with chunksize 1": [[None, False, True, "1", True, False]] * 3,
        "changes of the process with chunksize 3": [[None, False, True, "1", True, False]] * 3,
        "changes of the process by calls": [[None, False, True, "1", True, False]] * 3,
        "limits and timers": [[True, 0], [True, 1], [True, 2]],
        "limits and timers of calls": [[True, 0], [True, 1]] * 2,
        "spawned caller": 0,
        "home of Python": True,
        "crashes": [
            0,
            "input 1 has no result",
            2,
            "input 3 has no result",
            "input 4 has no result",
            5,
        ],
    }


NAMED = """
import enum, functools, sys, typing
from dataclasses import dataclass
import hostler, near
T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    @functools.cached_property
    def size(self): return 2
@functools.singledispatch
def kind(value): return "object"
@kind.register
def _(value: int): return "int"
@dataclass(slots=True)
class Config:
    rate: float
    names: frozenset = frozenset({"p", "q", "r"})
class Status(enum.Enum):
    GOOD = 1
NAMES = {"a", "b", "c", "d"}
@functools.lru_cache
def is_known(name): return name in {"u", "v", "w"}
def train(config, names):
    return Status.GOOD, Config(config.rate * 2), len(NAMES | names), is_known("u"), near.one(), Box().size, kind(1)
m = hostler.map(train, [Config(1.0)], [{"x", "y", "z"}], key="same", cpus=1, memory="200M")
(status, config, *rest), = m
print((m.job.id, status is Status.GOOD, type(config) is Config, config == Config(2.0), *rest))
"""


def test_named_map_is_found_by_what_it_means(client: hostler.Client, tmp_path: Path) -> None:
    script, near = tmp_path / "script.py", tmp_path / "near.py"

    def again(text: str = NAMED, beside: str = "def one(): return 1\n") -> tuple[Any, ...]:
        script.write_text(text)
        near.write_text(beside)
        found: tuple[Any, ...] = ast.literal_eval(run(script, cwd=tmp_path))
        return found

    first = again()
    assert first[1:] == (True, True, True, 7, True, 1, 2, "int")
    assert again() == first
    with_comment = NAMED.replace("def train", "# A comment.\n\ndef train")
    assert again(with_comment, "# Another one.\n\ndef one(): return 1\n") == first
    script.rename(tmp_path / "renamed.py")
    assert ast.literal_eval(run("renamed.py", cwd=tmp_path)) == first
    for text, beside, what in (
        (NAMED.replace("rate * 2", "rate * 3"), "def one(): return 1\n", "another function"),
        (NAMED.replace("rate: float", "rate: float = 0"), "def one(): return 1\n", "another function and other inputs"),
        (NAMED.replace('"z"}', '"t"}'), "def one(): return 1\n", "other inputs"),
        (NAMED, "def one(): return 2\n", "other modules beside the program"),
    ):
        script.write_text(text)
        near.write_text(beside)
        done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
        assert f"job {first[0]} has the key `same` and {what}\n" in done.stderr
    opened = hostler.Map.open("same")
    assert len(next(iter(opened))) == 7, "another program creates the classes"
