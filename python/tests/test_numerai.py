"""The example of a tournament: as a job array, as a script, and as a notebook."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from packaging.requirements import Requirement

import hostler
from hostler import _executable

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/numerai-like"
PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def run(*command: str | Path, directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_table(text: str, models: list[str]) -> None:
    """Check that the models have scores, and that they found something."""
    header, *rows = text.splitlines()
    assert header.split() == ["MODEL", "SEED", "MEAN", "STD", "SHARPE", "DRAWDOWN"]
    assert sorted(row.split()[0] for row in rows) == sorted(models)
    assert all(float(row.split()[2]) > 0 for row in rows if row.startswith("ensemble"))


def test_example_runs_as_array_of_a_project(client: hostler.Client, tmp_path: Path) -> None:
    # With the packages of this Python, since the node would download those of `requirements.txt`.
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("requirements.txt"))
    flags = ["-a", "0,1", "-c", "1", "-m", "700M", "--wait", "--", "main.py", "--features", "20"]
    job = run(_executable.find(), "submit", folder, sys.executable, *flags, directory=tmp_path).split()[0]
    run(_executable.find(), "fetch", job, "--to", "out", directory=tmp_path)
    metrics = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("out/*/metrics.json"))]
    assert [(found["model"], found["seed"], len(found["eras"])) for found in metrics] == [
        ("ridge", 0, 12),
        ("shallow", 0, 12),
    ]
    assert all(file.read_bytes().startswith(PNG) for file in tmp_path.glob("out/*/plot.png"))
    check_table(run(sys.executable, EXAMPLE / "report.py", "out", directory=tmp_path), ["ridge", "shallow", "ensemble"])
    assert (tmp_path / "leaderboard.png").read_bytes().startswith(PNG)


def test_requirements_name_what_the_example_imports() -> None:
    lines = (EXAMPLE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = {found.name: found.specifier for found in map(Requirement, lines)}
    # The other tests run with these versions.
    for name, specifier in required.items():
        assert importlib.metadata.version(name) in specifier
    needed: set[str] = set()
    for file in ("main.py", "report.py", "tournament.py"):
        for step in ast.walk(ast.parse((EXAMPLE / file).read_text(encoding="utf-8"))):
            names = [alias.name for alias in step.names] if isinstance(step, ast.Import) else []
            names += [step.module or ""] if isinstance(step, ast.ImportFrom) else []
            needed |= {name.partition(".")[0] for name in names}
    assert needed - sys.stdlib_module_names - {"report", "tournament"} <= set(required)


def test_example_runs_as_script(client: hostler.Client, tmp_path: Path) -> None:
    text = run(sys.executable, EXAMPLE / "search.py", "--rows=12000", "--seeds=1", directory=tmp_path)
    check_table(text, ["ridge", "shallow", "deep", "ensemble"])
    assert (tmp_path / "leaderboard.png").read_bytes().startswith(PNG)


def test_example_runs_as_notebook(client: hostler.Client) -> None:
    notebook = nbformat.read(EXAMPLE / "numerai-like.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code)
    code[1].source = code[1].source.replace("range(2)", "range(1)")
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute(cwd=str(EXAMPLE))
    overview, preflight, trained, plot, on_node, table = (cell.outputs for cell in code)
    assert "2 up" in overview[0].data["text/plain"]
    assert "module tournament" in preflight[0].text
    check_table(trained[0].text, ["ridge", "shallow", "deep"])
    assert "image/png" in plot[0].data
    assert "image/png" in on_node[-1].data
    check_table(table[0].text, ["ridge", "shallow", "deep", "ensemble"])
