"""A JupyterHub with three users, later ten, whose servers cannot reach it over the network.

`test_jupyterhub` runs this in namespaces of its own, where all ports are free.

Arguments: the executable, the environment with JupyterHub, and an empty directory that all users can enter.
"""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

EXECUTABLE, ENVIRONMENT, BASE = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
SOURCE = Path(__file__).resolve().parents[1] / "src"
SITE = "http://127.0.0.1:8000"
TOKEN = "secret-of-the-test"
SECONDS = 90
# Accounts that every Debian has.
USERS = ("games", "man", "lp")
TEN = (*USERS, "mail", "news", "uucp", "proxy", "www-data", "backup", "list")
CONFIG = f"""
c.JupyterHub.spawner_class = "hostler.jupyterhub.HostlerSpawner"
c.JupyterHub.bind_url = "{SITE}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:8081"
c.JupyterHub.cleanup_servers = False
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.auth_token = "{TOKEN}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.services = [{{"name": "test", "api_token": "{TOKEN}"}}]
c.JupyterHub.load_roles = [
    {{"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers", "access:servers"]}}
]
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0, "slow_stop_timeout": 0}}
c.JupyterHub.init_spawners_timeout = 1
c.HostlerSpawner.cmd = ["{ENVIRONMENT}/bin/jupyterhub-singleuser"]
c.HostlerSpawner.env_keep = []
c.HostlerSpawner.environment = {{
    "HOME": lambda spawner: "{BASE}/" + spawner.user.name,
    "JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp",
}}
c.HostlerSpawner.minimum_uid = 1
c.HostlerSpawner.max_cpus = 2
# Less than the default.
c.HostlerSpawner.max_hours = 4
c.HostlerSpawner.poll_interval = 1
"""

# The hub's executable: while there is a file `refuse`, queries of root are refused.
REFUSING = f"""#!/bin/sh
if [ "$2" = job ] && [ -e {BASE}/refuse ] && [ "$(id -u)" = 0 ]; then
    echo '{{"error":{{"message":"refused by the test","causes":[],"code":null,"hints":[]}}}}' >&2
    exit 4
fi
exec {EXECUTABLE} "$@"
"""


def start(name: str, *command: str) -> subprocess.Popen[bytes]:
    with open(BASE / f"{name}.log", "ab") as log:
        return subprocess.Popen(command, cwd=BASE, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def hostler(*arguments: str, user: str | None = None) -> Any:
    options: dict[str, Any] = {}
    if user:
        account = pwd.getpwnam(user)
        options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    done = subprocess.run([EXECUTABLE, "--json", *arguments], cwd="/", capture_output=True, check=True, **options)
    return json.loads(done.stdout) if done.stdout.strip() else None


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, condition
        time.sleep(0.1)
    return found


def ask(method: str, path: str, body: object = None, seconds: float = SECONDS) -> tuple[int, str]:
    """Send a request to the site with the token of the test. 0 means that it does not answer."""
    request = urllib.request.Request(SITE + path, None if body is None else json.dumps(body).encode(), method=method)
    request.add_header("Authorization", f"token {TOKEN}")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def status_of(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def api(method: str, path: str, body: object = None) -> Any:
    status, text = ask(method, f"/hub/api{path}", body)
    assert 200 <= status < 300, (method, path, status, text)
    return json.loads(text) if text else None


def server(user: str) -> dict[str, Any]:
    found: dict[str, Any] = api("GET", f"/users/{user}")["servers"].get("", {})
    return found


def is_ready(user: str) -> bool:
    return bool(server(user).get("ready"))


def reaches(user: str) -> bool:
    return ask("GET", f"/user/{user}/api/status", seconds=5)[0] == 200


def job_of(user: str) -> Any:
    (job,) = hostler("jobs", "--user", user)["jobs"]
    return hostler("job", str(job["id"]))


def state_of(user: str) -> Any:
    """Return what the spawner stored."""
    return server(user)["state"]["hostler"]


def token_of(user: str) -> str:
    """Return the token of a running server."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = (place / "cmdline").read_bytes()
            if place.stat().st_uid == pwd.getpwnam(user).pw_uid and b"/jupyterhub-singleuser\0" in program:
                variables = (place / "environ").read_bytes().decode().split("\0")
                return dict(variable.split("=", 1) for variable in variables if variable)["JUPYTERHUB_API_TOKEN"]
    raise AssertionError(f"no server of {user}")


def binds(other: socket.socket, port: int) -> bool:
    """Whether a socket gets a port. It accepts connections and answers none."""
    with contextlib.suppress(OSError):
        other.bind(("127.0.0.1", port))
        other.listen()
        return True
    return False


def start_head() -> subprocess.Popen[bytes]:
    # Keeps a head that is set up already.
    subprocess.run([EXECUTABLE, "--quiet", "head", "init", f"--directory={BASE}/head"], check=True)
    head = start(
        "head",
        EXECUTABLE,
        "head",
        "run",
        f"--directory={BASE}/head",
        f"--socket={BASE}/head.sock",
        "--listen=192.0.2.1:7760",
    )
    until(lambda: not subprocess.run([EXECUTABLE, "info"], capture_output=True).returncode)
    return head


def start_node(number: int, *options: str) -> subprocess.Popen[bytes]:
    """Start an agent in a network of its own, in which only the head can be reached, and not the hub."""
    name, address = f"n{number}", f"192.0.2.{number + 1}/32"
    for arguments in (
        f"link add hub{number} type veth peer name node",
        f"link set hub{number} up",
        f"route add {address} dev hub{number}",
    ):
        subprocess.run(["ip", *arguments.split()], check=True)
    (BASE / "join").write_text(hostler("node", "invite", name)["code"])
    enter = (
        f"read go; ip link set lo up; ip address add {address} dev node; ip link set node up; "
        'ip route add 192.0.2.1 dev node; exec "$@" <&-'
    )
    agent = [f"--name={name}", f"--directory={BASE}/{name}", f"--join-file={BASE}/join", f"--socket={BASE}/{name}.sock"]
    command = ["unshare", "--net", "sh", "-c", enter, "sh", EXECUTABLE, "agent", "run", *agent, *options]
    with open(BASE / "agent.log", "ab") as log:
        process = subprocess.Popen(command, cwd=BASE, stdin=subprocess.PIPE, stdout=log, stderr=log)
    own = os.readlink("/proc/self/ns/net")
    until(lambda: os.readlink(f"/proc/{process.pid}/ns/net") != own)
    subprocess.run(["ip", "link", "set", "node", "netns", str(process.pid)], check=True)
    with cast("IO[bytes]", process.stdin) as go:
        go.write(b"go\n")
    return process


def start_hub() -> subprocess.Popen[bytes]:
    hub = start("hub", str(ENVIRONMENT / "bin/jupyterhub"), "--config", str(BASE / "jupyterhub_config.py"))
    until(lambda: ask("GET", "/hub/api/")[0] == 200)
    return hub


def log_in_and_spawn(user: str, options: dict[str, str]) -> str:
    """Log in as a browser does, send the form, and return the page that follows."""
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))

    def token(page: str) -> str:
        return next(cookie.value or "" for cookie in jar if cookie.name.endswith("_xsrf") and cookie.path == page)

    browser.open(f"{SITE}/hub/login").read()
    form = {"username": user, "password": "any", "_xsrf": token("/hub/")}
    browser.open(f"{SITE}/hub/login?next=/hub/spawn", urllib.parse.urlencode(form).encode()).read()
    page = browser.open(f"{SITE}/hub/spawn").read().decode()
    for field in ("cpus", "memory_gib", "hours"):
        assert f'name="{field}"' in page, page
    assert 'name="gpus"' not in page
    form = {**options, "_xsrf": token("/hub/")}
    try:
        sent = browser.open(f"{SITE}/hub/spawn", urllib.parse.urlencode(form).encode())
        return str(sent.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def main() -> None:
    os.environ.update(
        HOME=str(BASE / "root"),
        HOSTLER_HEAD=f"unix:{BASE}/head.sock",
        HOSTLER_BIN=f"{BASE}/refusing",
        PYTHONPATH=str(SOURCE),
    )
    os.environ.update(PYTHONDONTWRITEBYTECODE="1", CONFIGPROXY_AUTH_TOKEN=TOKEN)
    for name in ("root", *TEN):
        (BASE / name).mkdir(mode=0o700)
        if name != "root":
            os.chown(BASE / name, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
    (BASE / "jupyterhub_config.py").write_text(CONFIG)
    (BASE / "refusing").write_text(REFUSING)
    (BASE / "refusing").chmod(0o755)
    subprocess.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"], check=True)
    running = {"head": start_head()}
    try:
        scenario(running)
    finally:
        # First the jobs, since their processes are children of the agent.
        for job in hostler("jobs")["jobs"]:
            hostler("cancel", str(job["id"]), user=job["user"])
        until(lambda: not hostler("jobs")["jobs"])
        for process in reversed(running.values()):
            process.send_signal(signal.SIGTERM)
        for process in running.values():
            process.wait(SECONDS)


def scenario(running: dict[str, subprocess.Popen[bytes]]) -> None:
    hostler("configure", "setting", "system-accounts", "yes")
    # Two servers fit.
    running["agent"] = start_node(1, "--cpus=0-1", "--memory=2G")
    until(lambda: [node["state"] for node in hostler("nodes")] == ["up"])
    proxy = [
        "--ip=127.0.0.1",
        "--port=8000",
        "--api-ip=127.0.0.1",
        "--api-port=8001",
        "--default-target=http://127.0.0.1:8081",
    ]
    running["proxy"] = start("proxy", str(ENVIRONMENT / "bin/configurable-http-proxy"), *proxy)
    running["hub"] = start_hub()

    # What is not allowed is refused, in the form and through the API, and nothing is submitted.
    assert "cpus is 99; choose 1 to 2" in log_in_and_spawn("man", {"cpus": "99", "memory_gib": "1", "hours": "1"})
    for user in ("games", "lp", "root"):
        api("POST", f"/users/{user}")
    log = BASE / "hub.log"
    for user, options, message in (
        ("games", {"partition": "other"}, "there is no partition 'other' to choose"),
        ("games", {"memory_gib": "1; rm"}, "memory_gib is '1; rm'; it must be a number"),
        ("games", {"cmd": "sh"}, "unknown options: cmd"),
        ("root", {}, "root is a system account, which gets no server"),
    ):
        ask("POST", f"/hub/api/users/{user}/server", options)
        until(partial(lambda user: not server(user), user))
        assert message in log.read_text(), message
    assert hostler("jobs", "--all")["jobs"] == []

    # A start that fails after the submission leaves no job.
    (BASE / "refuse").touch()
    ask("POST", "/hub/api/users/games/server", {"memory_gib": 0.3})
    until(lambda: [job["state"] for job in hostler("jobs", "--all")["jobs"]] == ["cancelled"])
    until(lambda: not server("games"))
    assert "refused by the test" in log.read_text()
    (BASE / "refuse").unlink()

    # One server from the form, one from the API; each is a job of its user.
    log_in_and_spawn("man", {"cpus": "1", "memory_gib": "0.3", "hours": "0.5"})
    api("POST", "/users/games/server", {"memory_gib": 0.4})
    for user, memory in (("man", 307 << 20), ("games", 409 << 20)):
        until(partial(is_ready, user))
        job = job_of(user)
        assert (job["user"], job["cpus"], job["memory_bytes"]) == (user, 1, memory), job
        until(partial(reaches, user))
    assert job_of("games")["time_limit_ms"] == 4 * 3_600_000
    directory = Path(state_of("games")["socket"]).parent
    assert directory.stat().st_mode & 0o077 == 0
    # Servers ask the hub who it is, over a socket of their own, and let nobody else in.
    assert sorted(file.name for file in directory.iterdir()) == ["hub.sock", "server.sock"]
    for caller, user, status in (("games", "games", 200), ("man", "games", 403), ("games", "man", 403)):
        request = urllib.request.Request(f"http://127.0.0.1:{state_of(user)['forward'][2]}/user/{user}/api/status")
        request.add_header("Authorization", f"token {token_of(caller)}")
        assert status_of(request) == status, (caller, user)
    # The token is on no command line, and in no file that other users can read.
    token = token_of("games")
    assert token not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    reader = pwd.getpwnam("man")
    search = ["grep", "--recursive", "--devices=skip", "--files-with-matches", "--no-messages", "--file=-", "."]
    found = subprocess.run(
        search, cwd=BASE, input=token, capture_output=True, text=True, user=reader.pw_uid, group=reader.pw_gid
    )
    assert found.stdout == "", found.stdout

    # The third waits, and the page says why. It starts when another one stops.
    assert ask("POST", "/hub/api/users/lp/server", {"memory_gib": 0.3})[0] == 202
    until(lambda: [job["state"] for job in hostler("jobs", "--user", "lp")["jobs"]] == ["pending"])
    # This proxy keeps answers until they are complete, so the hub itself is asked.
    request = urllib.request.Request("http://127.0.0.1:8081/hub/api/users/lp/server/progress")
    request.add_header("Authorization", f"token {TOKEN}")
    with urllib.request.urlopen(request, timeout=SECONDS) as events:
        for line in events:
            if b"CPU" in line:
                break
        assert b"waits" in line, line
    job = job_of("man")
    assert ask("DELETE", "/hub/api/users/man/server")[0] in (202, 204)
    until(lambda: is_ready("lp"))
    assert hostler("job", str(job["id"]))["state"] == "cancelled"

    # A forward that ends is opened again. If somebody else has its port by then, the proxy gets the new one at once.
    pid, _, port = state_of("games")["forward"]
    assert os.stat(f"/proc/{pid}").st_uid == pwd.getpwnam("games").pw_uid
    running["hub"].send_signal(signal.SIGSTOP)
    # Without the hub, servers stay reachable.
    assert reaches("games")
    os.kill(pid, signal.SIGKILL)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        until(lambda: binds(other, port))
        running["hub"].send_signal(signal.SIGCONT)
        until(lambda: state_of("games")["forward"][2] != port)
        until(lambda: reaches("games"))

    # While the head is away, the hub believes no server to be stopped.
    before = job_of("games")["id"]
    stopped = job_of("lp")["id"]
    assert ask("POST", "/hub/api/users/man/server", {"memory_gib": 0.3})[0] == 202
    until(lambda: [job["state"] for job in hostler("jobs", "--user", "man")["jobs"]] == ["pending"])
    until(lambda: "hostler" in (server("man")["state"] or {}))
    running["head"].kill()
    running["head"].wait()
    until(lambda: re.search(r"\[W .*Job \d+ of games", log.read_text(errors="replace")))
    assert is_ready("games")
    # A server that is stopped meanwhile ends later, also without this hub. A new hub waits for the head and for a
    # server in the queue.
    assert ask("DELETE", "/hub/api/users/lp/server")[0] == 202
    until(lambda: f"Cancelling job {stopped} of lp" in log.read_text(errors="replace"))
    running["hub"].kill()
    running["hub"].wait()
    running["hub"] = start_hub()
    until(lambda: [server(user).get("pending") for user in USERS] == ["check"] * 3)
    running["head"] = start_head()
    until(lambda: is_ready("games") and is_ready("man"))
    until(lambda: reaches("games") and reaches("man"))
    assert job_of("games")["id"] == before
    assert hostler("job", str(stopped))["state"] == "cancelled"
    until(lambda: not server("lp"))

    # A job that ends by itself, as at its time limit, ends the server.
    hostler("cancel", str(before), user="games")
    until(lambda: not server("games"))

    ten_users(running)

    # A job that fails before Jupyter answers says why.
    with open(BASE / "jupyterhub_config.py", "a") as config:
        config.write('c.HostlerSpawner.cmd = ["no-such-command"]\n')
    running["hub"].send_signal(signal.SIGTERM)
    running["hub"].wait(SECONDS)
    running["hub"] = start_hub()
    ask("POST", "/hub/api/users/games/server")
    until(lambda: "no-such-command: not found" in log.read_text(errors="replace"))


def for_all(users: Iterable[str], call: Callable[[str], object]) -> None:
    """Call a function for several users at a time."""
    with ThreadPoolExecutor(len(TEN)) as pool:
        list(pool.map(call, users))


def ten_users(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Start, stop and lose the servers of ten users at a time."""
    running["agent2"] = start_node(2, "--cpus=0-9", "--memory=4G")
    until(lambda: [node["state"] for node in hostler("nodes")] == ["up"] * 2)

    for user in TEN:
        ask("POST", f"/hub/api/users/{user}")

    def spawn(user: str) -> None:
        assert ask("POST", f"/hub/api/users/{user}/server", {"memory_gib": 0.3})[0] in (201, 202), user

    def each_has_a_server_of_its_own() -> None:
        for user in TEN:
            until(partial(is_ready, user))
        tokens = {user: token_of(user) for user in TEN}
        ports = {user: state_of(user)["forward"][2] for user in TEN}
        assert len(set(tokens.values())) == len(set(ports.values())) == len(TEN)

        def try_doors(caller: str) -> None:
            for user in (caller, TEN[TEN.index(caller) - 1]):
                request = urllib.request.Request(f"http://127.0.0.1:{ports[user]}/user/{user}/api/status")
                request.add_header("Authorization", f"token {tokens[caller]}")
                assert status_of(request) == (200 if user == caller else 403), (caller, user)

        for_all(TEN, try_doors)
        for user in TEN:
            directory, account = Path(state_of(user)["socket"]).parent, pwd.getpwnam(user)
            assert (directory.stat().st_mode & 0o077, directory.stat().st_uid) == (0, account.pw_uid)
            assert os.stat(f"/proc/{state_of(user)['forward'][0]}").st_uid == account.pw_uid

    for_all([user for user in TEN if not server(user)], spawn)
    each_has_a_server_of_its_own()

    # While the head is away, servers of five are stopped, as an idle culler does.
    before = {user: job_of(user)["id"] for user in TEN}
    culled, others = TEN[::2], TEN[1::2]
    running["head"].kill()
    running["head"].wait()
    for_all(culled, lambda user: ask("DELETE", f"/hub/api/users/{user}/server"))
    running["head"] = start_head()
    for user in culled:
        until(partial(lambda user: not server(user), user))
        assert hostler("job", str(before[user]))["state"] == "cancelled"
    for user in others:
        until(partial(reaches, user))
        assert (is_ready(user), job_of(user)["id"]) == (True, before[user])
    for_all(culled, spawn)
    each_has_a_server_of_its_own()
    assert {user: job_of(user)["id"] for user in others} == {user: before[user] for user in others}
    for_all(TEN, lambda user: ask("DELETE", f"/hub/api/users/{user}/server"))
    until(lambda: not hostler("jobs")["jobs"] and not any(map(server, TEN)))


main()
