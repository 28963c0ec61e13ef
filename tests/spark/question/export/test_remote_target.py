"""The folder of an export by a URL: a reader of `_MANIFEST` has the earlier files or the new ones at every moment."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.logfile.system.remote_storage import root_path
from rmqctl.spark.question.export.earlier_files import MANIFEST, Mode
from rmqctl.spark.question.export.local_target import local_target
from rmqctl.spark.question.export.part_files import PartFile
from rmqctl.spark.question.export.remote_target import ABANDONED_SECONDS, RemoteTarget, remote_target

SUFFIX = ".json"


def url_path(target: Path) -> Path:
    return root_path(f"fsspec+local://{target}")


def written(there: RemoteTarget, target: Path, *texts: str) -> list[PartFile]:
    """Files that tasks wrote."""
    files = []
    for text in texts:
        name = f"{there.staging.rpartition('/')[2]}/{text}"
        (target / name).write_text(text)
        files.append(PartFile(str(url_path(target) / name), "topic=T/day=D", 1, len(text)))
    return files


def exported(target: Path, mode: Mode, *texts: str) -> None:
    with remote_target(url_path(target), mode, SUFFIX) as there:
        there.publish(written(there, target, *texts))


def removed_leftovers(target: Path) -> list[str]:
    """What killed exports have left, for an export that begins now."""
    with remote_target(url_path(target), Mode.APPEND, SUFFIX) as there:
        return there.left.removed


def is_silent_for_long(target: Path) -> None:
    """Nothing in the folders of exports is newer than two minutes."""
    for path in target.glob("_rmqctl-*/*"):
        os.utime(path, (time.time() - ABANDONED_SECONDS - 1,) * 2)


def listed(target: Path) -> set[str]:
    """The texts that a reader of all files sees."""
    return {path.read_text() for path in target.rglob("part*")}


def named(target: Path) -> set[str]:
    """The texts that a reader of the manifest sees."""
    path = target / MANIFEST
    files = json.loads(path.read_text())["files"] if path.exists() else []
    return {(target / file["path"]).read_text() for file in files}


@pytest.mark.parametrize(("mode", "after"), [(Mode.OVERWRITE, {"new"}), (Mode.APPEND, {"old", "new"})])
def test_modes(mode: Mode, after: set[str], tmp_path: Path) -> None:
    target = tmp_path / "out"
    exported(target, mode, "old")
    with pytest.raises(BadRequest, match="not an empty folder"):
        exported(target, Mode.ERROR, "x")
    exported(target, mode, "new")
    assert listed(target) == named(target) == after
    assert {path.name for path in target.iterdir()} == {MANIFEST, "_SUCCESS", "topic=T"}


def test_files_without_a_manifest_are_kept_by_append(tmp_path: Path) -> None:
    target = tmp_path / "out"
    exported(target, Mode.ERROR, "old")
    (target / MANIFEST).unlink()
    exported(target, Mode.APPEND, "new")
    assert listed(target) == named(target) == {"old", "new"}


def test_files_that_were_appended_by_path_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    exported(target, Mode.ERROR, "old")
    with local_target(target, Mode.APPEND, SUFFIX) as there:
        (Path(there.staging) / "by path").write_text("by path")
        there.publish([PartFile(f"{there.staging}/by path", "topic=T/day=D", 1, 7)])
    assert not (target / MANIFEST).exists()  # it would not name the new file
    exported(target, Mode.APPEND, "new")
    assert listed(target) == named(target) == {"old", "by path", "new"}


@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.APPEND])
def test_an_export_that_fails_leaves_nothing(mode: Mode, tmp_path: Path) -> None:
    target = tmp_path / "out"
    exported(target, Mode.ERROR, "old")
    (target / MANIFEST).unlink()
    with pytest.raises(_Killed):
        _fail_in_the_second_move(target, mode)
    assert listed(target) == {"old"}
    assert {path.name for path in target.iterdir()} == {"_SUCCESS", "topic=T"}


def test_other_files_are_never_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "notes.txt").touch()
    for mode in Mode:
        with pytest.raises(BadRequest, match=rf"^fsspec\+local://{target}: "):
            exported(target, mode, "x")
    assert [path.name for path in target.iterdir()] == ["notes.txt"]


def test_a_manifest_that_is_none(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / MANIFEST).write_text("[]")
    with pytest.raises(Unreadable, match="is not the manifest of an export"):
        exported(target, Mode.APPEND, "x")


@pytest.mark.parametrize(("mode", "after"), [(Mode.OVERWRITE, {"new"}), (Mode.APPEND, {"old", "new"})])
@pytest.mark.parametrize("dies_in", ["create_dir", "move", "open_output_stream", "delete_file"])
def test_a_driver_that_is_killed_leaves_the_old_files_or_the_new_ones(
    mode: Mode, after: set[str], dies_in: str, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    exported(target, Mode.ERROR, "old")
    there = RemoteTarget(url_path(target), mode, SUFFIX)
    there.begin()
    files = written(there, target, "new", "newer")
    there._system = _Dying(there._system, dies_in)
    if mode is Mode.APPEND and dies_in == "delete_file":
        there.publish(files)
    else:
        with pytest.raises(_Killed):
            there.publish(files)
    whole = after | {"newer"}
    assert named(target) == (whole if dies_in == "delete_file" else {"old"})
    with pytest.raises(BadRequest, match="another export to the same URL may be running"):
        removed_leftovers(target)
    is_silent_for_long(target)
    assert len(removed_leftovers(target)) == 1
    assert named(target) <= listed(target) <= named(target) | {"old"}
    exported(target, Mode.OVERWRITE, "last")
    assert listed(target) == named(target) == {"last"}


def test_a_second_export_does_not_disturb_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, also if it begins at the same time, and if the first one has written nothing for long."""
    monkeypatch.setattr("rmqctl.spark.question.export.remote_target.HEARTBEAT_SECONDS", 0.01)
    target = tmp_path / "out"
    with remote_target(url_path(target), Mode.APPEND, SUFFIX) as there:
        files = written(there, target, "x")
        is_silent_for_long(target)
        (marker,) = target.glob("_rmqctl-*/rmqctl-export")
        while time.time() - marker.stat().st_mtime > 60:
            time.sleep(0.01)
        for begin in (removed_leftovers, lambda place: exported(place, Mode.APPEND, "y")):
            with pytest.raises(BadRequest, match="another export to the same URL may be running"):
                begin(target)
        there.publish(files)
    assert listed(target) == named(target) == {"x"}
    assert not list(target.glob("_rmqctl-*"))


def test_an_export_whose_folder_was_removed_publishes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    exported(target, Mode.ERROR, "old")
    with pytest.raises(BadRequest, match="has removed the folder of this one"):
        _sleep_before_publishing(target)
    assert listed(target) == named(target) == {"old"}


def _sleep_before_publishing(target: Path) -> None:
    with remote_target(url_path(target), Mode.OVERWRITE, SUFFIX) as there:
        is_silent_for_long(target)
        assert len(removed_leftovers(target)) == 1
        there.publish([])


def _fail_in_the_second_move(target: Path, mode: Mode) -> None:
    with remote_target(url_path(target), mode, SUFFIX) as there:
        files = written(there, target, "new", "newer")
        whole, there._system = there._system, _Dying(there._system, "move")
        try:
            there.publish(files)
        finally:
            there._system = whole


class _Killed(Exception):
    """The driver has ended."""


class _Dying:
    """A file system with a function that ends all: `move` and `delete_file` in their second call."""

    def __init__(self, system: Any, name: str) -> None:
        self._system = system
        self._name = name
        self._left = 1 if name in ("move", "delete_file") else 0

    def __getattr__(self, name: str) -> Any:
        return self._dying if name == self._name else getattr(self._system, name)

    def _dying(self, *arguments: Any, **others: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _Killed
        return getattr(self._system, self._name)(*arguments, **others)
