"""Graphs of Dask, which runs them on any executor of `concurrent.futures`."""

from __future__ import annotations

import os

import dask
import pytest
from dask.delayed import delayed

import hostler


def test_graph_of_dask_runs_on_the_cluster(client: hostler.Client) -> None:
    @delayed  # type: ignore[untyped-decorator]
    def load(part: int) -> tuple[set[str], list[int]]:
        return {os.environ["HOSTLER_JOB_ID"]}, list(range(part, part + 10))

    @delayed  # type: ignore[untyped-decorator]
    def merge(left: tuple[set[str], list[int]], right: tuple[set[str], list[int]]) -> tuple[set[str], list[int]]:
        return left[0] | right[0] | {os.environ["HOSTLER_JOB_ID"]}, left[1] + right[1]

    @delayed  # type: ignore[untyped-decorator]
    def fail(loaded: object) -> None:
        raise ValueError("three is not allowed")

    parts = [load(part) for part in range(0, 80, 10)]
    wrong = fail(parts[3])
    while len(parts) > 1:
        parts = [merge(left, right) for left, right in zip(parts[::2], parts[1::2], strict=True)]
    with hostler.Executor(2, client=client, cpus=1, memory="200M") as executor, dask.config.set(scheduler=executor):
        jobs, numbers = parts[0].compute()
        assert numbers == list(range(80))
        assert jobs <= {str(job.id) for job in client.jobs()}
        with pytest.raises(ValueError, match="three is not allowed"):
            wrong.compute()
        # The executor stays usable.
        assert load(7).compute()[1][0] == 7
