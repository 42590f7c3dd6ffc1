"""What `hostler.map_folder` runs on a node: a call with a file."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

from hostler._worker import apart

#: Folders of a task: the caller's files, what a call writes, and the file of each complete call, named by the number of
#: the input. Other names could be left out of results, such as `__pycache__`.
FILES = "files"
_OUTPUT = "output"
KEPT = "kept"


class OnFile:
    """Calls a function with the path of a file."""

    def __init__(self, function: Callable[..., object], writes: bool) -> None:
        self.function = function
        self.writes = writes

    def __call__(self, index: int, name: str, output: str) -> object:
        source = apart.HOME / FILES / name
        if not self.writes:
            return self.function(source)
        kept = apart.HOME / KEPT / str(index)
        kept.parent.mkdir(exist_ok=True)
        folder = apart.HOME / _OUTPUT / str(index)
        target = folder / Path(output).name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            value = self.function(source, target)
            if target.is_symlink() or not target.is_file():
                raise FileNotFoundError(errno.ENOENT, "the function has not written its file", str(target))
            target.replace(kept)
        finally:
            # What else there is would be downloaded.
            shutil.rmtree(folder, ignore_errors=True)
        return value
