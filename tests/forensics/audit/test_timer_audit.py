"""Damage to the timer's files is found, and `rebuild timers` mends it.

What a start then delivers was asked of the real 5.5.0, with 300 messages in flight and each of these kinds of damage.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqctl.forensics.audit.timer_audit import audit_timers
from rmqctl.forensics.finding import Finding
from rmqctl.forensics.groups.waiting_timers import timers_by_log, timers_by_queues
from rmqctl.kernels import dispatch_scan, scan
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.timer.timer_message import MS_MAX
from rmqctl.store.timer.timer_start import timer_start, to_deliver
from tests.conftest import Golden, Rmqctl, tree_hash
from tests.support.file_edits import write_at

WAITING = 25
HOUR_MS = 3_600_000
UNIT = 52 * 30
LOG, WHEEL, CHECK = "timerlog/00000000000000000000", "timerwheel", "config/timercheck"
MISSING, NEVER, LENGTH, REPEATS = "timer-files-missing", "timer-undelivered", "timer-file-length", "timer-repeats"


SOON_NS = 1_795_480_000 * 10**9  # a day after broker-550 died: a broker drops what is more than 7 days late


@pytest.fixture(autouse=True)
def _now_is_soon_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: SOON_NS)


def inverted(name: str, at: int, size: int) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        with (root / name).open("r+b") as file:
            file.seek(at)
            found = file.read(size)
            file.seek(at)
            file.write(bytes(255 - byte for byte in found))

    return damage


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda root: os.truncate(root / name, size)


def gone(*names: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        for name in names:
            shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()

    return damage


def ahead(root: Path) -> None:
    with (root / CHECK).open("r+b") as file:
        (read_ms,) = struct.unpack(">q", file.read(8))
        file.seek(0)
        file.write(struct.pack(">q", read_ms + 48 * HOUR_MS))


def no_damage(root: Path) -> None:
    assert root.is_dir()


DAMAGES: dict[str, tuple[Callable[[Path], None], dict[str, int]]] = {
    "none": (no_damage, {}),
    "timerlog gone": (gone("timerlog"), {MISSING: WAITING}),
    "both gone": (gone("timerlog", "timerwheel"), {MISSING: WAITING}),
    "timerwheel gone": (gone("timerwheel"), {}),  # a start makes it anew from timerlog
    "timercheck gone": (gone(CHECK), {REPEATS: 945}),
    "all gone": (gone("timerlog", "timerwheel", CHECK), {REPEATS: 460}),  # 5.5.0 reads the timer's queue from its begin
    "timercheck ahead": (ahead, {NEVER: WAITING}),
    "bad magic": (inverted(LOG, UNIT + 12, 4), {NEVER: WAITING}),
    "bad size": (inverted(LOG, UNIT, 4), {NEVER: WAITING}),
    "bad write time": (inverted(LOG, UNIT + 16, 8), {NEVER: WAITING}),
    "wheel cut": (cut(WHEEL, 20_000_000), {LENGTH: 1}),
    "timerlog cut": (cut(LOG, 10_400), {LENGTH: 1}),
    "timerlog empty": (cut(LOG, 0), {LENGTH: 1}),
    "timercheck zero": (cut(CHECK, 0), {REPEATS: 945}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_mended(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("broker-550")
    damage, expected = DAMAGES[name]
    damage(root)
    before = tree_hash(root)
    assert {one.code: one.count for one in found(root)} == expected
    assert rmqctl("rebuild", root, "timers", "--yes").code == (3 if expected else 0)
    assert found(root) == []
    store = ReadOnlyStore(root)
    waiting = [timer.physical_offset for timer in timers_by_log(store, store.commit_log.end()[0], 1).waiting()]
    assert sorted(one.physical_offset for one in to_deliver(store, timer_start(store))) == waiting
    assert waiting == [timer.physical_offset for timer in timers_by_queues(store, MS_MAX).waiting()]
    assert len(waiting) == WAITING
    store.close()
    assert rmqctl("rebuild", root, "timers", "--dry-run").code == 0
    if expected:
        assert rmqctl("undo", root, "--yes").code == 0
    assert tree_hash(root) == before


def test_a_start_needs_a_whole_wheel_without_timers_too(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5.3.3 and 5.5.0 write a timerwheel at their first start, and refuse one that is cut."""
    root = golden("broker-533")
    os.truncate(root / WHEEL, 38_707_199)
    assert [(one.code, one.path) for one in found(root)] == [(LENGTH, WHEEL)]
    assert "next: rmqctl rebuild" in rmqctl("doctor", root).out
    warmed: list[partial[None]] = []
    monkeypatch.setattr("rmqctl.cli.verbs.change.rebuild.warmed_up", warmed.append)
    assert rmqctl("rebuild", root, "timers", "--yes").code == 3
    assert [one.args for one in warmed] == [(scan, dispatch_scan)]
    assert found(root) == []
    os.truncate(root / WHEEL, 0)  # written anew
    assert found(root) == []


def test_a_cut_of_the_log_takes_the_timer_along(golden: Golden, rmqctl: Rmqctl) -> None:
    """Delivered copies behind the cut are gone, and their messages wait again."""
    root = golden("broker-550")
    store = ReadOnlyStore(root)
    copies = [unit.physical_offset for unit in store.queues["timed", 2].units(0, 100)]
    store.close()
    assert rmqctl("truncate", root, "--to", copies[1], "--yes").code == 3
    assert found(root) == []
    store = ReadOnlyStore(root)
    to_come = [one.physical_offset for one in to_deliver(store, timer_start(store))]
    assert sorted(to_come) == [timer.physical_offset for timer in timers_by_queues(store, MS_MAX).waiting()]
    assert len(to_come) > len(set(store.queues[TIMER_TOPIC, 0].units(0, 1)))
    store.close()


def test_copies_that_a_clock_stored_before_their_time(golden: Golden, rmqctl: Rmqctl) -> None:
    """A broker's timer never goes back with the clock: what is due by then is stored at once."""
    root = golden("broker-550")
    store = ReadOnlyStore(root)
    units = [unit for queue_id in (0, 2) for unit in store.queues["timed", queue_id].units(0, 100)]
    files = [store.commit_log.queue.find(unit.physical_offset) for unit in units]
    for unit, file in zip(units, files, strict=True):
        assert file is not None
        write_at(file.path, unit.physical_offset - file.file_from_offset + 56, struct.pack(">q", 1795360000000))
    assert len(timers_by_log(store, store.commit_log.end()[0], 1).waiting()) == WAITING
    store.close()
    assert found(root) == []
    assert rmqctl("rebuild", root, "timers", "--dry-run").code == 0


def test_where_nothing_leads_is_said(golden: Golden, rmqctl: Rmqctl) -> None:
    """By `queue --timer`, trace, lag, recover and doctor."""
    root = golden("broker-550")
    rows = rmqctl("queue", root, "--timer", "timed", "-o", "jsonl")
    keys = {"dueTimestamp", "dueTime", "topic", "queueId", "uniqKey", "keys", "physicalOffset", "overdue"}
    assert len(rows.rows()) == WAITING
    assert {frozenset(row) for row in rows.rows()} == {frozenset(keys)}
    assert rmqctl("lag", root, "-o", "json").document()["timers"][0]["messages"] == WAITING
    key = rows.rows()[0]["keys"]
    assert "nothing leads a broker to it" not in rmqctl("trace", root, "--key", key).out
    gone("timerlog")(root)
    assert "25 more messages wait, and nothing leads to them" in rmqctl("queue", root, "--timer").err
    assert "nothing leads a broker to it" in rmqctl("trace", root, "--key", key).out
    assert "rebuild the timer's files, for 25 waiting messages" in rmqctl("recover", root, "--dry-run").out
    doctor = rmqctl("doctor", root)
    assert f"next: rmqctl rebuild {root} timers --yes" in doctor.out
    assert rmqctl("queue", root, "timed", 1, "--timer").code == 2
    assert rmqctl("rebuild", root, "timers", "--all-topics").code == 2


def test_a_late_start_delivers_what_another_message_deletes(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it reads both again, and not in its first moments: 5.5.0 did so with 12 of 33, killed before a flush."""
    root, due_ms = golden("broker-550"), SOON_NS // 10**6 + HOUR_MS
    put = {"TIMER_OUT_MS": str(due_ms), "REAL_TOPIC": "timed", "REAL_QID": "1", "UNIQ_KEY": "u"}
    deleting = put | {"UNIQ_KEY": "v", "TIMER_DEL_UNIQKEY": "timed+u"}
    lines = [{"topic": TIMER_TOPIC, "queueId": 0, "body": "x", "properties": one} for one in (put, deleting)]
    asked = root.parent / "lines.jsonl"
    asked.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert rmqctl("append", root, "--from", asked, "--with-system-topics").code == 0

    def is_delivered(now_ms: int, is_slow: bool = True) -> bool:
        store = ReadOnlyStore(root)
        start = timer_start(store, now_ms)
        start.is_slow = is_slow
        keys = {one.unique_key for one in to_deliver(store, start)}
        store.close()
        return "u" in keys

    assert (is_delivered(due_ms), is_delivered(due_ms + 1000)) == (False, True)
    assert not is_delivered(due_ms + 1000, is_slow=False)
    monkeypatch.setattr(time, "time_ns", lambda: SOON_NS + 2 * HOUR_MS * 10**6)
    assert "1 deleted message can come, too, as a start reads them again" in rmqctl("queue", root, "--timer").err
    assert rmqctl("recover", root, "--yes").code == 3
    assert (is_delivered(due_ms), is_delivered(due_ms + 1000)) == (False, False)
    assert "can come" not in rmqctl("queue", root, "--timer").err


def linked(name: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        outside = root.parent / "outside"
        (root / name).rename(outside)
        (root / name).symlink_to(outside)

    return damage


def folder(name: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        (root / name).unlink()
        (root / name).mkdir()

    return damage


@pytest.mark.parametrize("damage", [linked("timerlog"), linked(WHEEL), folder(CHECK), folder(WHEEL), linked(CHECK)])
def test_what_is_not_read_is_no_fault(damage: Callable[[Path], None], golden: Golden, rmqctl: Rmqctl) -> None:
    """It is said, nothing is claimed of the messages, and no repair replaces it."""
    root = golden("broker-550")
    damage(root)
    before = tree_hash(root)
    verified = rmqctl("verify", root, "-o", "json")
    assert (verified.code, {one["code"] for one in verified.document()["findings"]}) == (4, {"unreadable"})
    for verb in ("queue", "lag", "doctor", "info", "recover"):
        result = rmqctl(verb, root, *(["--timer"] if verb == "queue" else ["--dry-run"] if verb == "recover" else []))
        assert result.code in (0, 4), verb
        assert "rebuild the timer's files" not in result.out
    assert rmqctl("rebuild", root, "timers", "--yes").code == 4
    assert tree_hash(root) == before


def test_messages_that_no_broker_delivers_do_not_wait(golden: Golden, rmqctl: Rmqctl) -> None:
    """Their properties name no queue or no time; and a snapshot's name of another form stays."""
    root = golden("broker-550")
    times = {"TIMER_OUT_MS": "1795465417000", "REAL_TOPIC": "timed", "REAL_QID": "1", "UNIQ_KEY": "u"}
    odd = (
        {"REAL_QID": "9" * 5000},
        {"REAL_QID": "x"},
        {"REAL_TOPIC": ""},
        {"TIMER_OUT_MS": "9" * 19},
        {"UNIQ_KEY": ""},
    )
    lines = [{"topic": TIMER_TOPIC, "queueId": 0, "body": "x", "properties": times | one} for one in odd]
    asked = root.parent / "lines.jsonl"
    asked.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert rmqctl("append", root, "--from", asked, "--with-system-topics").code == 0
    (root / "timerwheel.1.tmp").touch()
    assert len(rmqctl("queue", root, "--timer", "-o", "jsonl").rows()) == WAITING + 1  # that without UNIQ_KEY
    gone("timerlog")(root)
    assert rmqctl("rebuild", root, "timers", "--yes").code == 3
    assert found(root) == []
    assert rmqctl("rebuild", root, "timers", "--dry-run").code == 0


def found(root: Path) -> list[Finding]:
    store = ReadOnlyStore(root)
    findings = list(audit_timers(store, MS_MAX))
    store.close()
    return findings
