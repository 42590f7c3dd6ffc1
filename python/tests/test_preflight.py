"""`hostler.preflight` on a real cluster."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import hostler

TABLE = b"x" * 3_000_000
LOCK = threading.Lock()


def test_what_a_function_captures_and_sends_is_listed(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helpers_of_this_test.py").write_text("def helped():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import helpers_of_this_test  # type: ignore[import-not-found]

    factor = 3

    def work(number: int) -> int:
        return int(factor * number * len(TABLE) + helpers_of_this_test.helped())

    found = hostler.preflight(work, client=client)
    assert list(found.captures) == ["TABLE", "factor"]
    assert found.captures["TABLE"] > 3_000_000
    assert found.function > 3_000_000
    assert found.modules["helpers_of_this_test"] == len("def helped():\n    return 1\n")
    assert (found.environment, found.interpreter, found.problems) == ("own", sys.executable, ())
    assert len(found.nodes) == 2
    text = str(found)
    assert "captures     TABLE, 2.9 MiB" in text
    assert f"environment  own: {sys.executable}" in text


def test_what_would_not_work_is_named(client: hostler.Client) -> None:
    found = hostler.preflight(lambda: LOCK, client=client, environment=["numpy==2.1.0"])
    assert found.environment == ("numpy==2.1.0",)
    assert len(found.problems) == 1
    assert "the variable `LOCK` cannot be pickled" in found.problems[0]
    assert f"problem      {found.problems[0]}" in str(found)


def test_missing_modules_are_those_of_the_function_alone(client: hostler.Client) -> None:
    def work() -> None:
        import missing_in_this_test  # type: ignore[import-not-found]

        missing_in_this_test.run()

    problem = "the module missing_in_this_test is imported, and does not exist here"
    assert hostler.preflight(work, client=client).problems == (problem,)
    assert hostler.preflight(len, client=client).problems == ()


def test_built_in_functions_capture_nothing(client: hostler.Client) -> None:
    assert (hostler.preflight(len, client=client).captures, hostler.preflight(len).problems) == ({}, ())
