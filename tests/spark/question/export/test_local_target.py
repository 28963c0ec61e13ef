"""The folder of an export on this host: it has the earlier files or the new ones at every moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.errors import BadRequest
from rmqctl.logfile.system.exchange import exchange
from rmqctl.spark.question.export import local_target
from rmqctl.spark.question.export.earlier_files import MARKER, Leftovers, Mode
from rmqctl.spark.question.export.local_target import LocalTarget
from rmqctl.spark.question.export.part_files import PartFile

SUFFIX = ".parquet"


def written(there: LocalTarget, *texts: str) -> list[PartFile]:
    """Files that tasks wrote."""
    files = []
    for text in texts:
        path = Path(there.staging) / text
        path.write_text(text)
        files.append(PartFile(str(path), "topic=T/day=D", 1, len(text)))
    return files


def exported(target: Path, mode: Mode, *texts: str) -> None:
    with local_target.local_target(target, mode, SUFFIX) as there:
        there.publish(written(there, *texts))


def leftovers(target: Path) -> Leftovers:
    """What killed exports have left, for an export that begins now."""
    with local_target.local_target(target, Mode.APPEND, SUFFIX) as there:
        return there.left


def content(target: Path) -> set[str]:
    return {path.read_text() for path in target.rglob("part*")}


def test_all_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bool]] = []
    target = tmp_path / "out"
    sync = local_target._sync

    def noting(path: Path) -> None:
        synced.append((path.name.partition("-")[0], target.exists()))
        sync(path)

    monkeypatch.setattr(local_target, "_sync", noting)
    exported(target, Mode.ERROR, "x")
    names = ["part", "day=D", "topic=T", "_SUCCESS", "messages"]
    assert synced == [*((name, False) for name in names), (tmp_path.name, True)]
    assert content(target) == {"x"}


def test_another_export_to_the_same_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, asked = tmp_path / "out", 0
    sync = local_target._sync

    def while_another_begins(path: Path) -> None:
        nonlocal asked
        if not target.exists():
            asked += 1
            for begin in (leftovers, lambda target: exported(target, Mode.APPEND, "y")):
                with pytest.raises(BadRequest, match="another export to the same folder is running"):
                    begin(target)
        sync(path)

    monkeypatch.setattr(local_target, "_sync", while_another_begins)
    exported(target, Mode.ERROR, "x")
    assert asked > 0
    assert content(target) == {"x"}
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_killed_export_left_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "out"
    ours, other, of_another = (
        tmp_path / f".{name}.{digit * 32}" for name, digit in (("out", "a"), ("out", "b"), ("out2", "c"))
    )
    for folder in (ours, other, of_another):
        (folder / "messages").mkdir(parents=True)
    (ours / MARKER).touch()
    (of_another / MARKER).touch()
    assert leftovers(target) == ([str(ours)], [str(other)])
    assert set(tmp_path.iterdir()) == {other, of_another}


@pytest.mark.parametrize(("mode", "after"), [(Mode.OVERWRITE, {"new"}), (Mode.APPEND, {"old", "new"})])
def test_modes(mode: Mode, after: set[str], tmp_path: Path) -> None:
    target = tmp_path / "out"
    exported(target, mode, "old")
    target.chmod(0o750)
    with pytest.raises(BadRequest, match="give --to a new folder, or --mode overwrite or append"):
        exported(target, Mode.ERROR, "x")
    exported(target, mode, "new")
    assert content(target) == after
    assert target.stat().st_mode & 0o777 == 0o750
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.APPEND])
@pytest.mark.parametrize("name", ["notes.txt", "deep/part-1.parquet", "topic=T/day=D/x", "commitlog/0"])
def test_other_files_are_never_replaced(mode: Mode, name: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    (target / name).parent.mkdir(parents=True)
    (target / name).write_text("x")
    with pytest.raises(BadRequest, match="which no export has written"):
        exported(target, mode, "new")
    (target / name).rename(target / "part-0.json")
    if mode is Mode.APPEND and "/" not in name:
        with pytest.raises(BadRequest, match=r"and the new files end with \.parquet"):
            exported(target, mode, "new")


@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.APPEND])
def test_a_file_that_comes_in_the_meantime_is_kept(mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    exported(target, Mode.ERROR, "old")
    sync = local_target._sync

    def while_another_writes(path: Path) -> None:
        (target / "notes.txt").write_text("precious")
        sync(path)

    monkeypatch.setattr(local_target, "_sync", while_another_writes)
    with pytest.raises(BadRequest, match="another program changes the folder"):
        exported(target, mode, "new")
    assert content(target) == {"old"}
    assert (target / "notes.txt").read_text() == "precious"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.APPEND])
def test_a_folder_that_cannot_be_listed_is_not_replaced(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    exported(target, Mode.ERROR, "old")
    scandir = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("topic=T"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError):
        exported(target, mode, "new")
    monkeypatch.undo()
    assert content(target) == {"old"}


def test_files_of_a_task_that_spark_ran_twice_are_not_published(tmp_path: Path) -> None:
    with local_target.local_target(tmp_path / "out", Mode.ERROR, SUFFIX) as there:
        once, _ = written(there, "x", "x again")
        there.publish([once])
    assert content(tmp_path / "out") == {"x"}


@pytest.mark.parametrize(("mode", "after"), [(Mode.OVERWRITE, {"new"}), (Mode.APPEND, {"old", "new"})])
def test_a_driver_that_is_killed_leaves_the_old_files_or_the_new_ones(
    mode: Mode, after: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    exported(target, Mode.ERROR, "old")
    found = []
    for step in range(40):
        if _killed_at(step, lambda: exported(target, mode, "new"), monkeypatch):
            found.append(content(target))
            leftovers(target)
            assert list(tmp_path.iterdir()) == [target]
            exported(target, Mode.OVERWRITE, "old")
    assert {frozenset(one) for one in found} == {frozenset({"old"}), frozenset(after)}
    assert len(found) > 10


def _killed_at(step: int, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do it in a process that ends before the step: a call that changes the disk, or flushes to it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    calls = 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **others: object) -> object:
            nonlocal calls
            calls += 1
            if calls > step:
                os._exit(9)
            return function(*arguments, **others)

        return call

    for name in ("mkdir", "rename", "link", "fsync", "rmdir", "unlink"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr(local_target, "exchange", counted(exchange))
    try:
        work()
    finally:
        os._exit(0)
