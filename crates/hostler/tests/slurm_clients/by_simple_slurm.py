"""Uses a cluster as programs with simple_slurm do."""

import datetime
import os
import sys
import time

from simple_slurm import Slurm

os.chdir(sys.argv[1])


def ended(path, lines):
    """Waits until a file has as many lines, and returns them."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if os.path.exists(path) and len(found := open(path).read().splitlines()) >= lines:
            return found
        time.sleep(0.05)
    raise TimeoutError(path)


array = Slurm(
    array=range(3, 6),
    cpus_per_task=1,
    job_name="name",
    output=f"{Slurm.JOB_ARRAY_MASTER_ID}_{Slurm.JOB_ARRAY_ID}.out",
    time=datetime.timedelta(hours=1),
    mem=50,
)
first = array.sbatch("echo task " + Slurm.SLURM_ARRAY_TASK_ID)
after = Slurm(mem=50, time="0-00:05:00", dependency={"after": first, "afterok": first}, output="after.out")
after.add_cmd("echo one")
after.sbatch("echo two")
assert ended("after.out", 2) == ["one", "two"]
for index in range(3, 6):
    assert ended(f"{first}_{index}.out", 1) == [f"task {index}"]

assert Slurm(mem=50).srun("true") == 0

# A job can get a signal right after its submission.
signalled = Slurm(mem=50).sbatch("sleep 600")
queue = Slurm(mem=50)
queue.squeue.update_squeue()
assert signalled in queue.squeue.jobs, queue.squeue.jobs
queue.scancel.signal_job(signalled)
queue.scancel.cancel_job(signalled)
until = time.monotonic() + 60
while time.monotonic() < until:
    queue.squeue.update_squeue()
    if not queue.squeue.jobs:
        break
    time.sleep(0.2)
assert not queue.squeue.jobs, queue.squeue.jobs
print("done")
