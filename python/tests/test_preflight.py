"""`hostler.preflight` on a real cluster."""

from __future__ import annotations

import importlib
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def test_missing_interpreter_is_named(client: hostler.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostler._worker.project.python_version", lambda: "3.29")
    found = hostler.preflight(len, client=client)
    assert (len(found.nodes), found.problems) == (2, ())
    monkeypatch.setattr("sys.executable", "")
    found = hostler.preflight(len, client=client)
    assert (found.environment, found.interpreter, len(found.problems)) == ("own", None, 1)
    assert "environment  own: none" in str(found)
    assert "problem      this program has no Python interpreter" in str(found)


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


def test_modules_that_only_other_functions_import_are_not_sent(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("one_of_this_test", "two_of_this_test"):
        (tmp_path / f"{name}.py").write_text("")

    # Files that are sent are searched for imports too, so these functions are in none.
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "import importlib.util\n"
        "def one(_): import one_of_this_test; return True\n"
        "def two(_): import two_of_this_test; return bool(importlib.util.find_spec('one_of_this_test'))\n",
        variables,
    )
    one, two = variables["one"], variables["two"]

    def sent(function: Callable[[int], object]) -> set[str]:
        return {name for name in hostler.preflight(function, client=client).modules if name.endswith("_of_this_test")}

    before = sent(abs)
    k: Any = {"client": client, "cpus": 1, "memory": "200M"}
    with hostler.Executor(1, **k) as executor:
        assert executor.submit(one, 0).result()
    assert list(hostler.map(one, [0], **k)) == [True]
    assert sent(one) - before == {"one_of_this_test"}
    assert sent(two) - before == {"two_of_this_test"}
    assert list(hostler.map(two, [0], **k)) == [False]


def test_names_of_attributes_are_no_captured_variables(client: hostler.Client) -> None:
    variables: dict[str, Any] = {"__name__": "__main__", "LOCK": threading.Lock()}
    exec(
        "import os\njoin, data = LOCK, [1]\n"
        "class Work:\n    def run(self): return data\n"
        "def work(): return os.path.join('a', (lambda: data)())\n",
        variables,
    )
    assert set(hostler.preflight(variables["work"], client=client).captures) == {"data"}
    assert set(hostler.preflight(variables["Work"]().run, client=client).captures) == {"data"}


def test_modules_in_zip_files_are_named(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as file:
        file.writestr("zipped_in_this_test.py", "")
    monkeypatch.syspath_prepend(str(tmp_path / "modules.zip"))
    importlib.import_module("zipped_in_this_test")
    try:
        problem = "not sent: zipped_in_this_test: a module in a zip file"
        assert hostler.preflight(len, client=client).problems == (problem,)
    finally:
        del sys.modules["zipped_in_this_test"]
