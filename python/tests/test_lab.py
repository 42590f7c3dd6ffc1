"""JupyterLab in a browser, with its kernel on a node, and as a job."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browser import SECONDS, Browser, browser

import hostler
from hostler import _executable
from hostler.jupyter import kernel_link

TOKEN = "token-of-the-test"
RUN, INTERRUPT, RESTART, SAVE = (
    f'[data-command="{command}"]'
    for command in (
        "notebook:run-cell-and-select-next",
        "notebook:interrupt-kernel",
        "notebook:restart-kernel",
        "docmanager:save",
    )
)
# Keys, as the protocol writes them.
ENTER, DOWN = "\ue007", "\ue015"
CONFIG = {
    # Starts faster.
    "ServerApp": {
        "jpserver_extensions": {"jupyter_lsp": False},
        "allow_root": True,
        "open_browser": False,
        "ip": "127.0.0.1",
    },
    "LabApp": {"extension_manager": "readonly"},
}


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as window:
        yield window


@pytest.fixture
def variables(tmp_path: Path, provisioner: Path) -> dict[str, str]:
    """Return the variables of programs in the environment with JupyterLab."""
    environment = os.environ.get("HOSTLER_JUPYTER")
    assert environment, "HOSTLER_JUPYTER is no environment with JupyterLab; .ci/run makes one"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "JPY_"))}
    own.update(JUPYTER_DATA_DIR=str(tmp_path / "data"), JUPYTER_CONFIG_DIR=str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/jupyter_server_config.json").write_text(json.dumps(CONFIG))
    path = f"{environment}/bin:{os.environ['PATH']}"
    return {**own, "PATH": path, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{provisioner}"}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def lab(folder: Path, variables: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start JupyterLab in a folder. Return the process, and the address."""
    runtime = folder / "runtime"
    start = ["jupyter", "lab", "--port=0", f"--IdentityProvider.token={TOKEN}"]
    variables = {**variables, "JUPYTER_RUNTIME_DIR": str(runtime)}
    with (
        open(folder / "lab.log", "ab") as log,
        subprocess.Popen(start, cwd=folder, env=variables, stdout=log, stderr=log) as process,
    ):
        try:
            file = runtime / f"jpserver-{process.pid}.json"
            until(lambda: file.exists() or process.poll() is not None)
            assert process.poll() is None, (folder / "lab.log").read_text()
            found = json.loads(file.read_text())
            until(partial(listens, found["port"]))
            yield process, found["url"]
        finally:
            process.kill()


def write_notebook(file: Path, cells: list[str], **metadata: object) -> None:
    new: Any = nbformat.v4
    file.write_text(json.dumps(new.new_notebook(cells=[new.new_code_cell(it) for it in cells], metadata=metadata)))


def cell(number: int) -> str:
    return f".jp-Notebook-cell:nth-child({number})"


def run(window: Browser, number: int) -> None:
    window.click(f"{cell(number)} .jp-InputArea-editor")
    window.click(RUN)


def output(window: Browser, number: int, text: str) -> str:
    return window.see(f"{cell(number)} .jp-OutputArea", text)


def test_notebook_runs_on_a_node_and_its_kernel_survives_a_killed_jupyter(
    client: hostler.Client, tmp_path: Path, window: Browser, variables: dict[str, str]
) -> None:
    add = ["python", "-m", "hostler.kernel", "add", "-c", "1", "-m", "300M"]
    subprocess.run(add, env=variables, check=True)
    gate, killed = tmp_path / "gate", tmp_path / "killed"
    cells = [
        "import os; kept = 7; print('job', os.environ['HOSTLER_JOB_ID'], 'on', os.environ['HOSTLER_NODE'])",
        "print('endless', flush=True)\nwhile True: pass",
        "import os; print('kept' in globals(), os.environ['HOSTLER_JOB_ID'])",
        f"import time; kept = 8; print('begun', flush=True)\nfor gate in ({str(killed)!r}, {str(gate)!r}):\n"
        "    while not os.path.exists(gate): time.sleep(0.01)\n    print('passed', gate, flush=True)",
        "print('kept is', kept)",
    ]
    write_notebook(tmp_path / "a.ipynb", cells)
    with lab(tmp_path, variables) as (process, address):
        window.open(f"{address}lab/tree/a.ipynb?token={TOKEN}")
        window.see(".jp-Dialog", "Select Kernel")
        window.run("document.querySelector('.jp-Dialog select').focus()")
        chosen = "return document.querySelector('.jp-Dialog select').selectedOptions[0].innerText"
        while window.run(chosen) != "Python on the cluster (1 CPU, 300M)":
            window.type(DOWN)
        window.click(".jp-Dialog .jp-mod-accept")
        window.see(".jp-StatusBar-TextItem", "Python on the cluster (1 CPU, 300M) | Idle")
        run(window, 1)
        found = re.search(r"job (\d+) on n[12]", output(window, 1, " on n"))
        assert found
        job = client.job(int(found[1]))
        run(window, 2)
        output(window, 2, "endless")
        window.click(INTERRUPT)
        output(window, 2, "KeyboardInterrupt")
        # A restart keeps the allocation.
        window.click(RESTART)
        window.click(".jp-Dialog .jp-mod-accept", "Restart")
        window.see(".jp-StatusBar-TextItem", "Idle")
        run(window, 3)
        output(window, 3, f"False {job.id}")
        run(window, 4)
        output(window, 4, "begun")
        window.click(SAVE)
        # The file is empty while JupyterLab writes it.
        unwritten = '{"cells": [{}, {}, {}, {"outputs": []}]}'
        until(lambda: bool(json.loads((tmp_path / "a.ipynb").read_text() or unwritten)["cells"][3]["outputs"]))
        process.kill()
    killed.touch()

    with lab(tmp_path, variables) as (process, address):
        window.open(f"{address}lab/tree/a.ipynb?token={TOKEN}")
        window.see(".jp-StatusBar-TextItem", "Python on the cluster (1 CPU, 300M) | Busy")
        assert client.job(job.id).status().state == "running"
        run(window, 5)
        output(window, 5, f"begun\npassed {killed}")
        gate.touch()
        assert output(window, 5, "kept is 8").rstrip().endswith(f"begun\npassed {killed}\npassed {gate}\nkept is 8")
        assert len(client.jobs()) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert job.wait(SECONDS).state == "completed"
    assert list(kernel_link.states().iterdir()) == []


def test_jupyter_as_a_job_opens_by_its_link(
    client: hostler.Client, tmp_path: Path, window: Browser, variables: dict[str, str]
) -> None:
    cells = ["import os; print('job', os.environ['HOSTLER_JOB_ID'])"]
    write_notebook(tmp_path / "a.ipynb", cells, kernelspec={"name": "python3", "display_name": "Python 3"})
    start = [_executable.find(), "jupyter", "lab", "--no-browser", "--json", "-m", "1G"]
    with subprocess.Popen(start, cwd=tmp_path, env=variables, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            opened = json.loads(process.stdout.readline())
            window.open(opened["url"])
            window.click(".jp-DirListing-item", "a.ipynb")
            window.type(ENTER)
            window.see(".jp-StatusBar-TextItem", "Idle")
            run(window, 1)
            output(window, 1, f"job {opened['job']}")
            # Neither the page nor its address keeps the token.
            assert "token" not in str(window.run("return location.href"))
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 130
        finally:
            process.kill()
    assert client.job(opened["job"]).wait(SECONDS).state == "cancelled"
