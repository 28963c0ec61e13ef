"""A change that cannot be made, or undone, is refused before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import ChangeFailed, NoRoom
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.journal.changes import Change, Delete, Install, Resize, Write, Zero
from rmqctl.store.journal.journals import JournalState, kept_bytes, list_journals
from rmqctl.store.journal.transaction import Journal
from tests.support.journaled_store import Refusing, change_all, some_store, states, tree, undo

NOTHING = "commitlog/00000000000000060000"


def test_deleting_and_replacing_needs_no_room(tmp_path: Path) -> None:
    """However large a file is: it is renamed."""
    root = some_store(tmp_path / "store")
    with (root / "commitlog/00000000000000040000").open("wb") as file:
        file.truncate(2**43)
    inode = (root / "commitlog/00000000000000040000").stat().st_ino
    with Journal.begin(root, "clean", "", WritableStorage(root)) as journal:
        journal.execute([Delete("commitlog/00000000000000040000")])
    undo(root)
    assert (root / "commitlog/00000000000000040000").stat().st_ino == inode


def test_without_room_nothing_is_changed(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    before = tree(root)

    class Full(WritableStorage):
        def free_bytes(self, folder: Path) -> int:
            return 2**16

    with pytest.raises(NoRoom, match=r"needs \d{5,6} bytes on this disk, which has 65536 free \(nothing was changed"):
        change_all(root, Full)
    assert tree(root) == before


def test_a_small_store_needs_little_room(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")

    class NearlyFull(WritableStorage):
        def free_bytes(self, folder: Path) -> int:
            return 150_000

    change_all(root, NearlyFull)
    assert states(root) == [JournalState.DONE]


def test_only_what_is_not_zero_is_kept(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    with (root / "commitlog/00000000000000040000").open("wb") as file:
        file.truncate(2**26)
        for at in (10_000, 2**25, 2**26 - 10):
            file.seek(at)
            file.write(b"0123456789")
    before = tree(root)
    with Journal.begin(root, "truncate", "", WritableStorage(root)) as journal:
        journal.execute([Zero("commitlog/00000000000000040000", 5, 2**26)])
    (entry,) = list_journals(WritableStorage(root), root)
    assert kept_bytes(WritableStorage(root), entry) < 40_000  # blocks of the disk
    assert (root / "commitlog/00000000000000040000").stat().st_blocks < 100
    assert not any((root / "commitlog/00000000000000040000").read_bytes())
    undo(root)
    assert tree(root) == before


def test_holes_that_are_kept_take_no_room(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    with (root / "commitlog/00000000000000040000").open("wb") as file:
        file.truncate(2**30)
    with Journal.begin(root, "truncate", "", WritableStorage(root)) as journal:
        journal.execute([Delete("commitlog/00000000000000040000")])
    (entry,) = list_journals(WritableStorage(root), root)
    assert kept_bytes(WritableStorage(root), entry) < 100_000


@pytest.mark.parametrize(
    "changes",
    [
        [Delete("consumequeue/a"), Write("consumequeue/a/0/00000000000000000000", 0, b"x")],
        [Delete("consumequeue/a"), Delete("consumequeue/a/0")],
        [Delete("abort"), Delete("abort")],
        [Delete("checkpoint"), Write("checkpoint", 0, b"x")],
        [Write("config/topics.json", 0, b"x")],
        [Delete("config")],
        [Write("checkpoint", 4090, b"too long")],
        [Resize("checkpoint", 10), Zero("checkpoint", 5, 11)],
        [Delete("../store/abort")],
        [Delete("/elsewhere/../abort")],
        [Install("abort", Path("/elsewhere"), "abort")],
    ],
)
def test_changes_that_cannot_be_taken_back_are_not_begun(changes: list[Change], tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    (tmp_path / "abort").write_bytes(b"")
    before = tree(root)
    with (
        pytest.raises((ValueError, ChangeFailed)),
        Journal.begin(root, "recover", "", WritableStorage(root)) as journal,
    ):
        journal.execute(changes)
    assert tree(root) == before


@pytest.mark.parametrize(
    "change", [Delete("index/nothing"), Write(NOTHING, 0, b""), Install("abort", Path(), "nothing")]
)
def test_what_is_not_there_is_told(change: Change, tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    before = tree(root)
    with Journal.begin(root, "recover", "", WritableStorage(root)) as journal:
        staged = Install("abort", journal.staging, "nothing") if isinstance(change, Install) else change
        with pytest.raises(ChangeFailed, match=r"; the store is as it was before$"):
            journal.execute([staged])
    assert tree(root) == before


@pytest.mark.parametrize(
    "name", ["commitlog/00000000000000020000", "checkpoint", *(f"consumequeue/{of}" for of in ("a", "a/0", "b")), "."]
)
def test_what_may_not_be_written_is_told_before_anything_is_changed(name: str, tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    before = tree(root)
    storage = type("RefusingOne", (Refusing,), {"refused": root / name})
    with pytest.raises(
        ChangeFailed, match=r"Permission denied; nothing was changed \(run it as the owner of the files"
    ):
        change_all(root, storage)
    found = tree(root)
    if name != ".":
        assert found == before


def test_what_may_be_changed_and_what_may_not(tmp_path: Path) -> None:
    storage = WritableStorage(tmp_path)
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    before = tree(tmp_path)
    storage.check_may_change(tmp_path)
    storage.check_may_change(tmp_path / "file")
    for name in ("link", "none"):
        with pytest.raises(OSError, match=name):
            storage.check_may_change(tmp_path / name)
    assert tree(tmp_path) == before
