"""A backend for joblib: `joblib.Parallel`, and with it scikit-learn, on all nodes of a cluster.

Importing this module registers the backend ``hostler``.

Examples
--------
>>> import hostler.joblib
>>> with joblib.parallel_config("hostler", n_jobs=-1, cpus=1, memory="1G"):
...     search.fit(X, y)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib import register_parallel_backend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, SequentialBackend

from hostler.client import Client
from hostler.executor import Executor


class HostlerBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs batches of calls as array tasks.

    Parameters
    ----------
    nesting_level, inner_max_num_threads
        Set by joblib.
    **settings
        Arguments of `hostler.Executor`: ``cpus``, ``memory``, ``environment``, ``client`` and others.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    def __init__(
        self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **settings: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._settings = settings
        self._executor: Executor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls can run at the same time: with -1, as many as the cluster has CPUs for."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        client = self._settings.get("client") or Client()
        slots: int = client.info()["cpus"]["total"] // (self._settings.get("cpus") or 1)
        return max(1, slots + 1 + (-1 if n_jobs is None else n_jobs))

    def configure(self, n_jobs: int = 1, parallel: Any = None, **settings: Any) -> int:
        """Prepare for a call of `joblib.Parallel`."""
        self.parallel = parallel
        found = self.effective_n_jobs(n_jobs)
        self._executor = self._new_executor(found)
        return found

    def _new_executor(self, workers: int | None) -> Executor:
        # joblib sets the number of threads after it has created the backend.
        threads = self.inner_max_num_threads
        limits = {} if threads is None else dict.fromkeys(self.MAX_NUM_THREADS_VARS, str(threads))
        env = {**limits, **(self._settings.get("env") or {})}
        return Executor(workers, **{**self._settings, "env": env or None})

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        """Submit a batch of calls."""
        assert self._executor is not None, "joblib calls configure first"
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all batches, also those that run: nothing needs their results after an exception."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            for pool in self._executor._pools:
                pool.kill()
            self._executor = self._new_executor(self._executor._settings.max_workers) if ensure_ready else None

    def terminate(self) -> None:
        """End after a call of `joblib.Parallel`."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """Return what calls inside of calls use: each runs in its own task."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None


register_parallel_backend("hostler", HostlerBackend)
