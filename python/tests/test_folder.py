"""`hostler.map_folder` on a real cluster."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import hostler
from hostler.folder import _keep

SMALL = hostler.Options(cpus=1, memory="100M")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Return a folder with texts in several directories, one of them a link, and others."""
    folder = tmp_path / "texts"
    (folder / "deep" / "venv").mkdir(parents=True)
    (folder / ".git").mkdir()
    for name in ("b.txt", "a.txt", "deep/venv/c.txt", "deep/no.md", ".hidden.txt", ".git/config.txt", ".gitignore"):
        (folder / name).write_text(name)
    (folder / ".gitignore").write_text("*.txt\n")
    # A default of captures leaves out virtual environments.
    (folder / "deep/venv/pyvenv.cfg").touch()
    (tmp_path / "elsewhere").write_text("through a link")
    (folder / "deep/link.txt").symlink_to(tmp_path / "elsewhere")
    return folder


def test_files_go_to_nodes_and_results_and_files_come_back(client: hostler.Client, texts: Path, tmp_path: Path) -> None:
    def shout(source: Path, target: Path) -> tuple[str, bool, int]:
        text = source.read_text()
        target.write_text(text.upper())
        # The next call of this task must find its file nevertheless.
        os.chdir("/")
        return source.name, source.is_relative_to(texts), len(text)

    loud = tmp_path / "loud"
    (loud / "deep").mkdir(parents=True)
    (loud / "deep/link.up").write_text("of an earlier run")
    results = hostler.map_folder(shout, texts, "**/*.txt", to=loud, suffix=".up", chunksize=3, client=client, **SMALL)
    assert list(results) == [
        ("a.txt", ("a.txt", False, 5)),
        ("b.txt", ("b.txt", False, 5)),
        ("deep/link.txt", ("link.txt", False, 14)),
        ("deep/venv/c.txt", ("c.txt", False, 15)),
    ]
    written = {path.relative_to(loud).as_posix(): path.read_text() for path in loud.rglob("*") if path.is_file()}
    assert written == {
        "a.up": "A.TXT",
        "b.up": "B.TXT",
        "deep/link.up": "THROUGH A LINK",
        "deep/venv/c.up": "DEEP/VENV/C.TXT",
    }
    assert (texts / "a.txt").read_text() == "a.txt"


def test_failed_files_are_named_and_write_nothing(client: hostler.Client, texts: Path, tmp_path: Path) -> None:
    def work(source: Path, target: Path) -> int:
        if source.name == "b.txt":
            target.write_text("half")
            raise ValueError("no good")
        if source.name == "a.txt":
            target.symlink_to("/etc/passwd")
        elif source.name == "link.txt":
            target.write_text("whole")
        return 1

    out = tmp_path / "out"
    # Where one file should be is a folder.
    (out / "deep/link.txt").mkdir(parents=True)
    found = dict(hostler.map_folder(work, texts, "**/*.txt", to=out, errors="return", client=client, **SMALL))
    kinds = [type(found[name]).__name__ for name in ("a.txt", "b.txt", "deep/link.txt", "deep/venv/c.txt")]
    assert kinds == ["FileNotFoundError", "ValueError", "IsADirectoryError", "FileNotFoundError"]
    assert [path.name for path in out.rglob("*") if path.is_file()] == []
    with pytest.raises(ValueError, match="no good") as raised:
        list(hostler.map_folder(work, texts, "b.*", to=out, client=client, **SMALL))
    assert getattr(raised.value, "__notes__", ["The file is b.txt."]) == ["The file is b.txt."]


def test_files_come_from_no_link_and_replace_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, to, other = tmp_path / "place", tmp_path / "to", tmp_path / "other"
    for folder in (place / "kept", to):
        folder.mkdir(parents=True)
    other.write_text("other")

    def other_disk(source: str | Path, target: Path) -> None:
        if Path(source).parent != to:
            raise OSError(errno.EXDEV, "another disk")
        rename(source, target)

    rename = os.rename
    for is_other_disk in (False, True):
        if is_other_disk:
            monkeypatch.setattr(os, "replace", other_disk)
        (place / "kept/0").write_text("new")
        (place / "kept/0").chmod(0o640)
        (to / "a").unlink(missing_ok=True)
        for name in ("a", ".a.part"):
            (to / name).unlink(missing_ok=True)
            (to / name).symlink_to(other)
        _keep(to, ["a"], 0, place)
        assert ((to / "a").read_text(), (to / "a").stat().st_mode & 0o777) == ("new", 0o640)
        assert sorted(os.listdir(to)) == [".a.part", "a"]
        assert other.read_text() == "other"
    (place / "kept/1").symlink_to(other)
    for missing in (1, 2):
        with pytest.raises(hostler.RemoteError, match="no file came back for"):
            _keep(to, ["a", "b", "c"], missing, place)


def test_wrong_folders_are_refused(texts: Path) -> None:
    nowhere = hostler.Client("unix:/nowhere")
    assert list(hostler.map_folder(len, texts, "*.none", client=nowhere)) == []
    with pytest.raises(hostler.UsageError, match="is not a folder"):
        hostler.map_folder(print, texts / "a.txt", client=nowhere)
    with pytest.raises(hostler.UsageError, match="suffix needs `to`"):
        hostler.map_folder(print, texts, suffix=".x", client=nowhere)
    (texts / "a.md").touch()
    with pytest.raises(hostler.UsageError, match="several files would be written under the same name"):
        hostler.map_folder(print, texts, "a.*", to="out", suffix=".x", client=nowhere)
    for pattern in ("", "/a.*"):
        with pytest.raises(hostler.UsageError, match="is not a pattern"):
            hostler.map_folder(print, texts, pattern, client=nowhere)
    for suffix in ("x", ".", "./x"):
        with pytest.raises(hostler.UsageError, match="is not a suffix"):
            hostler.map_folder(print, texts, to="out", suffix=suffix, client=nowhere)
    (texts / "a.x").mkdir()
    (texts / "a.x/b.txt").touch()
    with pytest.raises(hostler.UsageError, match=r"a\.x would be a file and a folder"):
        hostler.map_folder(print, texts, "**/*.txt", to="out", suffix=".x", client=nowhere)
