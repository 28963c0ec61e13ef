"""What `du` counts is what a scan by `struct` alone counts, to the byte."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.forensics.space.space import By, Space
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import DATA, Rmqctl, apply_damage, damage_cases, tree_hash, unpack
from tests.support.log_maker import Record, encode

MAGIC = {0xDAA320A7: ">B", 0xDAA320AB: ">h"}  # and the field of the topic's length
BLANK, ENTRY, ENTRY_BLANK = 0xCBD43194, 1, 0xFFFFFFFF  # the last two are DLedger's
HEADER_SIZE = 48
STORES = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "471-cqext" else [])  # 50 MB to unpack
    for name in sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*-*.tar.xz"))
]
HOUR_MS = 3_600_000


class Plain(NamedTuple):
    """A message, as `struct` reads it."""

    topic: str
    queue_id: int
    size: int
    body_length: int
    store_ms: int


def plain_scan(data: bytes | bytearray, sizes: Counter[str]) -> Iterator[Plain]:
    """Yield the messages of one whole log file, and count what the other bytes are."""
    at = 0
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">II", data, at)
        if size == ENTRY:
            sizes["headerBytes"] += HEADER_SIZE
            at += HEADER_SIZE
        elif magic in MAGIC:
            queue_id, flag = struct.unpack_from(">i24xi", data, at + 12)[0], struct.unpack_from(">i", data, at + 36)[0]
            born = 8 if not flag & 16 else 20
            store_ms = struct.unpack_from(">q", data, at + 48 + born)[0]
            body_at = at + 48 + born + 8 + (8 if not flag & 32 else 20) + 12
            body_length = struct.unpack_from(">i", data, body_at)[0]
            topic_at = body_at + 4 + body_length
            topic_length = struct.unpack_from(MAGIC[magic], data, topic_at)[0]
            topic_at += struct.calcsize(MAGIC[magic])
            yield Plain(data[topic_at : topic_at + topic_length].decode(), queue_id, size, body_length, store_ms)
            at += size
        elif magic == BLANK or size == ENTRY_BLANK:
            sizes["blankBytes"] += len(data) - at
            return
        else:
            break
    assert not any(data[at:])
    sizes["unwrittenBytes"] += len(data) - at


def document(root: Path, by: By = "topic") -> dict[str, Any]:
    store = ReadOnlyStore(root, log_only=True)
    found = Space(store, by).document(2)
    store.close()
    return found


def log_folders(root: Path) -> list[Path]:
    return [folder for folder in (root / "commitlog", *root.glob("dledger-*/data")) if folder.is_dir()]


@pytest.mark.parametrize("name", STORES)
def test_each_byte_of_a_golden_store_is_accounted_for(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    files = [path for path in root.rglob("*") if path.is_file()]
    logs = [path for folder in log_folders(root) for path in sorted(folder.iterdir())]
    sizes: Counter[str] = Counter()
    messages = [message for path in logs for message in plain_scan(path.read_bytes(), sizes)]

    found = document(root, "queue")
    assert found["unaccounted"] == 0
    assert found["bytes"] == sum(path.stat().st_size for path in files) == sum(found["parts"].values())
    assert found["allocatedBytes"] == sum(path.stat().st_blocks * 512 for path in files)
    assert found["allocatedBytes"] == sum(found["allocatedParts"].values())
    for kind, part in (("bytes", "parts"), ("allocatedBytes", "allocatedParts")):
        assert found[part]["other"] == sum(one[kind] for one in found["otherParts"])
    assert found["parts"]["commitlog"] == sum(path.stat().st_size for path in logs)
    sizes["recordBytes"] = sum(message.size for message in messages)
    assert {key: size for key, size in found["commitLog"].items() if size} == {key: sizes[key] for key in +sizes}
    assert found["parts"]["config"] == sum(
        path.stat().st_size for path in files if path.is_relative_to(root / "config")
    )

    by_topic: dict[str, list[Plain]] = {}
    by_queue: dict[tuple[str, int], list[Plain]] = {}
    for message in messages:
        by_topic.setdefault(message.topic, []).append(message)
        by_queue.setdefault((message.topic, message.queue_id), []).append(message)
    for topic in found["topics"]:
        of_topic = by_topic.pop(topic["topic"], [])
        assert counts(topic) == plain_counts(of_topic)
        times = [message.store_ms for message in of_topic]
        ends = min(times, default=None), max(times, default=None)
        assert (topic["firstStoreTimestamp"], topic["lastStoreTimestamp"]) == ends
        queues = [root / part / topic["topic"] for part in ("consumequeue", "consumequeue_ext", "batchconsumequeue")]
        queue_files = [path for path in files if any(path.is_relative_to(queue) for queue in queues)]
        assert topic["queueBytes"] == sum(path.stat().st_size for path in queue_files)
    assert not by_topic
    assert {(row["topic"], row["queueId"]): counts(row) for row in found["queues"]} == {
        key: plain_counts(of_queue) for key, of_queue in by_queue.items()
    }


def counts(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["messages"], row["bytes"], row["bodyBytes"]


def plain_counts(messages: list[Plain]) -> tuple[int, int, int]:
    return len(messages), sum(one.size for one in messages), sum(one.body_length for one in messages)


def test_a_large_log_is_counted_by_kernels_as_a_small_one_is_in_python(tmp_path: Path) -> None:
    """Across runs, segments and threads; with store times that are no dates, and a record larger than the buffer."""
    records = [
        Record(
            topic=f"t{number % 7}",
            queue_id=number % 3,
            body=bytes(4 << 20 if number == 5000 else number % 997),
            store_timestamp=-5 if number % 1000 == 0 else 1_795_252_516_848 + number * 60_000,
        )
        for number in range(20_000)
    ]
    data = bytearray(40 << 20)
    end = 0
    for record in records:
        encoded = encode(record, end)
        data[end : end + len(encoded)] = encoded
        end += len(encoded)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data)
    messages = list(plain_scan(data, Counter()))
    found = document(tmp_path, "hour")
    assert {row["topic"]: counts(row) for row in found["topics"]} == {
        topic: plain_counts([one for one in messages if one.topic == topic])
        for topic in {one.topic for one in messages}
    }
    by_hour: dict[int | None, list[Plain]] = {}
    for one in messages:
        by_hour.setdefault(one.store_ms // HOUR_MS * HOUR_MS if one.store_ms >= 0 else None, []).append(one)
    assert {row["timestamp"]: counts(row) for row in found["hours"]} == {
        hour: plain_counts(of_hour) for hour, of_hour in by_hour.items()
    }
    assert [one["size"] for one in found["largest"]] == sorted((one.size for one in messages), reverse=True)[:10]
    assert found["unaccounted"] == 0


@pytest.mark.parametrize("case", ["497-basic--magic-zero-last-file-head", "497-basic--body-flip-first-normal"])
def test_damage_is_accounted_for(case: str, tmp_path: Path) -> None:
    found = damage_cases()[case]
    root = unpack(found["base"], tmp_path)
    whole = document(root)
    apply_damage(root, found["ops"])
    damaged = document(root)
    assert damaged["unaccounted"] == 0
    assert damaged["bytes"] == whole["bytes"]
    lost = whole["commitLog"]["recordBytes"] - damaged["commitLog"]["recordBytes"]
    assert lost == damaged["commitLog"]["damagedBytes"] if "magic" in case else lost == 0


def test_people_see_the_largest_first_short_names_and_what_is_not_counted(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    small, large = Record(topic="t" * 120), Record(topic="TRANS_CHECK_MAX_TIME_TOPIC", body=bytes(999))
    data = encode(small, 0)
    (root / "commitlog" / f"{0:020d}").write_bytes((data + encode(large, len(data))).ljust(1 << 16, b"\0"))
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    found = rmqctl("du", root)
    topics = [line.split(" ")[0] for line in found.out.split("\n")[4:6]]
    assert (found.code, topics) == (0, ["TRANS_CHECK_MAX_TIME_TOPIC", f"{'t' * 40}..."])
    assert "sparse 0 B on disk (1.0 GiB long)" in found.out
    assert max(map(len, found.out.split("\n")[2:6])) < 100
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=1024\n")
    found = rmqctl("du", root, "--broker-conf", tmp_path / "broker.conf")
    assert (found.code, "63.0 KiB of 1 log file are not counted" in found.err) == (4, True)


def test_a_file_with_two_names_counts_once_and_a_link_out_not_at_all(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("497-basic", tmp_path)
    before = document(root)
    backup = root / "backup"
    backup.mkdir()
    for path in (root / "commitlog").iterdir():
        (backup / path.name).hardlink_to(path)
    (root / "elsewhere").symlink_to("/usr")
    hash_before = tree_hash(root)
    after = rmqctl("du", root, "-o", "json").document()
    assert (after["bytes"], after["parts"], after["unaccounted"]) == (before["bytes"], before["parts"], 0)
    assert tree_hash(root) == hash_before
