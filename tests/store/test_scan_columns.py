"""Reading in columns and reading record by record say the same of every log: counts, places, damage."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.format.damage import Damage
from rmqctl.format.dispatch_scan import DELAYED, HAS_UNIQUE, MULTI_DISPATCH
from rmqctl.format.message import BAD_BODY_CRC, Message
from rmqctl.logfile.column_reader import Columns
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.storage import Storage
from rmqctl.store.commit_log import CommitLog, ScanSummary
from rmqctl.store.destinations import queue_destinations, unique_key_hash
from rmqctl.store.dispatch_columns import Describer, DispatchColumns
from rmqctl.store.file_scan import Stretch
from tests.conftest import STORE_NAMES, apply_damage, damage_cases, unpack
from tests.forensics.one_record_index_audit import index_keys
from tests.format.property_settings import PROPERTY
from tests.log_maker import BORN_V6, STORE_V6, V2, Record, log_bytes, sample_records, write_log

CASES = damage_cases()
SMALL = [name for name in STORE_NAMES if name != "471-cqext"]
NUMBERS = ("physical_offset", "size", "queue_offset", "store_timestamp", "sys_flag", "tags_code")
SEGMENTS = (1000, 20_000, None)  # bytes; many records, or a part of one, in each


def log_of(folder: Path) -> CommitLog:
    return CommitLog(MappedFileQueue(Storage(folder.parent), [folder]))


def one_by_one(folder: Path) -> tuple[ScanSummary, list[Damage]]:
    summary = ScanSummary()
    return summary, [_without_message(item) for item in log_of(folder).scan(summary) if isinstance(item, Damage)]


def in_columns(folder: Path, segment_size: int | None = None, threads: int = 2, **how: Any) -> tuple[ScanSummary, list[Damage]]:
    summary = ScanSummary()
    items = log_of(folder).scan_columns(summary, threads=threads, segment_size=segment_size, **how)
    return summary, [_without_message(item) for item in items if isinstance(item, Damage)]


def _without_message(damage: Damage) -> Damage:
    return damage._replace(message=None)


@pytest.mark.parametrize("segment_size", SEGMENTS)
@pytest.mark.parametrize("name", SMALL)
def test_every_golden_store(name: str, segment_size: int | None, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path) / "commitlog"
    assert in_columns(folder, segment_size) == one_by_one(folder)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_damage_case(name: str, tmp_path: Path) -> None:
    store = unpack(CASES[name]["base"], tmp_path)
    apply_damage(store, CASES[name]["ops"])
    for segment_size in SEGMENTS:
        assert in_columns(store / "commitlog", segment_size) == one_by_one(store / "commitlog")


@pytest.mark.parametrize("name", sorted(CASES))
def test_without_a_look_at_bodies_all_other_damage_is_found(name: str, tmp_path: Path) -> None:
    store = unpack(CASES[name]["base"], tmp_path)
    apply_damage(store, CASES[name]["ops"])
    log = log_of(store / "commitlog")
    described: list[int] = []
    others: list[Damage] = []
    take = Describer(with_keys=True).take
    for item in log.scan_columns(ScanSummary(), take, threads=2, segment_size=20_000, check_bodies=False):
        described += item.taken.messages["physical_offset"].tolist() if isinstance(item, Stretch) else []
        described += [item.physical_offset] if isinstance(item, Message) or _only_its_body(item) else []
        others += [item] if isinstance(item, Damage) and not _only_its_body(item) else []
    expected = list(log.scan())
    assert others == [item for item in expected if isinstance(item, Damage) and not _only_its_body(item)]
    assert described == [item.physical_offset for item in expected if isinstance(item, Message) or _only_its_body(item)]


def _only_its_body(item: object) -> bool:
    return isinstance(item, Damage) and item.code == BAD_BODY_CRC


def fields(columns: Columns) -> list[tuple[Any, ...]]:
    names = ("size", "queue_id", "queue_offset", "sys_flag", "store_timestamp", "topic_length", "properties_length")
    rows = []
    for row in columns.rows:
        body = bytes(columns.buffer[row["body_start"] :][: row["body_length"]])
        rows.append((columns.physical_offset + int(row["position"]), *(row[name].item() for name in names), body))
    return rows


@pytest.mark.parametrize("name", ["broker-533", "533-longtopic", "533-propcrc", "471-ipv6", "326-basic"])
def test_the_columns_are_the_messages_fields(name: str, tmp_path: Path) -> None:
    log = log_of(unpack(name, tmp_path) / "commitlog")
    stretches = [item for item in log.scan_columns(ScanSummary(), fields, threads=2, segment_size=9000) if isinstance(item, Stretch)]
    rows = [row for stretch in stretches for row in stretch.taken]
    assert rows == [
        (
            item.physical_offset, item.size, item.queue_id, item.queue_offset, item.sys_flag, item.store_timestamp,
            len(item.topic_bytes), len(item.properties_bytes), bytes(item.body),
        )
        for item in log.scan()
        if isinstance(item, Message)
    ]  # fmt: skip
    assert rows


stains = st.lists(st.tuples(st.integers(0, 9000), st.binary(min_size=1, max_size=9)), max_size=6)
kinds = st.sampled_from([{}, {"magic": V2}, {"sys_flag": BORN_V6 | STORE_V6}, {"property_crc": True}])


@settings(PROPERTY, max_examples=5000)
@given(
    kind=kinds, count=st.integers(0, 45), stains=stains, tail=st.integers(0, 200), cut=st.integers(0, 40), segment=st.integers(100, 5000)
)
def test_logs_with_any_damage(
    kind: dict[str, Any],
    count: int,
    stains: list[tuple[int, bytes]],
    tail: int,
    cut: int,
    segment: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "columns" / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    data = bytearray(log_bytes(sample_records(count, **kind)) + bytes(tail))
    for at, stain in stains:
        if at < len(data):
            data[at : at + len(stain)] = stain
    (folder / f"{0:020d}").write_bytes(data[: max(len(data) - cut, 0)])
    assert in_columns(folder, segment) == one_by_one(folder)


def test_a_record_in_a_body_that_claims_its_place_does_not_mislead_a_segment(tmp_path: Path) -> None:
    """The second segment begins in a body, with a record that is whole and in its own place: it is none all the same."""
    outer = Record(body=bytes(1000))
    at = log_bytes([outer]).index(bytes(1000))
    inner = log_bytes([Record(body=b"inner")], base=at + 100)
    write_log(tmp_path, [Record(body=bytes(100) + inner + bytes(900 - len(inner))), Record(), Record()], file_size=4000)
    summary, damages = in_columns(tmp_path / "commitlog", segment_size=at + 50)
    assert (summary.messages, damages) == (3, [])
    assert (summary, damages) == one_by_one(tmp_path / "commitlog")


def said_of(described: DispatchColumns, queues: list[tuple[bytes, int]]) -> list[tuple[Any, ...]]:
    """What the columns say of each message."""
    rows = []
    for row in described.messages:
        hashes = described.hashes[row["hashes_start"] :][: row["hashes_count"]].tolist()
        unique = hashes[0] if row["marks"] & HAS_UNIQUE else None
        marks = bool(row["marks"] & DELAYED), bool(row["marks"] & MULTI_DISPATCH)
        numbers = tuple(
            row[name].item() for name in ("physical_offset", "size", "queue_offset", "store_timestamp", "sys_flag", "tags_code")
        )
        rows.append((*numbers, queues[row["queue"]], frozenset(hashes), unique, marks))
    return rows


def said_one_by_one(message: Message) -> tuple[Any, ...]:
    """The same by the rules for one message."""
    places = queue_destinations(message._replace(sys_flag=0))
    found = message.properties
    marks = "DELAY" in found, "INNER_MULTI_DISPATCH" in found
    keys = index_keys(message, like_3x=False).allowed
    unique = unique_key_hash(message) if keys else None
    numbers = message.physical_offset, message.size, message.queue_offset, message.store_timestamp, message.sys_flag, places[0].tags_code
    return (*numbers, (message.topic_bytes, message.queue_id), keys, unique, marks)


def described_log(folder: Path, segment_size: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What columns say of a log, and what the one-record decoder does."""
    describer = Describer(with_keys=True)
    log = log_of(folder)
    rows: list[tuple[Any, ...]] = []
    for item in log.scan_columns(ScanSummary(), describer.take, threads=2, segment_size=segment_size):
        if isinstance(item, Stretch):
            rows += said_of(item.taken, describer.queues)
        elif isinstance(item, Message):
            rows += said_of(describer.of(item), describer.queues)
    return rows, [said_one_by_one(item) for item in log.scan() if isinstance(item, Message)]


@pytest.mark.parametrize("name", SMALL)
def test_the_dispatch_columns_of_every_golden_store(name: str, tmp_path: Path) -> None:
    in_columns, one_by_one = described_log(unpack(name, tmp_path) / "commitlog", 9000)
    assert in_columns == one_by_one


texts = st.one_of(
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=12).map(str.encode),
    st.binary(max_size=8).map(lambda raw: raw.replace(b"\1", b"").replace(b"\2", b"")),
    st.sampled_from([b"a b", b"k  k k", "\u8ba2\u5355-1 \U0001f600".encode(), b"\xed\xa0\x80", b"\xc0\x80"]),
)
names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"INNER_MULTI_DISPATCH", b"KEY", b"TAGSS", b"", b"x"])
pairs = st.lists(
    st.tuples(names, st.sampled_from([b"\x01", b"", b"\x01\x01"]), texts, st.sampled_from([b"\x02", b"\x02", b""])), max_size=6
)
topics = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@PROPERTY
@given(messages=st.lists(st.tuples(topics, pairs, st.sampled_from([0, 4, 8, 12])), min_size=1, max_size=8))
def test_the_dispatch_columns_of_any_properties(
    messages: list[tuple[str, list[tuple[bytes, ...]], int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "dispatch"
    records = [
        Record(topic=topic, properties=b"".join(b"".join(pair) for pair in found), sys_flag=flag, queue_offset=at)
        for at, (topic, found, flag) in enumerate(messages)
    ]
    write_log(root, records)
    in_columns, one_by_one = described_log(root / "commitlog", 300)
    assert in_columns == one_by_one
    assert len(one_by_one) == len([record for record in records if not record.properties.endswith(b"\0")])


SHAPES = [
    b"KEYS\x01order-7\x02UNIQ_KEY\x0100000000\x02TAGS\x01Tag1",
    b"KEYS\x01order-7\x02UNIQ_KEY\x0100000000\x02TAGS\x01Tag1\x02" + b"WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02" * 2,
    b"X\x01" + b"v" * 150 + b"\x02TAGS\x01b\x02DELAY\x013\x02UNIQ_KEY\x01" + b"0" * 32 + b"\x02KEYS\x01a b c\x02",
    b"TAGS\x01" + b"t" * 240 + b"\x02KEYS\x01k\x02",
    b"",
]
bytes_that_matter = st.sampled_from(b"\x01\x02 TKEGASY0-")
changes = st.lists(st.tuples(st.integers(0, 400), bytes_that_matter), max_size=3)
tails = st.tuples(st.sampled_from(SHAPES), st.sampled_from(["topic-1", "topic-2", "t", "T" * 70]), st.integers(0, 40), changes)


def changed(shape: bytes, changes: list[tuple[int, int]]) -> bytes:
    found = bytearray(shape)
    for place, byte in changes if shape else []:
        found[place % len(shape)] = byte
    return bytes(found)


@settings(PROPERTY, max_examples=1000)
@given(found=st.lists(tails, min_size=2, max_size=40))
def test_tails_that_have_nearly_the_same_layout(
    found: list[tuple[bytes, str, int, list[tuple[int, int]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "layouts"
    records = [Record(topic=topic, properties=changed(shape, of), queue_id=queue) for shape, topic, queue, of in found]
    write_log(root, records, file_size=64 * 1024)
    in_columns, one_by_one = described_log(root / "commitlog", 64 * 1024)
    assert in_columns == one_by_one
    assert len(one_by_one) == len(records)


def test_more_queues_than_a_table_begins_with_keep_their_numbers(tmp_path: Path) -> None:
    write_log(tmp_path, [Record(topic=f"t{i % 700}", queue_id=i // 700 % 5, body=struct.pack(">i", i)) for i in range(8000)])
    in_columns, one_by_one = described_log(tmp_path / "commitlog", 50_000)
    assert in_columns == one_by_one
    assert len({row[6] for row in one_by_one}) == 3500
