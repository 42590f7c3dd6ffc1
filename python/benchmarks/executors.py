"""Time per call of `hostler.Executor` beside Dask, Ray and ipyparallel, with as many workers each.

Install the packages that should be compared into a virtual environment, and start a cluster with enough CPUs:

    python3 -m venv bench
    bench/bin/pip install ./python distributed ipyparallel ray
    hostler up --cpus 4
    bench/bin/python python/benchmarks/executors.py

Each round starts the workers of each package in turn, waits until all of them have run a call, and measures from the
first submission to the last result. A package that is not installed is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# Submits as many calls of a function with one argument, and waits for all results.
Run = Callable[[Callable[[float], Any], float, int], None]


@contextlib.contextmanager
def hostler_executor(workers: int) -> Iterator[Run]:
    """Run calls as futures of one executor."""
    import hostler

    with hostler.Executor(workers, cpus=1, memory="200M") as executor:

        def run(function: Callable[[float], Any], argument: float, count: int) -> None:
            futures = [executor.submit(function, argument) for _ in range(count)]
            for future in futures:
                future.result()

        yield run


@contextlib.contextmanager
def dask(workers: int) -> Iterator[Run]:
    """Run calls as futures of a client, with a process per worker."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=logging.ERROR
        ) as cluster,
        Client(cluster) as client,
    ):

        def run(function: Callable[[float], Any], argument: float, count: int) -> None:
            # Otherwise, Dask would run equal calls once.
            client.gather(client.map(function, [argument] * count, pure=False))

        yield run


@contextlib.contextmanager
def ray(workers: int) -> Iterator[Run]:
    """Run calls of a remote function, with a CPU each."""
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:

        def run(function: Callable[[float], Any], argument: float, count: int) -> None:
            remote = ray.remote(function)
            ray.get([remote.remote(argument) for _ in range(count)])

        yield run
    finally:
        ray.shutdown()


@contextlib.contextmanager
def ipyparallel(workers: int) -> Iterator[Run]:
    """Run calls of a load-balanced view, one at a time."""
    import ipyparallel

    with ipyparallel.Cluster(n=workers, log_level=logging.ERROR) as client:
        view = client.load_balanced_view()

        def run(function: Callable[[float], Any], argument: float, count: int) -> None:
            view.map_async(function, [argument] * count, chunksize=1).get()

        yield run


PACKAGES = {"hostler": hostler_executor, "distributed": dask, "ray": ray, "ipyparallel": ipyparallel}


def pause(seconds: float) -> None:
    """Sleep."""
    import time

    time.sleep(seconds)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=0.001, help="how long each call sleeps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="print the seconds of one round of one package")
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}; by default all that are installed")
    options = parser.parse_args()
    packages = options.packages or [name for name in PACKAGES if importlib.util.find_spec(name)]
    if options.once:
        print(measured(packages[0], options))
        return
    times: dict[str, list[float]] = {name: [] for name in packages}
    for number in range(options.rounds):
        for name in packages:
            arguments = [f"--{option}={getattr(options, option)}" for option in ("workers", "calls", "seconds")]
            # A process of its own: what one package leaves behind must not slow the next one down.
            command = [sys.executable, __file__, "--once", *arguments, name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            times[name].append(float(done.stdout.splitlines()[-1]))
            print(f"round {number + 1}: {name} {times[name][-1]:.2f} s", flush=True)
    print(
        f"\n{options.calls} calls of {1000 * options.seconds:g} ms, {options.workers} workers, {options.rounds} rounds"
    )
    print(f"{'':12} {'median s':>9} {'best s':>7} {'worst s':>8} {'per call of a worker':>21}")
    for name in packages:
        median = statistics.median(times[name])
        per_call = 1000 * median * options.workers / options.calls
        print(f"{name:12} {median:9.2f} {min(times[name]):7.2f} {max(times[name]):8.2f} {per_call:18.3f} ms")


def measured(name: str, options: argparse.Namespace) -> float:
    """Return how long all calls take, in seconds."""
    with PACKAGES[name](options.workers) as run:
        # All workers start, and import what they need.
        run(pause, 0.2, 2 * options.workers)
        run(pause, options.seconds, 100)
        begin = time.perf_counter()
        run(pause, options.seconds, options.calls)
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()
