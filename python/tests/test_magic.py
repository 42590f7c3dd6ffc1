"""The extension of IPython, in a shell of this process and in the kernel of a notebook."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

import hostler
from hostler import _display

Run = Callable[[str], Any]


class Failed(Exception):
    """A cell failed; the text is what IPython shows."""


@pytest.fixture
def run(client: hostler.Client, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Return a function that runs a cell in a new shell, and returns the cell's value."""
    shell = cast("Any", InteractiveShell)()
    shell.colors = "nocolor"

    def run_cell(source: str) -> Any:
        result = shell.run_cell(source)
        if not result.success:
            raise Failed("".join(capsys.readouterr())) from result.error_in_exec
        return result.result

    run_cell("%load_ext hostler")
    yield run_cell
    shell.history_manager.end_session()


def on_node(source: str, options: str = "") -> str:
    return f"%%hostler -q -c 1 -m 300M {options}\n{source}"


def test_cell_uses_and_changes_variables_of_the_notebook(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(
        "import sys, xml, xml.dom.minidom as minidom\n"
        "factor, items, gone, idle = 3, [1], 0, [None]\n"
        "both = (items, idle)\n"
        "class Model:\n    fitted = None\n    def fit(self): self.fitted = scaled(2); return self\n"
        "def scaled(value): return factor * value\n"
        "model = Model()\nsame = idle\n"
    )
    value = run(
        on_node(
            "print(xml.dom.minidom.parseString('<root/>').documentElement.tagName)\n"
            "sys.stderr.write('warned\\n')\n"
            "factor = 10\n"
            "items.append(idle[0])\n"
            "first = model.fit()\n"
            "del gone\n"
            "def offset(value): return scaled(value) + shift\n"
            "shift = 1\n"
            "import fractions as exact\n"
            "display('shown')\n"
            "__import__('os').getpid(), offset(1)"
        )
    )
    assert value[0] != os.getpid()
    assert value[1] == 11
    captured = capsys.readouterr()
    assert "root\n" in captured.out
    assert "shown\n" in captured.out
    assert captured.err == "warned\n"
    # Objects that two variables share stay shared, and what the cell does not change stays the same object.
    assert run("items, model.fitted, first is model, isinstance(first, Model), 'gone' in dir(), idle is same") == (
        [1, None],
        20,
        True,
        True,
        False,
        True,
    )
    # Functions that come back belong to the notebook.
    assert run("shift = 5\nfactor = 100\noffset(1), exact.Fraction(1, 2).denominator") == (105, 2)


def test_cell_runs_top_level_await_and_processes_with_functions_of_the_notebook(run: Run) -> None:
    run("def double(x): return 2 * x")
    source = (
        "import asyncio, multiprocessing\n"
        "await asyncio.sleep(0)\n"
        "def increase(x): return double(x) + 1\n"
        "doubled = []\n"
        "for method in ('fork', 'spawn', 'forkserver'):\n"
        "    with multiprocessing.get_context(method).Pool(2) as pool:\n"
        "        doubled += pool.map(double, range(2)) + pool.map(increase, range(2))\n"
        "doubled;"
    )
    assert run(on_node(source)) is None
    assert run("doubled") == [0, 2, 1, 3] * 3


def test_exception_of_a_cell_has_its_traceback_and_keeps_what_was_assigned(run: Run) -> None:
    run("class Broken(Exception): pass\ndef check(x):\n    if x: raise Broken('too large')")
    with pytest.raises(Failed) as failed:
        run(on_node("before = 1\nstream = (n for n in ())\ncheck(5)"))
    text = str(failed.value)
    assert "On n" in text
    assert ", in job " in text
    assert "line 4, in <module>\n    check(5)\n" in text
    assert "Broken: too large" in text
    assert "magic.py" not in text
    assert "the variable `stream` did not come back: a generator cannot be pickled" in text
    assert type(failed.value.__cause__).__name__ == "Broken"
    assert isinstance(failed.value.__cause__.__cause__, hostler.RemoteTraceback)  # type: ignore[union-attr]
    assert run("before, 'stream' in dir()") == (1, False)


def test_what_cannot_be_shown_does_not_cost_the_variables(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    source = (
        "import sys, types\n"
        "class Figure:\n    def savefig(self, *_, **__): raise ValueError('wrong formula')\n"
        "class Shy(Exception):\n"
        "    def __repr__(self): raise ValueError('no text')\n"
        "    def __str__(self): raise ValueError('no text')\n"
        "    def __reduce__(self): raise TypeError('no pickle')\n"
        # Stands for matplotlib.
        "plot = types.SimpleNamespace(get_fignums=lambda: [1], figure=lambda number: Figure())\n"
        "sys.modules['matplotlib.pyplot'] = plot\n"
        "kept, shy = 1, Shy()\n"
        "display(shy)\n"
    )
    run(on_node(source))
    captured = capsys.readouterr()
    assert "figure 1 cannot be drawn: ValueError: wrong formula" in captured.out
    assert "<a Shy; its repr failed: ValueError: no text>" in captured.out
    assert "the variable `shy` did not come back" in captured.err
    with pytest.raises(Failed, match="<its text cannot be read>"):
        run(on_node(source + "kept = 2\nraise shy"))
    assert run("kept") == 2


def test_classes_and_cached_functions_of_the_notebook_stay_its_own(run: Run) -> None:
    run(
        "import functools\nfrom dataclasses import dataclass\n"
        "@functools.lru_cache\ndef doubled(x): return 2 * x\n"
        "def quadrupled(x): return doubled(doubled(x))\n"
        "@dataclass(slots=True)\nclass Point:\n    x: int\n"
        "class Counter:\n    seen = 0\n"
        "Before = Point, Counter"
    )
    run(on_node("found = quadrupled(2), Point(3), Counter(), Counter\nCounter.seen = 5"))
    assert run("found[0], found[1] == Point(3), type(found[2]) is Counter, found[3] is Counter") == (
        8,
        True,
        True,
        True,
    )
    assert run("Counter.seen, Before == (Point, Counter)") == (0, True)
    # A class that the cell defines replaces the one with its name.
    run(on_node("class Counter:\n    seen = 7\nnew = Counter()"))
    assert run("type(new) is Counter, new.seen, Before[1].seen") == (True, 7, 0)


def test_arguments_of_display_have_their_effect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[tuple[object, ...], dict[str, object]]] = []
    monkeypatch.setattr("hostler.jupyter.magic._display", lambda *objects, **more: shown.append((objects, more)))
    run(
        on_node(
            "import threading\n"
            "display({'text/html': '<b>x</b>'}, raw=True)\n"
            "display(1, 2, display_id='one', metadata={'text/plain': {}})\n"
            "handle = display('first', display_id=True)\n"
            "handle.update('second')\n"
            "display(3, unknown=threading.Lock())\n"
            "seen = [1]\n"
            "display(seen)\n"
            "seen.append(2)\n"
            "from IPython.display import display, publish_display_data\n"
            "display('of IPython')\n"
            "publish_display_data({'text/plain': 'raw'})\n"
            "del handle"
        )
    )
    assert shown[:2] == [
        (({"text/html": "<b>x</b>"},), {"raw": True}),
        ((1, 2), {"display_id": "one", "metadata": {"text/plain": {}}}),
    ]
    (_, first), (objects, second), *rest = shown[2:]
    assert (objects, second) == (("second",), {"update": True, **first})
    assert rest == [
        # Without what cannot be pickled.
        ((3,), {}),
        (([1],), {}),
        (("of IPython",), {}),
        (({"text/plain": "raw"},), {"raw": True, "metadata": None}),
    ]
    assert run("import IPython\nseen, display is IPython.display.display") == ([1, 2], True)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (on_node("lock"), "PicklingError: the variable `lock` cannot be pickled: a lock"),
        (on_node("locked()"), "PicklingError: the variable `lock`, which `locked` uses, cannot be pickled"),
        (on_node("_ + 1"), "UsageError: `_` belongs to IPython"),
        (on_node("Out[1]"), "UsageError: `Out` belongs to IPython"),
        (on_node("!ls"), "UsageError: line 2 of the cell is not Python"),
        (on_node("get_ipython()"), "UsageError: there is no IPython on a node"),
        (on_node("1", "-c 999"), "RefusedError: no node can ever run this job"),
        (on_node("1", "--colour"), "UsageError: unrecognized arguments: --colour"),
        ("%hostler why 99999", "RefusedError: there is no job 99999"),
        ("%hostler watch nothing", "UsageError: `nothing` is neither the id of a job nor a variable"),
    ],
)
def test_wrong_input_is_refused_before_anything_runs(run: Run, client: hostler.Client, cell: str, message: str) -> None:
    run("import threading\nlock = threading.Lock()\ndef locked(): return lock\n5")
    before = len(client.jobs(ended=True))
    with pytest.raises(Failed, match=message.replace("(", r"\(").replace("+", r"\+")) as failed:
        run(cell)
    assert "magic.py" not in str(failed.value)
    assert len(client.jobs(ended=True)) == before


def test_module_beside_the_notebook_is_sent(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside.py").write_text("ANSWER = 42\nhook = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    assert run(on_node("from beside import ANSWER\nANSWER")) == 42
    assert "beside" not in sys.modules
    run("import beside\nfactor = 2\ndef twice(): return factor * beside.ANSWER\nbeside.ANSWER, beside.hook = 5, twice")
    assert run(on_node("beside.hook()")) == 10
    del sys.modules["beside"]


def test_interrupt_cancels_the_job(run: Run, client: hostler.Client, tmp_path: Path) -> None:
    started = tmp_path / "started"

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    source = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(600)"
    with pytest.raises(Failed, match=r"KeyboardInterrupt: job \d+ was cancelled"):
        run(on_node(source))
    thread.join()
    newest, *_ = client.jobs(ended=True)
    assert newest.wait(60).state == "cancelled"


def test_notebook_shows_progress_output_and_tables(client: hostler.Client, tmp_path: Path) -> None:
    cells = [
        "%load_ext hostler\nimport hostler",
        "%%hostler -c 1 -m 300M --name cell-2\nprint('from a node')\n6 * 7",
        "%hostler jobs --all",
        "m = hostler.map(str, range(3), key='shown', cpus=1, memory='300M')\n%hostler watch m",
        "%%hostler -m 300M\n1 / 0",
    ]
    v4: Any = nbformat.v4
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, kernel_name="python3", allow_errors=True, timeout=120).execute(cwd=str(tmp_path))
    (_, ran, jobs, watched, failed) = (cell.outputs for cell in notebook.cells)
    progress, *streams, value = ran
    assert re.search(r"job \d+ ended on n\d, \d:\d\d", progress.data["text/html"])
    assert ("".join(stream.text for stream in streams), value.data["text/plain"]) == ("from a node\n", "42")
    assert "cell-2" in jobs[0].data["text/html"]
    assert jobs[0].data["text/plain"].startswith("JOB  NAME")
    (shown,) = watched
    assert "completed" in shown.data["text/plain"]
    assert 'role="progressbar"' in shown.data["text/html"]
    assert failed[-1].ename == "ZeroDivisionError"
    assert "line 2, in <module>" in failed[-1].traceback[2]


def test_rich_display_shows_states_and_escapes_names(client: hostler.Client, project: Path) -> None:
    job = client.submit(project, "main.py", cpus=1, memory="300M", tags={"a": "<i>"})
    job.wait(60)
    for shown in (job, client, client.jobs(ended=True), client.nodes()):
        bundle = shown._repr_mimebundle_()
        assert bundle["text/html"] == shown._repr_html_()
        assert "<table>" in bundle["text/html"]
    assert f"job {job.id}: completed" in job._repr_mimebundle_()["text/plain"]
    text, markup = _display.table(["a"], [["<script>\x1b[2J"]])
    assert "&lt;script&gt;" in markup
    assert "\x1b" not in text + markup
    assert hostler.Client("127.0.0.1:1")._repr_html_().startswith("Client(")
