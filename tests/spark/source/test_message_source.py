"""Rows that tasks make of splits: those of `rmqctl dump --damaged`, on every golden store and kind of damage.

No Spark runs here.
"""

from __future__ import annotations

import re
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from rmqctl.errors import BadRequest, NotAStore, RmqctlError, Unreadable
from rmqctl.forensics.dump import Dump
from rmqctl.forensics.message_filter import Filter
from rmqctl.format.body.bodies import Bodies
from rmqctl.spark.scan.coverage import coverage, range_of
from rmqctl.spark.source.index_source import INDEX_COLUMNS
from rmqctl.spark.source.message_schema import GROUP_COLUMNS, MESSAGE_COLUMNS, chosen
from rmqctl.spark.source.message_source import GroupSource, MessageSource, ranges_to_json, splits_to_json
from rmqctl.spark.source.queue_source import QUEUE_COLUMNS
from rmqctl.spark.source.stream.stream_source import OPTIONS
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, apply_damage, damage_cases, unpack
from tests.support.log_maker import BORN_V6, STORE_V6, Record, write_log
from tests.support.source_rows import (
    as_dump,
    as_source,
    assert_as_dump,
    dumped,
    in_order,
    rows_of,
    splits_before_a_record_in_a_body,
)

pytestmark = pytest.mark.spark  # for pyarrow

CASES = damage_cases()
KINDS = sorted({case["case"] for case in CASES.values()})


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    assert assert_as_dump(unpack(name, tmp_path)) == 1


@pytest.mark.parametrize("number", range(len(KINDS)), ids=KINDS)
def test_every_kind_of_damage(number: int, tmp_path: Path) -> None:
    """Each on the next store."""
    names = sorted(name for name, case in CASES.items() if case["case"] == KINDS[number])
    name = names[number % len(names)]
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    assert assert_as_dump(root) == 1


@pytest.mark.parametrize("split_size", [500, 1_000, 65_535, 65_536, 65_537, 10**9])
def test_splits_of_any_size(split_size: int, tmp_path: Path) -> None:
    assert_as_dump(unpack("533-basic", tmp_path), split_size)


def test_a_split_that_began_in_a_body_is_read_once_more(tmp_path: Path) -> None:
    splits = splits_before_a_record_in_a_body(tmp_path)
    rows = list(rows_of(tmp_path, ranges="true", splits=splits_to_json(splits)))
    assert len([row for row in rows if row["kind"] == "message"]) == 4
    found = coverage(range_of(row["detail"]) for row in rows if row["kind"] == "range")
    assert (found.joined, found.splits) == (False, (splits[0]._replace(stop=splits[1].stop), splits[2]))
    again = list(rows_of(tmp_path, splits=splits_to_json(found.splits)))
    assert in_order([as_dump(row) for row in again if row["kind"] != "blank"]) == dumped(tmp_path)


def test_tasks_that_run_twice_count_once(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    sorted((root / "commitlog").iterdir())[1].unlink()  # a gap, which is in no split
    shown = dumped(root)
    rows = [*rows_of(root, ranges="true"), *rows_of(root, ranges="true")]
    counts = coverage(range_of(row["detail"]) for row in rows if row["kind"] == "range").counts
    messages = [row for row in shown if row.get("damage") is None]
    assert counts.messages == len(messages)
    assert counts.bytes == sum(row["size"] for row in messages)
    assert counts.damages == len(shown) - len(messages) == 1
    assert counts.blanks * 2 == len([row for row in rows if row["kind"] == "blank"])
    assert (counts.begin, counts.end) == (
        0,
        max(row["physicalOffset"] + row["size"] for row in rows if row["kind"] != "damage"),
    )


def test_a_log_without_files_says_that_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    rows = list(rows_of(tmp_path, ranges="true"))
    assert [row["kind"] for row in rows] == ["range"]
    assert coverage(range_of(row["detail"]) for row in rows).joined


def test_large_messages_and_text_that_is_no_utf8(tmp_path: Path) -> None:
    large = Record(body=b"x" * 3_000_000)
    odd = Record(
        properties=b"TAGS\x01a\xff\x02KEYS\x01\xe4\xb8\x02\xc3\x01v\x02TAGS\x01b\xfe\x02"
        b"UNIQ_KEY\x01\xe4\xb8\xad\x02x\x01\x02\x01y"
    )
    write_log(tmp_path, [Record(), odd, large, large, Record(properties=b"", topic="\u4e2d")], file_size=7_000_000)
    assert assert_as_dump(tmp_path, 1_000_000) == 1
    assert [row["tags"] for row in rows_of(tmp_path)][:2] == ["TagA", "b\ufffd"]


@pytest.mark.parametrize("times", [[-1, 0, 2**63 - 1], [253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_001]])
def test_store_times_that_are_no_date(times: list[int], tmp_path: Path) -> None:
    write_log(tmp_path, [Record(store_timestamp=time) for time in times])
    assert_as_dump(tmp_path)


def test_hosts_of_both_kinds(tmp_path: Path) -> None:
    write_log(tmp_path, [Record(sys_flag=flag) for flag in (0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6, 0)])
    assert_as_dump(tmp_path)


def test_a_file_of_zeros_between_two_that_are_written(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    for number in (1, 2):
        (root / "commitlog" / f"{number * 65_536:020d}").write_bytes(bytes(65_536))
    assert_as_dump(root)


def test_the_log_goes_on_behind_an_end(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    with (root / "commitlog" / f"{65_536:020d}").open("r+b") as file:
        file.truncate(40_000)
        file.truncate(65_536)
    (root / "commitlog" / f"{131_072:020d}").write_bytes(bytes(65_536))
    assert_as_dump(root)


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({}, BadRequest, "no store is named"),
        ({"path": "/none"}, NotAStore, "/none: no such folder"),
        ({"path": "/none/*"}, NotAStore, "nothing matches"),
        ({"path": "/x", "splitMiB": "0"}, BadRequest, "splitMiB is '0' (a whole number from 1 to 4096)"),
        ({"path": "/x", "ranges": "yes"}, BadRequest, "ranges is 'yes', neither true nor false"),
        ({"path": "/x", "splits": "[[1]]"}, BadRequest, "the option `splits` is no list of splits"),
        ({"path": "/x", "topics": " ,"}, BadRequest, "topics names none"),
        ({"path": "/x", "since": "2026-11-21"}, BadRequest, "since is '2026-11-21' (a time such as"),
        ({"path": "/x", "fromOffset": "9", "toOffset": "8"}, BadRequest, "fromOffset is after toOffset"),
        ({"path": "/x", "charset": "hex"}, BadRequest, "charset is 'hex' (such as gbk"),
        ({"path": "/x", "brokerConf": "/none"}, BadRequest, "/none: broker.conf does not exist"),
    ],
)
def test_options_that_are_none(options: dict[str, str], error: type[RmqctlError], what: str) -> None:
    with pytest.raises(error, match=re.escape(what)):
        MessageSource(options, ["topic"]).tasks()


NARROWED: list[tuple[dict[str, str], Filter]] = [
    ({"topics": "OrderPaid, stock_change"}, Filter(topics=frozenset({"OrderPaid", "stock_change"}))),
    ({"since": "1795252553900"}, Filter(since=1_795_252_553_900)),
    ({"since": "2026-11-21T09:15:53.900Z", "until": "1795252553950"}, Filter(since=1795252553900, until=1795252553950)),
    ({"fromOffset": "65540", "toOffset": "140000"}, Filter(from_offset=65_540, to_offset=140_000)),
    ({"fromOffset": "999999999"}, Filter(from_offset=999_999_999)),
    ({"topics": "OrderPaid", "toOffset": "70000"}, Filter(topics=frozenset({"OrderPaid"}), to_offset=70_000)),
]


@pytest.mark.parametrize(("options", "wanted"), NARROWED)
@pytest.mark.parametrize("name", ["533-basic", "533-crash"])
def test_options_that_narrow(name: str, options: dict[str, str], wanted: Filter, tmp_path: Path) -> None:
    """The rows are those of dump with this filter; `rocketmq-groups` counts them."""
    root = unpack(name, tmp_path)
    second = sorted((root / "commitlog").iterdir())[1]
    second.write_bytes(second.read_bytes()[:9000] + b"damaged" + second.read_bytes()[9007:])
    rows = [as_dump(row) for row in rows_of(root, None, **options)]
    with closing(ReadOnlyStore(root)) as store:
        dump = Dump(store, wanted, bodies=Bodies("hex"), on_damage=lambda _: None)
        asked = in_order([as_source(row) for row in dump.rows()])
    assert in_order([row for row in rows if row["kind"] == "message"]) == asked
    assert any(row["kind"] == "blank" for row in rows) == ("fromOffset" in options and "toOffset" in options)
    source = GroupSource({"path": str(root), **options}, ["messages"])
    counts = [batch["messages"].to_pylist() for task in source.tasks() for batch in source.read(task)]
    assert sum(map(sum, counts)) == len(asked)


def test_a_charset_and_born_times(tmp_path: Path) -> None:
    text = "\u8ba2\u5355"
    body = text.encode("gbk")
    write_log(tmp_path, [Record(body=body), Record(body=body * 1_000_000)], file_size=9_000_000)
    rows = list(rows_of(tmp_path, ["bodyText", "bornTime", "bornTimestamp"], charset="gbk"))
    assert [row["bodyText"][:2] for row in rows] == [text] * 2
    assert all(round(row["bornTime"].timestamp() * 1000) == row["bornTimestamp"] for row in rows)


def test_columns_that_are_not_there() -> None:
    with pytest.raises(BadRequest, match="there is no column 'bodyy'"):
        chosen(MESSAGE_COLUMNS, "topic, bodyy")
    assert chosen(MESSAGE_COLUMNS, " topic,size ,topic") == ["topic", "size"]


def test_the_manual_names_each_option_and_column() -> None:
    text = files("rmqctl.cli").joinpath("topics", "rmqctl-spark.md").read_text()
    rows = re.findall(r"^\| ([\w, ]+) \|", text, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    internal = {"ranges", "splits", "expected", "pieces"}
    assert named >= {*MESSAGE_COLUMNS, *MessageSource.OPTIONS, *OPTIONS, "columns"} - internal
    others = set(re.findall(r"\w+", text.split("COLUMNS OF THE OTHER FORMATS")[1]))
    assert others >= {*GROUP_COLUMNS, *QUEUE_COLUMNS, *INDEX_COLUMNS, *GroupSource.OPTIONS[-2:]}


def test_columns_are_made_alone(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    rows = list(rows_of(root))
    for name in MESSAGE_COLUMNS:
        assert list(rows_of(root, [name])) == [{name: row[name]} for row in rows]


@pytest.mark.parametrize("what", ["gone", "another"])
def test_a_file_that_a_task_does_not_see(what: str, tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    source = MessageSource({"path": str(root)}, ["topic"])
    tasks = source.tasks()
    path = root / "commitlog" / f"{65_536:020d}"
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(b"x" * 65_536)
    with pytest.raises(Unreadable, match="an executor finds there"):
        [list(source.read(task)) for task in tasks]


def test_a_second_reading_must_find_what_the_first_has_found(tmp_path: Path) -> None:
    write_log(tmp_path, [Record(body=b"body")] * 4, file_size=4096)
    options = {"path": str(tmp_path), "ranges": "true"}
    first = MessageSource(options, ("kind", "detail"))
    rows = [row for task in first.tasks() for batch in first.read(task) for row in batch.to_pylist()]
    ranges = [range_of(row["detail"]) for row in rows if row["kind"] == "range"]
    second = MessageSource(options | {"expected": ranges_to_json(ranges)}, ("kind", "detail"))
    again = [row for task in second.tasks() for batch in second.read(task) for row in batch.to_pylist()]
    assert again == rows
    write_log(tmp_path, [Record(body=b"body")] * 5, file_size=4096)
    with pytest.raises(Unreadable, match="the log has changed since it was read for the first time"):
        list(second.read(second.tasks()[0]))
    with pytest.raises(BadRequest, match="no list of ranges"):
        MessageSource(options | {"expected": "[1]"}, ("kind",))
