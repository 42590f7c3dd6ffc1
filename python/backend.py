"""Builds the wheel with maturin. As in other packages, ``hostler --version`` then has the date and the commit."""

import os
import re
import subprocess
from pathlib import Path

from maturin import *  # noqa: F403

_ROOT = Path(__file__).parent.parent


def _build_of_commit() -> None:
    git = ["git", "log", "-1", "--abbrev=8", "--date=format:%Y%m%d", "--format=%cd.%h"]
    try:
        commit = subprocess.run(git, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()
        (version,) = re.findall(r'^version = "(.*)"', (_ROOT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, subprocess.CalledProcessError, ValueError):
        # Not in a checkout, e.g. in a source distribution.
        return
    os.environ.setdefault("HOSTLER_BUILD", f"{version}+{commit}")


_build_of_commit()
