"""`rmqctl job diff`: copies of a log, changed in known places."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.spark.question.diff import diff
from rmqctl.spark.source.data_source import register
from tests.conftest import Rmqctl
from tests.spark.question.conftest import dumped
from tests.support.file_edits import overwrite
from tests.support.log_maker import Record, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]
NAME = "471-basic"
FILE_SIZE = 65536
MIB = 1024 * 1024


@pytest.fixture
def copies(golden_stores: dict[str, Path], tmp_path: Path) -> tuple[Path, Path]:
    return golden_stores[NAME], Path(shutil.copytree(golden_stores[NAME], tmp_path / "slave" / "store"))


def place_of(root: Path, message: Row, part: bytes) -> int:
    """The physical offset of the first `part` in a record."""
    start = message["physicalOffset"]
    data = (root / "commitlog" / f"{start // FILE_SIZE * FILE_SIZE:020d}").read_bytes()
    return int(start) + data[start % FILE_SIZE :].index(part)


def test_the_same(copies: tuple[Path, Path], document: Callable[..., Row]) -> None:
    found = document("diff", *copies, "--bodies")
    assert (found["code"], found["differences"], found["totals"], found["firstDivergence"]) == (0, [], {}, None)
    assert found["a"]["messages"] == found["b"]["messages"] == 300
    assert found["a"]["maxPhyOffset"] == found["b"]["maxPhyOffset"]


def test_a_flipped_bit_and_a_hole(copies: tuple[Path, Path], document: Callable[..., Row]) -> None:
    master, slave = copies
    messages = [row for row in dumped(master) if row["bodyLength"] > 20]
    flipped, lost = messages[40], messages[100]
    overwrite(slave, flipped["physicalOffset"] + 88 + 5, b"\xff")
    overwrite(slave, lost["physicalOffset"], bytes(lost["size"]))
    found = document("diff", master, slave)
    assert found["code"] == 1
    assert found["firstDivergence"] == flipped["physicalOffset"]
    first, second = found["differences"]
    assert (first["difference"], first["fields"], first["a"]["damage"]) == ("different", ["damage"], None)
    assert first["b"]["damage"] == "bad-body-crc"
    assert (second["physicalOffset"], second["difference"], second["b"]["damage"]) == (
        lost["physicalOffset"],
        "different",
        "hole",
    )
    assert document("diff", slave, master)["totals"].keys() == {"different"}


def test_what_no_checksum_covers(copies: tuple[Path, Path], document: Callable[..., Row]) -> None:
    master, slave = copies
    message = next(row for row in dumped(master) if "UNIQ_KEY" in row["properties"])
    key = message["properties"]["UNIQ_KEY"].encode()
    overwrite(slave, place_of(slave, message, key), b"Z")
    assert document("diff", master, slave)["code"] == 0
    (row,) = document("diff", master, slave, "--bodies")["differences"]
    assert (row["physicalOffset"], row["fields"]) == (message["physicalOffset"], ["properties"])
    assert row["a"]["properties"]["UNIQ_KEY"].encode() == key


def test_one_is_behind_and_one_has_expired_files(
    copies: tuple[Path, Path], document: Callable[..., Row], rmqctl: Rmqctl
) -> None:
    master, slave = copies
    files = sorted((slave / "commitlog").iterdir())
    files[0].unlink()
    files[-1].write_bytes(bytes(FILE_SIZE))
    before = sum(row["physicalOffset"] < FILE_SIZE for row in dumped(master))
    behind = sum(row["physicalOffset"] >= 3 * FILE_SIZE for row in dumped(master))
    found = document("diff", master, slave)
    assert (found["code"], found["differences"]) == (0, [])
    assert {name: total["records"] for name, total in found["totals"].items()} == {
        "expired-in-b": before,
        "behind-in-b": behind,
    }
    other = rmqctl("job", "diff", slave, master)
    assert other.code == 0
    assert f"A begins later, where B has {before} more records" in other.err
    assert f"A ends earlier, where B has {behind} more records" in other.err


def test_missing_and_extra_are_listed_up_to_the_limit(tmp_path: Path, document: Callable[..., Row]) -> None:
    """In b one message is longer than in a, so that those after it lie elsewhere."""
    records = [Record(queue_offset=number) for number in range(8)]
    write_log(tmp_path / "a", records, file_size=FILE_SIZE)
    write_log(
        tmp_path / "b",
        [*records[:3], Record(queue_offset=3, body=b"longer than hello"), *records[4:]],
        file_size=FILE_SIZE,
    )
    of_a, of_b = ([row["physicalOffset"] for row in dumped(tmp_path / name)] for name in "ab")
    found = document("diff", tmp_path / "a", tmp_path / "b")
    listed = [(row["difference"], row["physicalOffset"]) for row in found["differences"]]
    end = found["a"]["maxPhyOffset"]
    missing, extra = [("missing", at) for at in of_a[4:]], [("extra", at) for at in of_b[4:] if at < end]
    assert listed == sorted([("different", of_a[3]), *missing, *extra], key=lambda row: row[1])
    assert found["firstDivergence"] == of_a[3]
    limited = document("diff", tmp_path / "a", tmp_path / "b", "--limit", "1")
    assert limited["differences"] == found["differences"][:1]
    assert limited["totals"] == found["totals"]


def test_nothing_in_common(copies: tuple[Path, Path], tmp_path: Path, rmqctl: Rmqctl) -> None:
    write_log(tmp_path / "other", [], file_size=FILE_SIZE)
    result = rmqctl("job", "diff", copies[0], tmp_path / "other")
    assert result.code == 1
    assert "the logs have no offset in common" in result.err


def test_blocks_with_changes_of_each_kind(tmp_path: Path, document: Callable[..., Row], spark: SparkSession) -> None:
    """The job compares blocks of 1 MiB first; the notebook's question compares all records."""
    body = bytes(50_000)
    records = [Record(queue_offset=number, body=body) for number in range(250)]
    records[130:130] = [Record(topic="Large", body=bytes(3 * MIB))]
    changed = list(records)
    changed[30] = Record(queue_offset=30, body=body, properties=Record().properties.replace(b"TagA", b"TagB"))
    changed[99] = Record(topic="OrderP4id", queue_offset=99, body=body)
    changed[200] = Record(queue_offset=31, body=body[9:])  # what follows lies elsewhere
    a, b = tmp_path / "a", tmp_path / "b"
    write_log(a, records, file_size=18 * MIB)
    data = bytearray(write_log(b, changed[:220], file_size=18 * MIB))
    data[4 * MIB : 4 * MIB + 200_000] = bytes(200_000)
    data[9 * MIB] ^= 1
    (b / "commitlog" / f"{0:020d}").write_bytes(data)
    register(spark)
    for bodies in (False, True):
        tables = [spark.read.format("rocketmq").option("splitMiB", 2).load(str(root)) for root in (a, b)]
        rows = diff(*tables, bodies=bodies).where("difference IN ('missing', 'extra', 'different')")
        wanted = [(row["physicalOffset"], row["difference"], row["fields"]) for row in rows.collect()]
        options = ["--bodies"] if bodies else []
        found = document("diff", a, b, "--split-mib", 2, "--limit", 100_000, *options)["differences"]
        assert [(row["physicalOffset"], row["difference"], row["fields"]) for row in found] == sorted(wanted)
        assert {row["difference"] for row in found} == {"missing", "extra", "different"}


def test_a_file_that_is_gone(copies: tuple[Path, Path], document: Callable[..., Row], spark: SparkSession) -> None:
    """Damage between files lies where the other log has a record."""
    sorted((copies[1] / "commitlog").iterdir())[1].unlink()
    register(spark)
    tables = [spark.read.format("rocketmq").load(str(root)) for root in copies]
    wanted = [(row["physicalOffset"], row["difference"], row["fields"]) for row in diff(*tables).collect()]
    found = document("diff", *copies)["differences"]
    assert [(row["physicalOffset"], row["difference"], row["fields"]) for row in found] == sorted(wanted)
    assert {row["difference"] for row in found} == {"missing", "different"}


def test_in_a_notebook(spark: SparkSession, tmp_path: Path) -> None:
    records = [Record(queue_offset=number) for number in range(8)]
    for name, count in (("a", 8), ("b", 5), ("none", 0)):
        write_log(tmp_path / name, records[:count], file_size=FILE_SIZE)
    register(spark)
    a, b, none = (spark.read.format("rocketmq").load(str(tmp_path / name)) for name in ("a", "b", "none"))
    offsets = [row["physicalOffset"] for row in dumped(tmp_path / "a")]
    for left, right, difference, wanted in (
        (a, b, "behind-in-b", offsets[5:]),
        (none, a, "behind-in-a", offsets),
        (a, a, "", []),
    ):
        rows = diff(left, right).orderBy("physicalOffset").collect()
        assert [(row["physicalOffset"], row["difference"], row["fields"]) for row in rows] == [
            (at, difference, []) for at in wanted
        ]
