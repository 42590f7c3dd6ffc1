"""A cluster of two nodes in a temporary home, for all tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hostler
from hostler import _executable

#: Lines for the end of the run.
REMARKS: list[str] = []

#: A module beside `same_as_local.py`.
BESIDE = """
import dataclasses, datetime, decimal, enum, os, pathlib, typing
UNSET = object()
def is_unset(value): return value is UNSET
class Near: pass
class Config:
    def __init__(self, rate=0.1, /, layers=(1, 2), *, seed=0, place=None):
        self.rate = rate
        self.layers, self.place = layers, place
        self.seed: int = seed
        self.twice, self.path = 2 * rate, pathlib.Path("own")
    def update(self, rate): self.rate = rate
@dataclasses.dataclass
class Fields:
    rate: float
    seed: int = 0
config, other = Config(), Config(0.2, seed=5)
fields = Fields(0.1, 3)
class Kind(enum.Enum):
    ONE = 1
    TWO = 2
ROOT, DAY, TENTH = pathlib.Path("data"), datetime.date(2024, 1, 1), decimal.Decimal("0.1")
PLACE, TYPE, KIND, TEXT = os.environ.get("PLACE", "cpu"), float, Kind.ONE, f"{TENTH}"
LIST, EITHER, HOST = [it for it in range(3)], 1 if TYPE else 2, os.uname()
OPTIONS = dict([("rate", 1)])
_hidden = [1]
class Family:
    members, names, first, handlers = [], {}, None, []
    def __init_subclass__(cls):
        Family.members.append(cls)
        Family.names[cls.__name__] = cls
    def size(self): return 1
class Tuple(typing.NamedTuple):
    size: int = 1
    def twice(self): return 2 * self.size
@dataclasses.dataclass(slots=True)
class Slots:
    size: int = 1
"""

#: Modules of another class, and something else in the place of a module.
LAZY = """
import sys, types
class Lazy(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return name
sys.modules[__name__].__class__ = Lazy
"""
REPLACED = "import sys, types; sys.modules[__name__] = types.SimpleNamespace(value=3)"

#: A module that only functions import, and that changes the process.
LATER = """
import os, sys
os.environ["OF_LATER"] = "1"
sys.path.insert(0, "of later")
"""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the remarks of tests, whose output is captured."""
    for remark in REMARKS:
        terminalreporter.write_line(remark)


@pytest.fixture(scope="session", autouse=True)
def home() -> Iterator[Path]:
    """Set the variables of a new home for this process."""
    # A shell without job control starts background processes with Ctrl-C ignored, which scripts of tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A short path: sockets lie below it.
    home = Path(tempfile.mkdtemp(prefix="hostler-py-"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "HOSTLER_HEAD"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_RUNTIME_DIR", str(home))
        # For scripts of tests.
        patch.setenv("PYTHONPATH", str(Path(hostler.__file__).parents[1]))
        patch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def client(home: Path) -> Iterator[hostler.Client]:
    """Start a cluster, and stop it at the end."""
    executable = _executable.find()
    # Jobs inherit the variables of the agents, and must work without the caller's.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # Nodes must have this Python, even if it is not the machine's default.
    variables["PATH"] = f"{sys.base_prefix}/bin:{variables['PATH']}"
    start = [executable, "up", "--nodes=2", "--cpus=4", "--memory=2G"]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL, env=variables)
    try:
        yield hostler.Client()
    finally:
        subprocess.run([executable, "down", "--cancel"], check=True)


@pytest.fixture(scope="session")
def provisioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for Python's path that makes the provisioner of kernels known, as pip does."""
    text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text()
    (entry,) = re.findall(r'\[project\.entry-points\."(jupyter_client.*)"\]\n(.*)\n', text)
    place = tmp_path_factory.mktemp("packages")
    information = place / f"hostler-{hostler.__version__}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hostler\nVersion: {hostler.__version__}\n")
    name, target = entry[1].replace('"', "").split(" = ")
    (information / "entry_points.txt").write_text(f"[{entry[0]}]\n{name} = {target}\n")
    return place


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `same_as_local.py` in a folder with `only_on_nodes.py` and the modules that they import."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "secrets.py").write_text("API_KEY = 'of the user'\n")
    (folder / "beside.py").write_text(BESIDE)
    (folder / "later.py").write_text(LATER)
    (folder / "lazy.py").write_text(LAZY)
    (folder / "replaced.py").write_text(REPLACED)
    shutil.copy(Path(__file__).with_name("only_on_nodes.py"), folder)
    return Path(shutil.copy(Path(__file__).with_name("same_as_local.py"), folder))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with a program that writes a file, prints, and fails if its argument says so."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "main.py").write_text(
        "import os, sys\n"
        "print('task', os.environ.get('HOSTLER_ARRAY_INDEX'), os.environ.get('COLOUR'), flush=True)\n"
        "print('warning', file=sys.stderr)\n"
        "open('result.txt', 'w').write('done')\n"
        "sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)\n"
    )
    (folder / "slow.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    return folder
