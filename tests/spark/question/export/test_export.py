"""`rmqctl job export`: read back by pyarrow, and by Python's own readers, it is what `rmqctl dump` prints."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lz4.frame
import pytest

from rmqctl.spark.question.export.export_format import _csv, without_formulas
from tests.conftest import Rmqctl, tree_hash
from tests.spark.question.conftest import dumped
from tests.support.log_maker import Record, write_log

pytestmark = pytest.mark.spark

Row = dict[str, Any]
STORES = ("326-tx-crash", "497-lmq", "533-longtopic", "broker-497")


def read_back(folder: Path) -> list[Row]:
    from pyarrow import dataset

    table = dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
    rows: list[Row] = table.to_pylist()
    return rows


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["broker"], row["physicalOffset"]))


def test_parquet(golden_stores: dict[str, Path], tmp_path: Path, document: Callable[..., Row]) -> None:
    roots = {name: golden_stores[name] for name in STORES}
    found = document("export", *roots.values(), "--to", tmp_path / "out")
    rows = in_order(read_back(tmp_path / "out"))
    wanted = [
        row | {"broker": name, "store": str(roots[name])}
        for name in sorted(roots)
        for row in dumped(roots[name], "hex")
    ]
    assert found["code"] == 0
    assert found["messages"] == len(rows) == len(wanted)
    assert found["bytes"] == sum(row["size"] for row in rows)
    for row, dump in zip(rows, wanted, strict=True):
        assert zlib.crc32(row["body"]) & 0x7FFFFFFF == row["bodyCrc"] or not row["body"]
        assert row["body"].hex() == dump["body"]
        assert dict(row["properties"]) == dump["properties"]
        assert row["day"] == dump["storeTime"][:10]
        assert row["storeTime"].timestamp() * 1000 == pytest.approx(dump["storeTimestamp"])
        same = set(dump) - {"body", "bodyEncoding", "properties", "storeTime", "bornTime"}
        assert {key: row[key] for key in same} == {key: dump[key] for key in same}


def test_json_lines_are_dumps(golden_stores: dict[str, Path], tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden_stores["broker-533"]
    assert rmqctl("job", "export", root, "--to", tmp_path / "out", "--format", "jsonl").code == 0
    lines = [line for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()]
    rows = in_order([json.loads(line) for line in lines])
    assert rows == [row | {"broker": "broker-533", "store": str(root)} for row in dumped(root, "base64")]


def test_decompressed_bodies_and_brokers_of_one_name(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Two stores of `broker-a` stay apart; lz4 and zstd bodies are the text that `dump --body utf8` shows."""
    bodies = {0x1: zlib.compress(b"needle"), 0x101: lz4.frame.compress(b"needle"), 0x201: b"broken"}
    roots = [tmp_path / name / "broker-a" / "store" for name in "ms"]
    for root in roots:
        write_log(root, [Record(sys_flag=flag, body=body) for flag, body in bodies.items()], file_size=4096)
    to = ("--to", tmp_path / "out", "--format", "jsonl", "--body", "utf8")
    assert rmqctl("job", "export", *roots, *to).code == 0
    rows = [json.loads(line) for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()]
    wanted = [("needle", "utf8"), ("needle", "utf8"), (base64.b64encode(b"broken").decode(), "base64")]
    for root in roots:
        ours = sorted((row for row in rows if row["store"] == str(root)), key=lambda row: row["physicalOffset"])
        assert [(row["body"], row["bodyEncoding"]) for row in ours] == wanted
    asked = rmqctl("job", "sql", "SELECT count(*) n FROM messages WHERE bodyText = 'needle'", *roots, "-o", "json")
    assert asked.document()["rows"] == [{"n": 4}]
    assert str(roots[1]) in rmqctl("job", "stats", *roots).out


def test_csv(golden_stores: dict[str, Path], tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden_stores["533-basic"]
    assert rmqctl("job", "export", root, "--to", tmp_path / "out", "--format", "csv").code == 0
    rows: list[Row] = []
    for path in (tmp_path / "out").glob("*.csv"):
        with path.open(newline="") as file:
            rows += csv.DictReader(file)
    rows.sort(key=lambda row: int(row["physicalOffset"]))
    wanted = dumped(root, "base64")
    assert [json.loads(row["properties"]) for row in rows] == [row["properties"] for row in wanted]
    assert [base64.b64decode(row["body"]) for row in rows] == [base64.b64decode(row["body"]) for row in wanted]
    assert [row["storeTime"] for row in rows] == [row["storeTime"] for row in wanted]


CONDITIONS: list[tuple[list[str], Callable[[Row], bool]]] = [
    (["--topic", "OrderPaid", "--topic", "stock_change"], lambda row: row["topic"] in ("OrderPaid", "stock_change")),
    (["--since", "1795252553900"], lambda row: row["storeTimestamp"] >= 1_795_252_553_900),
    (["--from-offset", "65536", "--to-offset", "90000"], lambda row: 65_536 <= row["physicalOffset"] < 90_000),
    (["--tag", "TagA"], lambda row: row["properties"].get("TAGS") == "TagA"),
    (["--key", "none"], lambda _: False),
    (["--body-match", "[a-m]", "--queue", "1"], lambda row: row["queueId"] == 1),
]


@pytest.mark.parametrize("number", range(len(CONDITIONS)))
def test_conditions_and_one_file(
    number: int, golden_stores: dict[str, Path], tmp_path: Path, document: Callable[..., Row], rmqctl: Rmqctl
) -> None:
    """A file by name, in log order, with what dump prints with the same conditions."""
    options, is_wanted = CONDITIONS[number]
    root = golden_stores["533-basic"]
    found = document("export", root, *options, "--body", "utf8", "--to", tmp_path / "out.jsonl")
    asked = rmqctl("dump", root, *options, "--body", "utf8", "-o", "jsonl").rows()
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == [row | {"broker": "533-basic", "store": str(root)} for row in asked]
    assert all(map(is_wanted, rows))
    assert (found["messages"], found["fileCount"]) == (len(rows), 1)
    assert (found["messagesRead"] < 300) == (number in (1, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_one_csv(golden_stores: dict[str, Path], tmp_path: Path, rmqctl: Rmqctl) -> None:
    roots = [golden_stores["533-basic"], golden_stores["broker-497"]]
    target = tmp_path / "all.csv"
    job = ("job", "export", *roots, "--to", target)
    assert rmqctl(*job, "--split-mib", "1").code == 0
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = [(str(root), str(row["physicalOffset"])) for root in roots for row in dumped(root)]
    assert [(row["store"], row["physicalOffset"]) for row in rows] == wanted
    refused = rmqctl(*job)
    assert (refused.code, "all.csv: already exists (give --mode overwrite)" in refused.err) == (2, True)
    assert rmqctl(*job, "--topic", "none", "--mode", "overwrite").code == 0
    assert len(target.read_text().splitlines()) == 1
    for words in (["--mode", "append"], ["--body", "json"], ["--unconsumed", "--group", "g"]):
        assert rmqctl(*job, *words).code == 2
    assert rmqctl("job", "export", roots[0], "--format", "iceberg", "--to", "a.b", "--tag", "x").code == 2


def test_bodies_as_json(tmp_path: Path, rmqctl: Rmqctl) -> None:
    bodies = [b'{"id": 12345678901234567890,\n "a": [1.50]}', b"[" * 2000, b"plain", b"7", b""]
    write_log(tmp_path / "store", [Record(body=body) for body in bodies], file_size=65536)
    to = ("--to", tmp_path / "out.jsonl", "--body", "json")
    assert rmqctl("job", "export", tmp_path / "store", *to).code == 0
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert '"bodyJson":{"id":12345678901234567890,"a":[1.50]}' in lines[0]
    rows = [json.loads(line) for line in lines]
    shown = [(row["body"], row["bodyEncoding"]) for row in rows]
    assert shown == [(None, "json"), ("[" * 2000, "utf8"), ("plain", "utf8"), (None, "json"), ("", "utf8")]
    assert rows[3]["bodyJson"] == 7


def test_without_bodies_and_damaged(
    damaged_stores: dict[str, Path], tmp_path: Path, document: Callable[..., Row]
) -> None:
    root = damaged_stores[min(name for name in damaged_stores if "body-flip" in name)]
    found = document("export", root, "--to", tmp_path / "out", "--body", "none")
    rows = read_back(tmp_path / "out")
    assert found["code"] == found["damages"] == 1
    assert sorted(row["physicalOffset"] for row in rows) == [row["physicalOffset"] for row in dumped(root)]
    assert "body" not in rows[0]


ODD_TOPICS = (
    "%RETRY%x",
    "../x",
    "../../../escape",
    "..",
    "a/b",
    "a=b",
    "day=1",
    "x\ny",
    "Ünïcode",
    "007",
    "__HIVE_DEFAULT_PARTITION__x",
    "~",
    "*",
)


def test_topics_cannot_lead_elsewhere(tmp_path: Path, rmqctl: Rmqctl) -> None:
    write_log(tmp_path / "in" / "store", [Record(topic=topic, queue_offset=0) for topic in ODD_TOPICS], file_size=65536)
    target = tmp_path / "deep" / "down" / "out"
    target.parent.mkdir(parents=True)
    outside = tree_hash(tmp_path / "in")
    assert rmqctl("job", "export", tmp_path / "in" / "store", "--to", target).code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"in", "deep"}
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    assert tree_hash(tmp_path / "in") == outside
    assert {path.parent.name[:4] for path in target.rglob("*.parquet")} == {"day="}
    assert all(len(path.relative_to(target).parts) == 3 for path in target.rglob("*.parquet"))
    assert sorted(str(row["topic"]).removeprefix("00") for row in read_back(target)) == sorted(
        topic.removeprefix("00") for topic in ODD_TOPICS
    )


def test_an_empty_folder_is_taken(golden_stores: dict[str, Path], tmp_path: Path, rmqctl: Rmqctl) -> None:
    (tmp_path / "out").mkdir()
    assert rmqctl("job", "export", golden_stores["533-basic"], "--to", tmp_path / "out", "--body", "none").code == 0
    assert len(read_back(tmp_path / "out")) == 300


def test_a_log_that_cannot_be_read_as_a_whole_is_not_exported(
    golden: Callable[[str], Path], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    root = golden("533-basic")
    file = root / "commitlog" / f"{65536:020d}"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "target").mkdir()
    result = rmqctl("job", "export", root, "--to", tmp_path / "target" / "out")
    assert (result.code, result.out) == (4, "")
    assert "nothing was exported" in result.err
    assert not list((tmp_path / "target").iterdir())


def test_a_url_and_the_modes(golden_stores: dict[str, Path], tmp_path: Path, document: Callable[..., Row]) -> None:
    one, other = (golden_stores[name] for name in ("broker-497", "533-basic"))
    target = tmp_path / "out"
    to = ("--to", f"fsspec+local://{target}")
    first = document("export", one, *to)
    assert (first["code"], first["to"], first["fileCount"]) == (0, to[1], len(list(target.rglob("*.parquet"))))
    second = document("export", other, *to, "--mode", "append")
    rows = in_order(read_back(target))
    wanted = [*dumped(other), *dumped(one)]
    assert [row["physicalOffset"] for row in rows] == [row["physicalOffset"] for row in wanted]
    manifest = json.loads((target / "_MANIFEST").read_text())["files"]
    assert len(manifest) == first["fileCount"] + second["fileCount"]
    assert sum(file["messages"] for file in manifest) == len(rows)
    assert document("export", other, *to, "--mode", "overwrite", "--format", "csv")["fileCount"] == 1
    assert [path.suffix for path in target.rglob("part*")] == [".csv"]


def test_files_of_the_wanted_size(tmp_path: Path, document: Callable[..., Row]) -> None:
    bodies = random.Random(1)
    records = [Record(body=bodies.randbytes(20_000), queue_offset=number) for number in range(200)]
    write_log(tmp_path / "store", records)
    found = document("export", tmp_path / "store", "--to", tmp_path / "out", "--split-mib", "1", "--file-mib", "3")
    sizes = [path.stat().st_size for path in (tmp_path / "out").rglob("*.parquet")]
    assert len(sizes) == found["fileCount"] == 2  # four tasks have written one each
    assert max(sizes) <= 3 << 20
    assert [row["queueOffset"] for row in in_order(read_back(tmp_path / "out"))] == list(range(200))


def test_a_log_without_messages(tmp_path: Path, document: Callable[..., Row]) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    found = document("export", tmp_path / "store", "--to", tmp_path / "out")
    assert (found["code"], found["messages"], found["fileCount"]) == (0, 0, 0)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_SUCCESS"]


def test_a_text_in_csv_is_no_formula() -> None:
    rows: list[Row] = [
        {"topic": "=1+1", "queueId": -1},
        {"topic": "-a", "queueId": 2},
        {"topic": "a=", "queueId": None},
    ]
    found = [tuple(without_formulas(row).values()) for row in rows]
    assert found == [("'=1+1", -1), ("'-a", 2), ("a=", None)]


def test_a_line_break_of_any_kind_in_csv_is_quoted() -> None:
    text = _csv([{"a": 1, "b": value} for value in ("x\ry", "x\ny", "x\r\ny", 'x"y', "x,y", "", None)])
    assert text.split(b"1,")[1:3] == [b'"x\ry"\n', b'"x\ny"\n']
    assert text.endswith(b"1,\n1,\n")
    found = [row[1] for row in csv.reader(io.StringIO(text.decode(), newline=""))]
    assert found == ["x\ry", "x\ny", "x\r\ny", 'x"y', "x,y", "", ""]


@pytest.mark.parametrize(
    "url", ["fsspec+local://{}/new", "file://{}/new", "fsspec+local://{}/../store/new?use_mmap=1", "{}"]
)
def test_an_export_into_the_store_itself_is_refused(url: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "store"
    root.mkdir()
    for store in (str(root), f"fsspec+local://{root}"):
        found = rmqctl("job", "export", store, "--to", url.format(root))
        assert (found.code, len(found.err.splitlines())) == (2, 1)
        assert "is inside the store" in found.err


@pytest.mark.parametrize("place", ["{}", "fsspec+local://{}"], ids=["path", "url"])
@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_tasks_that_run_twice(
    place: str,
    file_format: str,
    golden_stores: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    document: Callable[..., Row],
) -> None:
    """As Spark does by speculation, or after an executor that ended late: both write, and one answer counts."""

    def twice(_: object, calls: Sequence[Callable[[], object]]) -> dict[int, Callable[[], object]]:
        first = [call() for call in calls]
        second = [call() for call in calls]
        return {number: partial((first, second)[number % 2].__getitem__, number) for number in range(len(calls))}

    monkeypatch.setattr("rmqctl.spark.scan.task_answers.answers", twice)
    root, target = golden_stores["broker-533"], tmp_path / "out"
    found = document("export", root, "--to", place.format(target), "--format", file_format)
    paths = [path for path in target.rglob("part-*") if path.is_file()]
    if file_format == "parquet":
        offsets = [row["physicalOffset"] for row in read_back(target)]
    else:
        offsets = [json.loads(line)["physicalOffset"] for path in paths for line in path.read_text().splitlines()]
    assert sorted(offsets) == [row["physicalOffset"] for row in dumped(root)]
    assert (found["messages"], found["fileCount"]) == (len(offsets), len(paths))
    assert not [*target.glob("_rmqctl-*"), *tmp_path.glob(".out.*")]
