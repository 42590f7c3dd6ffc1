"""Uses a cluster as workflow programs with qtoolkit, such as jobflow-remote, do."""

import os
import sys
import time

from qtoolkit.core.data_objects import CancelStatus, QResources, QState, SubmissionStatus
from qtoolkit.io.slurm import SlurmIO
from qtoolkit.manager import QueueManager

os.chdir(sys.argv[1])
manager = QueueManager(SlurmIO())


def wait(job_id, state):
    """Waits until a job has this state; jobs that have ended may be gone from the queue."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        job = manager.get_job(job_id)
        if (job.state if job else None) in state:
            return job
        time.sleep(0.1)
    raise TimeoutError(f"{job_id}: {job}")


resources = QResources(
    queue_name="all",
    job_name="qtk",
    memory_per_thread=50,
    nodes=1,
    processes_per_node=2,
    threads_per_process=1,
    time_limit=3600,
    account="acc",
    output_filepath="q.out",
    error_filepath="q.err",
)
gated = "srun --label echo here; until [ -e gate ]; do sleep 0.1; done"
submitted = manager.submit(gated, options=resources, script_fname="first.sh", create_submit_dir=True)
assert submitted.status == SubmissionStatus.SUCCESSFUL, submitted
job = wait(submitted.job_id, [QState.RUNNING])
assert (job.name, job.queue_name) == ("qtk", "all"), job
assert (job.info.nodes, job.info.cpus, job.info.time_limit) == (1, 2, 3600), job
assert [it.job_id for it in manager.get_jobs_list(jobs=[submitted.job_id])] == [submitted.job_id]

second = manager.submit("sleep 600", options={"job_name": "second", "mem": 50}, script_fname="second.sh")
assert manager.cancel(second.job_id).status == CancelStatus.SUCCESSFUL
wait(second.job_id, [QState.FAILED, None])
unknown = manager.cancel("99999999")
assert "Kill job error on job id 99999999: Invalid job id specified" in unknown.stderr, unknown
open("gate", "w").close()
wait(submitted.job_id, [QState.DONE, None])
assert sorted(open("q.out").read().split("\n")) == ["", "0: here", "1: here"], open("q.err").read()

refused = manager.submit("true", options={"partition": "nowhere"}, script_fname="third.sh")
assert refused.status == SubmissionStatus.FAILED, refused
print("done")
