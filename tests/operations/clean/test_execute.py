"""What `clean` does to a store, with a plan made by hand: the order, the receipts, the pace, and its end at every
storage call.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rmqctl.errors import ChangedSince, ChangeFailed, NeedsRecovery, StoreInUse
from rmqctl.forensics.audit.cleaned import RECEIPTS_NAME
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.clean.execute import Clean, Cleaned, Leftover, Pace, leftovers, locked, wait_for_lock
from rmqctl.operations.clean.plan_types import ExpiryPlan, FileDecision
from rmqctl.operations.clean.receipts import Receipts
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.journal.journals import to_json
from rmqctl.store.journal.manifest import Manifest
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.faulty_system import ERRORS, Fault, FaultySystem, crash_points, every_fault
from tests.support.journaled_store import tree, without_times
from tests.support.small_store import created, message

FILE_SIZE = 2048
GEOMETRY = Geometry(FILE_SIZE, 100, 4, 8)
MESSAGES = 60
NEW_MIN = 3 * FILE_SIZE
RETIRED = "Retired"  # a topic that is no more; its messages stand at the log's begin
WHY = "72 h are over"
# all calls, which takes minutes; otherwise a sample
STEPS = pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.slow, id="each"), pytest.param(13, id="some")]
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "store"
    store = created(root, geometry=GEOMETRY)
    for number in range(MESSAGES):
        topic = RETIRED if number < 4 else "OrderPaid"
        assert store.put_message(
            message(number, topic=topic, queue_id=number % 2, properties={"KEYS": f"k{number}"})
        ).is_ok
    store.close()
    return root


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


def going(root: Path) -> list[str]:
    """What is to go that is still there, in order."""
    with closing(ReadOnlyStore(root)) as store:
        found = [file.path for file in store.commit_log.queue.files if file.end <= NEW_MIN]
        for (topic, _), queue in sorted(store.queues.items()):
            files = queue.queue.files if topic == RETIRED else queue.queue.files[:-1]
            for file in files:
                last = queue.find(file.end // 20 - 1)
                if topic == RETIRED or (last is not None and last.physical_offset < NEW_MIN):
                    found.append(file.path)
        for index_file in store.index.files[:-1]:
            header = index_file.header()
            if header is not None and header.end_phy_offset < NEW_MIN:
                found.append(index_file.file.path)
    return [str(path.relative_to(root)) for path in found]


def plan_of(root: Path) -> ExpiryPlan:
    decisions = [
        FileDecision(path, path.split("/")[0], (root / path).stat().st_size, 4096, True, WHY, 0)  # type: ignore[arg-type]
        for path in going(root)
    ]
    retired = root / "consumequeue" / RETIRED
    folders = [*sorted(retired.iterdir()), retired] if retired.exists() else []
    names = tuple(str(folder.relative_to(root)) for folder in folders)
    return ExpiryPlan("time", WHY, 4, "UTC", tuple(decisions), 0, NEW_MIN, (), (), names)


def clean(
    root: Path, plan: ExpiryPlan | None = None, pace: Pace | None = None, stops: Callable[[], bool] = lambda: False
) -> Cleaned:
    storage = WritableStorage(root)
    plan = plan or plan_of(root)
    with locked(storage, root), Receipts(storage, root / RECEIPTS_NAME) as receipts:
        return Clean(storage, root, plan, receipts, pace or Pace(0, None), stops).run()


def receipts_of(root: Path) -> list[str]:
    """The paths in the log of receipts; a line that a crash cut is passed over."""
    log = root / RECEIPTS_NAME
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line)["path"] for line in lines if line.startswith("{") and line.endswith("}")]


def names(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def content(root: Path) -> dict[str, bytes | None]:
    return {path: data for path, data in without_times(tree(root)).items() if path not in (RECEIPTS_NAME, ".")}


def messages_from(root: Path, offset: int) -> list[int]:
    with closing(ReadOnlyStore(root)) as store:
        places: list[int] = [
            item.physical_offset for item in store.commit_log.scan(ScanSummary()) if hasattr(item, "body_crc")
        ]
    return [place for place in places if place >= offset]


def assert_loads(root: Path) -> None:
    """Nothing is missing in the middle, and the engine opens a copy and goes on with it."""
    found = names(root)
    assert found == list(range(found[0], found[-1] + 1, FILE_SIZE))
    assert found[0] <= NEW_MIN
    copy = root.with_name(f"{root.name}-loaded")
    shutil.copytree(root, copy)
    store = MessageStore(copy, geometry=GEOMETRY)
    assert store.put_message(message(999)).is_ok
    store.close()
    shutil.rmtree(copy)


class Expected:
    """The store before, and after a clean that nothing disturbed."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self.whole = whole
        self.going = going(whole)
        root = self.old(folder / "expected")
        clean(root)
        self.new = content(root)
        self.messages = messages_from(whole, NEW_MIN)

    def old(self, root: Path) -> Path:
        return shutil.copytree(self.whole, root)

    def check(self, root: Path, *, with_receipts: bool = True) -> None:
        """Whatever happened: it loads, each file is there or gone for good, and the next clean finishes the work."""
        assert_loads(root)
        removed = [path for path in self.going if not (root / path).exists()]
        assert removed == self.going[: len(removed)]
        clean(root)
        assert content(root) == self.new
        assert set(receipts_of(root)) >= set(self.going) or not with_receipts
        assert messages_from(root, NEW_MIN) == self.messages
        assert not (root / ".rmqctl").exists()

    def check_crash(self, system: FaultySystem) -> None:
        left = system.root.with_name(f"{system.root.name}-left")
        system.after_power_failure(left, random.Random(system.at) if system.at % 3 else None)
        self.check(left)
        shutil.rmtree(left)
        self.check(system.root)


def test_what_goes_is_gone_and_the_rest_is_as_it_was(whole: Path, tmp_path: Path) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    before, plan = tree(root), plan_of(root)
    kinds = [decision.kind for decision in plan.files]
    assert {"commitlog", "consumequeue", "index"} == set(kinds)
    done = clean(root, plan)
    assert done == Cleaned(len(kinds), len(plan.folders), 0, len(kinds) * 4096)
    after = tree(root)
    stays = {path for path in before if path not in going(whole) and f"/{RETIRED}" not in path}
    assert after.keys() - {RECEIPTS_NAME} == stays
    assert {path: after[path] for path in stays if after[path][0] is not None} == {
        path: before[path] for path in stays if before[path][0] is not None
    }
    assert receipts_of(root) == [decision.path for decision in plan.files]
    assert not leftovers(WritableStorage(root), root)
    assert_loads(root)


def test_a_receipt_says_what_went_and_why(whole: Path, tmp_path: Path) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    clean(root)
    first = json.loads((root / RECEIPTS_NAME).read_text().splitlines()[0])
    assert (first["path"], first["kind"], first["bytes"], first["allocatedBytes"], first["why"]) == (
        f"commitlog/{0:020d}",
        "commitlog",
        FILE_SIZE,
        4096,
        WHY,
    )
    assert first["time"].startswith("20")


def test_receipts_are_appended_and_a_line_that_was_cut_is_ended(whole: Path, tmp_path: Path) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    (root / RECEIPTS_NAME).write_text('{"path":"an old one"}\n{"path":"cu')
    clean(root)
    lines = (root / RECEIPTS_NAME).read_text().splitlines()
    assert lines[:2] == ['{"path":"an old one"}', '{"path":"cu']
    assert [json.loads(line)["path"] for line in lines[2:]] == going(whole)


@STEPS
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_WITHIN])
def test_a_crash_at_every_call(fault: Fault, step: int, whole: Path, tmp_path: Path) -> None:
    expected = Expected(whole, tmp_path)
    points = crash_points(tmp_path, fault, expected.old, clean, expected.check_crash, step)
    assert points * step >= len(expected.going)


def tried(root: Path) -> str:
    """Clean, and what went wrong."""
    try:
        clean(root)
    except (ChangeFailed, OSError) as error:
        return str(error)
    return ""


@STEPS
@pytest.mark.parametrize("fault", ERRORS)
def test_an_error_at_every_call(fault: Fault, step: int, whole: Path, tmp_path: Path) -> None:
    """One line says how far it came; where the lock could not be had nothing is changed, and main says it."""
    expected = Expected(whole, tmp_path)
    failed = 0
    for system in every_fault(tmp_path, fault, step):
        expected.old(system.root)
        with system:
            error = tried(system.root)
        failed += bool(error)
        assert not error or "nothing is missing in the middle" in error or content(system.root) == content(whole)
        expected.check(system.root, with_receipts=fault is not Fault.FULL_DISK)
    assert failed > 0 or fault in (Fault.TORN_WRITE, Fault.SHORT_WRITE, Fault.NO_SPACE)  # which are continued


def test_a_full_disk_does_not_keep_files_from_being_deleted(whole: Path, tmp_path: Path) -> None:
    """No room for a folder nor for receipts: what goes goes, and then says that it has no receipts."""
    root = shutil.copytree(whole, tmp_path / "store")
    expected = Expected(whole, tmp_path)
    with FaultySystem(root, Fault.FULL_DISK, 3), pytest.raises(ChangeFailed, match="No space left"):  # after the lock
        clean(root)
    assert not [path for path in expected.going if (root / path).exists()]


@STEPS
def test_another_disk_has_no_place_for_them(
    step: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are unlinked where they are."""
    monkeypatch.setattr(WritableStorage, "rename", lambda *_: False)
    expected = Expected(whole, tmp_path)
    points = crash_points(tmp_path, Fault.CRASH_BEFORE, expected.old, clean, expected.check_crash, step)
    assert points * step >= len(expected.going)


def test_what_an_interrupted_clean_left_goes(whole: Path, tmp_path: Path) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    clean(root)
    left = root / ".rmqctl/expired/commitlog:00000000000000006144"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * 10)
    allocated = left.stat().st_blocks * 512
    assert leftovers(WritableStorage(root), root) == [Leftover(left, "commitlog/00000000000000006144", 10, allocated)]
    assert clean(root) == Cleaned(left=1, allocated_bytes=allocated)
    assert not (root / ".rmqctl").exists()
    assert receipts_of(root)[-1] == "commitlog/00000000000000006144"


def test_a_folder_in_the_place_of_what_was_left_is_not_entered(whole: Path, tmp_path: Path) -> None:
    """`clean` makes none there. A forged chain of 1,500 folders held it for a minute."""
    root = shutil.copytree(whole, tmp_path / "store")
    strange = root / ".rmqctl/expired/a/b/file"
    strange.parent.mkdir(parents=True)
    strange.write_bytes(b"x")
    assert leftovers(WritableStorage(root), root) == []
    clean(root)
    assert strange.exists()


def test_it_stops_between_two_files(whole: Path, tmp_path: Path) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    answers = iter([False, False, True])
    done = clean(root, stops=lambda: next(answers))
    assert done.files == 2
    assert names(root)[0] == 2 * FILE_SIZE
    Expected(whole, tmp_path).check(root)


@pytest.mark.parametrize(
    ("interval_ms", "bytes_per_second", "seconds"),
    [(100, None, 0.1), (0, None, None), (100, 1024, 4.0), (5000, 1024, 5.0), (0, 8192, 0.5)],
)
def test_the_pace(
    interval_ms: int, bytes_per_second: int | None, seconds: float | None, whole: Path, tmp_path: Path
) -> None:
    """Between two files, not before the first nor after the last; of 4096 bytes each."""
    root = shutil.copytree(whole, tmp_path / "store")
    slept: list[float] = []
    done = clean(root, pace=Pace(interval_ms, bytes_per_second, slept.append))
    assert slept == ([] if seconds is None else [seconds] * (done.files - 1))


def test_a_store_in_use_is_left_alone(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    monkeypatch.setattr(WritableStorage, "lock", lambda *_: None)
    before = tree(root)
    with pytest.raises(StoreInUse):
        clean(root)
    assert tree(root) == before


def test_waiting_for_the_lock(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    holders = iter([7, 7, 7, None])
    monkeypatch.setattr(WritableStorage, "lock_holder", lambda *_: next(holders))
    wait_for_lock(WritableStorage(whole), whole, 60, slept.append)
    assert len(slept) == 3
    monkeypatch.setattr(WritableStorage, "lock_holder", lambda *_: 7)
    for seconds in (2, 0.2, 0.75):
        slept.clear()
        wait_for_lock(WritableStorage(whole), whole, seconds, slept.append)
        assert sum(slept) == seconds


def test_a_store_that_is_half_changed_is_left_alone(whole: Path, tmp_path: Path) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    plan = plan_of(root)
    journal = root / ".rmqctl/journal/0001-recover"
    journal.mkdir(parents=True)
    manifest = Manifest("recover", "", 0, [], [], [], [], {".": 0}, {})
    (journal / "journal.json").write_bytes(to_json(manifest))
    before = content(root)
    with pytest.raises(NeedsRecovery):
        clean(root, plan)
    assert content(root) == before


def test_a_store_that_changed_meanwhile_is_left_alone(whole: Path, tmp_path: Path) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    with closing(ReadOnlyStore(root)) as store:
        fingerprint = store.fingerprint()
        store.check_as_it_was(fingerprint)
        os.utime(root / "commitlog" / f"{0:020d}", (1, 1))
        with pytest.raises(ChangedSince, match="nothing was changed by this"):
            store.check_as_it_was(fingerprint)
