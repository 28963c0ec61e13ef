"""An undo restores every byte, also after a crash of its own, and loses nothing that was written since."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.errors import ChangedSince, ChangeFailed, Unreadable
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.journal.changes import Write
from rmqctl.store.journal.journals import JournalState, list_journals
from rmqctl.store.journal.transaction import Journal
from tests.support.faulty_system import (
    CRASHES,
    ERRORS,
    Fault,
    FaultySystem,
    crash_points,
    every_fault,
    open_descriptors,
)
from tests.support.file_edits import write_at
from tests.support.journaled_store import (
    Refusing,
    TwoDisks,
    change_all,
    changed,
    half_changed,
    some_store,
    states,
    tree,
    undo,
    with_times,
    without_times,
)


def test_the_newest_is_undone_first(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store", lock=False)
    trees = [tree(root)]
    for number in range(3):
        with Journal.begin(root, "checkpoint-set", "a time", WritableStorage(root)) as journal:
            journal.execute([Write("checkpoint", number, b"x")])
        trees.append({name: found for name, found in tree(root).items() if not name.startswith(".rmqctl")})
    assert [entry.number for entry in list_journals(WritableStorage(root), root)] == [1, 2, 3]
    for expected in trees[-2:0:-1]:
        assert undo(root) is JournalState.DONE
        assert without_times(
            {name: found for name, found in tree(root).items() if not name.startswith(".rmqctl")}
        ) == without_times(expected)
    assert undo(root) is JournalState.DONE
    assert tree(root) == trees[0]


@pytest.mark.slow
@pytest.mark.parametrize("storage", [WritableStorage, pytest.param(TwoDisks, marks=pytest.mark.slow)])
@pytest.mark.parametrize("prepare", [changed, half_changed])
@pytest.mark.parametrize("fault", CRASHES)
def test_a_crash_at_every_call_of_an_undo(
    fault: Fault, prepare: Callable[[Path], object], storage: type[WritableStorage], tmp_path: Path
) -> None:
    before = tree(some_store(tmp_path / "old", lock=False))

    def check(system: FaultySystem) -> None:
        left = system.root.with_name(f"{system.root.name}-left")
        system.after_power_failure(left, random.Random(system.at) if system.at % 3 else None)
        undo(left, force=True)
        assert without_times(tree(left)) == without_times(before)
        shutil.rmtree(left)
        undo(system.root)
        assert with_times(system.root) == {name: of for name, of in before.items() if name != "."}

    points = crash_points(tmp_path, fault, prepare, lambda root: undo(root, storage), check)
    assert points > (3 if fault is Fault.CRASH_WITHIN else 60)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in ERRORS if fault is not Fault.SHORT_WRITE])
def test_an_undo_that_failed_is_done_again(fault: Fault, tmp_path: Path) -> None:
    before = tree(some_store(tmp_path / "old", lock=False))
    failed = 0
    for system in every_fault(tmp_path, fault):
        changed(system.root)
        descriptors = open_descriptors()
        with system:
            try:
                undo(system.root)
            except ChangeFailed:
                failed += 1
        assert open_descriptors() == descriptors
        undo(system.root)
        assert with_times(system.root) == {name: of for name, of in before.items() if name != "."}
    assert failed == system.calls > 1 or fault is Fault.FULL_DISK


@pytest.mark.parametrize(
    "path",
    [
        "commitlog/00000000000000000000",
        "consumequeue/a/0/00000000000000000000",
        "commitlog/00000000000000040000",
        "abort",
        "checkpoint",
    ],
)
def test_what_was_written_since_is_not_lost(path: str, tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    change_all(root)
    (root / path).write_bytes(b"by a broker")
    before = tree(root)
    with pytest.raises(
        ChangedSince, match=f"written to since `rmqctl recover`: {path}; .*\\(--force undoes the change anyway\\)"
    ):
        undo(root)
    assert tree(root) == before
    undo(root, force=True)
    assert not (root / ".rmqctl").exists()


def test_a_forced_undo_brings_back_all_that_the_change_reached(tmp_path: Path) -> None:
    """Also zeros that are not zeros any more, and what was put where something was deleted."""
    root = some_store(tmp_path / "store")
    before = without_times(tree(root))
    change_all(root)
    write_at(root / "commitlog/00000000000000020000", 7000, b"new" * 3000)
    (root / "consumequeue/b/0").mkdir(parents=True)
    (root / "consumequeue/b/0/new").write_bytes(b"new")
    (root / "abort").write_bytes(b"4711")
    undo(root, force=True)
    assert without_times(tree(root)) == before


def test_where_a_broker_ran_on_a_half_changed_store_it_is_not_undone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    half_changed(root)
    (root / "commitlog/00000000000000040000").write_bytes(b"by a broker")
    with pytest.raises(ChangedSince):
        undo(root)


def test_a_store_that_was_moved_is_undone_where_it_is(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    before = tree(root)
    change_all(root)
    root.rename(tmp_path / "moved")
    undo(tmp_path / "moved")
    assert tree(tmp_path / "moved") == before


@pytest.mark.parametrize("at", ["checkpoint", "consumequeue/a/1/00000000000000000000"])
def test_an_undo_writes_to_nothing_that_was_not_changed(at: str, tmp_path: Path) -> None:
    """An error that stopped a change does not stop its undo."""
    root = some_store(tmp_path / "store")
    before = tree(root)

    class Stopped(Refusing):
        refused = root / at

        def check_may_change(self, path: Path) -> None:
            """It was still allowed."""

    with pytest.raises(ChangeFailed, match="the store is as it was before"):
        change_all(root, Stopped)
    assert tree(root) == before


@pytest.mark.parametrize("name", ["checkpoint", "consumequeue/a", "consumequeue/a/0"])
def test_an_undo_that_may_not_write_does_not_begin(name: str, tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    before = tree(root)
    change_all(root)
    storage = type("RefusingOne", (Refusing,), {"refused": root / name})
    with pytest.raises(ChangeFailed, match="Permission denied; nothing was changed"):
        undo(root, storage)
    assert states(root) == [JournalState.DONE]
    undo(root)
    assert tree(root) == before


def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    change_all(root)
    (root / ".rmqctl/journal/0001-recover/journal.json").write_bytes(b'{"verb": 1')
    before = tree(root)
    with pytest.raises(Unreadable, match="the journal is damaged"):
        undo(root)
    assert tree(root) == before
