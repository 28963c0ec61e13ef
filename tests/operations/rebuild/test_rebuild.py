"""Queues and index rebuilt from a log are those that the real brokers made of it; and what is done where the log cannot
tell.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.forensics.verify import verify
from rmqctl.format.properties import keys
from rmqctl.operations.rebuild import queue_builder
from rmqctl.operations.rebuild.rebuild import Rebuild, Rebuilt
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.read.index.index_service import IndexService
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import apply_damage, damage_cases, expected, unpack
from tests.support import batch_queues
from tests.support.cqext_store import SMALL_NAMES, unpack_cqext, used_parts
from tests.support.dispatched import index_content, only_log, queue_bytes
from tests.support.file_edits import flip_bits, write_at
from tests.support.golden_store import REBUILT
from tests.support.log_maker import Record, encode, write_log

Unit = tuple[int, int, int]
SMALL = BrokerConf(consumequeue_file_size=100, index_slots=10, index_entries=40)


def rebuilt(
    store: Path,
    staging: Path | None,
    selection: Selection | None = None,
    *,
    conf: BrokerConf | None = None,
    **more: Any,
) -> Rebuilt:
    rebuild = Rebuild(ReadOnlyStore(store, conf), selection or Selection(), staging, threads=2, **more)
    assert rebuild.run()
    if staging is not None:
        rebuild.check()
    return rebuild.result


def units(root: Path, topic: str = "OrderPaid", queue_id: int = 1) -> list[Unit]:
    """(physicalOffset, size, tagsCode) of a queue's files, as far as they are used."""
    data = b"".join(path.read_bytes() for path in sorted((root / "consumequeue" / topic / str(queue_id)).iterdir()))
    found = [struct.unpack_from(">qiq", data, at) for at in range(0, len(data), 20)]
    while found and found[-1] == (0, 0, 0):
        found.pop()
    return found


def log_of(root: Path, numbers: list[int]) -> list[int]:
    """A store with the log of a queue's messages with these queue offsets; the offset of each, and the log's end."""
    records = [Record(queue_offset=number, body=bytes(20 + at)) for at, number in enumerate(numbers)]
    write_log(root, records, file_size=64 * 1024)
    offsets = [0]
    for record in records:
        offsets.append(offsets[-1] + len(encode(record, offsets[-1])))
    return offsets


def offsets_of(found: list[Unit]) -> list[int]:
    return [unit[0] for unit in found]


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_queues_and_index_are_those_of_the_brokers(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    made = only_log(golden, tmp_path / "made")
    result = rebuilt(golden, made)
    assert queue_bytes(made) == queue_bytes(golden) != {}
    assert all(counts.same == counts.units for counts in result.queues)
    if not name.startswith("326"):  # 3.x indexed other keys, and counted slots otherwise
        assert index_content(made) == index_content(golden)


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_the_new_index_answers_every_key_query(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    made = only_log(golden, tmp_path / "made")
    rebuilt(golden, made, Selection(queues=False))
    store = ReadOnlyStore(made)
    asked = expected(name)["keyQueries"]
    for query in asked:
        found = [message.physical_offset for message in store.by_key(query["topic"], query["key"])]
        if (
            name in REBUILT
        ):  # by the broker that was asked: its files ended elsewhere, and it gives so many of them only
            assert set(query["physicalOffsets"]) <= set(found)
        else:
            assert found[-query["max"] :] == query["physicalOffsets"]
    assert asked
    names = [file.file.path.name for file in IndexService(store.storage, made / "index").files]
    assert names == sorted(names)
    assert all(len(name) == 17 for name in names)


def test_extensions_are_made_anew(tmp_path: Path) -> None:
    golden = unpack_cqext(tmp_path)
    made = only_log(golden, tmp_path / "made")
    rebuilt(golden, made, Selection(index=False))
    used = {path: data for path, data in used_parts("consumequeue").items() if data}
    assert queue_bytes(made) == used
    theirs = {path: data for path, data in used_parts("consumequeue_ext").items() if data}
    ours = {path: (made / path).read_bytes()[: len(data) + 20].rstrip(b"\0") for path, data in theirs.items()}
    assert ours == theirs


def test_batch_consume_queues_are_made_anew(tmp_path: Path) -> None:
    golden = batch_queues.golden(tmp_path)
    made = only_log(golden, tmp_path / "made")
    result = rebuilt(golden, made)
    assert queue_bytes(made) == queue_bytes(golden)
    assert {counts.topic for counts in result.queues} >= {"bcq", "bcq-single"}
    assert all(counts.same == counts.units for counts in result.queues)


def test_files_say_that_they_were_written_when_their_last_message_was_stored(tmp_path: Path) -> None:
    golden = unpack("497-basic", tmp_path)
    made = only_log(golden, tmp_path / "made")
    rebuilt(golden, made)
    store = ReadOnlyStore(made)
    for queue in store.queues.values():
        for file in queue.queue.files:
            last = list(queue.units(file.file_from_offset // 20, file.end // 20))[-1]
            message = store.commit_log.message_at(last.physical_offset)
            assert message is not None
            assert file.last_modified_timestamp == message.store_timestamp


def test_looking_writes_nothing_and_finds_the_same(tmp_path: Path) -> None:
    golden = unpack("471-basic", tmp_path)
    apply_damage(golden, damage_cases()["471-basic--magic-flip-last-abnormal"]["ops"])
    made = tmp_path / "made"
    made.mkdir()
    looked, written = rebuilt(golden, None), rebuilt(golden, made)
    for counts in written.queues:
        counts.crc = 0
    assert (looked.queues, looked.index, looked.log) == (written.queues, written.index, written.log)


def test_a_queue_begins_with_its_first_message_in_the_log(tmp_path: Path) -> None:
    """And with no pre-blank: it leads to 0, which the log has, and 4.7.1 and 4.9.7 would serve none of the messages."""
    offsets = log_of(tmp_path, [7, 8, 9])
    result = rebuilt(tmp_path, tmp_path, conf=SMALL)
    assert offsets_of(units(tmp_path)) == [offsets[0]] * 2 + offsets[:3]
    assert [path.name for path in (tmp_path / "consumequeue/OrderPaid/1").iterdir()] == [f"{100:020d}"]
    assert (result.queues[0].min_offset, result.queues[0].max_offset) == (5, 10)


def test_the_newest_generation_of_a_deleted_topic_counts(tmp_path: Path) -> None:
    offsets = log_of(tmp_path, [0, 1, 2, 3, 4, 5, 6, 0, 1, 2])
    result = rebuilt(tmp_path, tmp_path, conf=SMALL)
    assert offsets_of(units(tmp_path)) == offsets[7:10]
    assert len(list((tmp_path / "consumequeue/OrderPaid/1").iterdir())) == 1
    assert result.queues[0].anew == 1


def test_a_number_that_cannot_be_0_begins_no_queue(tmp_path: Path) -> None:
    offsets = log_of(tmp_path, [0, 1, 2, 3, 4, 5])
    rebuilt(tmp_path, tmp_path, conf=SMALL)
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[offsets[3] + 20 : offsets[3] + 28] = bytes(8)  # nothing checks QUEUEOFFSET
    path.write_bytes(data)
    made = tmp_path / "made"
    made.mkdir()
    result = rebuilt(tmp_path, made, conf=SMALL)
    assert units(made) == units(tmp_path)
    assert (result.queues[0].misnumbered, result.queues[0].duplicates) == (1, 0)


def test_numbers_that_were_there_and_numbers_that_are_too_high(tmp_path: Path) -> None:
    """As brokers do without damage: the first gets no place, the second the next one."""
    offsets = log_of(tmp_path, [0, 1, 2, 1, 3, 1 << 40, 5])
    result = rebuilt(tmp_path, tmp_path, conf=SMALL)
    assert offsets_of(units(tmp_path)) == [offsets[at] for at in (0, 1, 2, 4, 5, 6)]
    assert (result.queues[0].duplicates, result.queues[0].misnumbered) == (1, 1)


def test_a_lost_message_keeps_its_place(tmp_path: Path) -> None:
    offsets = log_of(tmp_path, [0, 1, 2, 3, 4, 5])
    flip_bits(tmp_path / "commitlog" / f"{0:020d}", offsets[2] + 4, 0x10)
    result = rebuilt(tmp_path, tmp_path, conf=SMALL)
    assert offsets_of(units(tmp_path)) == [offsets[at] for at in (0, 1, 3, 3, 4, 5)]
    assert (result.queues[0].repeated, result.log.damages) == (1, 1)


def test_what_the_old_queue_knows_of_a_lost_message_stays(tmp_path: Path) -> None:
    offsets = log_of(tmp_path, list(range(30)))
    rebuilt(tmp_path, tmp_path, conf=SMALL)
    for at in (9, 10, 21):
        flip_bits(tmp_path / "commitlog" / f"{0:020d}", offsets[at] + 4, 0x10)
    made = tmp_path / "made"
    made.mkdir()
    result = rebuilt(tmp_path, made, conf=SMALL)
    assert units(made) == units(tmp_path)
    assert (result.queues[0].kept, result.queues[0].same) == (3, 30)


def test_a_damaged_body_is_served(tmp_path: Path) -> None:
    offsets = log_of(tmp_path, [0, 1, 2])
    flip_bits(tmp_path / "commitlog" / f"{0:020d}", offsets[0] + 90, 0x10)
    result = rebuilt(tmp_path, tmp_path, conf=SMALL)
    assert offsets_of(units(tmp_path)) == offsets[:3]
    assert (result.log.messages, result.log.damages, result.index.entries) == (3, 0, 6)


def test_queues_that_the_log_has_no_message_of(tmp_path: Path) -> None:
    golden = unpack("533-propcrc", tmp_path)
    apply_damage(golden, damage_cases()["533-propcrc--first-file-expired"]["ops"])
    result = rebuilt(golden, None)
    expired = result.unchanged
    assert len(expired) == 1
    stray = golden / "consumequeue" / "stray" / "0"
    stray.mkdir(parents=True)
    (stray / f"{0:020d}").write_bytes(struct.pack(">qiq", 2**20, 100, 0).ljust(1000, b"\0"))
    again = rebuilt(golden, None)
    assert again.unchanged == expired
    assert again.removed == [("stray", 0)]


def with_flipped_topics(root: Path, count: int) -> None:
    """Flip a bit in the topic of the last messages, another one in each."""
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    at = len(data)
    for number in range(count):
        at = data.rindex(b"OrderPaid", 0, at)
        data[at + number] ^= 0x10
    log.write_bytes(data)


@pytest.mark.parametrize("count", [1, 2])
def test_a_queue_whose_last_messages_name_another_topic_keeps_them(count: int, tmp_path: Path) -> None:
    write_log(tmp_path, [Record(topic="Other"), *(Record(queue_offset=number) for number in range(3))], file_size=65536)
    rebuilt(tmp_path, tmp_path, conf=SMALL)
    before = units(tmp_path)
    with_flipped_topics(tmp_path, count)
    result = rebuilt(tmp_path, tmp_path / "made", conf=SMALL)
    assert [stray.of for stray in result.strays] == [("OrderPaid", 1)] * count
    assert units(tmp_path / "made") == before
    assert [counts.strays for counts in result.queues] == [count, 0]


@pytest.mark.parametrize("count", [1, 2])
def test_a_queue_without_a_message_of_its_own_may_have_one_stray(count: int, tmp_path: Path) -> None:
    """Of more units the queue itself is wrong: its folder has the name of another."""
    write_log(tmp_path, [Record(queue_id=3, queue_offset=number) for number in range(count)], file_size=65536)
    rebuilt(tmp_path, tmp_path, conf=SMALL)
    (tmp_path / "consumequeue" / "OrderPaid" / "3").rename(tmp_path / "consumequeue" / "OrderPaid" / "7")
    result = rebuilt(tmp_path, tmp_path / "made", conf=SMALL)
    of, said = ("OrderPaid", 7), ("OrderPaid", 3)
    made = [counts.key for counts in result.queues]
    assert (result.unchanged, result.removed, made) == (([of], [], []) if count == 1 else ([], [of], [said]))


@pytest.mark.parametrize("sys_flag", [4, 8, 12])
def test_a_last_message_that_a_flipped_bit_made_a_half_message_is_kept(sys_flag: int, tmp_path: Path) -> None:
    """SYSFLAG 4 is a prepared record, 12 a rollback; 8 is an ordinary message of a transaction."""
    write_log(tmp_path, [Record(), Record(queue_offset=1)], file_size=65536)
    rebuilt(tmp_path, tmp_path, conf=SMALL)
    before = units(tmp_path)
    write_log(tmp_path, [Record(), Record(queue_offset=1, sys_flag=sys_flag)], file_size=65536)
    result = rebuilt(tmp_path, tmp_path / "made", conf=SMALL)
    assert units(tmp_path / "made") == before
    assert result.queues[0].strays == (sys_flag != 8)


def test_light_queues_keep_a_last_message_that_a_flipped_bit_made_a_half_message(tmp_path: Path) -> None:
    root = unpack("533-lmq", tmp_path)
    before = units(root, "%LMQ%all", 0)
    at = before[-1][0]
    log = root / "commitlog" / f"{at // 65536 * 65536:020d}"
    flip_bits(log, at % 65536 + 39, 4)
    rebuilt(root, tmp_path / "made")
    assert units(tmp_path / "made", "%LMQ%all", 0) == before


def test_an_index_that_begins_with_a_store_time_of_0_agrees_with_the_log(tmp_path: Path) -> None:
    """A broker writes timeDiff 0 into all entries of such a file."""
    write_log(tmp_path, [Record(store_timestamp=0), Record(queue_offset=1)], file_size=65536)
    assert rebuilt(tmp_path, tmp_path, conf=SMALL).index.entries == 4
    found = verify(ReadOnlyStore(tmp_path, SMALL)).findings
    assert not [finding for finding in found if finding.code.startswith("index-")]


def test_a_unit_that_leads_to_another_queue_of_the_store_is_not_kept(tmp_path: Path) -> None:
    """Queues 1 and 3 differ in one bit; here the unit is wrong, and not the record."""
    write_log(tmp_path, [Record(), Record(queue_id=3), Record(queue_id=3, queue_offset=1)], file_size=65536)
    rebuilt(tmp_path, tmp_path, conf=SMALL)
    wrong = units(tmp_path, queue_id=3)[1]
    write_at(tmp_path / "consumequeue" / "OrderPaid" / "1" / f"{0:020d}", 20, struct.pack(">qiq", *wrong))
    rebuilt(tmp_path, tmp_path / "made", conf=SMALL)
    assert len(units(tmp_path / "made")) == 1


@pytest.mark.parametrize("all_topics", [False, True])
def test_deleted_topics_get_no_queue(all_topics: bool, tmp_path: Path) -> None:
    write_log(
        tmp_path,
        [
            Record(queue_offset=0),
            Record(topic="deleted"),
            Record(topic="%LMQ%here"),
            Record(topic="RMQ_SYS_TRACE_TOPIC"),
        ],
    )
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": {"OrderPaid": {"topicName": "OrderPaid"}}})
    )
    result = rebuilt(tmp_path, tmp_path, Selection(all_topics=all_topics), conf=SMALL)
    made = {path.name for path in (tmp_path / "consumequeue").iterdir()}
    assert made == {"OrderPaid", "%LMQ%here", "RMQ_SYS_TRACE_TOPIC"} | ({"deleted"} if all_topics else set())
    assert result.left_out == ({} if all_topics else {"deleted": 1})


@pytest.mark.parametrize("topic", ["../../etc", "a/b", "..", "."])
def test_no_folder_is_made_of_what_is_no_topic(topic: str, tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Record(topic=topic), Record()])
    made = tmp_path / "made"
    made.mkdir()
    result = rebuilt(tmp_path / "store", made, conf=SMALL)
    assert [counts.topic for counts in result.queues] == ["OrderPaid"]
    assert {path.name for path in tmp_path.iterdir()} == {"store", "made"}


def test_one_queue_of_one_topic(tmp_path: Path) -> None:
    golden = unpack("497-basic", tmp_path)
    made = tmp_path / "made"
    made.mkdir()
    result = rebuilt(golden, made, Selection(index=False, topic="OrderPaid", queue_id=2))
    assert [path.relative_to(made).as_posix() for path in made.rglob("0*") if path.is_file()] == [
        f"consumequeue/OrderPaid/2/{0:020d}"
    ]
    assert (result.removed, result.unchanged, result.left_out) == ([], [], {})


def test_a_part_of_the_log(tmp_path: Path) -> None:
    offsets = log_of(tmp_path, list(range(10)))
    rebuilt(tmp_path, tmp_path, conf=SMALL, end=offsets[7])
    assert offsets_of(units(tmp_path)) == offsets[:7]


def test_windows_give_way_when_there_are_many_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_builder, "WINDOWS_FIRST", 2)
    monkeypatch.setattr(queue_builder, "WINDOW_MAX", 32)
    monkeypatch.setattr(queue_builder, "POOL_SIZE", 4 * 32 * 28)
    golden = unpack("broker-533", tmp_path)
    made = only_log(golden, tmp_path / "made")
    rebuilt(golden, made)
    assert queue_bytes(made) == queue_bytes(golden)


def interrupted(store: Path, staging: Path, after: int) -> bool:
    """A rebuild that is interrupted after so many items of the log; whether it was."""
    asked = 0

    def is_over() -> bool:
        nonlocal asked
        asked += 1
        return asked > after

    return not Rebuild(ReadOnlyStore(store), Selection(), staging, threads=1).run(is_over)


@pytest.mark.parametrize("name", ["497-basic", "broker-533", "533-lmq", "471-crash"])
def test_an_interrupted_rebuild_is_gone_on_with(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    for after in (0, 1, 3):
        made = only_log(golden, tmp_path / f"made-{after}")
        if not interrupted(golden, made, after):
            continue
        rebuild = Rebuild(ReadOnlyStore(golden), Selection(), made, threads=2)
        rebuild.go_on()
        assert rebuild.run()
        rebuild.check()
        assert queue_bytes(made) == queue_bytes(golden)
        assert index_content(made) == index_content(golden)
        assert not (made / "rebuild.json").exists()
        whole = rebuilt(golden, None)
        assert rebuild.result.log == whole.log
        assert rebuild.result.index.entries == whole.index.entries


def test_an_interrupted_rebuild_keeps_disordered_queues_apart(tmp_path: Path) -> None:
    """One queue leads to messages at other places, another one is gone: none gets the units of the other.

    Nor does it matter that the rebuild is told which queue is disordered.
    """
    store = unpack("497-basic", tmp_path)
    moved = store / "consumequeue" / "OrderPaid" / "1" / f"{0:020d}"
    data = moved.read_bytes()
    moved.write_bytes(data[20:40] + data[:20] + data[40:])
    shutil.rmtree(store / "consumequeue" / "OrderPaid" / "0")
    Rebuild(ReadOnlyStore(store), Selection(), only_log(store, tmp_path / "whole")).run()
    told = only_log(store, tmp_path / "told")
    assert Rebuild(ReadOnlyStore(store), Selection(), told, disordered=[("OrderPaid", 1)]).run()
    assert queue_bytes(told) == queue_bytes(tmp_path / "whole")
    for after in (0, 1, 2):
        made = only_log(store, tmp_path / f"made-{after}")
        assert interrupted(store, made, after)
        rebuild = Rebuild(ReadOnlyStore(store), Selection(), made, disordered=[("OrderPaid", 1)] if after == 2 else ())
        rebuild.go_on()
        assert rebuild.run()
        rebuild.check()
        assert queue_bytes(made) == queue_bytes(tmp_path / "whole")


def test_it_is_gone_on_with_only_where_nothing_changed(tmp_path: Path) -> None:
    golden = unpack("497-basic", tmp_path)
    made = tmp_path / "made"
    made.mkdir()
    with pytest.raises(BadRequest, match="killed before it recorded"):
        Rebuild(ReadOnlyStore(golden), Selection(), made).go_on()
    assert interrupted(golden, made, 1)
    with pytest.raises(BadRequest, match="is not what it was"):
        Rebuild(ReadOnlyStore(golden), Selection(index=False), made).go_on()
    flip_bits(golden / "commitlog" / f"{65536:020d}", 60000, 0x10)
    with pytest.raises(BadRequest, match="is not what it was"):
        Rebuild(ReadOnlyStore(golden), Selection(), made).go_on()
    (made / "rebuild.json").write_text("{}")
    with pytest.raises(BadRequest, match="is damaged"):
        Rebuild(ReadOnlyStore(golden), Selection(), made).go_on()


@pytest.mark.parametrize("path", [f"consumequeue/OrderPaid/1/{0:020d}", "index"])
def test_what_is_not_as_it_was_written_is_not_installed(path: str, tmp_path: Path) -> None:
    golden = unpack("497-basic", tmp_path)
    made = tmp_path / "made"
    made.mkdir()
    rebuild = Rebuild(ReadOnlyStore(golden), Selection(), made)
    assert rebuild.run()
    found = made / path
    flip_bits(min(found.iterdir()) if found.is_dir() else found, 39, 0x10)
    with pytest.raises(Unreadable, match="does not have the bytes"):
        rebuild.check()


def test_the_time_until_which_index_files_are_full(tmp_path: Path) -> None:
    golden = unpack("471-basic", tmp_path)
    made = only_log(golden, tmp_path / "made")
    result = rebuilt(golden, made)
    headers = [file.header() for file in ReadOnlyStore(made).index.files]
    checkpoint = ReadOnlyStore(golden).checkpoint()
    assert [header.end_timestamp for header in headers[:-1] if header is not None][-1] == result.index.full_until
    assert checkpoint is not None
    assert checkpoint.index_msg_timestamp == result.index.full_until


@pytest.mark.parametrize("count", [18, 19, 20, 21, 38, 39, 40])
@pytest.mark.parametrize("threads", [1, 2])
def test_that_time_wherever_a_file_ends(count: int, threads: int, tmp_path: Path) -> None:
    """Two keys a message, 39 entries a file."""
    records = [Record(queue_offset=at, store_timestamp=1_795_252_000_000 + 1000 * at) for at in range(count)]
    write_log(tmp_path, records, file_size=64 * 1024)
    rebuild = Rebuild(ReadOnlyStore(tmp_path, SMALL), Selection(), tmp_path, threads=threads)
    assert rebuild.run()
    headers = [file.header() for file in IndexService(ReadOnlyStore(tmp_path).storage, tmp_path / "index", 10).files]
    full = [header.end_timestamp for header in headers[:-1] if header is not None]
    assert rebuild.result.index.full_until == (full[-1] if full else 0)
    assert len(headers) == -(-2 * count // 39)


def test_messages_without_keys_make_an_empty_index(tmp_path: Path) -> None:
    log_of(tmp_path, [0, 1])
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"KEYS\x01k1 k2", b"KEYX\x01k1 k2"))
    assert keys({"KEYS": "k1 k2"}) == ["k1", "k2"]
    result = rebuilt(tmp_path, tmp_path, conf=SMALL)
    assert result.index.entries == 0
    assert list((tmp_path / "index").iterdir()) == []
