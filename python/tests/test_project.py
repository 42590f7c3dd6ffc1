"""What is sent with a function, without a cluster."""

from __future__ import annotations

import array
import importlib.metadata
import json
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hostler
from hostler._worker import modules, project, task, wire
from hostler.job import indices


def install(directory: Path, name: str, origin: dict[str, object] | None) -> None:
    info = directory / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))


def test_installed_packages_become_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "Plain_Package", None)
    install(tmp_path, "from-git", {"url": "https://example.org/a", "vcs_info": {"vcs": "git", "commit_id": "abc"}})
    install(tmp_path, "from-file", {"url": "file:///a.whl", "archive_info": {}})
    install(tmp_path, "editable", {"url": "file:///a", "dir_info": {"editable": True}})
    install(tmp_path, "hostler", None)
    found = list(importlib.metadata.distributions(path=[str(tmp_path)]))
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    assert project.installed() == [
        "from-file==1.2",
        "from-git @ git+https://example.org/a@abc",
        "plain-package==1.2",
    ]


def test_interpreter_is_found_from_another_directory_and_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = "import os, hostler; os.chdir('/'); from hostler._worker import project; print(project.interpreter())"
    here = Path(sys.executable).parent
    variables = {**os.environ, "PATH": here.name}
    program = ["/usr/bin/env", "python", "-c", start]
    done = subprocess.run(program, cwd=here.parent, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == f"{here}/python\n"
    for value in ("", None, "/nowhere/blender"):
        monkeypatch.setattr("sys.executable", value)
        with pytest.raises(hostler.UsageError, match=r"(?s)no Python interpreter .*hint: set `sys.exec"):
            project.write_environment(tmp_path, "own")


def test_flags_of_python_are_passed_on() -> None:
    show = "from hostler._worker import helper; print(*helper.flags())"
    given = ["-B", "-O", "-Xint_max_str_digits=0", "-Xpycache_prefix=/nowhere"]
    done = subprocess.run([sys.executable, *given, "-c", show], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(given)


def test_old_cloudpickle_is_named() -> None:
    use = "import cloudpickle; cloudpickle.__version__ = '2.2.1'; import hostler; hostler.map"
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True)
    assert "ImportError: hostler needs cloudpickle 3 or newer, and" in done.stderr


@pytest.mark.parametrize(("option", "what"), [({"cpus": "2"}, "a whole number"), ({"env": ["A=1"]}, "a dictionary")])
def test_option_of_another_type_is_named(option: Any, what: str) -> None:
    with pytest.raises(hostler.UsageError, match=rf"^`\w+` must be {what}, and is .*, a (str|list)$"):
        hostler.map(len, ["a"], **option)


def test_large_package_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "large"
    package.mkdir()
    (package / "__init__.py").write_text("")
    with open(package / "data", "wb") as file:
        file.truncate(65 << 20)
    module = types.ModuleType("large")
    module.__file__, module.__path__ = str(package / "__init__.py"), [str(package)]
    monkeypatch.setitem(sys.modules, "large", module)
    with pytest.raises(hostler.UsageError, match=r"the package large in .* has 65 MiB, and is not installed"):
        modules.ship(tmp_path / "modules")


def test_indices_of_an_array_are_listed() -> None:
    assert indices("0-3") == [0, 1, 2, 3]
    assert indices("1,5,7-11:2%4") == [1, 5, 7, 9, 11]


def test_inputs_are_pickled_in_groups_only_if_calls_cannot_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[int] = []
    inputs: list[tuple[object, ...]] = [(n, "text", None) for n in range(2000)]
    inputs[700:703] = [(shared,), (shared,), ("long" * 300_000,)]
    folder = tmp_path / "folder"
    folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("hostler._worker.apart.HOME", folder)
        groups = list(project.pickled_inputs(iter(inputs)))
        assert project.write_call(folder, len, iter(inputs)) == sum(count for count, _ in groups) == 2000
        offsets = array.array("Q", (folder / wire.GROUPS).read_bytes())
        assert [count for count, _ in groups] == [700, 1, 1, 1, 1000, 297]
        for first, count in ((0, 2000), (0, 1), (5, 9), (699, 4), (701, 1), (1990, 20)):
            found = [(index, load()) for index, load in task._inputs(offsets, first, count)]
            assert found == list(enumerate(inputs))[first : first + count]
        (_, one), (_, other) = ((index, load()) for index, load in task._inputs(offsets, 700, 2))
        assert one[0] is not other[0]
    with pytest.raises(hostler.PicklingError, match="input 1100 cannot be pickled"):
        list(project.pickled_inputs([*inputs[:1100], ((n for n in range(1)),)]))


def test_inputs_are_pickled_as_they_were_when_they_were_read() -> None:
    def reused() -> Iterator[tuple[object, ...]]:
        buffer = [0]
        yield (0,)
        for buffer[0] in range(1, 5):
            yield (buffer,)

    assert [pickle.loads(work) for _, work in project.pickled_inputs(reused())] == [
        (0,),
        ([1],),
        ([2],),
        ([3],),
        ([4],),
    ]
    # Large numbers and texts are not kept in memory.
    large = [(1 << (8 << 19),), (b"x" * (1 << 19),)] * 6
    assert [count for count, _ in project.pickled_inputs(iter(large))] == [1] * 12
    # The key of a map stands for the values.
    text = "ab"
    same, others = [(text,)] * 3, [("".join(["a", "b"]),) for _ in range(3)]
    assert list(project.pickled_inputs(same)) == list(project.pickled_inputs(others))
