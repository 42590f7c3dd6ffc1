"""Maps with a key on a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hostler

SMALL = hostler.Options(cpus=1, memory="100M")


def double(number: int) -> int:
    return 2 * number


def test_map_with_a_key_outlives_a_killed_client_and_is_opened_again(client: hostler.Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = (
        "import hostler, pathlib, time\n"
        "def work(number):\n"
        f"    while not pathlib.Path({str(gate)!r}).exists():\n"
        "        time.sleep(0.05)\n"
        "    return number * number\n"
        "m = hostler.map(work, range(6), key='squares', chunksize=2, cpus=1, memory='100M')\n"
        "print(m.job.id, flush=True)\n"
        "list(m)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        job = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    opened = hostler.Map.open("squares")
    assert (opened.job.id, len(opened), opened.failed()) == (job, 6, {})
    gate.touch()
    assert list(opened) == [number * number for number in range(6)]
    assert list(opened.results(ordered=False, errors="return")), "results are read any number of times"
    assert opened.status().completed
    assert repr(opened) == f"Map('squares', job {job}, 6 inputs)"


def test_same_key_is_the_same_map_or_an_error(client: hostler.Client) -> None:
    first = hostler.map(double, [1, 2], key="twice", client=client, **SMALL)
    again = hostler.map(double, [1, 2], key="twice", client=client, cpus=2, memory="200M")
    assert again.job == first.job
    assert list(again) == [2, 4]
    with pytest.raises(
        hostler.RefusedError, match=f"job {first.job.id} has the key `twice` and other inputs"
    ) as raised:
        hostler.map(double, [1, 3], key="twice", client=client, **SMALL)
    assert "`retention` has passed since the job ended" in raised.value.hints[0]
    assert list(hostler.map(double, [5], key="twice, too", client=client, **SMALL)) == [10]


def test_failed_inputs_run_again_with_more_memory(client: hostler.Client, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def work(number: int) -> int:
        if number == 1 and not mended.exists():
            raise ValueError("not yet")
        if number == 3:
            bytearray(150 << 20)
        return number

    m = hostler.map(work, range(5), key="retry", chunksize=1, client=client, **SMALL)
    m.wait(60)
    failed = m.failed()
    assert {index: type(error) for index, error in failed.items()} == {1: ValueError, 3: hostler.JobFailedError}
    assert "ran out of memory" in str(failed[3])
    assert "request more with `memory=`" in str(failed[3])
    with pytest.raises(ValueError, match="not yet"):
        list(m)
    mended.touch()
    assert m.retry(memory="400M") == [1, 3]
    assert list(m) == list(range(5))
    assert m.retry() == []


def test_results_of_a_cancelled_map_remain(client: hostler.Client) -> None:
    def work(number: int) -> int:
        import time

        time.sleep(600 if number else 0)
        return number

    m = hostler.map(work, [0, 1], key="cancelled", client=client, trusted=False, **SMALL)
    assert next(m.results(ordered=False)) == 0
    m.cancel()
    m.wait(20)
    found = list(m.results(errors="return"))
    assert found[0] == 0
    assert "was cancelled" in str(found[1])


def test_wrong_keys_are_named(client: hostler.Client, project: Path) -> None:
    with pytest.raises(hostler.UsageError, match="no map with the key `nothing/at all`"):
        hostler.Map.open("nothing/at all")
    job = client.submit(project, "main.py", key="a job", cpus=1, memory="100M")
    assert client.submit(project, "main.py", key="a job") == job
    with pytest.raises(hostler.RefusedError, match="another command"):
        client.submit(project, "main.py", "3", key="a job")
    with pytest.raises(hostler.RefusedError, match="another array"):
        client.submit(project, "main.py", key="a job", array=3)
    with pytest.raises(hostler.MismatchError, match="is not a map"):
        hostler.Map.open("a job")
    with pytest.raises(hostler.UsageError, match="at least one input"):
        hostler.map(double, [], key="empty", client=client)
    with pytest.raises(hostler.UsageError, match="belong to"):
        hostler.map(double, [1], key="late", errors="return", client=client)  # type: ignore[call-overload]
