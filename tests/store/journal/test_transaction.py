"""Changes of a store, and back: bytes, lengths, times, modes; wherever the process ends, and whatever call fails."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.errors import ChangeFailed, NeedsRecovery, RmqctlError, StoreInUse, Unreadable
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.journal.changes import Delete, Zero
from rmqctl.store.journal.journals import JournalState
from rmqctl.store.journal.transaction import Journal, drop, undo_last
from tests.support.faulty_system import (
    CRASHES,
    ERRORS,
    Fault,
    FaultySystem,
    crash_points,
    every_fault,
    open_descriptors,
)
from tests.support.journaled_store import (
    SIZE,
    TwoDisks,
    change_all,
    changed,
    check_left,
    every_change,
    half_changed,
    some_store,
    states,
    tree,
    undo,
    with_times,
    without_rmqctl,
    without_times,
)


@pytest.mark.parametrize("storage", [WritableStorage, TwoDisks])
@pytest.mark.parametrize("lock", [True, False])
def test_changed_and_back(lock: bool, storage: type[WritableStorage], tmp_path: Path) -> None:
    root = some_store(tmp_path / "store", lock=lock)
    before = tree(root)
    change_all(root, storage)
    after = {name: content for name, (content, _, _) in tree(root).items() if not name.startswith(".rmqctl")}
    assert states(root) == [JournalState.DONE]
    data = before["commitlog/00000000000000000000"][0]
    assert data is not None
    assert (
        after["commitlog/00000000000000000000"]
        == data[:100] + bytes(200) + data[300:5000] + b"mended" * 10 + data[5060:]
    )
    assert after["commitlog/00000000000000020000"] == (before["commitlog/00000000000000020000"][0] or b"")[
        :7000
    ] + bytes(SIZE - 7000)
    assert after["consumequeue/a/0/00000000000000000000"] == b"queue" * 100
    assert after["consumequeue/a/1/00000000000000000000"] == (
        before["consumequeue/a/1/00000000000000000000"][0] or b""
    )[:400] + bytes(1600)
    assert after["consumequeue/new/0/00000000000000000000"] == b"new/0" * 100
    assert not {"abort", "consumequeue/b", "index/20261121093135974"} & after.keys()
    for name in ("commitlog/00000000000000000000", "commitlog/00000000000000020000", "checkpoint"):
        assert (root / name).stat().st_mtime_ns == before[name][2]
    assert undo(root, storage) is JournalState.DONE
    assert tree(root) == before
    assert undo(root) is None


def new_tree(folder: Path, *, lock: bool) -> dict[str, bytes | None]:
    root = some_store(folder, lock=lock)
    change_all(root)
    return without_rmqctl(without_times(tree(root)))


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow, id="each"), pytest.param(5, id="some")])
@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.parametrize("fault", CRASHES)
def test_a_crash_at_every_call_of_a_change(fault: Fault, lock: bool, step: int, tmp_path: Path) -> None:
    step = 1 if fault is Fault.CRASH_WITHIN else step  # only writes have a middle: there are few
    after = new_tree(tmp_path / "new", lock=lock)
    before = tree(some_store(tmp_path / "old", lock=lock))
    seen = set()

    def check(system: FaultySystem) -> None:
        left = system.root.with_name(f"{system.root.name}-left")
        system.after_power_failure(left, random.Random(system.at) if system.at % 3 else None)
        check_left(left, before, after, power_failed=True)
        shutil.rmtree(left)
        seen.add(check_left(system.root, before, after))

    points = crash_points(tmp_path, fault, lambda root: some_store(root, lock=lock), change_all, check, step)
    assert points > (8 if fault is Fault.CRASH_WITHIN else 100) // step
    assert {"begun", "done"} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("fault", CRASHES)
def test_a_crash_at_every_call_with_a_journal_on_another_disk(fault: Fault, tmp_path: Path) -> None:
    after = new_tree(tmp_path / "new", lock=True)
    before = tree(some_store(tmp_path / "old"))

    def check(system: FaultySystem) -> None:
        left = system.root.with_name(f"{system.root.name}-left")
        system.after_power_failure(left)
        check_left(left, before, after, power_failed=True)
        shutil.rmtree(left)
        check_left(system.root, before, after)

    assert crash_points(tmp_path, fault, some_store, lambda root: change_all(root, TwoDisks), check) > 10


@pytest.mark.parametrize("fault", CRASHES)
def test_a_crash_at_every_call_of_a_drop(fault: Fault, tmp_path: Path) -> None:
    """The new store stays, and the next drop takes away what is left."""
    after = new_tree(tmp_path / "new", lock=False)

    def check(system: FaultySystem) -> None:
        found = states(system.root)
        assert found in ([JournalState.DONE], [JournalState.NOT_BEGUN], [])
        drop(system.root, WritableStorage(system.root))
        assert without_times(tree(system.root)) == after

    points = crash_points(tmp_path, fault, changed, lambda root: drop(root, WritableStorage(root)), check)
    assert points > 20 or fault is Fault.CRASH_WITHIN


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in ERRORS if fault is not Fault.SHORT_WRITE])
def test_an_error_at_every_call_of_a_change(fault: Fault, tmp_path: Path) -> None:
    """The store is as before, without a trace; where the disk stays dead, or full, it can be half
    changed and says so.
    """
    before = tree(some_store(tmp_path / "old", lock=False))
    told = set()
    for system in every_fault(tmp_path, fault):
        some_store(system.root, lock=False)
        descriptors = open_descriptors()
        error = None
        with system:
            try:
                change_all(system.root)
            except (OSError, RmqctlError) as failed:
                error = failed
        assert open_descriptors() == descriptors
        assert (error is not None) <= system.happened
        assert error is not None or fault is Fault.FULL_DISK or not system.happened
        left = tree(system.root)
        if error is not None and fault in (Fault.DEAD_DISK, Fault.FULL_DISK):
            told.add(str(error).partition("; ")[2].partition(" (")[0])
            assert ("half changed" in str(error)) is (states(system.root) == [JournalState.BEGUN])
            undo(system.root)
            assert with_times(system.root) == {name: of for name, of in before.items() if name != "."}
        elif error is not None:
            assert left == before, str(system)
    assert system.calls > (8 if fault is Fault.TORN_WRITE else 50)
    if fault is Fault.DEAD_DISK:
        assert told == {
            "nothing was changed",
            "the store is half changed",
            "all was changed, but may not be on the disk",
        }


def test_short_writes_are_gone_on_with(tmp_path: Path) -> None:
    before = tree(some_store(tmp_path / "old"))
    for system in every_fault(tmp_path, Fault.SHORT_WRITE):
        some_store(system.root)
        with system:
            change_all(system.root)
            undo(system.root)
        assert tree(system.root) == before


def test_an_interruption_takes_the_change_back(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store", lock=False)
    before = tree(root)

    class Interrupted(WritableStorage):
        def resize(self, descriptor: int, size: int) -> None:
            if size == 400:
                raise KeyboardInterrupt
            super().resize(descriptor, size)

    with pytest.raises(KeyboardInterrupt):
        change_all(root, Interrupted)
    assert tree(root) == before


def test_nothing_begins_before_a_half_done_change_is_undone(tmp_path: Path) -> None:
    half_changed(tmp_path / "store")
    left = tree(tmp_path / "store")
    for do in (
        lambda root: Journal.begin(root, "rebuild", "", WritableStorage(root)),
        lambda root: drop(root, WritableStorage(root)),
    ):
        with pytest.raises(
            NeedsRecovery,
            match=r"rmqctl recover was interrupted: the store is half changed \(rmqctl undo .* brings it back\)",
        ):
            do(tmp_path / "store")
    assert tree(tmp_path / "store") == left


def test_left_without_execute_nothing_is_left(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store", lock=False)
    before = tree(root)
    with Journal.begin(root, "rebuild", "", WritableStorage(root)) as journal:
        (journal.staging / "half").write_bytes(b"x")
    assert tree(root) == before


def test_what_a_killed_process_left_before_it_changed_anything_goes(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    first = Journal.begin(root, "rebuild", "", WritableStorage(root))
    (first.staging / "half").write_bytes(b"x")
    first.close()
    assert states(root) == [JournalState.NOT_BEGUN]
    change_all(root)
    assert states(root) == [JournalState.DONE]


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_store_in_use_is_not_touched(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    change_all(root)
    before = tree(root)
    command = [sys.executable, "-c", HOLDER, str(root / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"held\n"
        for do in (change_all, undo, lambda root: drop(root, WritableStorage(root))):
            with pytest.raises(StoreInUse):
                do(root)
        assert tree(root) == before
        broker.communicate()


def test_files_that_are_installed_belong_to_whom_the_store_does(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    os.chown(root, 4711, 4712)
    change_all(root)
    for path in ("index/20261121093135975", "consumequeue/new/0", "consumequeue/new/0/00000000000000000000"):
        assert ((root / path).stat().st_uid, (root / path).stat().st_gid) == (4711, 4712)


def test_a_log_that_lies_elsewhere(tmp_path: Path) -> None:
    root, elsewhere = some_store(tmp_path / "store"), some_store(tmp_path / "elsewhere")
    before = tree(elsewhere)
    first, second = (str(elsewhere / "commitlog" / f"{base:020d}") for base in (0, SIZE))
    storage = WritableStorage(root)
    storage.trust(elsewhere / "commitlog")
    with Journal.begin(root, "truncate", "", storage) as journal:
        journal.execute([Zero(first, 0, 100), Delete(second)])
    after = tree(elsewhere)
    assert without_times(after) != without_times(before)
    with pytest.raises(Unreadable, match="give --broker-conf with the file that names the folders of this log"):
        undo(root)
    assert tree(elsewhere) == after
    undo_last(root, storage)
    assert tree(elsewhere) == before


def test_names_that_are_no_text(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    name = os.fsdecode(b"consumequeue/\xff\xfe")
    (root / name).mkdir()
    (root / "commitlog" / os.fsdecode(b"\xff")).write_bytes(b"")
    before = tree(root)
    with Journal.begin(root, "rebuild", name, WritableStorage(root)) as journal:
        journal.execute([Delete(name)])
    assert not (root / name).exists()
    undo(root)
    assert tree(root) == before


def test_the_folder_that_we_are_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = some_store(tmp_path / "store", lock=False)
    before = tree(root)
    monkeypatch.chdir(root)
    change_all(Path())
    assert tree(root) != before
    undo(Path())
    assert tree(root) == before


def test_what_came_first_is_told(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")

    class NothingGoes(WritableStorage):
        def remove_folder(self, path: Path) -> None:
            raise OSError(5, "Input/output error", str(path))

    with pytest.raises(ZeroDivisionError), Journal.begin(root, "rebuild", "", NothingGoes(root)):
        raise ZeroDivisionError
    assert states(root) == [JournalState.NOT_BEGUN]


def test_a_failure_before_the_changes_says_how_the_store_is(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    before = tree(root)
    with (
        pytest.raises(ChangeFailed, match=r"^/.*/store: /the/log: Input/output error; the store is as it was before$"),
        Journal.begin(root, "rebuild", "", WritableStorage(root)),
    ):
        raise OSError(5, "Input/output error", "/the/log")
    assert tree(root) == before


def test_a_reader_of_stdout_that_goes_away_is_no_failure_of_the_store(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store")
    before = tree(root)
    with pytest.raises(BrokenPipeError), Journal.begin(root, "rebuild", "", WritableStorage(root)):
        raise BrokenPipeError
    assert tree(root) == before


def test_an_interruption_before_the_change_begins(tmp_path: Path) -> None:
    root = some_store(tmp_path / "store", lock=False)
    before = tree(root)

    def commit() -> None:
        assert states(root) == [JournalState.NOT_BEGUN]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Journal.begin(root, "recover", "", WritableStorage(root)) as journal:
        journal.execute(every_change(journal), commit)
    assert tree(root) == before
    change_all(root)
    after = tree(root)
    for do in (undo_last, drop):
        with pytest.raises(KeyboardInterrupt):
            do(root, WritableStorage(root), commit=commit_of_an_undo)
        assert tree(root) == after


def commit_of_an_undo() -> None:
    raise KeyboardInterrupt
