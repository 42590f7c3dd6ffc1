#!/usr/bin/env python3
"""A program that is called like Docker's client, and keeps a log of its arguments in the file FAKE_LOG.

Its containers are processes of this machine. As with Docker, they get only the variables that are named, and do not end when
the client is killed, but when they are removed: by SIGKILL to the process group whose number is in a file beside the log.

With FAKE_DROPS, the client leaves its container alone and exits with 1, as after three signals, and the first removal fails.
"""

import json
import os
import signal
import subprocess
import sys

log = os.environ["FAKE_LOG"]
with open(log, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\n")


def container(name):
    return f"{log}.{name}"


if "/inside" in os.environ["PATH"]:
    sys.exit("the client has the PATH of the container")
command, arguments = sys.argv[1], sys.argv[2:]
if command == "rm":
    if os.environ.get("FAKE_DROPS") and not os.path.exists(f"{log}-refused"):
        open(f"{log}-refused", "w").close()
        sys.exit("Error response from daemon: busy")
    try:
        with open(container(arguments[-1])) as file:
            number = int(file.read())
    except FileNotFoundError:
        sys.exit(f"Error: No such container: {arguments[-1]}")
    try:
        os.killpg(number, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.remove(container(arguments[-1]))
    sys.exit(0)

assert command == "run", command
options = []
while arguments[0].startswith("--"):
    options.append(arguments.pop(0).split("=", 1))
image = arguments.pop(0)
if image == "missing":
    print("docker: Error response from daemon: no such image", file=sys.stderr)
    sys.exit(125)
values = {option[0]: option[-1] for option in options}
named = [option[1].split("=", 1) for option in options if option[0] == "--env"]
passed = {name[0]: name[-1] if len(name) == 2 else os.environ.get(name[0]) for name in named}
with open(values.get("--env-file", os.devnull)) as file:
    in_file = dict(line.rstrip("\n").split("=", 1) for line in file)
environment = {"PATH": "/usr/bin:/bin", "IMAGE": image, **in_file, **{name: it for name, it in passed.items() if it is not None}}
child = subprocess.Popen(
    [values["--entrypoint"], *arguments], cwd=values["--workdir"], env=environment, start_new_session=True
)
with open(container(values["--name"]), "w") as file:
    file.write(str(child.pid))
if os.environ.get("FAKE_DROPS"):
    os._exit(1)
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
code = child.wait()
os.remove(container(values["--name"]))
sys.exit(code if code >= 0 else 128 - code)
