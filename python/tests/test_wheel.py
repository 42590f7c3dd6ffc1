"""The wheel, in an environment that has nothing else.

These tests come last: cargo may link the command again that the cluster of the others runs.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

SCRIPT = """
import hostler

def square(x):
    return x * x

results = list(hostler.map(square, range(1000), memory="100M"))
print(hostler.__version__, sum(results) == sum(x * x for x in range(1000)))
"""


def build(directory: Path) -> Path:
    """Build the wheel in the profile of the tests, with what they have compiled."""
    # Cargo and its compiler are in the user's real home.
    variables = os.environ | {"HOME": pwd.getpwuid(os.getuid()).pw_dir}
    if "HOSTLER_BIN" in variables:
        variables["CARGO_TARGET_DIR"] = str(Path(variables["HOSTLER_BIN"]).parents[1])
    command = [
        sys.executable,
        "-m",
        "maturin",
        "build",
        "--quiet",
        "--locked",
        "--profile=dev",
        "--out",
        str(directory),
    ]
    subprocess.run(command, cwd=Path(__file__).parents[1], env=variables, check=True)
    (wheel,) = directory.glob("hostler-*.whl")
    return wheel


def add_cloudpickle(site_packages: Path) -> None:
    """Copy the only dependency, because tests need no network."""
    files = distribution("cloudpickle").files or []
    for top in {file.parts[0] for file in files}:
        source = Path(str(distribution("cloudpickle").locate_file(top)))
        shutil.copytree(source, site_packages / top)


def test_installed_wheel_needs_nothing_else(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = build(tmp_path / "dist")
    # Jupyter finds the provisioner of kernels by this.
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "hostler=hostler.provisioner:HostlerProvisioner" in entries.replace(" ", "")
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", str(fresh)], check=True)
    (site_packages,) = fresh.glob("lib/python*/site-packages")
    add_cloudpickle(site_packages)
    subprocess.run([fresh / "bin/pip", "install", "--quiet", "--no-index", str(wheel)], check=True)

    # A home of its own, with a short path for sockets, and neither this package nor this program.
    own = home / "wheel"
    own.mkdir()
    for name in ("HOSTLER_BIN", "PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(own))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own))
    monkeypatch.setenv("PATH", f"{fresh}/bin:{os.environ['PATH']}")
    (own / "squares.py").write_text(SCRIPT)
    program = fresh / "bin/hostler"
    assert shutil.which("hostler") == str(program)
    try:
        subprocess.run([program, "up", "--nodes=1", "--cpus=2", "--memory=1G"], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([fresh / "bin/python", "squares.py"], cwd=own, check=True, capture_output=True, text=True)
    finally:
        subprocess.run([program, "down", "--cancel"], check=True, stdout=subprocess.DEVNULL)
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    assert done.stdout == f"{version} True\n"
