"""Questions for one or a few messages, through index and queues or by reading the log."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from rmqctl.forensics.search import Question, Search
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Golden, Result, Rmqctl, expected
from tests.support.file_edits import FIRST_FILE, get_unit, peek, poke, set_unit, write_queue
from tests.support.log_maker import Record, java_hash, of_properties, placed, write_log

Query = Callable[..., Result]
SLOTS, ENTRIES = 100, 400
INDEX_NAME = "20261121091529472"
BODY_AT = 88


@pytest.fixture
def query(capsys: pytest.CaptureFixture[str]) -> Query:
    """Runs `rmqctl query ... -o jsonl`."""

    def call(*arguments: object) -> Result:
        code = run(["query", *map(str, arguments), "-o", "jsonl"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    return call


def offsets(result: Result) -> list[int]:
    return [row["physicalOffset"] for row in result.rows()]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["physicalOffset"]))


def of_queue(topic: str, queue_id: int) -> list[dict[str, Any]]:
    return in_order(
        [row for row in expected("497-basic")["messages"] if (row["topic"], row["queueId"]) == (topic, queue_id)]
    )


def write_index(root: Path, entries: list[tuple[str, int]], begin: int) -> None:
    """An index file with (`topic#key`, physical offset) entries."""
    slots = [0] * SLOTS
    data = bytes(20)
    for number, (text, phy_offset) in enumerate(entries, 1):
        key_hash = abs(java_hash(text)) & 0x7FFFFFFF
        data += struct.pack(">iqii", key_hash, phy_offset, 0, slots[key_hash % SLOTS])
        slots[key_hash % SLOTS] = number
    used = sum(1 for slot in slots if slot)
    header = struct.pack(">qqqqii", begin, begin, entries[0][1], entries[-1][1], used, len(entries) + 1)
    folder = root / "index"
    folder.mkdir()
    (folder / INDEX_NAME).write_bytes(
        (header + struct.pack(f">{SLOTS}i", *slots) + data).ljust(40 + 4 * SLOTS + 20 * ENTRIES, b"\0")
    )


# --- keys

WORDS = ("AaAa", "BBBB", "AaBB", "BBAa")


@pytest.fixture
def colliding(tmp_path: Path) -> Path:
    """Four keys with one hash, each on two messages; the index knows all."""
    records = [
        Record(
            queue_id=0, queue_offset=i, properties=of_properties(KEYS=WORDS[i % 4], UNIQ_KEY=f"U-{WORDS[i % 4]}-{i}")
        )
        for i in range(8)
    ]
    write_log(tmp_path, records, file_size=8192)
    found = placed(records)
    write_queue(tmp_path, "OrderPaid", 0, [(at, size, 0) for _, at, size in found])
    entries = [
        (f"OrderPaid#{key}", at)
        for i, (_, at, _) in enumerate(found)
        for key in (f"U-{WORDS[i % 4]}-{i}", WORDS[i % 4])
    ]
    write_index(tmp_path, entries, records[0].store_timestamp)
    return tmp_path


def test_the_words_share_a_hash() -> None:
    assert len({java_hash(f"OrderPaid#{word}") for word in WORDS}) == 1


@pytest.mark.parametrize("way", [(), ("--scan",)])
@pytest.mark.parametrize("word", WORDS)
def test_keys_with_one_hash_are_told_apart(colliding: Path, query: Query, word: str, way: tuple[str, ...]) -> None:
    result = query(colliding, "--topic", "OrderPaid", "--key", word, *way)
    assert result.code == 0
    assert [row["properties"]["KEYS"] for row in result.rows()] == [word, word]


def test_a_key_that_nobody_has_but_whose_hash_is_there(colliding: Path, query: Query) -> None:
    result = query(colliding, "--topic", "OrderPaid", "--key", "AaBb")
    assert (result.code, result.out) == (0, "")
    assert "no message found" in result.err


def test_unique_keys_with_one_hash_are_told_apart(colliding: Path, query: Query) -> None:
    (row,) = query(colliding, "--unique-key", "U-AaAa-0").rows()
    assert (row["queueOffset"], row["properties"]["UNIQ_KEY"]) == (0, "U-AaAa-0")
    assert query(colliding, "--unique-key", "U-BBBB-0").rows() == []


@pytest.mark.parametrize("way", [(), ("--scan",)])
def test_keys_are_found_as_the_broker_finds_them(basic: Path, query: Query, way: tuple[str, ...]) -> None:
    asked = expected("497-basic")["keyQueries"][:12]
    assert asked
    for question in asked:
        result = query(basic, "--topic", question["topic"], "--key", question["key"], *way)
        assert result.code == 0
        assert set(question["physicalOffsets"]) <= set(offsets(result))
        assert offsets(result) == sorted(offsets(result))


def test_a_key_belongs_to_a_topic(basic: Path, query: Query) -> None:
    assert len(query(basic, "--topic", "OrderPaid", "--key", "order-0").rows()) == 1
    assert query(basic, "--topic", "audit-log", "--key", "order-0").rows() == []
    assert query(basic, "--topic", "nobody", "--key", "order-0").rows() == []


@pytest.mark.parametrize("way", [(), ("--scan",)])
@pytest.mark.parametrize("topic", [(), ("--topic", "stock_change")])
def test_a_unique_key_without_and_with_its_topic(
    basic: Path, query: Query, topic: tuple[str, ...], way: tuple[str, ...]
) -> None:
    (row,) = query(basic, "--unique-key", "0A010200000000000000000000000003", *topic, *way).rows()
    assert (row["topic"], row["physicalOffset"]) == ("stock_change", 1053)


def test_a_unique_key_of_another_topic(basic: Path, query: Query) -> None:
    result = query(basic, "--unique-key", "0A010200000000000000000000000003", "--topic", "OrderPaid")
    assert (result.code, result.out) == (0, "")


def test_a_word_of_keys_is_no_unique_key(basic: Path, query: Query) -> None:
    assert query(basic, "--unique-key", "order-0").rows() == []
    assert query(basic, "--unique-key", "order-0", "--scan").rows() == []


def test_a_damaged_message_is_shown_with_its_damage(basic: Path, query: Query) -> None:
    (byte,) = peek(basic / "commitlog" / FIRST_FILE, BODY_AT, "B")
    poke(basic / "commitlog" / FIRST_FILE, BODY_AT, "B", byte ^ 1)
    for way in (("--topic", "OrderPaid", "--key", "order-0"), ("--unique-key", "0A010200000000000000000000000000")):
        result = query(basic, *way)
        (row,) = result.rows()
        assert row["physicalOffset"] == 0
        assert row["damage"]
        assert result.code == 1
        assert "bad-body-crc" in result.err


def test_an_index_entry_that_leads_to_no_message(colliding: Path, query: Query) -> None:
    poke(colliding / "index" / INDEX_NAME, 40 + 4 * SLOTS + 2 * 20 + 4, "q", 4)  # of entry 2
    result = query(colliding, "--topic", "OrderPaid", "--key", "AaAa")
    assert result.code == 1
    assert "index-dangling at 4: an index entry leads here, but there is no message (bad-magic)" in result.err


def test_without_an_index_there_is_scan(basic: Path, query: Query) -> None:
    shutil.rmtree(basic / "index")
    for way in (("--topic", "OrderPaid", "--key", "order-0"), ("--unique-key", "0A010200000000000000000000000000")):
        result = query(basic, *way)
        assert result.code == 4
        assert result.out == ""
        assert "--scan" in result.err
        assert offsets(query(basic, *way, "--scan")) == [0]


@pytest.mark.parametrize("size", [0, 20, 100, 500])
def test_a_cut_index_file_is_a_finding(size: int, basic: Path, query: Query) -> None:
    for number, index_file in enumerate(sorted((basic / "index").iterdir())):
        if not number:
            cut = index_file.name
            os.truncate(index_file, size)
    result = query(basic, "--topic", "OrderPaid", "--key", "no-such-key")
    assert (result.code, result.out) == (1, "")
    assert f"damage: index-length in index/{cut}: " in result.err
    assert "--scan" in result.err


def test_the_only_index_file_is_cut(colliding: Path, query: Query) -> None:
    (index_file,) = (colliding / "index").iterdir()
    os.truncate(index_file, 100)
    result = query(colliding, "--topic", "t", "--key", "no-such-key")
    assert result.code == 1
    assert f"index-length in index/{index_file.name}" in result.err
    assert "covers the log nothing" not in result.err


# --- ids


@pytest.mark.parametrize("way", [(), ("--scan",)])
def test_an_id_in_either_case(basic: Path, query: Query, way: tuple[str, ...]) -> None:
    message = expected("497-basic")["messages"][7]
    for msg_id in (message["msgId"], message["msgId"].lower()):
        (row,) = query(basic, "--msg-id", msg_id, *way).rows()
        assert (row["physicalOffset"], row["msgId"]) == (message["physicalOffset"], message["msgId"])


def test_an_id_of_56_digits(golden: Golden, query: Query) -> None:
    root = golden("471-ipv6")
    message = next(row for row in expected("471-ipv6")["messages"] if len(row["msgId"]) == 56)
    (row,) = query(root, "--msg-id", message["msgId"].lower()).rows()
    assert row["physicalOffset"] == message["physicalOffset"]


def test_an_id_of_another_broker(basic: Path, query: Query) -> None:
    result = query(basic, "--msg-id", "0A000001" + "00002A9F" + f"{452:016X}")
    assert (result.code, result.out) == (0, "")
    assert "another broker" in result.err


def test_an_id_outside_the_log(basic: Path, query: Query) -> None:
    result = query(basic, "--msg-id", "C0A80709" + "00002A9F" + f"{1 << 40:016X}")
    assert (result.code, result.out) == (0, "")
    assert str(1 << 40) in result.err


@pytest.mark.parametrize("msg_id", ["", "xyz", "C0A8070900002A9F", "G" * 32, "0" * 33])
def test_what_is_no_id(basic: Path, query: Query, msg_id: str) -> None:
    result = query(basic, "--msg-id", msg_id)
    assert result.code == 2
    assert "--msg-id" in result.err


# --- queue offsets

QUEUE = ("--topic", "OrderPaid", "--queue", 0)


@pytest.mark.parametrize("way", [(), ("--scan",)])
def test_every_offset_of_a_queue(basic: Path, query: Query, way: tuple[str, ...]) -> None:
    messages = of_queue("OrderPaid", 0)
    for number in (0, 1, 20, 37, 38):
        (row,) = query(basic, *QUEUE, "--offset", number, *way).rows()
        assert (row["physicalOffset"], row["queueOffset"]) == (messages[number]["physicalOffset"], number)


@pytest.mark.parametrize("number", [39, 49, 50, 10**9, 2**62])
def test_offsets_behind_the_queue(basic: Path, query: Query, number: int) -> None:
    result = query(basic, *QUEUE, "--offset", number)
    assert (result.code, result.out) == (0, "")
    assert "[0, 39)" in result.err


def test_offsets_before_the_queue(basic: Path, query: Query) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    result = query(basic, *QUEUE, "--offset", 0)
    assert (result.code, result.out) == (0, "")
    assert result.err


@pytest.mark.parametrize("queue", [("OrderPaid", 4), ("nobody", 0)])
def test_a_queue_that_is_not_there(basic: Path, query: Query, queue: tuple[str, int]) -> None:
    result = query(basic, "--topic", queue[0], "--queue", queue[1], "--offset", 0)
    assert result.code not in (0, 1)
    assert f"{queue[0]}/{queue[1]}" in result.err


def test_a_unit_that_points_at_another_queues_message(basic: Path, query: Query) -> None:
    _, _, tags_code = get_unit(basic, 5)
    set_unit(basic, 5, (452, 496, tags_code))
    result = query(basic, *QUEUE, "--offset", 5)
    assert result.code == 1
    assert all(row["queueId"] == 1 for row in result.rows())
    assert result.err


def test_a_unit_that_points_at_another_message_of_its_queue(basic: Path, query: Query) -> None:
    set_unit(basic, 5, get_unit(basic, 6))
    assert query(basic, *QUEUE, "--offset", 5).code == 1


def test_a_unit_that_points_into_a_record(basic: Path, query: Query) -> None:
    physical_offset, size, tags_code = get_unit(basic, 5)
    set_unit(basic, 5, (physical_offset + 4, size, tags_code))
    result = query(basic, *QUEUE, "--offset", 5)
    assert (result.code, result.out) == (1, "")


# --- times


@pytest.mark.parametrize("way", [(), ("--scan",)])
def test_the_first_message_stored_then_or_later(basic: Path, query: Query, way: tuple[str, ...]) -> None:
    messages = of_queue("OrderPaid", 0)
    times = sorted({row["storeTimestamp"] for row in messages})
    asked = [0, times[0] - 1, *(time + more for time in times[:3] + times[-3:] for more in (0, 1)), times[-1]]
    for time in asked:
        later = [row["physicalOffset"] for row in messages if row["storeTimestamp"] >= time]
        result = query(basic, *QUEUE, "--at", time, *way)
        assert (result.code, offsets(result)) == (0, later[:1])


@pytest.mark.parametrize("name", ["326-tx-crash", "497-lmq", "514-tx", "533-batch"])
def test_a_scan_finds_the_message_that_the_queue_finds(name: str, golden: Golden) -> None:
    """Prepared and rolled back records are in no queue; those of a light queue are records of other topics."""
    store = ReadOnlyStore(golden(name))
    for (topic, queue_id), queue in sorted(store.queues.items()):
        units = list(queue.units(*queue.min_and_max(store.commit_log.min_offset)))
        messages = [store.commit_log.message_at(unit.physical_offset) for unit in (units[:1] + units[-1:])]
        for time in {message.store_timestamp + more for message in messages if message is not None for more in (0, 1)}:
            asked = Search(store, Question(topic, queue_id=queue_id, at=time))
            assert list(asked.rows()) == list(asked.by_scan())
    store.close()


def test_a_time_after_all_messages(basic: Path, query: Query) -> None:
    result = query(basic, *QUEUE, "--at", "2100-01-01T00:00:00Z")
    assert (result.code, result.out) == (0, "")
    assert "no message found" in result.err


def test_a_time_before_the_start_of_the_log(basic: Path, query: Query) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    first = next(row for row in of_queue("OrderPaid", 0) if row["physicalOffset"] >= 65536)
    assert offsets(query(basic, *QUEUE, "--at", 0)) == [first["physicalOffset"]]


def test_times_of_a_queue_that_begins_with_pre_blank_units(tmp_path: Path, query: Query) -> None:
    records = [
        Record(queue_id=0, queue_offset=10 + i, properties=b"", store_timestamp=1_795_252_516_848 + 1000 * i)
        for i in range(5)
    ]
    write_log(tmp_path, records, file_size=4096)
    units = [(0, 0x7FFFFFFF, 0)] * 10 + [(at, size, 0) for _, at, size in placed(records)]
    write_queue(tmp_path, "OrderPaid", 0, units)
    for at, number in ((0, 10), (1_795_252_516_849, 11), (1_795_252_520_848, 14)):
        (row,) = query(tmp_path, *QUEUE, "--at", at).rows()
        assert row["queueOffset"] == number
    assert query(tmp_path, *QUEUE, "--offset", 3).rows() == []


# --- what the index does not cover


@pytest.mark.parametrize("name", ["326-tx-crash", "497-basic", "497-tx", "550-crash"])
def test_a_whole_index_leaves_nothing_to_scan(golden: Golden, query: Query, name: str) -> None:
    """endPhyOffset is where the last record with an entry begins, and records without keys need no entry."""
    result = query(golden(name), "--topic", "OrderPaid", "--key", "nosuch")
    assert result.code == 0
    assert "--scan" not in result.err


@pytest.mark.parametrize("missing", [0, 1])
def test_what_no_index_file_covers_is_said(basic: Path, query: Query, missing: int) -> None:
    files = sorted((basic / "index").iterdir())
    begin, end = (peek(files[missing], 16 + 8 * i, "q")[0] for i in range(2))
    files[missing].unlink()
    result = query(basic, "--topic", "OrderPaid", "--key", "nosuch")
    (said,) = [line for line in result.err.splitlines() if "--scan" in line]
    first, last = said.split("from ")[1].split(": ")[0].split(" to ")
    assert int(first) <= begin
    assert last == "its end" or int(last) >= end


# --- questions that are none


@pytest.mark.parametrize(
    "question",
    [
        (),
        ("--topic", "T"),
        ("--key", "k"),
        ("--topic", "T", "--offset", "1"),
        ("--msg-id", "0" * 32, "--topic", "T", "--key", "k"),
        ("--at", "0"),
    ],
)
def test_questions_that_are_none(basic: Path, query: Query, question: tuple[str, ...]) -> None:
    result = query(basic, *question)
    assert (result.code, result.out) == (2, "")


def test_a_topic_that_is_not_read_is_not_called_unknown(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    (store / "consumequeue/OrderPaid").rename(tmp_path / "elsewhere")
    (store / "consumequeue/OrderPaid").symlink_to(tmp_path / "elsewhere")
    asked = next(query for query in expected("471-basic")["keyQueries"] if query["topic"] == "OrderPaid")
    result = rmqctl("query", store, "--topic", "OrderPaid", "--key", asked["key"])
    assert result.code == 4
    assert "has no queue in this store" not in result.err
