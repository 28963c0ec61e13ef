"""`info`: what is in a store, as its folders, ends and small files tell."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from rmqctl.errors import ExitCode
from rmqctl.format.message import Damage
from rmqctl.store.read.commit_log import CommitLog
from tests.conftest import Golden, expected, tree_hash
from tests.support.file_edits import (
    FIRST_FILE,
    LOG_FILE_SIZE,
    edit_json,
    get_unit,
    poke,
    set_unit,
    write_at,
    write_queue,
)
from tests.support.log_maker import Record, placed, sample_records, write_log

Info = Callable[..., dict[str, Any]]


@pytest.fixture
def info(capsys: pytest.CaptureFixture[str]) -> Info:
    """Runs `rmqctl info ... -o json`."""

    def call(*arguments: object) -> dict[str, Any]:
        assert run(["info", *map(str, arguments), "-o", "json"]) in (0, 1)
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return call


@pytest.mark.parametrize("name", ["326-basic", "497-basic", "497-lmq", "533-ipv6", "broker-497", "broker-533"])
def test_the_ends_of_a_log_are_the_brokers(name: str, golden: Golden, info: Info) -> None:
    root = golden(name)
    before = tree_hash(root)
    document = info(root)
    wanted = expected(name)
    times = [
        message["storeTimestamp"] for message in sorted(wanted["messages"], key=lambda row: int(row["physicalOffset"]))
    ]
    log = document["commitLog"]
    assert (log["minPhyOffset"], log["maxPhyOffset"]) == (wanted["minPhyOffset"], wanted["maxPhyOffset"])
    assert (log["firstStoreTimestamp"], log["lastStoreTimestamp"]) == (times[0], times[-1])
    messages: Counter[str] = Counter()
    for queue in wanted["queues"]:
        messages[queue["topic"]] += queue["maxOffset"] - queue["minOffset"]
    assert {row["topic"]: row["messages"] for row in document["topics"]} == {
        topic: count for topic, count in messages.items() if count
    }
    assert tree_hash(root) == before


def test_times_are_shown_in_words_too(basic: Path, info: Info) -> None:
    document = info(basic)
    assert document["commitLog"]["firstStoreTime"] == "2026-11-21T09:15:29.464Z"
    assert document["checkpoint"]["logicsMsgTime"] == "2026-11-21T09:15:29.625Z"


def test_sizes_and_counts(basic: Path, info: Info) -> None:
    document = info(basic)
    assert (document["commitLog"]["fileCount"], document["commitLog"]["fileSize"], document["commitLog"]["bytes"]) == (
        4,
        65536,
        262_144,
    )
    queues = document["consumeQueues"]
    assert (queues["topicCount"], queues["queueCount"], queues["fileCount"], queues["bytes"]) == (4, 16, 16, 16_000)
    assert (document["index"]["fileCount"], document["index"]["bytes"]) == (2, 16_880)
    assert document["anomalies"] == []


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("326-basic", "3.x"),
        ("471-basic", "4.0 to 4.9.0"),
        ("497-basic", "4.9.1 or later"),
        ("533-basic", "5.2 or 5.3"),
        ("broker-533", "5.2 or 5.3"),
    ],
)
def test_the_version_is_guessed(name: str, guess: str, golden: Golden, info: Info) -> None:
    version = info(golden(name))["version"]
    assert version["guess"].startswith(guess)
    assert version["signs"]


@pytest.mark.parametrize(
    ("name", "sign", "guess"),
    [
        ("497-basic", "abort.bak", "5.0 to 5.1.4"),
        ("497-basic", "compaction", "5.1 to 5.1.4"),
        ("533-basic", "consumequeue/CURRENT", "5.2 or 5.3"),
        ("533-basic", "config/users", "5.3"),
        ("533-basic", "kvStore", "5.3.2 to 5.3.4"),
        ("533-basic", "config/rdb", "5.3.2 to 5.3.4"),
        ("533-basic", "config/metadata", "5.4 or later"),
        ("533-basic", "consumequeue_rocksdb", "5.5 or later"),
    ],
)
def test_each_part_of_a_store_tells_since_when_brokers_write_it(
    name: str, sign: str, guess: str, golden: Golden, info: Info
) -> None:
    root = golden(name)
    (root / sign).parent.mkdir(exist_ok=True)
    (root / sign).write_bytes(b"x")
    version = info(root)["version"]
    assert (version["guess"], sign in version["signs"]) == (guess, True)
    assert version["profile"] == ("5.4" if guess >= "5.4" else "5.3")


@pytest.mark.parametrize(("end", "guess"), [(b"\x02", "4.0 to 4.9.0"), (b"", "4.9.1 or later")])
def test_the_separator_behind_the_last_property_tells_the_version(
    tmp_path: Path, info: Info, end: bytes, guess: str
) -> None:
    write_log(tmp_path, [Record(queue_offset=i, properties=b"TAGS\x01TagA" + end) for i in range(5)], file_size=4096)
    (tmp_path / "lock").write_bytes(b"lock")
    assert info(tmp_path)["version"]["guess"] == guess


@pytest.mark.parametrize("name", ["471-crash", "497-crash", "533-crash"])
def test_a_pre_allocated_file_is_named(name: str, golden: Golden, info: Info) -> None:
    root = golden(name)
    last = max(path.name for path in (root / "commitlog").iterdir())
    document = info(root)
    assert document["commitLog"]["preAllocated"] == [f"commitlog/{last}"]
    assert document["abort"] is True


def test_a_new_store_is_empty(tmp_path: Path, info: Info) -> None:
    (tmp_path / "commitlog").mkdir()
    document = info(tmp_path)
    assert (document["checkpoint"], document["abort"], document["lock"]) == (
        None,
        False,
        {"file": False, "heldBy": None},
    )
    assert (document["commitLog"]["maxPhyOffset"], document["commitLog"]["firstStoreTime"], document["topics"]) == (
        0,
        None,
        [],
    )
    assert document["version"]["guess"].startswith("3.x")


def test_expired_messages_are_not_counted(basic: Path, info: Info) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    left: Counter[str] = Counter()
    for queue in expected("497-basic")["queues"]:
        left[queue["topic"]] += sum(offset >= LOG_FILE_SIZE for _, offset, _ in queue["entries"])
    document = info(basic)
    assert {row["topic"]: row["messages"] for row in document["topics"]} == {
        topic: count for topic, count in left.items() if count
    }
    assert document["commitLog"]["minPhyOffset"] == LOG_FILE_SIZE


def test_pre_blank_units_are_no_messages(tmp_path: Path, info: Info) -> None:
    records = [Record(queue_id=0, queue_offset=10 + i, properties=b"") for i in range(5)]
    write_log(tmp_path, records, file_size=4096)
    write_queue(
        tmp_path, "OrderPaid", 0, [(0, 0x7FFFFFFF, 0)] * 10 + [(at, size, 0) for _, at, size in placed(records)]
    )
    assert info(tmp_path)["topics"] == [{"topic": "OrderPaid", "queueCount": 1, "messages": 5}]


def test_without_queues_the_end_is_found_in_the_log(tmp_path: Path, info: Info) -> None:
    records = sample_records(20)
    write_log(tmp_path, records, file_size=16384)
    _, at, size = placed(records)[-1]
    log = info(tmp_path)["commitLog"]
    assert (log["maxPhyOffset"], log["lastStoreTimestamp"]) == (at + size, records[-1].store_timestamp)


@pytest.mark.parametrize("physical_offset", [1 << 40, 2**63 - 1, 17])
def test_a_units_wrong_offset_does_not_move_the_end(basic: Path, info: Info, physical_offset: int) -> None:
    _, size, tags_code = get_unit(basic, 38)
    set_unit(basic, 38, (physical_offset, size, tags_code))
    assert info(basic)["commitLog"]["maxPhyOffset"] == expected("497-basic")["maxPhyOffset"]


@pytest.mark.parametrize("file_from_offset", [LOG_FILE_SIZE, 2 * LOG_FILE_SIZE])
def test_a_gap_between_files_is_an_anomaly(basic: Path, info: Info, file_from_offset: int) -> None:
    (basic / f"commitlog/{file_from_offset:020d}").unlink()
    document = info(basic)
    assert [anomaly["code"] for anomaly in document["anomalies"]] == ["file-gap"]
    assert document["commitLog"]["fileCount"] == 3


def test_a_first_log_file_that_cannot_be_read_is_an_anomaly(
    basic: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word, a store whose first file nobody can read would look like an empty one."""
    detail = "cannot be read: Permission denied"
    damage = Damage("unreadable", 0, LOG_FILE_SIZE, detail, path=f"commitlog/{FIRST_FILE}")
    monkeypatch.setattr(CommitLog, "at", lambda *_: damage)
    assert run(["info", str(basic), "-o", "json"]) == ExitCode.PARTIAL
    document = json.loads(capsys.readouterr().out)
    assert document["commitLog"]["firstStoreTimestamp"] is None
    assert document["anomalies"] == [{"code": "unreadable", "path": damage.path, "detail": detail}]


def test_a_stray_file_is_an_anomaly(basic: Path, info: Info) -> None:
    (basic / "commitlog/notes.txt").write_bytes(b"x")
    assert [(anomaly["code"], anomaly["path"]) for anomaly in info(basic)["anomalies"]] == [
        ("foreign-file", "commitlog/notes.txt")
    ]


@pytest.mark.parametrize("size", [0, 39])
def test_a_short_checkpoint_is_none(basic: Path, info: Info, size: int) -> None:
    (basic / "checkpoint").write_bytes((basic / "checkpoint").read_bytes()[:size])
    assert info(basic)["checkpoint"] is None


def test_the_checkpoint_is_shown_as_it_stands(basic: Path, info: Info) -> None:
    poke(basic / "checkpoint", 0, "qqqqqq", 1, 2, 3, 4, 5, 6)
    shown = info(basic)["checkpoint"]
    fields = (
        "physicMsgTimestamp",
        "logicsMsgTimestamp",
        "indexMsgTimestamp",
        "masterFlushedOffset",
        "confirmPhyOffset",
        "logicsPhysicalOffset",
    )
    assert [shown[field] for field in fields] == [1, 2, 3, 4, 5, 6]


def test_times_beyond_the_calendar_have_no_words(basic: Path, info: Info) -> None:
    poke(basic / "checkpoint", 0, "q", 2**63 - 1)
    shown = info(basic)["checkpoint"]
    assert shown["physicMsgTimestamp"] == 2**63 - 1


def test_a_deleted_topic_is_no_row(golden: Golden, info: Info) -> None:
    root = golden("broker-497")
    shutil.rmtree(root / "consumequeue/events")
    edit_json(root / "config/topics.json", lambda content: content["topicConfigTable"].pop("events"))
    assert "events" not in {row["topic"] for row in info(root)["topics"]}


def test_damage_in_the_middle_of_the_log_is_not_looked_for(basic: Path, info: Info) -> None:
    before = info(basic)
    write_at(basic / "commitlog" / f"{LOG_FILE_SIZE:020d}", 30_000, struct.pack(">1000x"))
    assert info(basic) == before
