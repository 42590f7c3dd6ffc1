"""Uses a cluster as programs with submitit do: results, arrays, failures, cancellation, tasks and checkpoints."""

import os
import sys
import time

import submitit


def add(first, second):
    return first + second


def fail():
    raise ValueError("on purpose")


def wait():
    time.sleep(600)


def rank():
    environment = submitit.JobEnvironment()
    return environment.global_rank, environment.num_tasks


class Checkpointed:
    """Ends only after a restart."""

    def __call__(self):
        if os.environ.get("SLURM_RESTART_COUNT"):
            return "restarted"
        time.sleep(600)

    def checkpoint(self):
        return submitit.helpers.DelayedSubmission(self)


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def executor(**parameters):
    made = submitit.AutoExecutor(folder=os.path.join(sys.argv[1], "%j"))
    assert made.cluster == "slurm"
    made.update_parameters(timeout_min=5, mem_gb=0.125, **parameters)
    return made


one = executor()
assert one.submit(add, 5, 7).result() == 12

array = executor(slurm_array_parallelism=2).map_array(add, [1, 2, 3], [10, 20, 30])
assert [job.result() for job in array] == [11, 22, 33]

try:
    one.submit(fail).result()
    raise AssertionError("the job has not failed")
except submitit.core.utils.FailedJobError as error:
    assert "on purpose" in str(error)

waits = one.submit(wait)
until(lambda: waits.state == "RUNNING")
waits.cancel()
until(lambda: waits.state.startswith("CANCELLED"))

two = executor(tasks_per_node=2).submit(rank)
assert sorted(two.results()) == [(0, 2), (1, 2)]

checkpointed = one.submit(Checkpointed())
until(lambda: checkpointed.state == "RUNNING")
until(lambda: "Starting" in (checkpointed.stdout() or "") or checkpointed.stderr())
checkpointed._interrupt(timeout=False)
assert checkpointed.result() == "restarted"
print("done")
