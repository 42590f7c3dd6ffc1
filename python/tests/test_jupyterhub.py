"""The spawner of JupyterHub, on a cluster for several users."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hostler import _executable

SCENARIO = Path(__file__).with_name("jupyterhub_scenario.py")
# All processes end with the first one in the namespace.
NAMESPACES = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def test_hub_runs_the_servers_of_ten_users_as_jobs() -> None:
    assert os.geteuid() == 0, "the hub changes to the accounts of its users: run this test as root"
    environment = os.environ.get("HOSTLER_JUPYTERHUB")
    assert environment, "HOSTLER_JUPYTERHUB is no environment with JupyterHub; .ci/run makes one"
    base = Path(tempfile.mkdtemp(prefix="hostler-hub-test-", dir="/tmp"))
    base.chmod(0o755)
    try:
        # The original executable may be in a directory that other users cannot enter.
        executable = base / "hostler"
        shutil.copy(_executable.find(), executable)
        start = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, str(SCENARIO)]
        done = subprocess.run([*NAMESPACES, *start, executable, environment, base], capture_output=True, text=True)
        logs = [f"{log.name}:\n{log.read_text(errors='replace')[-8000:]}" for log in sorted(base.glob("*.log"))]
        assert done.returncode == 0, "\n".join([done.stdout, *logs, done.stderr])
    finally:
        shutil.rmtree(base, ignore_errors=True)
