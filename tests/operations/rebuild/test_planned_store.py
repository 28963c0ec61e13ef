"""Files that are only planned, in folders that are there, that go, or that are new."""

from __future__ import annotations

from pathlib import Path

from rmqctl.logfile.system.storage import Kind, Storage
from rmqctl.operations.rebuild.planned_store import Patch, PlannedFile, PlannedStorage


def test_a_file_in_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "topic" / "0"
    storage = PlannedStorage(
        Storage(tmp_path), {folder / "new": PlannedFile(4, (Patch(1, 3, b"ab"),), is_new=True)}, frozenset()
    )
    assert [entry.kind for entry in storage.listing(tmp_path)] == [Kind.DIRECTORY]
    assert storage.kinds(str(tmp_path)) == [("topic", Kind.DIRECTORY)]
    assert [(entry.name, entry.kind, entry.size) for entry in storage.listing(folder)] == [("new", Kind.FILE, 4)]
    descriptor = storage.open(folder / "new")
    assert storage.read(descriptor, 0, 9) == b"\0ab\0"
    storage.close(descriptor)


def test_a_folder_that_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "topic" / "0"
    folder.mkdir(parents=True)
    (folder / "old").write_bytes(b"old")
    planned = {folder / "new": PlannedFile(2, is_new=True)}
    storage = PlannedStorage(Storage(tmp_path), planned, frozenset({folder}))
    assert [entry.name for entry in storage.listing(folder)] == ["new"]
    assert storage.entry(folder / "old").kind is Kind.MISSING
