"""The backend for joblib on a real cluster."""

from __future__ import annotations

import math
import os
import time

import joblib
import pytest

import hostler
import hostler.joblib


def test_parallel_runs_on_the_cluster(client: hostler.Client) -> None:
    with joblib.parallel_config("hostler", n_jobs=4, cpus=1, memory="200M"):
        found = joblib.Parallel()(joblib.delayed(math.sqrt)(number) for number in range(20))
        tasks = joblib.Parallel()(joblib.delayed(os.getenv)("HOSTLER_JOB_ID") for _ in range(2))
    assert found == [math.sqrt(number) for number in range(20)]
    assert None not in tasks, "the calls ran in jobs"


def test_all_cpus_of_the_cluster_count(client: hostler.Client) -> None:
    backend = hostler.joblib.HostlerBackend(cpus=2)
    total = client.info()["cpus"]["total"]
    assert [backend.effective_n_jobs(jobs) for jobs in (-1, -2, 3, None)] == [total // 2, total // 2 - 1, 3, total // 2]
    with pytest.raises(ValueError, match="no meaning"):
        backend.effective_n_jobs(0)


def test_threads_inside_of_calls_are_limited(client: hostler.Client) -> None:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    with joblib.parallel_config("hostler", n_jobs=2, inner_max_num_threads=1, cpus=2, memory="200M"):
        assert joblib.Parallel()(joblib.delayed(os.getenv)(name) for name in names) == ["1", "1"]


def test_exception_of_a_call_is_raised_here(client: hostler.Client) -> None:
    with joblib.parallel_config("hostler", n_jobs=2, cpus=1, memory="200M"):
        with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
            joblib.Parallel()(joblib.delayed(math.sqrt)(number) for number in (1, -1, 4))
        assert joblib.Parallel()([joblib.delayed(math.sqrt)(9)]) == [3.0]


def test_exception_ends_the_calls_that_run(client: hostler.Client) -> None:
    before = set(client.jobs())
    parallel = joblib.Parallel(n_jobs=2, backend="hostler", cpus=1, memory="200M")
    with pytest.raises(TypeError):
        parallel(joblib.delayed(time.sleep)(seconds) for seconds in ("a", 300, 300, 300))
    deadline = time.monotonic() + 60
    while set(client.jobs()) - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not set(client.jobs()) - before


def test_size_of_batches_is_not_kept_for_other_functions(client: hostler.Client) -> None:
    parallel = joblib.Parallel(n_jobs=2, backend="hostler", cpus=1, memory="200M")
    parallel(joblib.delayed(abs)(number) for number in range(500))
    assert parallel._backend._effective_batch_size == 1
