"""Timers in RocksDB: what a start delivers from a database that is whole, behind, or gone.

Asked of the real 5.5.0 with timerRocksDBEnable: 30 messages, 10 delivered before it stopped, the others due while it
was down. After a clean stop: 20 of 20, none twice. Without the database: 20, and all 10 again; as after a crash, which
leaves none. Without the database after another start and stop: 0 of 20. If none was due before it stopped: 0 of 20.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
from pathlib import Path

import pytest

from rmqctl.forensics.audit.timer_audit import audit_timers
from rmqctl.forensics.groups.waiting_timers import timers_by_log
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.timer.timer_message import MS_MAX, TimerMessage, timer_message
from rmqctl.store.timer.timer_start import timer_start, to_deliver
from tests.conftest import Golden, Rmqctl, tree_hash, unpack
from tests.support.databases import timer_row, write_database
from tests.support.lock_holder import lock_held

WAITING, DELIVERED = 25, 460
SOON_MS = 1_795_400_000_000  # hours after broker-550 died: some messages are due, and others not yet
UNDELIVERED, REPEATS = "timer-undelivered", "timer-repeats"
IN_DATABASE = BrokerConf(timers_in_database=True)


@pytest.fixture(autouse=True)
def _now_is_soon_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: SOON_MS * 1_000_000)


@pytest.fixture
def root(golden: Golden) -> Path:
    """A store with its timers in files, and their files removed."""
    store = golden("broker-550")
    shutil.rmtree(store / "timerlog")
    (store / "timerwheel").unlink()
    return store


def timers(root: Path) -> tuple[list[TimerMessage], int]:
    """The messages that wait, and the end of the timer's queue."""
    store = ReadOnlyStore(root)
    queue = store.queue(TIMER_TOPIC, 0)
    assert queue is not None
    waiting, end = timers_by_log(store, store.commit_log.end()[0], 1).waiting(), queue.max_offset
    store.close()
    return waiting, end


def write(root: Path, waiting: list[TimerMessage], **checkpoints: int) -> None:
    """Write the database of a broker that has read all up to `waiting`."""
    rows = dict(timer_row(one.due_ms or 0, one.unique_key or "", one.size, one.physical_offset) for one in waiting)
    rows |= {name.encode(): struct.pack(">q", value) for name, value in checkpoints.items()}
    shutil.rmtree(root / "rocksdbstore", ignore_errors=True)
    write_database(root / "rocksdbstore", {"default": {}, "timer": rows, "trans": {}})


def read_from(root: Path, queue_offset: int) -> None:
    """Let timercheck say how far the timer's queue was read."""
    with (root / "config" / "timercheck").open("r+b") as file:
        file.seek(16)
        file.write(struct.pack(">qq", queue_offset, queue_offset))


def found(root: Path, conf: BrokerConf | None = None) -> dict[str, int]:
    before, store = tree_hash(root), ReadOnlyStore(root, conf)
    findings = {one.code: one.count for one in audit_timers(store, MS_MAX)}
    store.close()
    assert tree_hash(root) == before
    return findings


def test_a_whole_database_leads_to_each_message(root: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    waiting, end = timers(root)
    in_files = rmqctl("lag", unpack("broker-550", tmp_path / "files"), "-o", "json").document()
    first = min(one.due_ms or 0 for one in waiting)
    write(root, waiting, timeline_checkpoint=first, sys_topic_scan_offset_checkpoint=end)
    assert len(waiting) == WAITING
    assert found(root) == {}
    rows = json.loads(rmqctl("queue", root, "--timer", "-o", "json").out)["timers"]
    assert sorted(row["physicalOffset"] for row in rows) == [one.physical_offset for one in waiting]
    in_database = rmqctl("lag", root, "-o", "json").document()
    assert in_database["timers"] == in_files["timers"] != []
    assert rmqctl("doctor", root, "-o", "json").document()["healthy"]


def test_without_a_timeline_what_is_overdue_never_comes(root: Path, rmqctl: Rmqctl) -> None:
    waiting, end = timers(root)
    write(root, waiting, sys_topic_scan_offset_checkpoint=end)
    overdue = sum((one.due_ms or 0) < SOON_MS - 10_000 for one in waiting)
    assert 0 < overdue < WAITING
    assert found(root) == {UNDELIVERED: overdue}
    result = rmqctl("queue", root, "--timer")
    assert f"{overdue} more messages wait, and nothing leads to them (the database has no timeline" in result.err
    assert [cause["code"] for cause in rmqctl("doctor", root, "-o", "json").document()["causes"]] == ["timer-stalled"]


def test_rebuild_writes_files_for_what_no_row_leads_to(root: Path, rmqctl: Rmqctl) -> None:
    """A broker with timerRocksDBEnable delivers from both: asked of 5.5.0, each message came once."""
    waiting, end = timers(root)
    write(root, waiting, sys_topic_scan_offset_checkpoint=end)
    overdue = [one.physical_offset for one in waiting if (one.due_ms or 0) < SOON_MS - 10_000]
    assert rmqctl("rebuild", root, "timers", "--yes").code == 3
    assert found(root) == {}
    store = ReadOnlyStore(root)
    start = timer_start(store)
    start.rows = []
    assert sorted(one.physical_offset for one in to_deliver(store, start)) == overdue
    store.close()
    assert rmqctl("rebuild", root, "timers", "--dry-run").code == 0


def test_rebuild_removes_rows_that_lead_to_delivered_messages(root: Path, rmqctl: Rmqctl) -> None:
    """Of 5.5.0 that was killed in the minutes before it flushed them: each waiting message came once then."""
    waiting, end = timers(root)
    store = ReadOnlyStore(root)
    delivered = store.commit_log.message_at(next(store.queues[TIMER_TOPIC, 0].units(0, 1)).physical_offset)
    store.close()
    assert delivered is not None
    rows = [timer_message(delivered, 0), *waiting[:10]]
    write(root, rows, timeline_checkpoint=1, sys_topic_scan_offset_checkpoint=waiting[9].queue_offset + 1)
    read_from(root, end)
    assert found(root)[REPEATS] == 1
    before = tree_hash(root)
    assert rmqctl("recover", root, "--yes").code == 3
    assert found(root, IN_DATABASE) == found(root) == {}
    assert list((root / "rocksdbstore").iterdir()) == []
    store = ReadOnlyStore(root, IN_DATABASE)
    assert sorted(to_deliver(store, timer_start(store, SOON_MS))) == waiting
    store.close()
    assert rmqctl("undo", root, "--yes").code == 0
    assert tree_hash(root) == before


def test_an_empty_database_delivers_all_again(root: Path) -> None:
    """As after a crash: it has nothing of the minutes before."""
    write(root, [])
    read_from(root, 0)
    assert found(root, IN_DATABASE) == {REPEATS: DELIVERED}


def test_a_running_broker_writes_its_rows_later(root: Path, rmqctl: Rmqctl) -> None:
    """What it has delivered is neither to come nor a reason to stop it."""
    write(root, [])
    read_from(root, 0)
    with lock_held(root):
        assert found(root, IN_DATABASE) == found(root) == {}
        (timed,) = rmqctl("lag", root, "-o", "json").document()["timers"]
        assert (
            timed["messages"]
            == len(json.loads(rmqctl("queue", root, "--timer", "-o", "json").out)["timers"])
            == WAITING
        )


def test_a_database_that_is_behind_delivers_what_it_lacks(root: Path) -> None:
    waiting, _ = timers(root)
    known = waiting[:10]
    read_from(root, 0)
    behind = {"timeline_checkpoint": 1, "sys_topic_scan_offset_checkpoint": known[-1].queue_offset + 1}
    write(root, known, **behind)
    assert UNDELIVERED not in found(root)
    assert 0 < found(root)[REPEATS] < DELIVERED


def test_without_the_database_timercheck_says_what_is_read(root: Path) -> None:
    waiting, end = timers(root)
    write(root, [])
    read_from(root, end)
    assert found(root, IN_DATABASE) == {UNDELIVERED: len(waiting)}


def test_a_row_that_leads_to_no_message_of_its_size_delivers_nothing(root: Path) -> None:
    waiting, end = timers(root)
    wrong = [waiting[0]._replace(size=waiting[0].size + 1), waiting[1]._replace(physical_offset=1), *waiting[2:]]
    write(root, wrong, timeline_checkpoint=1, sys_topic_scan_offset_checkpoint=end)
    assert found(root) == {UNDELIVERED: 2}
