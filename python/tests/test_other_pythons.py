"""Tests with each other Python of this machine; the end of the run says which these were."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REMARKS

import hostler

SECONDS = 300

# Of our own Pythons, only their versions differ: the package and its only dependency are the same files.
SCRIPT = """
import asyncio, sys, warnings
warnings.simplefilter("error")
import hostler

class Point:
    def __init__(self, x):
        self.x = x

def work(number):
    if number == 2:
        raise ValueError("two")
    return Point(number), sys.version_info[:2]

async def info():
    return (await hostler.AsyncClient().info())["head"]["embedded"]

found = list(hostler.map(work, range(3), errors="return", cpus=1, memory="100M"))
assert [(point.x, version) for point, version in found[:2]] == [(x, sys.version_info[:2]) for x in range(2)]
assert str(found[2]) == "two" and "in work" in str(found[2].__cause__)
with hostler.Executor(1, cpus=1, memory="100M") as executor:
    assert executor.submit(pow, 2, 3).result() == 8
    assert list(executor.map(lambda x: 2 * x, range(3))) == [0, 2, 4]
print(asyncio.run(info()))
"""


def others() -> dict[tuple[int, ...], str]:
    """Return the newest other interpreter of each minor version that the package supports, by version."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    places = [Path(place) for place in os.environ["PATH"].split(":")]
    places += [*home.glob(".pyenv/versions/*/bin"), *home.glob(".local/share/uv/python/*/bin")]
    found: dict[tuple[int, ...], str] = {}
    for program in (program for place in places for program in [place / "python3", *place.glob("python3.[0-9][0-9]")]):
        if not os.access(program, os.X_OK):
            continue
        ask = [str(program), "-I", "-c", "import sys; print(*sys.version_info[:3])"]
        # Those of version managers may answer that none is chosen.
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=SECONDS)
        if answer.returncode == 0:
            found.setdefault(tuple(map(int, answer.stdout.split())), str(program))
    newest = {version[:2]: version for version in sorted(found)}
    return {
        version: found[version]
        for minor, version in newest.items()
        if (3, 10) <= minor <= (3, 15) and minor != sys.version_info[:2]
    }


Version = tuple[int, ...]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a path with this package and cloudpickle."""
    place = tmp_path_factory.mktemp("packages")
    spec = importlib.util.find_spec("cloudpickle")
    assert spec
    assert spec.origin
    shutil.copytree(Path(spec.origin).parent, place / "cloudpickle")
    return os.pathsep.join([str(Path(hostler.__file__).parents[1]), str(place)])


def run(pythons: dict[Version, str], packages: str, *arguments: str | Path) -> dict[Version, str]:
    """Run a program with several Pythons at the same time, and return what they print."""
    variables = {**os.environ, "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}
    started = {
        version: subprocess.Popen(
            [program, *arguments], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for version, program in pythons.items()
    }
    try:
        outputs = {version: process.communicate(timeout=SECONDS)[0] for version, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    failed = {version: outputs[version] for version, process in started.items() if process.returncode != 0}
    assert not failed
    return outputs


def test_each_other_python_of_this_machine_can_map_and_submit_calls(
    client: hostler.Client, packages: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    pythons = others()
    assert run(pythons, packages, tmp_path / "script.py") == dict.fromkeys(pythons, "True\n")
    names = ", ".join(f"{'.'.join(map(str, version))} ({program})" for version, program in pythons.items())
    REMARKS.append(f"smoke test with other Pythons: {names or 'none, as this machine has no other'}")


def test_functions_return_with_each_other_python_what_they_return_locally(
    client: hostler.Client, packages: str, cases: Path
) -> None:
    here, there = (
        {version: json.loads(text) for version, text in run(others(), packages, cases, way).items()}
        for way in ("local", "map")
    )
    assert there == here
