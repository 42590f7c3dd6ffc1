"""Kernels of Jupyter on a cluster: through the provisioner, and through the launcher that VS Code runs."""

from __future__ import annotations

import asyncio
import atexit
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.ioloop.manager import AsyncIOLoopKernelManager
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

import hostler
from hostler import _executable
from hostler import kernel as command
from hostler.jupyter import kernel as local_side
from hostler.jupyter import kernel_bridge, kernel_job, kernel_link

SECONDS = 60


@pytest.fixture(scope="module", autouse=True)
def installed(provisioner: Path) -> Iterator[None]:
    """Make the entry point known, and add a kernel to Jupyter's list."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_PATH"):
            patch.delenv(variable, raising=False)
        patch.syspath_prepend(str(provisioner))
        assert command.main(["add", "--env", "COLOUR", "--timeout", "1m", "-c", "1", "-m", "300M"]) == 0
        yield


@contextmanager
def kernel() -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    manager = KernelManager(kernel_name="hostler")
    manager.start_kernel()
    try:
        with connected(manager.client()) as client:
            yield manager, client
    finally:
        manager.shutdown_kernel(now=True)


@contextmanager
def connected(client: Any) -> Iterator[BlockingKernelClient]:
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        yield client
    finally:
        client.stop_channels()


def job_of(manager: Any, client: hostler.Client) -> hostler.Job:
    return client.job(manager.provisioner._kernel.running.job)


def run(client: BlockingKernelClient, code: str, **options: Any) -> tuple[str, str, str]:
    """Run a cell. Return its output, its errors and its status."""
    texts = {"stdout": "", "stderr": ""}

    def collect(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            texts[message["content"]["name"]] += message["content"]["text"]

    reply = client.execute_interactive(code, timeout=SECONDS, output_hook=collect, **options)
    return texts["stdout"], texts["stderr"], reply["content"]["ename" if "ename" in reply["content"] else "status"]


def streams(client: BlockingKernelClient, end: str, *names: str) -> str:
    """Return what cells wrote to these streams, up to the text `end`. The kernel itself may write to stderr."""
    text = ""
    while end not in text:
        message = client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == "stream" and message["content"]["name"] in (names or ("stdout",)):
            text += message["content"]["text"]
    return text


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def launcher(
    directory: Path, *options: str, as_arguments: bool = False
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start the program that stands for a kernel in VS Code, which passes the connection as arguments."""
    file = directory / "connection.json"
    ports = {f"{name}_port": number for name, number in zip(local_side.CHANNELS, range(1, 6), strict=True)}
    content = {"transport": "ipc", "ip": str(directory / "k"), "key": "key", "signature_scheme": "hmac-sha256", **ports}
    file.write_text(json.dumps(content))
    start = [sys.executable, "-m", "hostler.kernel", "launch", "-f", str(file), "-m", "300M", *options]
    if as_arguments:
        start += [f"--{name}={number}" for name, number in zip(local_side.CHANNELS, range(1, 6), strict=True)]
        start += [f"--ip={directory / 'k'}", '--transport="ipc"', '--Session.key=b"key"']
        start += ['--Session.signature_scheme="hmac-sha256"', "--f=/nowhere.json"]
    with subprocess.Popen(start, stderr=subprocess.PIPE, text=True, cwd=directory) as process:
        try:
            yield process, file
        finally:
            process.kill()


@contextmanager
def attached(job: hostler.Job) -> Iterator[subprocess.Popen[str]]:
    start = [sys.executable, "-m", "hostler.kernel", "attach", str(job.id)]
    with subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_launch_refuses_a_connection_without_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    ports = [f"--{name}={number}" for name, number in zip(local_side.CHANNELS, range(1, 6), strict=True)]
    assert command.main(["launch", "-m", "300M", *ports]) == 1
    assert "launch needs the key" in capsys.readouterr().err


def client_of(file: Path) -> BlockingKernelClient:
    client = BlockingKernelClient()
    client.load_connection_file(str(file))
    return client


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """Return the next line of stderr that has a text."""
    assert process.stderr
    return next(line for line in process.stderr if text in line)


# Prints numbers, the second half of them once a file exists, then writes another file.
NUMBERS = """
import os, time
for number in range(1000):
    print(number, flush=True)
    while number == 500 and not os.path.exists({gate!r}):
        time.sleep(0.01)
open({done!r}, "w").close()
print("end")
"""
ENDLESS = "print('begun', flush=True)\nwhile True: pass"
ALL_NUMBERS = "".join(f"{number}\n" for number in range(1000))


def test_notebook_runs_on_a_node(client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "red")
    monkeypatch.setenv("JUPYTER_TOKEN", "secret")
    (tmp_path / "data.csv").write_text("1,2,3")
    cells = [
        "import os; print(os.environ['HOSTLER_JOB_ID'], os.environ['COLOUR'], 'JUPYTER_TOKEN' in os.environ)",
        "open('data.csv').read()",
        "for number in range(2000): print(number)",
    ]
    new: Any = nbformat.v4
    notebook = new.new_notebook(cells=[new.new_code_cell(cell) for cell in cells])
    runner = NotebookClient(notebook, kernel_name="hostler", resources={"metadata": {"path": str(tmp_path)}})
    runner.execute()
    first, second, third = (cell.outputs for cell in notebook.cells)
    job = client.job(int(first[0].text.split()[0]))
    assert first[0].text.split()[1:] == ["red", "False"]
    # The nodes of this cluster have the same directory.
    assert second[0].data["text/plain"] == "'1,2,3'"
    assert "".join(output.text for output in third) == "".join(f"{number}\n" for number in range(2000))
    assert job.wait(SECONDS).state == "completed"
    assert list(kernel_link.states().glob("*.json")) == []


def test_kernel_asks_is_interrupted_and_restarts_in_its_job(client: hostler.Client) -> None:
    with kernel() as (manager, jupyter):
        job = job_of(manager, client)
        answer = {"stdin_hook": lambda _: jupyter.input("Ada"), "allow_stdin": True}
        assert run(jupyter, "name = input('who? '); print(name)", **answer)[0] == "Ada\n"
        request = jupyter.execute(ENDLESS, stop_on_error=False)
        streams(jupyter, "begun")
        manager.interrupt_kernel()
        reply = jupyter.get_shell_msg(timeout=SECONDS)
        assert (reply["parent_header"]["msg_id"], reply["content"]["ename"]) == (request, "KeyboardInterrupt")
        assert run(jupyter, "print(name)")[0] == "Ada\n"
        manager.restart_kernel()
        jupyter.wait_for_ready(timeout=SECONDS)
        assert run(jupyter, "print(name)")[2] == "NameError"
        assert job_of(manager, client) == job
        # Jupyter deletes the sockets at a restart; new clients still find them.
        with connected(manager.client()) as another:
            assert run(another, "print(1)")[0] == "1\n"
        assert manager.is_alive()
        manager.shutdown_kernel()
        assert not manager.is_alive()
    assert job.wait(SECONDS).state == "completed"


def test_kernel_that_dies_is_restarted_in_its_job_and_a_cancelled_job_is_not(
    client: hostler.Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        manager: Any = AsyncIOLoopKernelManager(kernel_name="hostler")
        caplog.set_level("INFO", manager.log.name)
        manager.log.propagate = True
        await manager.start_kernel()
        manager._restarter.stop()
        manager._restarter.time_to_dead = 0.2
        manager.start_restarter()
        events = []
        manager._restarter.add_callback(lambda: events.append("restart"), "restart")
        manager._restarter.add_callback(lambda: events.append("dead"), "dead")
        job = job_of(manager, client)
        jupyter = manager.client()
        jupyter.start_channels()
        await jupyter.wait_for_ready(timeout=SECONDS)
        jupyter.execute("import os; os._exit(3)")
        while events != ["restart"] or not await manager.is_alive():
            await asyncio.sleep(0.05)
        await jupyter.wait_for_ready(timeout=SECONDS)
        assert job_of(manager, client) == job
        jupyter.execute(ENDLESS)
        texts = ""
        for awaited in ("begun", "hostler:"):
            while awaited not in texts:
                message = await jupyter.get_iopub_msg(timeout=SECONDS)
                texts += message["content"].get("text", "")
            if awaited == "begun":
                job.cancel()
        assert texts == f"begun\nhostler: job {job.id} was cancelled\n"
        while events != ["restart", "dead"]:
            await asyncio.sleep(0.05)
        # A person restarts it: in a new job.
        await manager.restart_kernel()
        assert job_of(manager, client) != job
        await jupyter.wait_for_ready(timeout=SECONDS)
        jupyter.stop_channels()
        job = job_of(manager, client)
        await manager.shutdown_kernel()
        assert job.wait(SECONDS).state == "completed"

    asyncio.run(asyncio.wait_for(scenario(), 2 * SECONDS))
    assert "was cancelled" in caplog.text


def test_kernel_outlives_its_launcher_and_replays_its_output(
    client: hostler.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate, done = tmp_path / "gate", tmp_path / "done"
    with launcher(tmp_path) as (process, file):
        job = client.job(int(line_with(process, "the kernel runs on").split()[-1]))
        with connected(client_of(file)) as jupyter:
            run(jupyter, "kept = 7")
            jupyter.execute(NUMBERS.format(gate=str(gate), done=str(done)))
            streams(jupyter, "500\n")
        process.kill()
        process.wait()
    gate.touch()
    until(done.exists)
    assert job.status().state == "running"
    with attached(job) as process:
        assert process.stdout
        file = Path(process.stdout.readline().split()[-1])
        assert file.stat().st_mode & 0o777 == 0o600
        jupyter = client_of(file)
        jupyter.start_channels()
        assert streams(jupyter, "end\n") == f"{ALL_NUMBERS}end\n"
        assert run(jupyter, "print(kept)")[0] == "7\n"
        jupyter.stop_channels()
        job.cancel()
        line_with(process, f"job {job.id} was cancelled")
        assert process.wait(SECONDS) == 0
        assert not file.exists()
    # What a kernel wrote that did not end in good order is in the results of its job.
    job.wait(SECONDS)
    assert command.main(["output", str(job.id)]) == 0
    assert capsys.readouterr().out.endswith(f"{ALL_NUMBERS}end\n7\n")


def test_lost_connection_loses_no_output_and_no_reply(client: hostler.Client, tmp_path: Path) -> None:
    gate, done = tmp_path / "gate", tmp_path / "done"
    with kernel() as (manager, jupyter):
        provisioner: Any = manager.provisioner
        link = provisioner._kernel._link
        request = jupyter.execute(NUMBERS.format(gate=str(gate), done=str(done)))
        text = streams(jupyter, "500\n")
        forward = link._forward
        os.killpg(forward.pid, signal.SIGKILL)
        gate.touch()
        later = jupyter.execute("print('later')")
        text += streams(jupyter, "later\n")
        assert text == f"{ALL_NUMBERS}end\nlater\n"
        assert link._forward is not forward
        replies = [jupyter.get_shell_msg(timeout=SECONDS)["parent_header"]["msg_id"] for _ in range(2)]
        assert replies == [request, later]


def test_kernel_survives_an_outage_of_the_head_and_ends_after_it(client: hostler.Client, tmp_path: Path) -> None:
    gate, done = tmp_path / "gate", tmp_path / "done"
    with kernel() as (manager, jupyter):
        job = job_of(manager, client)
        jupyter.execute(NUMBERS.format(gate=str(gate), done=str(done)))
        text = streams(jupyter, "500\n")
        restart_head(client, gate.touch)
        text += streams(jupyter, "end\n")
        assert text == f"{ALL_NUMBERS}end\n"

        def shut_down() -> None:
            # Neither the interrupt nor the end reaches the job now.
            manager.interrupt_kernel()
            assert manager.is_alive()
            manager.shutdown_kernel(now=True)

        restart_head(client, shut_down)
        assert job.wait(SECONDS).state == "cancelled"


def restart_head(client: hostler.Client, meanwhile: Callable[[], object]) -> None:
    """Kill the head, do something, and start it again."""
    process = Path("/proc", str(client.info()["head"]["pid"]))
    os.kill(int(process.name), signal.SIGKILL)
    # Nobody may have waited for it yet.
    until(lambda: not process.exists() or (process / "stat").read_text().split()[2] == "Z")
    meanwhile()
    subprocess.run([_executable.find(), "up"], check=True, capture_output=True)


def test_messages_that_are_forgotten_are_counted(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_job, "_JOURNAL_BYTES", 100_000)
    gate, done = tmp_path / "gate", tmp_path / "done"
    manager = KernelManager(kernel_name="hostler")
    manager.start_kernel()
    provisioner: Any = manager.provisioner
    running = provisioner._kernel.running
    with connected(manager.client()) as jupyter:
        jupyter.execute(NUMBERS.format(gate=str(gate), done=str(done)))
        streams(jupyter, "500\n")
        # As if this process was killed.
        atexit.unregister(provisioner._kernel.end)
        provisioner._kernel.close()
    gate.touch()
    until(done.exists)
    connection = local_side.ipc_connection(running.key.encode())[1]
    again = local_side.Kernel(connection, print)
    again.attach(running, hold=True)
    client_again = BlockingKernelClient()
    client_again.load_connection_info({**connection, "key": running.key})  # type: ignore[typeddict-item]
    client_again.start_channels()
    text = streams(client_again, "end\n", "stdout", "stderr")
    (lost,) = re.findall(r"^hostler: (\d+) messages of the kernel were too many to keep", text, re.MULTILINE)
    assert 0 < int(lost) < 1500
    assert text.endswith("\n998\n999\nend\n")
    client_again.stop_channels()
    again.end()
    assert client.job(running.job).wait(SECONDS).state == "completed"


def test_notebook_that_is_opened_again_gets_its_kernel_and_the_output_that_it_missed(
    client: hostler.Client, tmp_path: Path
) -> None:
    gate, done = tmp_path / "gate", tmp_path / "done"
    notebook = tmp_path / "a.ipynb"
    notebook.touch()
    # As Jupyter's server does.
    variables = {**os.environ, "JPY_SESSION_NAME": str(tmp_path / "a.ipynb")}
    first, second, third = (KernelManager(kernel_name="hostler") for _ in range(3))
    first.start_kernel(env=variables)
    with connected(first.client()) as jupyter:
        job = job_of(first, client)
        assert run(jupyter, "print('seen')")[0] == "seen\n"
        jupyter.execute(ENDLESS)
        streams(jupyter, "begun\n")
        first.restart_kernel()
        jupyter.wait_for_ready(timeout=SECONDS)
        assert run(jupyter, "kept = 7; print('seen')")[0] == "seen\n"
        jupyter.execute(NUMBERS.format(gate=str(gate), done=str(done)))
        streams(jupyter, "500\n")
        # The kernel has one Jupyter at a time.
        second.start_kernel(env=variables)
        assert job_of(second, client) != job
        second.shutdown_kernel()
        # As if the process was killed.
        provisioner: Any = first.provisioner
        atexit.unregister(provisioner._kernel.end)
        provisioner._kernel.close()
    gate.touch()
    until(done.exists)
    # Another notebook of this name is none that has a kernel.
    notebook.rename(tmp_path / "b.ipynb")
    notebook.touch()
    assert kernel_job.find_lost(str(notebook), "hostler", None) is None
    (tmp_path / "b.ipynb").rename(notebook)
    third.start_kernel(env=variables)
    assert job_of(third, client) == job
    with connected(third.client()) as jupyter:
        out, note, _ = run(jupyter, "print('kept', kept)")
        assert out == f"{ALL_NUMBERS}end\nkept 7\n"
        assert note == "hostler: output of cells that had not ended when Jupyter was lost:\n"
        assert run(jupyter, "print('again')")[:2] == ("again\n", "")
        third.restart_kernel()
        jupyter.wait_for_ready(timeout=SECONDS)
        assert run(jupyter, "print(kept)")[2] == "NameError"
    third.shutdown_kernel()
    assert job.wait(SECONDS).state == "completed"
    assert list(kernel_link.states().iterdir()) == []


def record(job: int, submitted_at: int = 1, notebook: Path | None = None) -> kernel_link.Running:
    known = (str(notebook), notebook.stat().st_ino) if notebook else ()
    return kernel_link.Running(job, submitted_at, None, 1, "", "", "", "", "", "", *known)


def test_only_files_of_notebooks_get_their_kernels_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.ipynb", "console-1"):
        (tmp_path / name).touch()
    (tmp_path / "folder.ipynb").mkdir()
    assert kernel_job.inode(str(tmp_path / "a.ipynb")) == (tmp_path / "a.ipynb").stat().st_ino
    names = ("a.ipynb", str(tmp_path / "console-1"), str(tmp_path / "folder.ipynb"), "/nowhere/a.ipynb")
    assert [kernel_job.inode(name) for name in names] == [None] * 4


def test_damaged_records_of_kernels_are_left_out(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for job, submitted_at in ((1, 5), (2, 7), (3, 6)):
        record(job, submitted_at).save()
    for name, text in (("4-1", ""), ("5-1", "[]"), ("6-1", '{"job": 6}'), ("7-1", (record(2, 7).file).read_text())):
        (kernel_link.states() / f"{name}.json").write_text(text)
    assert [running.job for running in kernel_link.kept()] == [2, 3, 1]
    assert record(2, 7).file.stat().st_mode & 0o777 == 0o600
    assert all(file.suffix == ".json" for file in kernel_link.states().iterdir())


def test_kernel_starts_where_nobody_can_lock_it_and_is_not_taken_over(
    client: hostler.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    notebook = tmp_path / "a.ipynb"
    notebook.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    manager = KernelManager(kernel_name="hostler")
    manager.start_kernel(env={**os.environ, "JPY_SESSION_NAME": str(notebook)})
    try:
        (running,) = kernel_link.kept()
        assert (running.notebook, running.kernel_name) == (str(notebook), "hostler")
        assert kernel_job.find_lost(str(notebook), "hostler", None) is None
    finally:
        manager.shutdown_kernel(now=True)
    assert list(kernel_link.states().iterdir()) == []


def test_kernels_of_another_cluster_are_not_forgotten(
    client: hostler.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, project: Path
) -> None:
    job = client.submit(project, "main.py", cpus=1, memory="100M")
    job.wait(SECONDS)
    submitted_at = job.status().details["submitted_at"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    notebook = tmp_path / "a.ipynb"
    notebook.touch()
    other, own = record(job.id, submitted_at - 1, notebook), record(job.id, submitted_at, notebook)
    for running in (other, own):
        running.save()
    assert kernel_job.find_lost(str(notebook), "", None) is None
    assert [running.submitted_at for running in kernel_link.kept()] == [submitted_at - 1]
    # Nobody has claimed it.
    kernel_link.Claim(other).release()


def test_wrong_keys_are_refused(client: hostler.Client) -> None:
    with kernel() as (manager, _):
        provisioner: Any = manager.provisioner
        running = provisioner._kernel.running
        other = zmq.curve_keypair()[0].decode()
        public, secret = (key.decode() for key in zmq.curve_keypair())
        own = replace(running, client_public=public, client_secret=secret)
        for wrong, message in (
            (own, "does not accept the keys"),
            (replace(running, bridge_public=other), "not answer"),
        ):
            stranger = local_side.Kernel(local_side.ipc_connection(b"key")[1], print)
            stranger.attach(wrong)
            with pytest.raises((hostler.JobFailedError, TimeoutError), match=message):
                stranger.wait_until_running(2 if wrong is not own else SECONDS)
            stranger.close()
        assert manager.is_alive()


def test_kernel_ends_with_a_program_that_forgets_it(client: hostler.Client) -> None:
    script = (
        "from jupyter_client.manager import KernelManager\n"
        "manager = KernelManager(kernel_name='hostler')\n"
        "manager.start_kernel()\n"
        "print(manager.provisioner._kernel.running.job)\n"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE
    )
    assert client.job(int(done.stdout)).wait(SECONDS).state == "completed"


def test_launch_says_why_it_waits_and_leaves_nothing_behind(client: hostler.Client, tmp_path: Path) -> None:
    before = set(client.jobs(ended=True))
    with launcher(tmp_path, "--hold", "--timeout", "3s") as (process, _):
        assert "waits" in line_with(process, " waits")
        assert "did not start a kernel in time" in line_with(process, "error")
        assert process.wait(SECONDS) == 1
    assert set(client.jobs()) <= before
    for number in (signal.SIGTERM, signal.SIGKILL):
        with launcher(tmp_path, "--hold") as (process, _):
            line_with(process, " waits")
            process.send_signal(number)
            process.wait(SECONDS)
        until(lambda: set(client.jobs()) <= before)
    with launcher(tmp_path, "--python=/bin/false") as (process, _):
        assert "failed: exit code 1" in line_with(process, "error")


def test_launcher_passes_signals_on(client: hostler.Client, tmp_path: Path) -> None:
    with launcher(tmp_path, as_arguments=True) as (process, file):
        job = client.job(int(line_with(process, "the kernel runs on").split()[-1]))
        with connected(client_of(file)) as jupyter:
            jupyter.execute(ENDLESS, stop_on_error=False)
            streams(jupyter, "begun")
            process.send_signal(signal.SIGINT)
            assert jupyter.get_shell_msg(timeout=SECONDS)["content"]["ename"] == "KeyboardInterrupt"
            assert run(jupyter, "print(1)")[0] == "1\n"
        process.terminate()
        assert process.wait(SECONDS) == 0
    assert job.wait(SECONDS).state == "completed"


def test_journal_forgets_the_oldest_messages(tmp_path: Path) -> None:
    journal = kernel_bridge.Journal(tmp_path / "journal", 100_000)
    messages = [[b"iopub", b"", b"%d" % number, os.urandom(number)] for number in range(1000)]
    for message in messages:
        journal.append(message)
    assert 0 < journal.first < journal.end == 1000
    assert [journal.read(number) for number in range(journal.first, 1000)] == messages[journal.first :]
    assert sum(file.stat().st_size for file in (tmp_path / "journal").iterdir()) < 110_000


def test_kernels_are_added_listed_and_removed(client: hostler.Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["add", "--name", "big", "-c", "4", "--memory=16G", "--gpus", "1", "--env", "A=b"]) == 0
    said = capsys.readouterr()
    assert "big: Python on the cluster (4 CPUs, 16G, 1 GPU), in " in said.out
    assert "note: the kernel is added, but cannot start now: " in said.err
    file = Path(os.environ["HOME"], ".local/share/jupyter/kernels/big/kernel.json")
    spec = json.loads(file.read_text())
    assert spec["argv"][1:] == [
        *["-m", "hostler.kernel", "launch", "-f", "{connection_file}", "--timeout=600", "--env=A"],
        *["-c", "4", "--memory=16G", "--gpus", "1"],
    ]
    assert spec["env"] == {"A": "b"}
    assert command.main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "big: Python on the cluster (4 CPUs, 16G, 1 GPU)",
        "hostler: Python on the cluster (1 CPU, 300M)",
    ]
    assert command.main(["remove", "big"]) == 0
    assert not file.exists()
    assert command.main(["remove", "python3"]) == 1
    assert "no kernel `python3` was added" in capsys.readouterr().err
    names = [(f"--name={name}", f"`{name}` cannot be the name") for name in ("", ".", "..", "../x", "\u00fc")]
    for wrong, why in (
        *names,
        ("--gpuz=1", "--gpuz"),
        ("--requirements=nofile.txt", "nofile.txt is not a file"),
        ("--python=/nosuch", "`--python /nosuch` is not a program on this machine"),
    ):
        assert command.main(["add", "--name", "wrong", wrong]) == 1
        assert why in capsys.readouterr().err
    assert sorted(path.name for path in file.parents[1].iterdir()) == ["hostler"]


def test_options_of_the_kernel_are_told_from_those_of_the_job() -> None:
    # nbclient adds the last one.
    parsed = command.launch_options(["-c", "4", "--idle=1h30m", "--HistoryManager.hist_file=:memory:"])
    assert (parsed.submit, parsed.arguments) == (("-c", "4"), ("--HistoryManager.hist_file=:memory:",))
    assert parsed.idle == 5400


def test_missing_packages_are_named() -> None:
    script = (
        "import runpy, sys; sys.modules['jupyter_client'] = None; runpy.run_module('hostler.kernel', None, '__main__')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: kernels need jupyter_client")
    assert "hint: `pip install 'hostler[jupyter]'`" in done.stderr
