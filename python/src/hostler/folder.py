"""Call a function with each file of a folder, on nodes that do not have the folder."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hostler._worker.batch import Settings, is_own_file
from hostler._worker.file import FILES, KEPT, OnFile
from hostler._worker.project import Environment
from hostler.client import Client
from hostler.errors import RemoteError, UsageError
from hostler.mapping import Results
from hostler.named import Errors
from hostler.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")


def map_folder(
    function: Callable[..., R],
    folder: str | os.PathLike[str],
    pattern: str = "**/*",
    *,
    to: str | os.PathLike[str] | None = None,
    suffix: str | None = None,
    ordered: bool = True,
    errors: Errors = "raise",
    chunksize: int | None = None,
    max_workers: int | None = None,
    environment: Environment = None,
    trusted: bool = True,
    client: Client | None = None,
    **options: Unpack[Options],
) -> Results[tuple[str, R]]:
    """Call a function with each file of a folder, as one array job, and return an iterator over names and results.

    The files are uploaded, except for content that the head has already, so the nodes need no shared disk. Each node
    that runs a task gets all of them. Like a map without a key, the job ends with this process; see `map`.

    Parameters
    ----------
    function
        Called with the `pathlib.Path` of a file on the node. With `to`, also with the path of the file that it must
        write, whose directory exists and is deleted afterwards.
    folder
        The folder. Links to files are followed.
    pattern
        Which files; see `pathlib.Path.glob`. Names that begin with a dot are left out.
    to
        A folder on this machine for the files that the function writes, under the names of the files that it was
        called with. Each is there before its result is returned, and replaces an earlier one. A call that writes none
        has failed, and so has one whose file cannot be put there.
    suffix
        Suffix of these names instead of their own, e.g. ``".jpg"``.
    ordered
        Return results in the order of the names; otherwise in the order in which they arrive.
    errors
        ``"raise"`` raises the first exception and cancels the rest. ``"return"`` returns exceptions in place of
        results, with their names.
    chunksize, max_workers, environment, trusted, client, **options
        As for `map`; `chunksize` counts files.

    Returns
    -------
    Results
        An iterator over pairs: the name of a file, relative to the folder, and the result.

    Raises
    ------
    UsageError
        If there is no such folder, the pattern or the suffix is none, two files would be written under the same name,
        or one of them where another one needs a folder.

    Examples
    --------
    >>> def shrink(image, small):
    ...     PIL.Image.open(image).resize((64, 64)).save(small)
    >>> dict(hostler.map_folder(shrink, "photos", "**/*.png", to="thumbnails", suffix=".jpg", cpus=1))
    """
    if suffix and not to:
        raise UsageError("suffix needs `to`", "usage")
    if suffix and (suffix == "." or "/" in suffix or not suffix.startswith(".")):
        raise UsageError(f'"{suffix}" is not a suffix', "usage", ('a suffix begins with a dot, e.g. ".jpg"',))
    files = _files(Path(folder), pattern)
    names = list(files)
    outputs = [str(Path(name).with_suffix(suffix)) if suffix else name for name in names]
    if to and len(set(outputs)) < len(names):
        raise UsageError(f"several files would be written under the same name with the suffix {suffix}", "usage")
    folders = {str(parent) for output in outputs for parent in Path(output).parents}
    if to and (both := sorted(folders.intersection(outputs))):
        raise UsageError(f"{both[0]} would be a file and a folder with the suffix {suffix}", "usage")
    settings = Settings(client or Client(), environment, options, trusted, chunksize, max_workers)
    inputs = zip(range(len(names)), names, outputs, strict=True)
    name = getattr(function, "__name__", "map_folder")
    keep = functools.partial(_keep, Path(to).absolute(), outputs) if to else None
    add = functools.partial(_add, files)
    call = OnFile(function, writes=to is not None)
    return Results(call, inputs, name, settings, ordered, errors, names, add=add, keep=keep)


def _files(folder: Path, pattern: str) -> dict[str, Path]:
    """Return the files that match, by their names."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "usage")
    if not pattern or os.path.isabs(pattern):
        raise UsageError(f'"{pattern}" is not a pattern', "usage", ("patterns are relative to the folder",))
    found = {path.relative_to(folder).as_posix(): path for path in folder.glob(pattern) if path.is_file()}
    return {name: found[name] for name in sorted(found) if not name.startswith(".") and "/." not in name}


def _add(files: dict[str, Path], folder: Path) -> None:
    """Put files into the folder of a map."""
    for name, path in files.items():
        target = folder / FILES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(os.path.realpath(path), target)
        # Another disk, or the file of another user.
        except OSError:
            shutil.copy2(path, target)
    # The defaults would leave out some directories, such as `__pycache__`.
    (folder / FILES / ".hostlerignore").write_text("!*\n", encoding="utf-8")


def _keep(to: Path, outputs: list[str], index: int, place: Path) -> None:
    """Move the file that the function has written for an input from the result of a task to its place."""
    source = place / KEPT / str(index)
    # A node could send links, also in place of the directory.
    if source.parent.is_symlink() or not is_own_file(source):
        raise RemoteError(f"no file came back for {outputs[index]}", "remote")
    target = to / outputs[index]
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    """Copy a file to another disk, where nobody ever sees a part of it."""
    descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=".hostler-")
    try:
        with open(source, "rb") as read, open(descriptor, "wb") as written:
            os.fchmod(descriptor, os.fstat(read.fileno()).st_mode & 0o777)
            shutil.copyfileobj(read, written)
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise
