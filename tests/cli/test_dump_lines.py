"""dump -o jsonl: what the kernel writes is byte for byte what the one-record way writes, filters included."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.cli.output.render import to_json
from rmqctl.forensics.dump import Dump
from rmqctl.forensics.message_filter import Filter
from rmqctl.format.body.bodies import Bodies, BodyMatch
from rmqctl.format.body.message_row import message_row
from rmqctl.format.message import Message
from rmqctl.format.sys_flag import TransactionType
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, unpack
from tests.support.log_maker import BORN_V6, STORE_V6, V2, Record, write_log
from tests.support.property_settings import PROPERTY

BODIES = ("none", "hex", "base64", "utf8")
YEAR_9999 = 253_402_300_799_999


def by_kernel(store: ReadOnlyStore, wanted: Filter, body: str) -> list[str]:
    blocks = Dump(store, wanted, bodies=Bodies(body), on_damage=print, threads=2).lines(to_json)
    return b"".join(blocks).decode().splitlines(keepends=True)


def one_by_one(store: ReadOnlyStore, wanted: Filter, body: str) -> list[str]:
    log = store.commit_log
    messages = [item for item in log.scan() if isinstance(item, Message) and wanted.matches(item)]
    rows = (
        message_row(m, path=log.path_of(m.physical_offset), tags_code=store.tags_code(m), bodies=Bodies(body))
        for m in messages
    )
    return [to_json(row) + "\n" for row in rows]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("name", [name for name in READABLE_NAMES if name != "471-cqext"])
def test_every_golden_store(name: str, body: str, tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack(name, tmp_path))
    lines = by_kernel(store, Filter(), body)
    assert lines == one_by_one(store, Filter(), body)
    assert lines


some_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=10)
plain_text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=10)
odd_texts = st.sampled_from(['a"b', "a\\b", "\x7f", "\u202e", "\u8ba2\u5355", "\u3164", "a b"])
texts = st.one_of(plain_text, plain_text, some_text, odd_texts).map(str.encode)
no_text = st.one_of(
    st.binary(max_size=6).map(lambda raw: raw.replace(b"\2", b"")), st.sampled_from([b"\xe4\xb8", b"\xe3\x80\x80"])
)
names = st.one_of(st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY"]), texts)
ends = st.sampled_from([b"\x02", b"\x02", b"\x02", b""])
pair = st.tuples(names, st.one_of(texts, texts, no_text), ends).map(
    lambda parts: parts[0] + b"\x01" + parts[1] + parts[2]
)
pairs = st.lists(pair, max_size=5).map(b"".join)
borders = st.sampled_from([YEAR_9999, YEAR_9999 + 1, -1, 2**63 - 1])
times = st.one_of(st.integers(0, 4_000_000_000_000), st.integers(-(10**14), 3 * 10**14), borders)
records = st.builds(
    Record,
    topic=st.one_of(st.sampled_from(["OrderPaid", "SCHEDULE_TOPIC_XXXX", "t"]), some_text.filter(bool)),
    queue_id=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(-(2**63), 2**63 - 1),
    body=st.binary(max_size=20),
    properties=pairs.filter(lambda raw: not raw.endswith(b"\0")),
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12, BORN_V6, STORE_V6, BORN_V6 | STORE_V6]),
    magic=st.sampled_from([0xDAA320A7, V2]),
    store_timestamp=times,
)


def written(root: Path, made: list[Record]) -> ReadOnlyStore:
    write_log(root, made)
    return ReadOnlyStore(root)


@settings(PROPERTY, max_examples=200)
@given(made=st.lists(records, min_size=1, max_size=5), body=st.sampled_from(BODIES))
def test_any_messages(made: list[Record], body: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = written(tmp_path_factory.getbasetemp() / "lines", made)
    lines = by_kernel(store, Filter(), body)
    assert lines == one_by_one(store, Filter(), body)
    assert len(lines) == len(made)


def test_a_row_that_no_kernel_writes_stands_in_its_place(tmp_path: Path) -> None:
    made = [
        Record(queue_offset=at, properties=b'TAGS\x01a"b\x02' if at % 3 == 1 else b"TAGS\x01b\x02") for at in range(200)
    ]
    store = written(tmp_path, made)
    lines = by_kernel(store, Filter(), "none")
    assert [re.search(r'"queueOffset":(\d+)', line)[1] for line in lines] == [str(at) for at in range(200)]  # type: ignore[index]
    assert lines == one_by_one(store, Filter(), "none")


CONDITIONS: list[dict[str, Any]] = [
    {"topics": frozenset(["orders"])},
    {"topics": frozenset(["orders", "events", "\ufffd"])},
    {"queue_id": 2},
    {"queue_offsets": (3, 50)},
    {"places": np.array([0, 300, 2**40])},
    {"host": (bytes([127, 0, 0, 1]), 33128)},
    {"host": (bytes([127, 0, 0, 1]), None), "queue_id": 0},
    {"tag": "TagA"},
    {"tag": "\ufffd"},
    {"key": "c0"},
    {"key": "o51"},
    {"key": ""},
    {"since": 1795253358049, "until": 1795253358110},
    {"from_offset": 300000, "to_offset": 400001},
    {"from_offset": 262144, "to_offset": 262145},
    {"transaction": TransactionType.COMMIT},
    {"transaction": TransactionType.PREPARED},
    {"transaction": TransactionType.NONE},
    {"transaction": TransactionType.NONE, "topics": frozenset(["events"])},
    {"body": BodyMatch(b"amount.:1"), "topics": frozenset(["orders"])},
]


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_filters(conditions: dict[str, Any], tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack("broker-497", tmp_path))
    wanted = Filter(**conditions)
    expected = one_by_one(store, wanted, "none")
    dump = Dump(store, wanted, on_damage=print, threads=2)
    assert [to_json(row) + "\n" for row in dump.rows()] == expected
    assert by_kernel(store, wanted, "none") == expected
    assert bool(expected) == (conditions not in ({"tag": "\ufffd"}, {"key": ""}))


odd_words = st.sampled_from(["k", "k1", "\ufffd", "\u8ba2", "a b", ""])


@PROPERTY
@given(
    made=st.lists(records, min_size=1, max_size=4),
    tag=st.none() | odd_words,
    key=st.none() | odd_words,
    topic=st.sampled_from(["OrderPaid", "t", "\ufffd", ""]),
)
def test_filters_of_any_messages(
    made: list[Record], tag: str | None, key: str | None, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tagged = b"TAGS\x01" + (tag or "x").encode() + b"\x02KEYS\x01x " + (key or "y").encode()
    more = [
        Record(properties=tagged),
        Record(properties=b"TAGS\x01\xff\x02KEYS\x01\xff z"),
        Record(properties=b"UNIQ_KEY\x01k1"),
    ]
    store = written(tmp_path_factory.getbasetemp() / "filtered", [*made, *more])
    wanted = Filter(topics=frozenset([topic] if topic else []), tag=tag, key=key)
    assert by_kernel(store, wanted, "none") == one_by_one(store, wanted, "none")


def test_the_range_ends_the_scan_where_it_says(tmp_path: Path) -> None:
    """`to_offset` in the middle of a record run: what is after it is neither counted nor shown."""
    store = written(tmp_path, [Record(queue_offset=at) for at in range(100)])
    size = one_by_one(store, Filter(), "none")[0]
    step = int(re.search(r'"size":(\d+)', size)[1])  # type: ignore[index]
    dump = Dump(store, Filter(to_offset=10 * step + 1), on_damage=print, threads=2)
    assert len(list(dump.rows())) == 11
    end = f"no record from offset {10 * step + 1} on is wanted"
    assert (dump.summary.messages, dump.summary.end, dump.summary.stopped) == (11, 11 * step, end)
