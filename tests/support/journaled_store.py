"""A store with a little of everything, a change of all of it, and what is left of both."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.journal.changes import Change, Delete, Install, Resize, Write, Zero
from rmqctl.store.journal.journals import JournalState, list_journals
from rmqctl.store.journal.transaction import Journal, undo_last
from tests.support.faulty_system import Crashed, Fault, FaultySystem, open_descriptors

SIZE = 20_000
Tree = dict[str, tuple[bytes | None, int, int]]


def some_store(root: Path, *, lock: bool = True) -> Path:
    """A little of everything that a store has; each file and folder with a time of its own."""
    chance = random.Random(1)
    files = {
        "commitlog/00000000000000000000": chance.randbytes(SIZE),
        "commitlog/00000000000000020000": chance.randbytes(9000) + bytes(SIZE - 9000),
        "consumequeue/a/0/00000000000000000000": chance.randbytes(1000),
        "consumequeue/a/1/00000000000000000000": chance.randbytes(1000),
        "consumequeue/b/0/00000000000000000000": chance.randbytes(1000),
        "index/20261121093135974": chance.randbytes(3000),
        "checkpoint": chance.randbytes(40) + bytes(4056),
        "abort": b"",
    } | ({"lock": b"lock"} if lock else {})
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "checkpoint").chmod(0o600)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(number, 1_700_000_000_123_456_789 + number))
    os.utime(root, ns=(1, 1_600_000_000_987_654_321))
    return root


def tree(root: Path) -> Tree:
    """Content, mode and time (ns) of every file and folder."""
    found: Tree = {}
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(root))] = (
            path.read_bytes() if path.is_file() else None,
            status.st_mode,
            status.st_mtime_ns,
        )
    return found


def without_times(found: Tree) -> dict[str, bytes | None]:
    """Content by name; nobody reads what is in `lock`."""
    return {name: b"lock" if name == "lock" else content for name, (content, _, _) in found.items()}


def every_change(journal: Journal) -> list[Change]:
    """Each kind of change, and what a repair makes of them; new queues and a new index are built first."""
    for name in ("queue", "new/0"):
        (journal.staging / name).mkdir(parents=True)
        (journal.staging / name / "00000000000000000000").write_bytes(name.encode() * 100)
    (journal.staging / "index").write_bytes(b"index" * 1000)
    log = "commitlog/00000000000000020000"
    return [
        Write("commitlog/00000000000000000000", 5000, b"mended" * 10),
        Zero("commitlog/00000000000000000000", 100, 300),
        Zero(log, 7000, SIZE),
        Delete("index/20261121093135974"),
        Install("index/20261121093135975", journal.staging, "index"),
        Install("consumequeue/a/0", journal.staging, "queue"),
        Install("consumequeue/new/0", journal.staging, "new/0"),
        Delete("consumequeue/b"),
        Resize("consumequeue/a/1/00000000000000000000", 400),
        Resize("consumequeue/a/1/00000000000000000000", 2000),
        Write("checkpoint", 0, bytes(24)),
        Delete("abort"),
    ]


class TwoDisks(WritableStorage):
    """A store whose journal is in a file system of its own."""

    def rename(self, path: Path, target: Path) -> bool:
        return (".rmqctl" in path.parts) == (".rmqctl" in target.parts) and super().rename(path, target)


def change_all(root: Path, storage: type[WritableStorage] = WritableStorage) -> None:
    with Journal.begin(root, "recover", "everything", storage(root)) as journal:
        journal.execute(every_change(journal))


def undo(root: Path, storage: type[WritableStorage] = WritableStorage, *, force: bool = False) -> JournalState | None:
    entry = undo_last(root, storage(root), force=force)
    return entry.state if entry is not None else None


def states(root: Path) -> list[JournalState]:
    return [entry.state for entry in list_journals(WritableStorage(root), root)]


def check_left(root: Path, before: Tree, after: dict[str, bytes | None], *, power_failed: bool = False) -> str:
    """What a crash left is the old store or the new one, or undo brings the old one back; which of them."""
    left = without_rmqctl(without_times(tree(root)))
    found = states(root)
    if found == [JournalState.DONE]:
        assert left == after
    if not found or found == [JournalState.NOT_BEGUN]:
        assert left | {"lock": b"lock"} == without_times(before) | {"lock": b"lock"}
    undo(root, force=power_failed)  # what is left by a model of a disk has other times
    assert without_times(tree(root)) == without_times(before)
    if not power_failed:
        assert with_times(root) == {name: of for name, of in before.items() if name != "."}
    return found[0].value if found else "nothing"


def with_times(root: Path) -> Tree:
    """Without the root's own: it is lost where the process ends before journal.json is there, or after it is gone."""
    return {name: of for name, of in tree(root).items() if name != "."}


def without_rmqctl(found: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: data for name, data in found.items() if not name.startswith(".rmqctl")}


def half_changed(root: Path) -> None:
    """A store with a change that ended in its middle."""
    some_store(root, lock=False)
    descriptors = open_descriptors()
    with FaultySystem(root, Fault.CRASH_AFTER, 124) as system, pytest.raises(Crashed):
        change_all(root)
    system.end_process(descriptors)
    shutil.rmtree(system.graveyard)
    assert states(root) == [JournalState.BEGUN]


def changed(root: Path) -> None:
    some_store(root, lock=False)
    change_all(root)


class Refusing(WritableStorage):
    """This user may not write to one path of the store."""

    refused = Path()

    def check_may_change(self, path: Path) -> None:
        self._refuse(path)
        super().check_may_change(path)

    def open_for_writing(self, path: Path) -> int:
        self._refuse(path)
        return super().open_for_writing(path)

    def set_mtime(self, path: Path, mtime_ns: int) -> None:
        self._refuse(path)
        super().set_mtime(path, mtime_ns)

    def _refuse(self, path: Path) -> None:
        if path == self.refused:
            raise PermissionError(13, "Permission denied", str(path))


def files_of(root: Path) -> dict[str, bytes | None]:
    """What is in a store, but for rmqctl's own journals, which have times in them."""
    paths = (path for path in root.rglob("*") if ".rmqctl" not in path.relative_to(root).parts)
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in paths}
