"""`Client`, `Job` and `Task` on a real cluster."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from pathlib import Path
from typing import IO, cast

import pytest

import hostler
from hostler import _executable
from hostler._executable import of_this_process
from hostler.options import arguments


def test_job_is_submitted_followed_and_fetched(client: hostler.Client, project: Path, tmp_path: Path) -> None:
    job = client.submit(project, "main.py", cpus=1, memory=100 << 20, time=60, name="demo", env={"COLOUR": "red"})
    assert list(job.stream()) == ["task None red"]
    path = job.result(tmp_path)
    assert (path / "result.txt").read_text() == "done"
    status = job.status()
    assert (status.state, status.exit_code, status.ended) == ("completed", 0, True)
    assert status.submitted_at is not None
    assert status.ended_at is not None
    assert status.submitted_at < status.ended_at
    assert job.logs("stderr") == "warning\n"
    assert list(job.stream("stderr")) == ["warning"]
    assert "completed" in job.why()
    assert job in client.jobs(ended=True)
    assert job not in client.jobs()


def test_packages_that_a_job_does_not_get_are_a_warning(client: hostler.Client, project: Path) -> None:
    (project / "environment.yml").write_text("dependencies:\n  - numpy\n")
    with pytest.warns(UserWarning, match=r"does not use environment\.yml \(list its packages in requirements\.txt"):
        client.submit(project, "main.py", cpus=1, memory="100M").wait()


def test_failed_array_task_raises_and_the_others_have_results(
    client: hostler.Client, project: Path, tmp_path: Path
) -> None:
    job = client.submit(project, "main.py", "3", array=[0, 2], memory="100M")
    assert job.wait(30).tasks["failed"] == 2
    first, second = job.tasks()
    assert (first.index, second.index) == (0, 2)
    with pytest.raises(hostler.JobFailedError, match="did not complete: exit code 3"):
        second.result(tmp_path)
    assert second.logs() == "task 2 None\n"
    assert [path.name for path in job.fetch(tmp_path)] == [f"{job.id}_0", f"{job.id}_2"]
    with pytest.raises(hostler.UsageError, match="is an array"):
        job.result()


def test_job_after_another_waits_and_is_cancelled(client: hostler.Client, project: Path) -> None:
    slow = client.submit(project, "slow.py", memory="100M")
    later = client.submit(project, "main.py", memory="100M", after=slow)
    assert later.status().state == "pending"
    assert later.status().reason is not None
    assert str(slow.id) in later.why()
    with pytest.raises(TimeoutError):
        slow.wait(0.2)
    assert next(slow.stream()) == "begun"
    slow.cancel()
    assert slow.wait(20).state == "cancelled"
    assert later.wait(20).state == "cancelled"
    slow.requeue()
    assert not slow.status().ended
    slow.cancel()
    assert slow.wait(20).state == "cancelled"
    slow.requeue(keep_files=True)
    assert not slow.status().ended
    slow.cancel()


def test_nodes_and_summary_are_listed(client: hostler.Client) -> None:
    nodes = client.nodes()
    assert [(node.name, node.state, node.cpus, node.memory) for node in nodes] == [
        ("n1", "up", 4, 2 << 30),
        ("n2", "up", 4, 2 << 30),
    ]
    assert client.info()["head"]["version"] == hostler.__version__


def test_head_refuses_with_message_and_hint(client: hostler.Client, project: Path) -> None:
    with pytest.raises(hostler.RefusedError) as raised:
        client.submit(project, "main.py", cpus=99)
    assert raised.value.code == "never_fits"
    assert "the job asks for 99 CPUs" in raised.value.message
    assert "hostler nodes" in raised.value.hints[0]
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.message, copy.hints) == (raised.value.message, raised.value.hints)
    nothing = client.job(9999)
    with pytest.raises(hostler.RefusedError, match="there is no job 9999"):
        nothing.status()
    with pytest.raises(hostler.RefusedError, match="there is no job 9999"):
        list(nothing.stream())
    with pytest.raises(hostler.RefusedError, match="there is no job 9999"):
        list(nothing.stream("stderr"))


def test_mistakes_are_usage_errors(client: hostler.Client, project: Path) -> None:
    with pytest.raises(hostler.UsageError, match=r"nothing\.py"):
        client.submit(project, "nothing.py")
    with pytest.raises(hostler.UsageError, match="cannot read the project folder"):
        client.submit(project / "nowhere", "main.py")
    with pytest.raises(hostler.UsageError, match="memory"):
        client.submit(project, "main.py", memory=5)
    with pytest.raises(hostler.UsageError, match="invalid value '-1' for `cpus=`: the smallest value is 1"):
        client.submit(project, "main.py", cpus=-1)
    with pytest.raises(hostler.UsageError, match="invalid value '9-' for `array=`"):
        client.submit(project, "main.py", array="9-")
    with pytest.raises(hostler.UsageError, match="`network=` needs `sandbox=` or `image=`"):
        client.submit(project, "main.py", network="job")
    with pytest.raises(hostler.UsageError, match="unknown option `cpu`"):
        client.submit(project, "main.py", cpu=5)  # type: ignore[call-arg]
    with pytest.raises(hostler.UsageError, match="there is no output"):
        client.job(1).logs("out")  # type: ignore[arg-type]


def test_flags_in_texts_are_parameters_unless_they_belong_to_a_command() -> None:
    text = "`hostler update 3 --time 1h` or `--network job`, `name`, --tasks-per-node, '--cpus <N>' in /a/--time, --lr"
    said = "`hostler update 3 --time 1h` or `network=job`, `name`, `tasks_per_node=`, `cpus=` in /a/--time, --lr"
    assert _executable.with_parameters(text) == said


def test_job_that_has_not_ended_in_time_is_named(client: hostler.Client, project: Path) -> None:
    job = client.submit(project, "slow.py", memory="100M")
    try:
        with pytest.raises(TimeoutError, match=rf"Job\({job.id}\) has not ended within the timeout of 0.01 s"):
            job.wait(0.01)
    finally:
        job.cancel()


def test_cluster_that_is_down_is_reported() -> None:
    with pytest.raises(hostler.UnreachableError, match="cannot reach the head") as raised:
        hostler.Client("unix:/nowhere/head.sock").nodes()
    assert any("hostler up" in hint for hint in raised.value.hints)
    with pytest.raises(hostler.UnreachableError):
        hostler.map(len, ["a"], client=hostler.Client("unix:/nowhere/head.sock"))


def test_missing_or_other_executable_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests may run with an installed package.
    monkeypatch.setattr("hostler._executable._beside_the_package", list)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOSTLER_BIN", str(tmp_path / "hostler"))
    with pytest.raises(hostler.ExecutableError, match="HOSTLER_BIN is not an executable file"):
        hostler.Client().nodes()
    monkeypatch.delenv("HOSTLER_BIN")
    with pytest.raises(hostler.ExecutableError, match="was not found"):
        hostler.Client().nodes()
    (tmp_path / "hostler").write_text("#!/bin/sh\necho hostler 9.9.9\n")
    os.chmod(tmp_path / "hostler", 0o755)
    with pytest.raises(hostler.MismatchError, match=r"has version 9\.9\.9, this package has version"):
        hostler.Client().nodes()
    # Programs of packages name their commit.
    (tmp_path / "hostler").write_text(f"#!/bin/sh\necho hostler {hostler.__version__}+20261129.1738929a\n")
    _executable._check_version.cache_clear()
    assert _executable.find() == str(tmp_path / "hostler")
    # A mistake in the variable is not hidden by another executable.
    monkeypatch.setenv("HOSTLER_BIN", str(tmp_path / "absent"))
    with pytest.raises(hostler.ExecutableError, match="HOSTLER_BIN is not an executable file"):
        hostler.Client().nodes()


def test_options_become_arguments() -> None:
    given = arguments({"cpus": 2, "gpus": None, "time": 1.5, "requeue": True, "hold": False, "tags": {"a": "b"}})
    assert given == ["--cpus=2", "--time=2s", "--requeue", "--tag=a=b"]
    assert arguments({"oom": "fail"}) == ["--oom=fail"]
    assert arguments({"sandbox": True, "network": "job"}) == ["--sandbox", "--network=job"]
    assert arguments({"exclusive": True, "quiet_machine": True}) == ["--exclusive", "--quiet-machine"]
    assert arguments({"image": "oci:/data/a:1"}) == ["--image=oci:/data/a:1"]
    assert arguments({"image": "debian:12", "runtime": "podman"}) == ["--image=debian:12", "--runtime=podman"]
    jobs = [hostler.Job(hostler.Client(), number) for number in (3, 4)]
    assert arguments({"after": jobs}) == ["--after=afterok:3:4"]
    assert arguments({"after": "afterany:3"}) == ["--after=afterany:3"]


SERVER = """
import socket, time
port = socket.create_server(("127.0.0.1", 0))
path = socket.socket(socket.AF_UNIX)
path.bind("server.sock")
path.listen()
print(port.getsockname()[1], flush=True)
for server in (port, path, port):
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"hello")
time.sleep(600)
"""


def received(address: str) -> bytes:
    if "/" in address:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    else:
        host, port = address.split(":")
        connection = socket.create_connection((host, int(port)), 20)
    with connection, connection.makefile("rb") as content:
        return content.read()


def test_port_and_socket_of_a_job_are_forwarded_until_the_block_ends(client: hostler.Client, project: Path) -> None:
    (project / "server.py").write_text(SERVER)
    job = client.submit(project, "server.py", memory="100M")
    port = int(next(job.stream()))
    before = set(of_this_process)
    with client.forward(job, port) as address:
        assert received(address) == b"hello"
        # A forked process, which may live longer, does not keep the command.
        (pipe,) = set(of_this_process) - before
        if (child := os.fork()) == 0:
            os._exit(not cast("IO[bytes]", pipe).closed)
        assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(ConnectionRefusedError):
        received(address)
    # The path of a socket is short.
    local = Path(os.environ["XDG_RUNTIME_DIR"]) / "forwarded"
    with client.forward(job.id, "./server.sock", socket=local) as address:
        assert address == str(local)
        assert received(address) == b"hello"

    async def scenario() -> None:
        own = hostler.AsyncClient()
        async with own.forward(own.job(job.id), port) as address:
            assert await asyncio.to_thread(received, address) == b"hello"
        with pytest.raises(ConnectionRefusedError):
            received(address)

        async def hold() -> None:
            async with own.forward(job.id, port):
                await asyncio.Event().wait()

        for delay in (0.0, 0.0005, 0.002, 0.01, 0.05, 0.2):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(hold(), delay)
        assert all(cast("IO[bytes]", pipe).closed for pipe in set(of_this_process) - before)
        job.cancel()
        job.wait(30)
        with pytest.raises(hostler.RefusedError, match="nothing listens on its ports"):
            async with own.forward(job.id, port):
                pass

    asyncio.run(scenario())
    with pytest.raises(hostler.RefusedError, match="nothing listens on its ports"), client.forward(job, port):
        pass
