"""Work that cannot succeed, as a map and as calls of an executor: the exception says why, and nothing stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hostler

Call = Callable[..., Any]


def mapped(function: Call, argument: object, **options: Any) -> Any:
    return next(hostler.map(function, [argument], **options))


def submitted(function: Call, argument: object, **options: Any) -> Any:
    with hostler.Executor(1, **options) as executor:
        return executor.submit(function, argument).result(60)


@pytest.fixture(params=[mapped, submitted])
def call(request: pytest.FixtureRequest, client: hostler.Client) -> Iterator[Call]:
    """Return a function that calls another one on a node. Its job has ended afterwards."""
    yield request.param
    for job in client.jobs():
        assert job.wait(30).ended


def test_result_that_exceeds_the_memory_fails_its_call_alone(client: hostler.Client, call: Call) -> None:
    options = {"client": client, "cpus": 1, "memory": "100M"}
    with pytest.raises(hostler.JobFailedError, match=r"has no result: task .* ran out of memory .* limit of 100M"):
        call(bytes, 400 << 20, **options)
    assert len(call(bytes, 1 << 20, **options)) == 1 << 20


def test_open_files_are_not_sent(client: hostler.Client, call: Call, tmp_path: Path) -> None:
    options = {"client": client, "cpus": 1, "memory": "100M"}
    with open(tmp_path / "file", "w+") as file:
        with pytest.raises(hostler.PicklingError, match=r"cannot pickle the open file .*file'"):
            call(len, file, **options)
        with pytest.raises(hostler.PicklingError, match="its variable `file`: cannot pickle the open file"):
            call(lambda _: file.name, 0, **options)
        # Not a copy of what is in it.
        with pytest.raises(Exception, match="cannot pickle the open file '/etc/hostname'"):
            call(open, "/etc/hostname", **options)


def test_cluster_that_is_down_is_named(call: Call) -> None:
    with pytest.raises(hostler.UnreachableError, match="cannot reach the head") as raised:
        call(len, "a", client=hostler.Client("unix:/nowhere/head.sock"))
    assert raised.value.hints


def test_calls_for_a_python_version_that_no_node_has_are_refused(
    client: hostler.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of a map are in `test_mapping`.
    monkeypatch.setattr("hostler._worker.project.python_version", lambda: "3.29")
    with pytest.raises(hostler.RefusedError, match=r"requires Python .*3\.29"):
        submitted(len, "a", environment=[], client=client, memory="100M")


def test_package_that_nodes_cannot_install_is_named(
    client: hostler.Client, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The caller has it from elsewhere, and no index is asked.
    monkeypatch.setattr("hostler._worker.project.installed", lambda: ["--no-index", "only-here==1.0"])
    with pytest.raises(hostler.JobFailedError, match=r"building the environment failed: .*only-here"):
        call(len, "a", environment="build", client=client, memory="100M")
