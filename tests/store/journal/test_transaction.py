"""Changes of a store, and back: bytes, lengths, times, modes; wherever the process ends, and whatever call fails."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.errors import ChangeFailed, NeedsRecovery, RmqctlError, StoreInUse, Unreadable
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.journal.changes import Change, Delete, Install, Resize, Write, Zero
from rmqctl.store.journal.journals import JournalState, list_journals
from rmqctl.store.journal.transaction import Journal, drop, undo_last
from tests.support.faulty_system import (
    CRASHES,
    ERRORS,
    Crashed,
    CrashingSystem,
    Fault,
    FaultySystem,
    every_fault,
    open_descriptors,
)

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


def new_tree(folder: Path, *, lock: bool) -> dict[str, bytes | None]:
    root = some_store(folder, lock=lock)
    change_all(root)
    return without_rmqctl(without_times(tree(root)))


def crash_points(
    folder: Path,
    fault: Fault,
    prepare: Callable[[Path], object],
    do: Callable[[Path], object],
    check: Callable[[FaultySystem], object],
    step: int = 1,
) -> int:
    """The process ends at every call of `do`, or every `step`-th; at how many it did."""
    system = CrashingSystem(folder / fault.name, fault, step)
    prepare(system.root)
    descriptors = open_descriptors()
    with system:
        do(system.root)
    system.end_process(descriptors)
    for left in (*system.left, system):
        try:
            check(left)
        except BaseException as error:
            error.add_note(str(left))
            raise
        shutil.rmtree(left.root, ignore_errors=True)
    shutil.rmtree(system.graveyard, ignore_errors=True)
    assert len(system.left) == -(-system.calls // step)
    return len(system.left)


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
