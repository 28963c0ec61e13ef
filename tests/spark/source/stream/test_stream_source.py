"""What a stream reads of a log that grows: every record once, none half written. No Spark runs here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.system.storage import Storage
from rmqctl.spark.source.message_schema import MESSAGE_COLUMNS
from rmqctl.spark.source.stream import boundary, stream_source
from rmqctl.spark.source.stream.stream_reader import stream_reader_class
from rmqctl.spark.source.stream.stream_source import StreamSource
from tests.conftest import READABLE_NAMES, apply_damage, damage_cases, unpack
from tests.support.log_maker import FILE_SIZE, Log, Record, encode, write_log
from tests.support.source_rows import as_dump, dumped, in_order

pytestmark = pytest.mark.spark  # for pyarrow

CASES = damage_cases()
DAMAGED = [name for number, name in enumerate(sorted(CASES)) if number % 6 == 0]


@pytest.fixture(autouse=True)
def _settles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "SETTLE_SECONDS", 0.0)


def source_of(root: Path, **options: str) -> StreamSource:
    return StreamSource({"path": str(root), **options}, list(MESSAGE_COLUMNS))


def between(source: StreamSource, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    return [row for task in source.tasks(start, end) for batch in source.read(task) for row in batch.to_pylist()]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for row in rows if row["kind"] == "message"]


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_all_of_a_golden_store(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    source = source_of(root)
    rows = between(source, source.begin(), source.latest(source.begin()))
    assert in_order([as_dump(row) for row in rows if row["kind"] != "blank"]) == dumped(root)


@pytest.mark.parametrize("name", DAMAGED)
def test_messages_of_a_damaged_store_up_to_the_last_whole_one(name: str, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    source = source_of(root)
    end = source.latest(source.begin())
    rows = [as_dump(row) for row in between(source, source.begin(), end) if row["kind"] == "message"]
    assert in_order(rows) == [
        row for row in dumped(root) if row["kind"] == "message" and row["physicalOffset"] < end[str(root)]
    ]
    behind = [row for row in dumped(root) if row["kind"] == "message" and row["physicalOffset"] >= end[str(root)]]
    assert behind == []


def test_batches_join(tmp_path: Path) -> None:
    log = Log(tmp_path)
    source = source_of(tmp_path)
    start = source.begin()
    written: list[int] = []
    read: list[int] = []
    for number in range(200):
        written.append(log.append(Record(queue_offset=number, body=b"x" * (number * 7 % 300))))
        if number % 13 == 0:
            end = source.latest(start)
            read += offsets(between(source, start, end))
            start = end
    assert read == written[: len(read)]
    end = source.latest(start)
    assert read + offsets(between(source, start, end)) == written
    assert source.latest(end) == end
    assert between(source, end, end) == []


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_record_in_the_making_waits(part: float, tmp_path: Path) -> None:
    log = Log(tmp_path)
    source = source_of(tmp_path)
    first = log.append(Record())
    second = log.append(Record(body=b"y" * 100), part=part)
    end = source.latest(source.begin())
    assert end == {str(tmp_path): second}
    log.append(Record(body=b"y" * 100))
    assert offsets(between(source, end, source.latest(end))) == [second]
    assert offsets(between(source, source.begin(), end)) == [first]


def test_a_record_that_changes_while_it_settles_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    log.append(Record())
    last = log.append(Record(properties=b""))

    def meanwhile(_: float) -> None:
        log.end = last
        log.append(Record(properties=b"TAGS\x01TagA\x02"))

    monkeypatch.setattr("rmqctl.spark.source.stream.stream_source.time.sleep", meanwhile)
    source = source_of(tmp_path)
    assert source.latest(source.begin()) == {str(tmp_path): last}
    assert source.latest(source.begin())[str(tmp_path)] == log.end


def test_batches_and_splits_of_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "MIB", 1)
    root = unpack("533-basic", tmp_path)
    source = source_of(root, splitMiB="3000", maxBytesPerTrigger="50000")
    start, read = source.begin(), []
    sizes = []
    while (end := source.end(start, source.latest(start), source.batch_size)) != start:
        sizes.append(end[str(root)] - start[str(root)])
        read += between(source, start, end)
        start = end
    assert len(sizes) > 1
    assert in_order([as_dump(row) for row in read if row["kind"] == "message"]) == dumped(root)


def test_from_the_end_on(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for _ in range(60):
        log.append(Record())
    source = source_of(tmp_path, startingOffset="latest")
    start = source.begin()
    assert start == {str(tmp_path): log.end}
    new = log.append(Record())
    assert offsets(between(source, start, source.latest(start))) == [new]


@pytest.mark.parametrize("name", ["533-basic", *DAMAGED])
def test_offsets_far_ahead_are_found_without_reading_all(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpack(CASES[name]["base"] if name in CASES else name, tmp_path)
    apply_damage(root, CASES[name]["ops"] if name in CASES else [])
    source = source_of(root)
    end = source.latest({})
    wanted = between(source, source.begin(), end)
    monkeypatch.setattr(boundary, "LOOK_BACK", 8000)
    monkeypatch.setattr(stream_source, "MIB", 1)
    far = source_of(root, splitMiB="4096")
    assert far.latest({}) == end
    found = between(far, far.begin(), end)
    assert in_order([as_dump(row) for row in found]) == in_order([as_dump(row) for row in wanted])


def test_records_in_bodies_are_no_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, end = [], 0
    for number in range(60):
        inner, head = b"", end + 88
        while len(inner) < 600:
            inner += encode(Record(topic="Inner"), head + len(inner))
        records.append(Record(queue_offset=number, body=inner))
        end += len(encode(records[-1], end))
    write_log(tmp_path, records, file_size=end + 5000)
    monkeypatch.setattr(boundary, "LOOK_BACK", 2000)
    monkeypatch.setattr(stream_source, "MIB", 1)
    source = source_of(tmp_path, splitMiB="3000", maxBytesPerTrigger="9000")
    start, latest, batches = source.begin(), source.latest({}), []
    while start != latest:
        following = source.end(start, latest, source.batch_size)
        batches.append(between(source, start, following))
        start = following
    assert latest == {str(tmp_path): end}
    assert [row["queueOffset"] for batch in batches for row in batch] == list(range(60))
    assert len(batches) > 4


def test_the_end_of_a_large_file_costs_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_log(tmp_path, [Record(body=bytes([1]) * 60_000)] * 500, file_size=64 * 1024 * 1024)
    sizes: list[int] = []
    read_into = Storage.read_into

    def counted(storage: Storage, descriptor: int, position: int, buffer: memoryview) -> int:
        sizes.append(read_into(storage, descriptor, position, buffer))
        return sizes[-1]

    monkeypatch.setattr(Storage, "read_into", counted)
    monkeypatch.setattr(boundary, "LOOK_BACK", 1024 * 1024)
    end = source_of(tmp_path).latest({})[str(tmp_path)]
    assert end == len(data.rstrip(b"\0"))
    assert sum(sizes) < end / 4


@pytest.mark.parametrize("look_back", [500, boundary.LOOK_BACK])
def test_from_a_time_on(look_back: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "LOOK_BACK", look_back)
    monkeypatch.setattr(stream_source, "LOOK_BACK", look_back)
    log, first = Log(tmp_path), 1_795_252_516_000
    written = [
        (first + number // 3 * 10, log.append(Record(store_timestamp=first + number // 3 * 10)))
        for number in range(120)
    ]
    for since in (*range(first - 10, first + 400, 5), first + 400):
        wanted = next((offset for time, offset in written if time >= since), log.end)
        for text in (str(rfc3339(since)), str(since)):
            assert source_of(tmp_path, startingOffset=text).begin() == {str(tmp_path): wanted}


def test_a_batch_reads_the_same_share_of_each_log(tmp_path: Path) -> None:
    logs = [Log(tmp_path / name) for name in ("a", "b", "c")]
    for log, count in zip(logs, (10, 90, 0), strict=True):
        for _ in range(count):
            log.append(Record(body=b"x" * 500))
    source = StreamSource({"path": str(tmp_path / "*"), "maxBytesPerTrigger": "20k"}, list(MESSAGE_COLUMNS))
    start, latest = source.begin(), source.latest({})
    assert latest == {str(log.root): log.end for log in logs}
    found = source.end(start, latest, source.batch_size)
    small, large, none = found.values()
    assert small * 5 < large < latest[str(logs[1].root)]
    assert none == 0
    assert source.end(found, latest, None) == latest


def test_available_now_ends_where_the_log_ended(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for _ in range(10):
        log.append(Record())
    reader: Any = stream_reader_class()(source_of(tmp_path, maxBytesPerTrigger="1k"))
    end = log.end
    reader.prepareForTriggerAvailableNow()
    log.append(Record())
    offset = reader.initialOffset()
    while (following := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        offset = following
    assert offset[str(tmp_path)][0] == end


def test_files_that_expired_are_told(tmp_path: Path) -> None:
    log = Log(tmp_path)
    source = source_of(tmp_path, failOnDataLoss="false")
    start = source.begin()
    for _ in range(60):
        log.append(Record())
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    failing = source_of(tmp_path)
    with pytest.raises(Unreadable, match=r"its files before were deleted.*failOnDataLoss=false"):
        failing.tasks(start, failing.latest(start))
    rows = between(source, start, source.latest(start))
    assert [(row["damage"], row["physicalOffset"], row["size"]) for row in rows if row["kind"] == "damage"] == [
        ("file-gap", 0, FILE_SIZE)
    ]
    assert offsets(rows)[0] == FILE_SIZE


@pytest.mark.parametrize("kept", [0, 3, 11], ids=["no file", "in the first file", "in the same file"])
def test_a_log_that_was_cut_is_an_error(kept: int, tmp_path: Path) -> None:
    """In each version of Spark: 4.0 and 4.1 do not say where the batch before ended; availableNow asks for the end."""
    log, source = Log(tmp_path), source_of(tmp_path)
    at = [log.append(Record(body=bytes(400))) for _ in range(12)]
    before = source.latest({})
    assert source.latest(before) == before
    for path in (tmp_path / "commitlog").iterdir():
        base = int(path.name)
        if base > at[kept] or not kept:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: at[kept] - base].ljust(FILE_SIZE, b"\0"))
    for ask in (
        lambda: source.latest(before),
        lambda: source.end(before, source.latest({}), None),
        lambda: source.tasks(before, source.latest({})),
    ):
        with pytest.raises(Unreadable, match=r"it was cut.* at offset .*new checkpointLocation"):
            ask()


@pytest.mark.parametrize(
    "record", [Record(body=b"z" * 2500), Record(body=b"z" * 1500), Record(body=bytes(400), store_timestamp=1)]
)
def test_a_log_that_was_cut_and_has_grown_again_is_an_error(record: Record, tmp_path: Path) -> None:
    """The offset of the stream is then inside a record, or at the end of another record of the same size."""
    log = Log(tmp_path)
    at = [log.append(Record(body=bytes(400))) for _ in range(5)]
    reader: Any = stream_reader_class()(source_of(tmp_path))
    start = reader.initialOffset()
    offset = json.loads(json.dumps(reader.latestOffset(start, None)))
    assert offset[str(tmp_path)][0] == log.end
    assert reader.latestOffset(offset, None) == offset
    (path,) = (tmp_path / "commitlog").iterdir()
    path.write_bytes(path.read_bytes()[: at[3]].ljust(FILE_SIZE, b"\0"))
    log.end = at[3]
    for _ in range(2 if record.store_timestamp == 1 else 1):
        log.append(record)
    for ask, arguments in ((reader.latestOffset, (offset, None)), (reader.partitions, (start, offset))):
        with pytest.raises(Unreadable, match=r"it was cut.* at offset .*new checkpointLocation"):
            ask(*arguments)


def test_a_stream_goes_on_where_the_record_before_has_expired(tmp_path: Path) -> None:
    log = Log(tmp_path)
    reader: Any = stream_reader_class()(source_of(tmp_path))
    while log.end < FILE_SIZE:
        log.append(Record(body=bytes(400)))
    start = reader.latestOffset(reader.initialOffset(), None)
    new = log.append(Record())
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    rows = [
        row
        for part in reader.partitions(start, reader.latestOffset(start, None))
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert new in offsets(rows)


def test_each_store_begins_and_ends_at_a_place_of_its_own(tmp_path: Path) -> None:
    logs = [Log(tmp_path / name) for name in "abc"]
    at = [[log.append(Record(store_timestamp=1_795_252_516_000 + n)) for n in range(60)] for log in logs]
    roots = [str(log.root) for log in logs]
    source = StreamSource(
        {
            "path": str(tmp_path / "*"),
            "startingOffset": json.dumps({roots[0]: at[0][40] - 1, roots[1]: "latest"}),
            "endingOffset": json.dumps({roots[0]: at[0][50], roots[2]: "1795252516007"}),
        },
        list(MESSAGE_COLUMNS),
    )
    begin = source.begin()
    assert begin == {roots[0]: at[0][40], roots[1]: logs[1].end, roots[2]: 0}
    new = [log.append(Record()) for log in logs]
    end = source.latest(begin)
    assert end == {roots[0]: at[0][50], roots[1]: logs[1].end, roots[2]: at[2][7]}
    assert sorted(offsets(between(source, begin, end))) == sorted([*at[0][40:50], new[1], *at[2][:7]])
    assert source.latest(end) == end
    with pytest.raises(BadRequest, match="names a store that is not read: /none"):
        source_of(tmp_path / "a", startingOffset='{"/none": 0}')
    with pytest.raises(BadRequest, match="endingOffset is -1 for a store"):
        source_of(tmp_path / "a", endingOffset=json.dumps({roots[0]: -1}))


def test_a_stream_of_one_topic(tmp_path: Path) -> None:
    log = Log(tmp_path)
    at = [log.append(Record(topic=f"t{n % 3}")) for n in range(60)]
    source = source_of(tmp_path, topics="t1,t2", toOffset=str(at[30]))
    rows = between(source, source.begin(), source.latest({}))
    assert [row["physicalOffset"] for row in rows] == [place for n, place in enumerate(at[:30]) if n % 3]


@pytest.mark.parametrize("grown", [False, True])
def test_a_stream_may_go_on_after_a_cut(grown: bool, tmp_path: Path) -> None:
    log = Log(tmp_path)
    at = [log.append(Record(body=bytes(400))) for _ in range(5)]
    reader: Any = stream_reader_class()(source_of(tmp_path, failOnDataLoss="false"))
    start = reader.latestOffset(reader.initialOffset(), None)
    (path,) = (tmp_path / "commitlog").iterdir()
    path.write_bytes(path.read_bytes()[: at[3]].ljust(FILE_SIZE, b"\0"))
    log.end = at[3]
    for _ in range(4 * grown):
        log.append(Record(body=b"z" * 350))
    first = reader.latestOffset(start, None)
    new = log.append(Record())
    second = reader.latestOffset(first, None)
    read = [
        row["physicalOffset"]
        for one, other in ((start, first), (first, second))
        for part in reader.partitions(one, other)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert read[-1] == new
    assert len(read) == len(set(read)) == (2 if grown else 1)


def test_a_full_log_is_not_cut(tmp_path: Path) -> None:
    """The stream is at the end of a blank, before the broker makes the next file, and afterwards."""
    log, source = Log(tmp_path), source_of(tmp_path)
    while log.end < FILE_SIZE:
        log.append(Record(body=bytes(400)))
    (_, last) = sorted((tmp_path / "commitlog").iterdir())
    for make in (last.unlink, lambda: last.write_bytes(bytes(FILE_SIZE))):
        make()
        assert source.latest({str(tmp_path): FILE_SIZE}) == {str(tmp_path): FILE_SIZE}


def test_an_end_that_later_files_go_on_behind(tmp_path: Path) -> None:
    log = Log(tmp_path)
    written = [log.append(Record()) for _ in range(120)]
    first, second, third = (tmp_path / "commitlog" / f"{number * FILE_SIZE:020d}" for number in range(3))
    first.write_bytes(first.read_bytes()[: written[5]] + bytes(FILE_SIZE - written[5]))
    second.write_bytes(bytes(FILE_SIZE))
    third.write_bytes(bytes([255]) + third.read_bytes()[1:])
    source = source_of(tmp_path)
    rows = between(source, source.begin(), source.latest(source.begin()))
    assert offsets(rows) == [*written[:5], *(at for at in written if at > 2 * FILE_SIZE)]
    assert [row["damage"] for row in rows if row["kind"] == "damage"] == ["no-blank", "bad-size"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffset", "first"),
        ("startingOffset", "2026-11-21T09:15"),
        ("maxBytesPerTrigger", "0"),
        ("maxBytesPerTrigger", "1.5g"),
    ],
)
def test_options_that_are_none(option: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=f"{option} is '{re.escape(value)}'"):
        source_of(tmp_path, **{option: value})


@pytest.mark.parametrize(
    ("option", "nearest"), [("startingOffsets", "startingOffset"), ("maxbytespertriger", "maxBytesPerTrigger")]
)
def test_a_misspelled_option_is_refused(option: str, nearest: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=f"no option {option}.*did you mean {nearest}"):
        source_of(tmp_path, **{option: "latest"})
