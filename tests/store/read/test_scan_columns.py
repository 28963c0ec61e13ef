"""Reading in columns and reading record by record say the same of every log: counts, places, damage."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.format.body.client_check import has_bad_compression, has_bad_port
from rmqctl.format.index_entry import unique_key_hash
from rmqctl.format.message import BAD_BODY_CRC, Damage, Message
from rmqctl.kernels.dispatch_scan import (
    DELAYED,
    HAS_UNIQUE,
    MULTI_DISPATCH,
    NO_PROPERTIES,
    ODD_DELAY,
    WRONG_COMPRESSION,
    WRONG_PORT,
)
from rmqctl.logfile.column_reader import Columns
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.read.commit_log import CommitLog, ScanSummary
from rmqctl.store.read.file_scan import RecordRun
from tests.conftest import READABLE_NAMES, apply_damage, damage_cases, each_damage, unpack
from tests.support.log_maker import BORN_V6, STORE_V6, V2, Record, log_bytes, sample_records, write_log
from tests.support.one_record_index_audit import index_keys
from tests.support.property_settings import PROPERTY

CASES = damage_cases()
SMALL = [name for name in READABLE_NAMES if name != "471-cqext"]
NUMBERS = ("physical_offset", "size", "queue_offset", "store_timestamp", "sys_flag", "tags_code")
SEGMENTS = (1000, 20_000, None)  # bytes; many records, or a part of one, in each


def log_of(folder: Path) -> CommitLog:
    return CommitLog(MappedFileQueue(Storage(folder.parent), [folder]))


def one_by_one(folder: Path) -> tuple[ScanSummary, list[Damage]]:
    summary = ScanSummary()
    return summary, [_without_message(item) for item in log_of(folder).scan(summary) if isinstance(item, Damage)]


def in_columns(
    folder: Path, segment_size: int | None = None, threads: int = 2, **how: Any
) -> tuple[ScanSummary, list[Damage]]:
    summary = ScanSummary()
    items = log_of(folder).scan_columns(summary, threads=threads, segment_size=segment_size, **how)
    return summary, [_without_message(item) for item in items if isinstance(item, Damage)]


def _without_message(damage: Damage) -> Damage:
    return damage._replace(message=None)


@pytest.mark.parametrize("name", SMALL)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path) / "commitlog"
    expected = one_by_one(folder)
    places = [item.physical_offset for item in log_of(folder).scan() if isinstance(item, Message)]
    start, stop = places[len(places) // 3], places[len(places) * 2 // 3]
    part = [place for place in places if start <= place < stop]
    for segment_size in SEGMENTS:
        assert in_columns(folder, segment_size) == expected
        assert exact_part(log_of(folder), start, stop, segment_size) == part


def exact_part(log: CommitLog, start: int, stop: int, segment_size: int | None) -> list[int]:
    found: list[int] = []
    for item in log.scan_columns(
        ScanSummary(),
        lambda columns: (columns.rows["position"] + columns.physical_offset).tolist(),
        threads=2, start=start, stop=stop, segment_size=segment_size, exact=True,
    ):  # fmt: skip
        found += item.result if isinstance(item, RecordRun) else [item.physical_offset] * isinstance(item, Message)
    return found


@each_damage()
def test_every_damage_case(name: str, tmp_path: Path) -> None:
    store = unpack(CASES[name]["base"], tmp_path)
    apply_damage(store, CASES[name]["ops"])
    for segment_size in SEGMENTS:
        assert in_columns(store / "commitlog", segment_size) == one_by_one(store / "commitlog")


@each_damage()
def test_without_a_look_at_bodies_all_other_damage_is_found(name: str, tmp_path: Path) -> None:
    store = unpack(CASES[name]["base"], tmp_path)
    apply_damage(store, CASES[name]["ops"])
    log = log_of(store / "commitlog")
    described: list[int] = []
    others: list[Damage] = []
    take = DispatchRequestBuilder(with_keys=True).take
    for item in log.scan_columns(ScanSummary(), take, threads=2, segment_size=20_000, check_bodies=False):
        described += item.result.messages["physical_offset"].tolist() if isinstance(item, RecordRun) else []
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
    record_runs = [
        item
        for item in log.scan_columns(ScanSummary(), fields, threads=2, segment_size=9000)
        if isinstance(item, RecordRun)
    ]
    rows = [row for record_run in record_runs for row in record_run.result]
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


@pytest.mark.parametrize("examples", [100, pytest.param(800, marks=pytest.mark.slow)])
def test_logs_with_any_damage(examples: int, tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()

    @settings(PROPERTY, max_examples=examples)
    @given(
        kind=kinds,
        count=st.integers(0, 45),
        stains=stains,
        tail=st.integers(0, 200),
        cut=st.integers(0, 40),
        segment=st.integers(100, 5000),
    )
    def check(
        kind: dict[str, Any], count: int, stains: list[tuple[int, bytes]], tail: int, cut: int, segment: int
    ) -> None:
        data = bytearray(log_bytes(sample_records(count, **kind)) + bytes(tail))
        for at, stain in stains:
            if at < len(data):
                data[at : at + len(stain)] = stain
        (folder / f"{0:020d}").write_bytes(data[: max(len(data) - cut, 0)])
        assert in_columns(folder, segment) == one_by_one(folder)

    check()


def test_a_record_in_a_body_that_claims_its_place_does_not_mislead_a_segment(tmp_path: Path) -> None:
    """The second segment begins in a body, with a record that is whole and in its own place: it is
    none all the same.
    """
    outer = Record(body=bytes(1000))
    at = log_bytes([outer]).index(bytes(1000))
    inner = log_bytes([Record(body=b"inner")], base=at + 100)
    write_log(tmp_path, [Record(body=bytes(100) + inner + bytes(900 - len(inner))), Record(), Record()], file_size=4000)
    summary, damages = in_columns(tmp_path / "commitlog", segment_size=at + 50)
    assert (summary.messages, damages) == (3, [])
    assert (summary, damages) == one_by_one(tmp_path / "commitlog")


TRAITS = (DELAYED, MULTI_DISPATCH, WRONG_PORT, WRONG_COMPRESSION, ODD_DELAY, NO_PROPERTIES)


def said_of(described: DispatchColumns, queues: list[tuple[bytes, int]]) -> list[tuple[Any, ...]]:
    """What the columns say of each message."""
    rows = []
    for row in described.messages:
        hashes = described.hashes[row["hashes_start"] :][: row["hashes_count"]].tolist()
        unique = hashes[0] if row["traits"] & HAS_UNIQUE else None
        traits = tuple(bool(row["traits"] & trait) for trait in TRAITS)
        numbers = tuple(
            row[name].item()
            for name in ("physical_offset", "size", "queue_offset", "store_timestamp", "sys_flag", "tags_code")
        )
        rows.append((*numbers, queues[row["queue"]], frozenset(hashes), unique, traits))
    return rows


def said_one_by_one(message: Message, *, with_tags: bool) -> tuple[Any, ...]:
    """The same by the rules for one message."""
    places = queue_destinations(message._replace(sys_flag=0))
    found = message.properties
    is_served = message.sys_flag & 12 != 12
    rejected = is_served and has_bad_port(message), is_served and has_bad_compression(message)
    is_odd = re.fullmatch("[0-9]{0,9}", found.get("DELAY", "")) is None
    traits = "DELAY" in found, "INNER_MULTI_DISPATCH" in found, *rejected, is_odd, not message.properties_bytes
    keys = index_keys(message, like_3x=False)
    unique = unique_key_hash(message) if keys.required else None
    numbers = (
        message.physical_offset,
        message.size,
        message.queue_offset,
        message.store_timestamp,
        message.sys_flag,
        places[0].tags_code,
    )
    return (
        *numbers,
        (message.topic_bytes, message.queue_id),
        keys.allowed if with_tags else keys.required,
        unique,
        traits,
    )


def described_log(
    folder: Path, segment_size: int, *, with_tags: bool = True
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What columns say of a log, and what the one-record decoder does."""
    builder = DispatchRequestBuilder(with_keys=True, with_tags=with_tags)
    log = log_of(folder)
    rows: list[tuple[Any, ...]] = []
    for item in log.scan_columns(ScanSummary(), builder.take, threads=2, segment_size=segment_size):
        if isinstance(item, RecordRun):
            rows += said_of(item.result, builder.queues)
        elif isinstance(item, Message):
            rows += said_of(builder.of(item), builder.queues)
    return rows, [said_one_by_one(item, with_tags=with_tags) for item in log.scan() if isinstance(item, Message)]


@pytest.mark.parametrize("name", SMALL)
def test_the_dispatch_columns_of_every_golden_store(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path) / "commitlog"
    for with_tags in (False, True):
        in_columns, one_by_one = described_log(folder, 9000, with_tags=with_tags)
        assert in_columns == one_by_one


texts = st.one_of(
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=12).map(str.encode),
    st.binary(max_size=8).map(lambda raw: raw.replace(b"\1", b"").replace(b"\2", b"")),
    st.sampled_from([b"a b", b"k  k k", "\u8ba2\u5355-1 \U0001f600".encode(), b"\xed\xa0\x80", b"\xc0\x80"]),
)
names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"INNER_MULTI_DISPATCH", b"KEY", b"TAGSS", b"", b"x"])
pairs = st.lists(
    st.tuples(names, st.sampled_from([b"\x01", b"", b"\x01\x01"]), texts, st.sampled_from([b"\x02", b"\x02", b""])),
    max_size=6,
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
    b"KEYS\x01order-7\x02UNIQ_KEY\x0100000000\x02TAGS\x01Tag1\x02"
    + b"WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02" * 2,
    b"X\x01" + b"v" * 150 + b"\x02TAGS\x01b\x02DELAY\x013\x02UNIQ_KEY\x01" + b"0" * 32 + b"\x02KEYS\x01a b c\x02",
    b"TAGS\x01" + b"t" * 240 + b"\x02KEYS\x01k\x02",
    b"",
]
bytes_that_matter = st.sampled_from(b"\x01\x02 TKEGASY0-")
changes = st.lists(st.tuples(st.integers(0, 400), bytes_that_matter), max_size=3)
tails = st.tuples(
    st.sampled_from(SHAPES), st.sampled_from(["topic-1", "topic-2", "t", "T" * 70]), st.integers(0, 40), changes
)


def changed(shape: bytes, changes: list[tuple[int, int]]) -> bytes:
    found = bytearray(shape)
    for place, byte in changes if shape else []:
        found[place % len(shape)] = byte
    return bytes(found)


@pytest.mark.parametrize("examples", [100, pytest.param(600, marks=pytest.mark.slow)])
def test_tails_that_have_nearly_the_same_layout(examples: int, tmp_path: Path) -> None:
    @settings(PROPERTY, max_examples=examples)
    @given(found=st.lists(tails, min_size=2, max_size=40))
    def check(found: list[tuple[bytes, str, int, list[tuple[int, int]]]]) -> None:
        records = [
            Record(topic=topic, properties=changed(shape, of), queue_id=queue) for shape, topic, queue, of in found
        ]
        write_log(tmp_path, records, file_size=64 * 1024)
        in_columns, one_by_one = described_log(tmp_path / "commitlog", 64 * 1024)
        assert in_columns == one_by_one
        assert len(one_by_one) == len(records)

    check()


BODIES = [
    b"",
    b"x",
    b"\x78\x9c",
    b"\x78\x9c\x03",
    b"\x78\x9d",
    b"\x78\xbb",
    b"\x04\x22\x4d\x18",
    b"\x28\xb5\x2f\xfd--",
    b"\x28\xb5\x2f",
    b"plain",
]
flags = st.tuples(
    st.sampled_from([0, 1]), st.integers(0, 7), st.sampled_from([0, 8, 12]), st.sampled_from([0, BORN_V6, STORE_V6])
)
ports = st.sampled_from([0, 10911, 65535, 65536, -1, 2**31 - 1, -(2**31)])


@settings(PROPERTY, max_examples=100)
@given(found=st.lists(st.tuples(st.sampled_from(BODIES), flags, ports, ports), min_size=1, max_size=20))
def test_what_clients_reject(
    found: list[tuple[bytes, tuple[int, ...], int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "clients"
    data = bytearray()
    for body, (compressed, kind, transaction, v6), born, store in found:
        record = bytearray(
            log_bytes([Record(body=body, sys_flag=compressed | kind << 8 | transaction | v6)], base=len(data))
        )
        born_at = 48 + (16 if v6 == BORN_V6 else 4)
        struct.pack_into(">i", record, born_at, born)
        struct.pack_into(">i", record, born_at + 12 + (16 if v6 == STORE_V6 else 4), store)
        data += record
    write_log(root, [])
    (root / "commitlog" / f"{0:020d}").write_bytes(data)
    in_columns, one_by_one = described_log(root / "commitlog", 64 * 1024)
    assert in_columns == one_by_one
    assert len(one_by_one) == len(found)


def test_more_queues_than_a_table_begins_with_keep_their_numbers(tmp_path: Path) -> None:
    write_log(
        tmp_path, [Record(topic=f"t{i % 700}", queue_id=i // 700 % 5, body=struct.pack(">i", i)) for i in range(8000)]
    )
    in_columns, one_by_one = described_log(tmp_path / "commitlog", 50_000)
    assert in_columns == one_by_one
    assert len({row[6] for row in one_by_one}) == 3500
