"""The client for programs with an event loop."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest

import hostler


def test_job_is_submitted_followed_and_fetched(client: hostler.Client, project: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        own = hostler.AsyncClient()
        jobs = [await own.submit(project, "main.py", code, cpus=1, memory="300M") for code in ("0", "3")]
        lines = [line async for line in jobs[0].stream()]
        good, bad = await asyncio.gather(*(job.wait(60) for job in jobs))
        assert (good.state, bad.state, bad.exit_code) == ("completed", "failed", 3)
        assert lines == ["task None None"]
        assert await jobs[0].logs("stderr") == "warning\n"
        assert [line async for line in jobs[0].stream("stderr")] == ["warning"]
        assert ((await jobs[0].result(tmp_path / "out")) / "result.txt").read_text() == "done"
        with pytest.raises(hostler.JobFailedError, match=r"AsyncJob\(\d+\) did not complete: exit code 3"):
            await jobs[1].result(tmp_path / "out")
        assert {job.id for job in await own.jobs(ended=True)} >= {job.id for job in jobs}
        assert [node.name for node in await own.nodes()] == [node.name for node in client.nodes()]
        assert "completed" in await jobs[0].why()
        with pytest.raises(hostler.RefusedError, match="there is no job 99999"):
            await own.job(99999).status()

    asyncio.run(scenario())


def test_cancelled_call_ends_its_command(
    client: hostler.Client, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Process] = []
    create = asyncio.create_subprocess_exec

    async def recorded(*arguments: Any, **options: Any) -> Process:
        started.append(await create(*arguments, **options))
        return started[-1]

    async def scenario() -> None:
        job = await hostler.AsyncClient().submit(project, "slow.py", array=2, cpus=1, memory="300M")
        waiting = asyncio.ensure_future(job.wait())
        # The command that waits runs.
        while len(started) < 2:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert all(process.returncode is not None for process in started)
        with pytest.raises(TimeoutError, match=r"Task\(\d+_1\) has not ended within the timeout of 0\.1 s"):
            await job.task(1).wait(0.1)
        async for line in job.task(0).stream():
            assert line == "begun"
            break
        assert [task.index for task in await job.tasks()] == [0, 1]
        await job.cancel()
        assert (await job.wait(60)).state == "cancelled"

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recorded)
    asyncio.run(scenario())
    assert all(process.returncode is not None for process in started)
