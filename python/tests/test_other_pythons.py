"""A smoke test with each other Python of this machine; the end of the run says which these were."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

from conftest import REMARKS

import hostler

SECONDS = 120

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


def test_each_other_python_of_this_machine_can_map_and_submit_calls(client: hostler.Client, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("cloudpickle")
    assert spec
    assert spec.origin
    shutil.copytree(Path(spec.origin).parent, tmp_path / "cloudpickle")
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join([str(Path(hostler.__file__).parents[1]), str(tmp_path)])
    pythons = others()
    started = {
        version: subprocess.Popen(
            [program, "script.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for version, program in pythons.items()
    }
    try:
        outputs = {version: process.communicate(timeout=SECONDS)[0] for version, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    assert outputs == dict.fromkeys(pythons, "True\n")
    names = ", ".join(f"{'.'.join(map(str, version))} ({program})" for version, program in pythons.items())
    REMARKS.append(f"smoke test with other Pythons: {names or 'none, as this machine has no other'}")
