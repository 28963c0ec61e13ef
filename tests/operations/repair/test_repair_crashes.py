"""The process ends, or the system fails, at every storage call of a verb that goes through a journal.

These are recover, heal, truncate, rebuild, config set-offset and restore, undo and undo --drop.

Afterwards the store is the old one, the new one, or undo brings the old one back: bytes, lengths, times. What was left
half done is told in one line by whatever is called next. The commands run as a whole, on a store that is small enough
for that.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.format.message import Message
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.journal.journals import JournalState
from rmqctl.store.journal.transaction import Journal
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Result
from tests.support.faulty_system import Fault, FaultySystem, crash_points, every_fault
from tests.support.file_edits import flip_bits, write_at
from tests.support.journaled_store import check_left, states, tree, with_times, without_rmqctl, without_times
from tests.support.ran_command import failed, ran
from tests.support.small_store import created, message

FILE_SIZE = 2048
GEOMETRY = Geometry(FILE_SIZE, 100, 4, 8)
MESSAGES = 20
MIDDLE = 11  # the message that is damaged, and at which the log is cut
BODY_AT = 88  # in a record
UNFINISHED = (JournalState.BEGUN, JournalState.UNDOING)
CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_WITHIN)  # after a call is before the next one
KILLS = 10
SAMPLED = 61  # a sample has every 61st call


class Repair(NamedTuple):
    """A store that something is wrong with, the command that repairs it, what that does to it, and its exit code."""

    damage: Callable[[Path], object]
    command: tuple[str, ...]
    actions: frozenset[str]
    code: int = 3


def flip_a_bit(root: Path) -> None:
    """One bit of a body."""
    flip_bits(root / "commitlog" / f"{0:020d}", messages_of(root)[MIDDLE].physical_offset + BODY_AT, 4)


def lose_first_and_cut(root: Path) -> None:
    """The first log file, and the end of the last one."""
    first, *_, last = sorted((root / "commitlog").iterdir())
    first.unlink()
    os.truncate(last, FILE_SIZE // 8)


def flip(root: Path) -> None:
    """A damaged body, and no shutdown in order."""
    (root / "abort").write_bytes(b"")
    offset = messages_of(root)[MIDDLE].physical_offset
    write_at(root / "commitlog" / f"{0:020d}", offset + BODY_AT, b"\xff\xff")


def lose_queues(root: Path) -> None:
    """All but what shows how large the files are."""
    (root / "abort").write_bytes(b"")
    shutil.rmtree(root / "consumequeue/OrderPaid")
    shutil.rmtree(root / "consumequeue/Late/1")
    for path in sorted((root / "index").iterdir())[1:]:
        path.unlink()


def cut_last_file(root: Path) -> None:
    """Neither checkpoint nor `lock` are left."""
    last = max((root / "commitlog").iterdir())
    with last.open("r+b") as file:
        file.truncate(messages_of(root)[-1].physical_offset % FILE_SIZE + 50)
    (root / "checkpoint").unlink()
    (root / "lock").unlink()


def lose_a_file(root: Path) -> None:
    """And the end of the one before."""
    for _ in range(3):
        assert ran("append", root, "--topic", "OrderPaid", "--queue", 0, "--body", "x" * (FILE_SIZE * 3 // 4)).code == 0
    _, second, third, _ = sorted((root / "commitlog").iterdir())
    third.unlink()
    with second.open("r+b") as file:
        file.truncate(FILE_SIZE // 2)


def empty_a_queue(root: Path) -> None:
    for path in (root / "consumequeue/OrderPaid/1").iterdir():
        path.write_bytes(bytes(path.stat().st_size))


def offset_of_a_group(root: Path) -> None:
    """As 4.x writes it: nothing in it says when."""
    (root / "config/consumerOffset.json").write_text(
        '{\n\t"offsetTable":{\n\t\t"OrderPaid@billing":{0:1\n\t\t}\n\t}\n}'
    )


def tear_topics(root: Path) -> None:
    topics = root / "config/topics.json"
    topics.with_name("topics.json.bak").write_bytes(topics.read_bytes())
    topics.write_bytes(topics.read_bytes()[:100])


REPAIRS = {
    "cut": Repair(flip, ("recover",), frozenset({"zero", "delete", "rebuild-index", "set-checkpoint"})),
    "keep-going": Repair(flip, ("recover", "--keep-going"), frozenset({"write", "delete"})),
    "lost-file": Repair(
        lose_a_file, ("recover", "--keep-going"), frozenset({"add-file", "resize", "write", "rebuild-index"})
    ),
    "lost-queues": Repair(lose_queues, ("recover",), frozenset({"rebuild-queue", "rebuild-index", "delete"})),
    "short-file": Repair(cut_last_file, ("recover",), frozenset({"resize", "zero", "rebuild-index", "set-checkpoint"})),
    "heal": Repair(flip_a_bit, ("heal",), frozenset({"write"})),
    "heal-files": Repair(lose_first_and_cut, ("heal", "--from", "WHOLE"), frozenset({"add-file", "resize", "write"})),
    "truncate": Repair(lambda _: None, ("truncate", "--to", "MIDDLE"), frozenset({"zero", "delete", "rebuild-index"})),
    "rebuild": Repair(empty_a_queue, ("rebuild", "all"), frozenset({"install"})),
    "set-offset": Repair(
        offset_of_a_group,
        ("config", "set-offset", "billing", "OrderPaid", "--to", "latest"),
        frozenset({"install"}),
        code=0,
    ),
    "restore": Repair(tear_topics, ("config", "restore", "topics.json"), frozenset({"install"}), code=0),
}


def messages_of(root: Path) -> list[Message]:
    with closing(ReadOnlyStore(root)) as store:
        return [item for item in store.commit_log.scan() if isinstance(item, Message)]


class Stores:
    """The store of each repair: before it, after it, and in its middle; made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._whole = folder / "whole"
        store = created(self._whole, geometry=GEOMETRY)
        for number in range(MESSAGES):
            topic = "OrderPaid" if number < 14 else "Late"
            assert store.put_message(
                message(number, topic=topic, queue_id=number % 2, properties={"KEYS": f"k{number}"})
            ).is_ok
            time.sleep(0.002)  # a time of its own for each: what is cut off then always changes the checkpoint
        store.close()
        self._middle = messages_of(self._whole)[MIDDLE].physical_offset

    def command(self, name: str, root: Path) -> list[str]:
        places = {"MIDDLE": str(self._middle), "WHOLE": str(self._whole)}
        words = [places.get(word, word) for word in REPAIRS[name].command]
        words.insert(2 if words[0] == "config" else 1, str(root))
        return words

    def repair(self, name: str, root: Path) -> Result:
        return ran(*self.command(name, root), "--yes")

    def old(self, name: str, root: Path) -> Path:
        """Each file and folder has a time of its own."""
        made = self._folder / f"{name}-old"
        if not made.exists():
            shutil.copytree(self._whole, made)
            REPAIRS[name].damage(made)
            for number, path in enumerate([*sorted(made.rglob("*"), reverse=True), made]):
                os.utime(path, ns=(number, 1_700_000_000_123_456_789 + number))
        return shutil.copytree(made, root)

    def new(self, name: str, root: Path) -> Path:
        made = self._folder / f"{name}-new"
        if not made.exists():
            assert self.repair(name, self.old(name, made)).code == REPAIRS[name].code
        return shutil.copytree(made, root)

    def half(self, name: str, root: Path) -> Path:
        """The process ended among the changes."""
        made = self._folder / f"{name}-half"
        if not made.exists():
            begun: list[Path] = []

            def check(system: FaultySystem) -> None:
                if states(system.root) == [JournalState.BEGUN]:
                    begun.append(shutil.copytree(system.root, self._folder / f"{name}-half-{len(begun)}"))

            crash_points(
                self._folder, Fault.CRASH_BEFORE, partial(self.old, name), partial(self.repair, name), check, step=7
            )
            begun[len(begun) // 2].rename(made)
            for other in begun:
                shutil.rmtree(other, ignore_errors=True)
        return shutil.copytree(made, root)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on the disk is the faulty system's to say."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


class Expected:
    """The old store and the new one, as the undisturbed repair leaves it."""

    def __init__(self, stores: Stores, name: str, folder: Path) -> None:
        self._repair = partial(stores.repair, name)
        self._code = REPAIRS[name].code
        self.old = tree(stores.old(name, folder / "old"))
        new = tree(stores.new(name, folder / "new"))
        self.new = without_rmqctl(without_times(new))
        self._times = {
            path: of[2]
            for path, of in new.items()
            if path in self.old and self.old[path][::2] == of[::2] and of[0] is not None
        }
        self.seen: set[str] = set()
        self._checked: set[tuple[str, bytes]] = set()

    def _is_new(self, what: str, found: Mapping[str, object]) -> bool:
        """Most calls change nothing on the disk, so that many crashes leave the same."""
        key = what, hashlib.sha256(repr(sorted(found.items())).encode()).digest()
        is_new = key not in self._checked
        self._checked.add(key)
        return is_new

    def check_repair(self, system: FaultySystem) -> None:
        """After the end of a process that repaired."""
        self._check_power_failure(system)
        if not self._is_new("repaired", tree(system.root)):
            return
        state = self.check_told(system.root)
        if state is not JournalState.DONE and state not in UNFINISHED:
            assert self._repair(system.root).code == self._code
            self.assert_new(system.root)
        self.check_undone(system.root)

    def check_killed(self, root: Path) -> None:
        """After the end of a process that repaired, or took that back."""
        self.check_told(root)
        self.check_undone(root)

    def check_undo(self, system: FaultySystem) -> None:
        """After the end of a process that took a repair back."""
        self._check_power_failure(system)
        if self._is_new("undone", tree(system.root)):
            self.check_killed(system.root)

    def check_drop(self, system: FaultySystem) -> None:
        """After the end of a process that was to forget what was before: that is there, or not, and the new store
        stays.
        """
        self._check_power_failure(system, forgets=True)
        self.assert_new(system.root)
        self.seen.update(state.value for state in states(system.root))
        assert ran("undo", system.root, "--drop", "--yes").code == 0
        assert not (system.root / ".rmqctl").exists()
        self.assert_new(system.root)

    def _check_power_failure(self, system: FaultySystem, *, forgets: bool = False) -> None:
        """What was not brought to the disk is lost, all of it or some.

        With `forgets` it is the new store that needs no journal.
        """
        left = system.root.with_name(f"{system.root.name}-left")
        system.after_power_failure(left, random.Random(system.at) if system.at % 3 else None)
        if not self._is_new("power failed", without_times(tree(left))):
            pass
        elif forgets and states(left) != [JournalState.DONE]:
            assert without_rmqctl(without_times(tree(left))) == self.new
        else:
            check_left(left, self.old, self.new, power_failed=True)
        shutil.rmtree(left)

    def check_told(self, root: Path) -> JournalState | None:
        """The state of what is left; where it is half changed, that is told, and nothing is done."""
        state = states(root)[-1] if states(root) else None
        self.seen.add(state.value if state is not None else "nothing")
        left = tree(root)
        if state in UNFINISHED:
            told = self._repair(root)
            assert told.code == 1
            words = "changed" if state is JournalState.BEGUN else "restored"
            assert told.err.endswith(f"interrupted: the store is half {words} (rmqctl undo {root} brings it back)")
            assert "\n" not in told.err
            assert told.out == ""
            assert tree(root) == left
        elif state is JournalState.DONE:
            self.assert_new(root)
        else:
            assert self._without_lock(without_rmqctl(without_times(left))) == self._without_lock(
                without_times(self.old)
            )
        return state

    def check_undone(self, root: Path) -> None:
        undone = ran("undo", root, "--yes")
        assert undone.code == 0
        assert "\n" not in undone.err
        assert undone.err.startswith(("undone: ", "removed what an interrupted rmqctl left", "nothing to undo"))
        assert with_times(root) == {path: of for path, of in self.old.items() if path != "."}

    def assert_new(self, root: Path) -> None:
        found = tree(root)
        assert without_rmqctl(without_times(found)) == self.new
        assert {path: found[path][2] for path in self._times} == self._times

    @staticmethod
    def _without_lock(content: dict[str, bytes | None]) -> dict[str, bytes | None]:
        return {path: data for path, data in content.items() if path != "lock"}


NAMES = pytest.mark.parametrize("name", REPAIRS)
EACH_CRASH = pytest.mark.parametrize("fault", CRASHES)
# all calls, which takes a minute or two; otherwise a sample
STEPS = pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.slow, id="each"), pytest.param(SAMPLED, id="some")]
)
# an error is taken back as an interruption is, and leaves what a crash leaves: both are tried at each call
ERROR_STEPS = pytest.mark.parametrize(
    "step", [pytest.param(7, marks=pytest.mark.slow, id="many"), pytest.param(SAMPLED, id="some")]
)


def calls_of(do: Callable[[Path], object], root: Path, fault: Fault) -> int:
    """How many calls there are when none fails."""
    with FaultySystem(root, fault) as system:
        do(root)
    return system.calls


@NAMES
def test_undo_restores_every_byte_of_a_repair(name: str, stores: Stores, tmp_path: Path) -> None:
    root = stores.old(name, tmp_path / "store")
    old = tree(root)
    dry = ran(*stores.command(name, root), "--dry-run", "-o", "json")
    assert {action["action"] for action in json.loads(dry.out)["actions"]} >= REPAIRS[name].actions
    assert tree(root) == old
    expected = Expected(stores, name, tmp_path)
    assert stores.repair(name, root).code == REPAIRS[name].code
    expected.assert_new(root)
    assert ran("undo", root, "--yes").code == 0
    assert tree(root) == old


@STEPS
@EACH_CRASH
@NAMES
def test_a_crash_at_every_call_of_a_repair(name: str, fault: Fault, step: int, stores: Stores, tmp_path: Path) -> None:
    expected = Expected(stores, name, tmp_path)
    prepare, do = partial(stores.old, name), partial(stores.repair, name)
    points = crash_points(tmp_path, fault, prepare, do, expected.check_repair, step)
    assert points == -(-calls_of(do, prepare(tmp_path / "counted"), fault) // step)
    if step == 1:
        assert expected.seen >= {"not begun", "done"} | ({"begun", "nothing"} if fault is Fault.CRASH_BEFORE else set())


@STEPS
@EACH_CRASH
@NAMES
def test_a_crash_at_every_call_of_an_undo(name: str, fault: Fault, step: int, stores: Stores, tmp_path: Path) -> None:
    expected = Expected(stores, name, tmp_path)
    for prepare in (stores.new, stores.half):
        do = partial(ran, "undo", "--yes")
        points = crash_points(tmp_path, fault, partial(prepare, name), do, expected.check_undo, step)
        assert points == -(-calls_of(do, prepare(name, tmp_path / f"counted-{prepare.__name__}"), fault) // step)
    if step == 1 and fault is Fault.CRASH_BEFORE:
        assert expected.seen == {"begun", "done", "undoing", "not begun", "nothing"}


@STEPS
@EACH_CRASH
def test_a_crash_at_every_call_of_a_drop(fault: Fault, step: int, stores: Stores, tmp_path: Path) -> None:
    for name in REPAIRS:
        expected = Expected(stores, name, tmp_path / name)
        prepare, do = partial(stores.new, name), partial(ran, "undo", "--drop", "--yes")
        points = crash_points(tmp_path / name, fault, prepare, do, expected.check_drop, step)
        assert points == -(-calls_of(do, prepare(tmp_path / name / "counted"), fault) // step)
        assert step > 1 or fault is Fault.CRASH_WITHIN or expected.seen == {"done", "not begun"}


def suspend_rebuild(root: Path) -> None:
    """As Ctrl-C does it."""
    with Journal.begin(root, "rebuild", "", WritableStorage(root)) as journal:
        with closing(ReadOnlyStore(root)) as store:
            assert not Rebuild(store, Selection(), journal.staging).run(lambda: True)
        journal.suspend()


def with_suspended_rebuild(stores: Stores, root: Path) -> None:
    stores.old("rebuild", root)
    suspend_rebuild(root)


@STEPS
@EACH_CRASH
def test_a_crash_at_every_call_of_a_rebuild_that_is_suspended(
    fault: Fault, step: int, stores: Stores, tmp_path: Path
) -> None:
    expected = Expected(stores, "rebuild", tmp_path)
    crash_points(tmp_path, fault, partial(stores.old, "rebuild"), suspend_rebuild, expected.check_repair, step)
    assert expected.seen <= {"nothing", "not begun"}


@STEPS
@EACH_CRASH
def test_a_crash_at_every_call_of_a_rebuild_that_is_resumed(
    fault: Fault, step: int, stores: Stores, tmp_path: Path
) -> None:
    expected = Expected(stores, "rebuild", tmp_path)
    prepare, do = partial(with_suspended_rebuild, stores), partial(ran, "rebuild", "--resume", "--yes")
    prepare(tmp_path / "counted")
    calls = calls_of(lambda root: do(root, "all"), tmp_path / "counted", fault)
    points = crash_points(tmp_path, fault, prepare, lambda root: do(root, "all"), expected.check_repair, step)
    assert points == -(-calls // step)
    assert step > 1 or expected.seen >= {"not begun", "done"}


def assert_one_line(result: Result, root: Path) -> None:
    """Behind what the plan says: the store, or the file in it that the call was about."""
    assert result.code == 4
    assert re.match(rf"rmqctl: {re.escape(str(root))}(/[^:]+)?: ", result.err.splitlines()[-1])
    assert sum(line.startswith("rmqctl: ") for line in result.err.splitlines()) == 1  # a path may end in `.rmqctl: `


@ERROR_STEPS
@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.IO_ERROR, Fault.FULL_DISK, Fault.DEAD_DISK])
@NAMES
def test_an_error_at_every_call_of_a_repair(name: str, fault: Fault, step: int, stores: Stores, tmp_path: Path) -> None:
    """The store is as before, without a trace; where the disk stays dead, or full, it may be half
    changed and says so.
    """
    expected = Expected(stores, name, tmp_path)
    errors = 0
    for system in every_fault(tmp_path, fault, step):
        root = stores.old(name, system.root)
        result = failed(system, partial(stores.repair, name), root)
        if result.code == REPAIRS[name].code:
            assert not system.happened or fault is Fault.FULL_DISK, str(system)
            continue
        assert_one_line(result, root)
        errors += 1
        if fault in (Fault.DEAD_DISK, Fault.FULL_DISK):
            assert ("half changed" in result.err) is (states(root) == [JournalState.BEGUN])
            expected.check_killed(root)
        else:
            assert result.err.endswith(("; the store is as it was before", "; nothing was changed"))
            assert tree(root) == expected.old, str(system)
    assert errors == -(-system.calls // step) or fault is Fault.FULL_DISK
    assert errors > 0


class InterruptedSystem(FaultySystem):
    """Ctrl-C comes before a call."""

    def _crash(self) -> None:
        raise KeyboardInterrupt


@STEPS
@pytest.mark.parametrize("name", ["cut", "short-file", "truncate", "set-offset"])
def test_an_interruption_at_every_call_of_a_repair(name: str, step: int, stores: Stores, tmp_path: Path) -> None:
    """The store is as before, without a trace."""
    old = tree(stores.old(name, tmp_path / "old"))
    for at in count(1, step):
        system = InterruptedSystem(tmp_path / str(at), Fault.CRASH_BEFORE, at)
        result = failed(system, partial(stores.repair, name), stores.old(name, system.root))
        if not system.happened:
            break
        assert (result.code, result.err.splitlines()[-1]) == (130, "rmqctl: interrupted")
        assert result.err.splitlines()[:-1] in ([], ["nothing was changed", ""], [""])
        assert tree(system.root) == old, str(system)
        shutil.rmtree(system.root)
    assert result.code == REPAIRS[name].code


@ERROR_STEPS
@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.DEAD_DISK])
@NAMES
def test_an_undo_that_failed_is_gone_on_with(
    name: str, fault: Fault, step: int, stores: Stores, tmp_path: Path
) -> None:
    expected = Expected(stores, name, tmp_path)
    is_begun = False
    for system in every_fault(tmp_path, fault, step):
        root = stores.new(name, system.root)
        repaired = tree(root)
        result = failed(system, lambda root: ran("undo", root, "--yes"), root)
        assert (result.code != 0) is system.happened or fault is Fault.FULL_DISK
        if result.code != 0:
            assert_one_line(result, root)
            if tree(root) == repaired:
                assert result.err.endswith(("; nothing was changed", " goes on with it)"))
            else:
                is_begun = True
                assert result.err.endswith(f"; the undo did not come to its end (rmqctl undo {root} goes on with it)")
            expected.check_told(root)
        expected.check_undone(root)
    assert is_begun or step == SAMPLED


@ERROR_STEPS
@NAMES
def test_short_writes_are_gone_on_with(name: str, step: int, stores: Stores, tmp_path: Path) -> None:
    expected = Expected(stores, name, tmp_path)
    for system in every_fault(tmp_path, Fault.SHORT_WRITE, step):
        root = stores.old(name, system.root)
        assert failed(system, partial(stores.repair, name), root).code == REPAIRS[name].code
        expected.assert_new(root)


KILLED = """
import sys
import time
from rmqctl.cli.main import main
from tests.support.faulty_system import DeadlySystem
at, *sys.argv[1:] = sys.argv[1:]
with DeadlySystem(int(at)):
    main()
"""


@pytest.mark.parametrize("kills", [pytest.param(KILLS, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize(("name", "verb"), [("cut", "repair"), ("rebuild", "repair"), ("cut", "undo")])
def test_a_process_that_is_killed(name: str, verb: str, kills: int, stores: Stores, tmp_path: Path) -> None:
    """By SIGKILL, at moments that are spread over its run."""
    expected = Expected(stores, name, tmp_path)
    prepare = stores.old if verb == "repair" else stores.new
    command = stores.command(name, tmp_path / "store") if verb == "repair" else ["undo", str(tmp_path / "store")]
    prepare(name, tmp_path / "store")
    calls = calls_of(lambda _: ran(*command, "--yes"), tmp_path / "store", Fault.CRASH_BEFORE)
    for kill in range(kills):
        shutil.rmtree(tmp_path / "store")
        prepare(name, tmp_path / "store")
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str((kill + 1) * calls // (kills + 1)), *command, "--yes"],
            capture_output=True,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        expected.check_killed(tmp_path / "store")
    assert kills < KILLS or ("begun" if verb == "repair" else "undoing") in expected.seen
