#!/usr/bin/env python3
"""A program that is called like Docker's client, and keeps a log of its arguments in the file FAKE_LOG.

Its containers are processes of this machine. As with Docker, they get only the variables that are named, and do not end when
the client is killed, but when they are removed: by SIGKILL to the process group whose number is in a file beside the log.
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


command, arguments = sys.argv[1], sys.argv[2:]
if command == "rm":
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
environment = {"PATH": "/usr/bin:/bin", "IMAGE": image, **{name: it for name, it in passed.items() if it is not None}}
child = subprocess.Popen(
    [values["--entrypoint"], *arguments], cwd=values["--workdir"], env=environment, start_new_session=True
)
with open(container(values["--name"]), "w") as file:
    file.write(str(child.pid))
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
code = child.wait()
os.remove(container(values["--name"]))
sys.exit(code if code >= 0 else 128 - code)
