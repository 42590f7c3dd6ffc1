"""The example, and the code of the guide."""

from __future__ import annotations

import re
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
