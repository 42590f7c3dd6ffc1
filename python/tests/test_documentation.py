"""The example, and the code of the guide."""

from __future__ import annotations

import builtins
import doctest
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import hostler

REPOSITORY = Path(__file__).resolve().parents[2]


def test_example_estimates_pi(client: hostler.Client, tmp_path: Path) -> None:
    script = REPOSITORY / "examples/functions/main.py"
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("pi is about 3.142\n", "")


def test_code_of_the_guide_runs(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block of the guide that has a line with an expected output prints that output."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("import sys\nprint('loss', 0.25)\nopen('metrics.json', 'w').write('{}')\n")
    monkeypatch.chdir(tmp_path)
    guide = (REPOSITORY / "docs/guides/python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        expected = "".join(f"{line}\n" for line in re.findall(r"# prints: (.*)", block))
        exec(compile(block, "guide", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out == expected, block


def test_reference_is_that_of_the_docstrings() -> None:
    render = runpy.run_path(str(REPOSITORY / "python/reference.py"))["render"]
    page = (REPOSITORY / "docs/reference/python.md").read_text(encoding="utf-8")
    assert page == render(), "run `python3 python/reference.py`"


def test_examples_of_docstrings_with_an_output_print_it(client: hostler.Client) -> None:
    runner = doctest.DocTestRunner()
    finder = doctest.DocTestFinder(recurse=False)
    found = [test for name in hostler.__all__ for test in finder.find(getattr(hostler, name), name, globs={})]
    tests = [test for test in found if any(example.want for example in test.examples)]
    assert len(tests) >= 2
    for test in tests:
        test.globs["hostler"] = hostler
        assert runner.run(test).failed == 0, test.name
    # Examples leave their last value there, where IPython would look for its own `_`.
    vars(builtins).pop("_", None)
