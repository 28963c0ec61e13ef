"""Moves within a file system and to another one, removal, and what belongs to whom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.logfile.file_tree import Modes, move, remove, remove_leftovers, settle
from rmqctl.logfile.system.storage import tree_of
from rmqctl.logfile.system.writable_storage import WritableStorage


class OtherDisk(WritableStorage):
    """A rename that reaches into the folder `there`, or out of it, reaches another file system."""

    def rename(self, path: Path, target: Path) -> bool:
        return ("there" in path.parts) == ("there" in target.parts) and super().rename(path, target)


def some_folder(path: Path) -> Path:
    (path / "a" / "empty").mkdir(parents=True)
    (path / "a" / "file").write_bytes(b"content")
    with (path / "sparse").open("wb") as file:
        file.seek(5_000_000)
        file.write(b"end")
        file.truncate(2**24)
    (path / "a" / "file").chmod(0o640)
    for found in sorted(path.rglob("*"), reverse=True):
        os.utime(found, ns=(0, 1_700_000_000_123_456_789))
    os.utime(path, ns=(0, 1_600_000_000_000_000_001))
    return path


def stamps(path: Path) -> list[tuple[object, ...]]:
    storage = WritableStorage(path)
    return [(str(found.relative_to(path)), *stamp[:-1]) for found, stamp in tree_of(storage, path)]


@pytest.mark.parametrize("storage", [WritableStorage, OtherDisk])
def test_moved_as_it_is(storage: type[WritableStorage], tmp_path: Path) -> None:
    source, target = some_folder(tmp_path / "here" / "x"), tmp_path / "there" / "y"
    target.parent.mkdir()
    before = stamps(source)
    move(storage(tmp_path), source, target)
    assert stamps(target) == before
    assert (target / "a" / "file").read_bytes() == b"content"
    assert (target / "sparse").stat().st_blocks * 512 < 2**21
    assert list((tmp_path / "here").iterdir()) == []
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["y"]


def test_what_a_killed_move_left_is_no_hindrance(tmp_path: Path) -> None:
    source, target = some_folder(tmp_path / "here" / "x"), tmp_path / "there" / "y"
    for leftover in (tmp_path / "there" / "y.rmqctl-partial", tmp_path / "here" / "x.rmqctl-moved"):
        some_folder(leftover)
    move(OtherDisk(tmp_path), source, target)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["y"]
    some_folder(tmp_path / "there" / "y.rmqctl-moved")
    remove_leftovers(WritableStorage(tmp_path), target)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["y"]


def test_what_is_neither_file_nor_folder_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="neither file nor folder"):
        move(OtherDisk(tmp_path), tmp_path / "pipe", tmp_path / "there" / "pipe")
    assert (tmp_path / "pipe").exists()


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    kept = some_folder(tmp_path / "kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(kept)
    before = stamps(kept)
    remove(WritableStorage(tmp_path), tmp_path / "folder")
    assert stamps(kept) == before
    assert not (tmp_path / "folder").exists()
    remove(WritableStorage(tmp_path), tmp_path / "folder")  # nothing there: nothing to do


def test_settled_files_get_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = some_folder(tmp_path / "x")
    given: list[tuple[str, int, int]] = []
    storage = WritableStorage(tmp_path)
    like = storage.stamp(tmp_path)
    assert like is not None
    names = {path.stat().st_ino: path.name for path in (folder, *folder.rglob("*"))}
    monkeypatch.setattr(os, "fchown", lambda file, uid, gid: given.append((names[os.fstat(file).st_ino], uid, gid)))
    for user, expected in ((0, ["empty", "file", "a", "sparse", "x"]), (1000, [])):
        given.clear()
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        settle(storage, folder, like._replace(uid=4711, gid=4712), Modes())
        assert given == [(name, 4711, 4712) for name in expected]


@pytest.mark.parametrize("name", ["T" * 255, "é" * 127])
def test_a_name_as_long_as_can_be_is_moved(name: str, tmp_path: Path) -> None:
    """A topic's folder may have one: no suffix fits after it."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    source, target = some_folder(tmp_path / "here" / name), tmp_path / "there" / name
    before, storage = stamps(source), OtherDisk(tmp_path)
    remove_leftovers(storage, target)
    move(storage, source, target)
    assert stamps(target) == before
    assert [path.name for path in tmp_path.rglob("*") if path.parent.name in ("here", "there")] == [name]
