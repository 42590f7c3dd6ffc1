"""Compares jobs in images: images.py PROGRAM SCRATCH, as root, in a mount namespace of its own.

It makes three images: one with debootstrap, one with `docker build`, and one that a registry on this machine serves. It
runs the same commands in each by Hostler's runtime, by `--runtime docker`, by `--runtime podman` and by plain `docker run`,
and prints a table. The exit code is 1 if output, exit code or a written file differ. Docker's engine, the registry, the
cluster and the user exist only for this program. SCRATCH keeps the base image for the next time.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAM, SCRATCH = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
USER, UID = "hostler-images", 20001
HOME, BASE, DOCKER = SCRATCH / "home", SCRATCH / "base", f"unix://{SCRATCH}/docker.sock"
FOLDER = HOME / "folder"
RUNTIMES = ("hostler", "docker", "podman", "docker run")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
STARTED = []

DOCKERFILE = r"""
FROM base
ENV GREETING="hello  world" PATH=/opt/bin:/usr/bin:/bin HOME=/nowhere
RUN mkdir -p /opt/bin /data/deep/er /srv/work && echo one >/data/one && echo two >/data/two && ln -s one /data/link \
    && ln /data/two /data/hard && echo old >/data/deep/er/file && chmod 600 /data/two && chown 7:8 /data/one
RUN rm /data/two && rm -r /data/deep && mkdir /data/deep && echo new >/data/deep/file && echo three >/data/one
RUN printf '#!/bin/sh\nprintf "%%s|" "$@" "$PWD" "$GREETING"\necho\nexit 5\n' >/opt/bin/entry && chmod 755 /opt/bin/entry
USER 1234
WORKDIR /srv/work
ENTRYPOINT ["/opt/bin/entry"]
CMD ["first", "two words"]
"""

# What runs in all images.
EVERYWHERE = {
    "first use": ["echo", "pulled"],
    "output": ["sh", "-c", "echo out; echo err >&2"],
    "exit code 3": ["sh", "-c", "exit 3"],
    "SIGKILL": ["sh", "-c", "kill -KILL $$"],
    "SIGTERM": ["sh", "-c", "kill -TERM $$"],
    "arguments": ["printf", "<%s>", "a b", "", "$HOME", '"'],
    "directory": ["pwd"],
    "standard input": ["cat"],
    "no such program": ["/no/such/program"],
    "release": ["cat", "/etc/os-release"],
    "users": ["sh", "-c", "id -u; id -g"],
    "written file": ["sh", "-c", "umask 022; echo written >made"],
    # Docker shows its own `docker-init` in the image's place for it.
    "all files": [
        "sh",
        "-c",
        r"find /usr /opt /srv ! -type d ! -name docker-init -printf '%y %s %l %p\n' | sort | sha256sum",
    ],
    "all content": ["sh", "-c", "find /usr/bin /usr/lib -type f -perm -4 | sort | xargs sha256sum | sha256sum"],
}
# What differs with Podman, as docs/guides/engines.md says: root of its user namespace, and the exit code of its init.
OF_PODMAN = {"users": (0, "0\n0\n", "", ""), "no such program": (1, "", "", "")}
BUILT = {
    "variables": ["sh", "-c", 'echo "$GREETING|$PATH"'],
    "layers": ["sh", "-c", "cd /data && ls -R && cat one link deep/file && stat -c %F link hard"],
    "entry point": None,
    "entry point with arguments": ["--entrypoint", "x", "y z"],
}


def main():
    SCRATCH.mkdir(parents=True, exist_ok=True)
    SCRATCH.chmod(0o711)
    add_user()
    try:
        start_engine()
        show_one_version_of_control_groups()
        port = start_registry()
        images = make_images(port)
        start_cluster(port)
        failed = compare(images)
    finally:
        for process in reversed(STARTED):
            process.terminate()
            process.wait()
        subprocess.run(
            ["runuser", "-u", USER, "--", "podman", "system", "reset", "--force"], cwd="/", env=plain(), **QUIET
        )
        for left in (HOME, Path(f"/tmp/podman-run-{UID}"), Path(f"/tmp/containers-user-{UID}")):
            shutil.rmtree(left, ignore_errors=True)
    sys.exit(1 if failed else 0)


def plain():
    """The environment of the user's programs."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(HOME),
        "DOCKER_HOST": DOCKER,
        "LANG": "C.UTF-8",
    }


def add_user():
    """Adds the user to this mount namespace, with what Podman needs."""
    shutil.rmtree(HOME, ignore_errors=True)
    for name, line in {
        "passwd": f"{USER}:x:{UID}:{UID}::{HOME}:/bin/sh",
        "group": f"{USER}:x:{UID}:",
        "subuid": f"{USER}:700000:65536",
        "subgid": f"{USER}:700000:65536",
    }.items():
        copy, real = SCRATCH / name, Path("/etc") / name
        real.touch()
        copy.write_text(real.read_text() + line + "\n")
        call("mount", "--bind", copy, real)
    FOLDER.mkdir(parents=True)
    give(HOME, FOLDER)


def give(*paths):
    for path in paths:
        os.chown(path, UID, UID)


def call(*words, **more):
    """Runs a program that must succeed."""
    return subprocess.run(
        [str(word) for word in words], check=True, text=True, stdout=subprocess.PIPE, **more
    ).stdout.strip()


def docker(*words, **more):
    return call("docker", "--host", DOCKER, *words, **more)


def as_user(*words, **more):
    return call("runuser", "-u", USER, "--", *words, cwd=FOLDER, env=plain(), **more)


def daemon(name, *words, **more):
    with open(SCRATCH / f"{name}.log", "w") as log:
        line = [str(word) for word in words]
        STARTED.append(subprocess.Popen(line, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **more))


def until(what, attempt):
    deadline = time.monotonic() + 90
    while True:
        try:
            return attempt()
        except (OSError, subprocess.CalledProcessError, AssertionError):
            if time.monotonic() > deadline:
                raise SystemExit(f"timeout: {what}; see the logs in {SCRATCH}") from None
            time.sleep(0.3)


def start_engine():
    # The images need no network; an own mount namespace, since the cluster may get other control groups.
    options = ["--bridge=none", "--iptables=false", "--data-root", SCRATCH / "engine", "--exec-root", SCRATCH / "exec"]
    daemon("docker", "unshare", "--mount", "dockerd", *options, "--pidfile", SCRATCH / "docker.pid", "--host", DOCKER)
    until("Docker's engine", lambda: docker("version", stderr=subprocess.DEVNULL))
    os.chmod(SCRATCH / "docker.sock", 0o666)


def show_one_version_of_control_groups():
    """Podman needs crun, which refuses mixed versions. Podman keeps the mounts that its first program sees."""
    if not Path("/sys/fs/cgroup/cgroup.procs").exists():
        call("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")


def start_registry():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shutil.rmtree(SCRATCH / "registry", ignore_errors=True)
    config = SCRATCH / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {SCRATCH}/registry}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n"
    )
    daemon("registry", "docker-registry", "serve", config)
    until("the registry", lambda: socket.create_connection(("127.0.0.1", port)).close())
    return port


def make_images(port):
    """Makes the images. Returns the reference of each for each runtime."""
    if not (SCRATCH / "base.tar").exists():
        say("create a base image with debootstrap")
        shutil.rmtree(BASE, ignore_errors=True)
        call("debootstrap", "--variant=minbase", "bookworm", BASE, MIRROR)
        call("tar", "-C", BASE, "--exclude=./var/cache/apt/archives/*.deb", "-cf", SCRATCH / "base.part", ".")
        (SCRATCH / "base.part").rename(SCRATCH / "base.tar")
    # `dir:` takes directories of the user.
    give(BASE)
    say("build the images")
    docker("import", SCRATCH / "base.tar", "base")
    context = HOME / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE)
    no_buildkit = os.environ | {"DOCKER_BUILDKIT": "0"}
    docker("build", "--network=none", "--tag", "built:1", context, env=no_buildkit, stderr=subprocess.DEVNULL)
    docker("save", "--output", HOME / "built.tar", "built:1")
    give(HOME / "built.tar")
    name = f"localhost:{port}/team/app:1"
    docker("tag", "built:1", name)
    docker("push", name)
    docker("rmi", name)
    settings = HOME / ".config/containers"
    settings.mkdir(parents=True)
    (settings / "registries.conf").write_text(f'[[registry]]\nlocation = "localhost:{port}"\ninsecure = true\n')
    # Without this file, Podman copies the whole image for each container on some machines.
    (settings / "storage.conf").write_text('[storage]\ndriver = "overlay"\n')
    give(HOME / ".config", settings, *settings.iterdir())
    say("give the images to Podman")
    as_user("podman", "import", SCRATCH / "base.tar", "localhost/base", stderr=subprocess.DEVNULL)
    as_user("podman", "load", "--input", HOME / "built.tar", stderr=subprocess.DEVNULL)
    return {
        "debootstrap": (f"dir:{BASE}", "base", "localhost/base", "base"),
        "docker build": (f"docker-archive:{HOME}/built.tar", "built:1", "localhost/built:1", "built:1"),
        "registry": (f"docker://{name}", name, name, name),
    }


def start_cluster(port):
    say("start the cluster")
    for old in ("head", "agent"):
        shutil.rmtree(SCRATCH / old, ignore_errors=True)
    # Users of the node must be able to execute it.
    shutil.copy2(PROGRAM, SCRATCH / "hostler")
    (SCRATCH / "agent").mkdir(mode=0o711)
    allowed = f'engines = ["docker", "podman"]\n[images]\nplain_http = ["localhost:{port}"]\n'
    (SCRATCH / "agent/agent.toml").write_text(allowed)
    head, agent = SCRATCH / "head", SCRATCH / "agent"
    os.environ["HOSTLER_HEAD"] = f"unix:{SCRATCH}/head.sock"
    listen = ["--directory", head, "--socket", SCRATCH / "head.sock", "--listen", "127.0.0.1:0"]
    call(SCRATCH / "hostler", "head", "init", *listen)
    daemon("head", SCRATCH / "hostler", "head", "run", *listen)
    code = until(
        "the head", lambda: call(SCRATCH / "hostler", "--quiet", "node", "invite", "n1", stderr=subprocess.DEVNULL)
    )
    (SCRATCH / "code").write_text(code + "\n")
    (SCRATCH / "code").chmod(0o600)
    join = ["--directory", agent, "--join-file", SCRATCH / "code", "--name", "n1", "--memory", "2G"]
    daemon("agent", SCRATCH / "hostler", "agent", "run", *join)

    def is_up():
        assert '"state":"up"' in call(SCRATCH / "hostler", "nodes", "--json")

    until("the node", is_up)


def command(runtime, image, words):
    """The command line that runs `words` in an image."""
    entrypoint = words is None or words[0] == "--entrypoint"
    arguments = [] if words is None else words[1:] if entrypoint else words
    if runtime == "docker run":
        options = [
            "--rm",
            "--interactive",
            "--init",
            "--network=none",
            f"--user={UID}:{UID}",
            f"--volume={FOLDER}:{FOLDER}",
        ]
        if not entrypoint:
            options += [f"--workdir={FOLDER}", f"--entrypoint={arguments[0]}"]
            arguments = arguments[1:]
        return ["docker", "run", *options, image, *arguments]
    options = ["--quiet", "run", "-m", "500M", "--stdin", "input", "--image", image]
    if runtime != "hostler":
        options += ["--runtime", runtime, "--env", f"DOCKER_HOST={DOCKER}"]
    if words is not None:
        options += ["--entrypoint", "--"] if entrypoint else ["--"]
    return [SCRATCH / "hostler", *options, *arguments]


def result(runtime, image, name, words):
    """What a command did: exit code, standard output, standard error, and the file that it wrote."""
    made = FOLDER / "made"
    made.unlink(missing_ok=True)
    with open(FOLDER / "input", "rb") as given:
        environment = plain() | {"HOSTLER_HEAD": os.environ["HOSTLER_HEAD"]}
        line = ["runuser", "-u", USER, "--", *(str(word) for word in command(runtime, image, words))]
        done = subprocess.run(line, cwd=FOLDER, env=environment, stdin=given, capture_output=True, text=True)
    # Engines print what they pull, and errors of their own.
    error = "" if name in ("first use", "no such program") else done.stderr
    written = (
        f"{made.stat().st_uid}:{made.stat().st_gid} {made.stat().st_mode:o} {made.read_text()}" if made.exists() else ""
    )
    return done.returncode, done.stdout, error, written


def compare(images):
    (FOLDER / "input").write_text("first line\nlast line without newline")
    give(FOLDER / "input")
    differences, slow = [], dict.fromkeys(RUNTIMES, 0.0)
    say(f"{'IMAGE':<14}{'COMMAND':<28}" + "".join(f"{runtime.upper():<14}" for runtime in RUNTIMES))
    for image, references in images.items():
        cases = EVERYWHERE if image == "debootstrap" else EVERYWHERE | BUILT
        for name, words in cases.items():
            results = []
            for runtime, reference in zip(RUNTIMES, references):
                begun = time.monotonic()
                results.append(result(runtime, reference, name, words))
                slow[runtime] += time.monotonic() - begun
            expected = results[-1]
            cells = []
            for runtime, found in zip(RUNTIMES, results):
                wanted = expected
                if runtime == "podman":
                    wanted = OF_PODMAN.get(name, expected)
                same = found == wanted
                cells.append(f"{found[0]:<4}{'same' if same else 'DIFFERENT'}")
                if not same:
                    differences.append((image, name, runtime, found, wanted))
            print(f"{image:<14}{name:<28}" + "".join(f"{cell:<14}" for cell in cells), flush=True)
    print(f"{'':<42}" + "".join(f"{f'{seconds:.1f} s':<14}" for seconds in slow.values()))
    for image, name, runtime, found, wanted in differences:
        print(f"\n{image}, {name}: {runtime} gave\n    {found}\ninstead of\n    {wanted}")
    print(f"\n{len(differences)} differences")
    return bool(differences)


def say(text):
    print(text, flush=True)


main()
