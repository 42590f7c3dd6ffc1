"""Time of many calls, and the memory of their client: Hostler beside other packages, with as many workers each.

Install the packages that should be compared into a virtual environment, and start a cluster with enough CPUs:

    python3 -m venv bench
    bench/bin/pip install ./python distributed ipyparallel joblib numpy ray
    hostler up --cpus 4
    bench/bin/python python/benchmarks/executors.py
    bench/bin/python python/benchmarks/executors.py --workers 2 --seconds 0
    bench/bin/python python/benchmarks/executors.py --workers 2 --seconds 0 --calls 100 --captured 200

Each round starts the workers of each package in turn, waits until all of them have run a call, and measures from the
first submission to the last result. Only `hostler.map` has no workers before: it starts its tasks in the measured time.
Dask and Ray get what functions capture in the way that their manuals advise, `scatter` and `put`: otherwise Ray refuses
more than 95 MiB, and Dask sends it with each call. A package that is not installed is left out.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib.util
import logging
import multiprocessing
import resource
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

    with hostler.Executor(workers, cpus=1, memory="2G") as executor:

        def run(function: Callable[[float], Any], argument: float, count: int) -> None:
            futures = [executor.submit(function, argument) for _ in range(count)]
            for future in futures:
                future.result()

        yield run


@contextlib.contextmanager
def hostler_map(workers: int) -> Iterator[Run]:
    """Run calls as one array job."""
    import hostler

    def run(function: Callable[[float], Any], argument: float, count: int) -> None:
        for _ in hostler.map(function, [argument] * count, max_workers=workers, cpus=1, memory="2G"):
            pass

    yield run


@contextlib.contextmanager
def processes(workers: int) -> Iterator[Run]:
    """Run calls in forked processes, which inherit what a function captures."""
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as executor:

        def run(function: Callable[[float], Any], argument: float, count: int) -> None:
            for _ in executor.map(function, [argument] * count):
                pass

        yield run


@contextlib.contextmanager
def loky(workers: int) -> Iterator[Run]:
    """Run calls with joblib's processes."""
    import joblib

    with joblib.Parallel(n_jobs=workers, backend="loky") as parallel:

        def run(function: Callable[[float], Any], argument: float, count: int) -> None:
            parallel(joblib.delayed(function)(argument) for _ in range(count))

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
            shared = {} if function is not look else {"content": client.scatter(table, broadcast=True)}
            calls = client.map(look_at if shared else function, [argument] * count, pure=False, **shared)
            client.gather(calls)

        yield run


@contextlib.contextmanager
def ray(workers: int) -> Iterator[Run]:
    """Run calls of a remote function, with a CPU each."""
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:

        def run(function: Callable[[float], Any], argument: float, count: int) -> None:
            shared = [] if function is not look else [ray.put(table)]
            remote = ray.remote(look_at if shared else function)
            ray.get([remote.remote(argument, *shared) for _ in range(count)])

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


# For each name, the package that has to be installed, and what starts its workers.
PACKAGES = {
    "Executor": ("hostler", hostler_executor),
    "map": ("hostler", hostler_map),
    "processes": ("concurrent", processes),
    "loky": ("joblib", loky),
    "Dask": ("distributed", dask),
    "Ray": ("ray", ray),
    "ipyparallel": ("ipyparallel", ipyparallel),
}

#: What the calls capture.
table: Any = None


def pause(seconds: float) -> None:
    """Sleep."""
    import time

    if seconds:
        time.sleep(seconds)


def look(_: float) -> float:
    """Use what is captured."""
    return float(table[0])


def look_at(_: float, content: Any) -> float:
    """Use what is passed."""
    return float(content[0])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=0.001, help="how long each call sleeps")
    parser.add_argument(
        "--captured", type=int, default=0, help="MB that the function captures; such calls do not sleep"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="print seconds and MB of one round of one package")
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}; by default all that are installed")
    options = parser.parse_args()
    packages = options.packages or [name for name in PACKAGES if importlib.util.find_spec(PACKAGES[name][0])]
    if options.once:
        print(*measured(packages[0], options))
        return
    rows: dict[str, list[list[float]]] = {name: [] for name in packages}
    for number in range(options.rounds):
        for name in packages:
            values = ("workers", "calls", "seconds", "captured")
            arguments = [f"--{option}={getattr(options, option)}" for option in values]
            # A process of its own: what one package leaves behind must not slow the next one down.
            command = [sys.executable, __file__, "--once", *arguments, name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if done.returncode == 0:
                rows[name].append([float(word) for word in done.stdout.splitlines()[-1].split()])
            print(f"round {number + 1}: {name} {done.stdout.strip() or 'failed'}", flush=True)
    what = f"capture {options.captured} MB" if options.captured else f"take {1000 * options.seconds:g} ms"
    print(f"\n{options.calls} calls that {what}, {options.workers} workers, {options.rounds} rounds")
    print(f"{'':12} {'median s':>9} {'best s':>7} {'worst s':>8} {'client MB':>10}")
    for name, found in rows.items():
        if found:
            times, client = zip(*found, strict=True)
            print(
                f"{name:12} {statistics.median(times):9.2f} {min(times):7.2f} {max(times):8.2f} "
                f"{statistics.median(client):10.0f}"
            )


def measured(name: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return how long all calls take, and the peak memory of this process."""
    global table
    if options.captured:
        import numpy

        # Nothing can compress it.
        table = numpy.random.default_rng(0).integers(1 << 62, size=options.captured * 125_000)
    with PACKAGES[name][1](options.workers) as run:
        # All workers start, and import what they need.
        run(pause, 0.2, 2 * options.workers)
        run(pause, options.seconds, 100)
        begin = time.perf_counter()
        run(look if options.captured else pause, options.seconds, options.calls)
        seconds = time.perf_counter() - begin
        return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
