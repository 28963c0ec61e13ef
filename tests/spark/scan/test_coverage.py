"""Whether splits join: from ranges made by hand."""

from __future__ import annotations

import json

import pytest

from rmqctl.errors import Unreadable
from rmqctl.spark.scan.coverage import Range, coverage, range_of, sequence_split
from rmqctl.spark.scan.record_counts import RecordCounts
from rmqctl.spark.scan.split import Split

SIZE = 400
FIRST, SECOND, THIRD, FOURTH = (
    Split("/s", "/s/commitlog/1000", 0, 1000, SIZE, "", at, at + 100) for at in (0, 100, 200, 300)
)
LAST = FOURTH._replace(stop=SIZE + 1)


def ranges(*bounds: tuple[int, int]) -> list[Range]:
    """Of the four splits, by positions in the file."""
    return [
        Range(split, 1000 + begin, 1000 + end, 4)
        for split, (begin, end) in zip((FIRST, SECOND, THIRD, LAST), bounds, strict=True)
    ]


def test_they_join() -> None:
    found = coverage(reversed(ranges((0, 110), (110, 205), (205, 310), (310, 400))))
    assert (found.joined, found.splits) == (True, (FIRST, SECOND, THIRD, LAST))


def test_a_record_over_a_whole_split() -> None:
    assert coverage(ranges((0, 110), (110, 320), (200, 200), (320, 400))).joined


def test_only_zeros_are_left() -> None:
    assert coverage(ranges((0, 150), (100, 100), (200, 200), (300, 300))).joined


def test_a_split_that_began_wrong_is_read_with_the_one_before() -> None:
    found = coverage(ranges((0, 130), (110, 205), (205, 310), (310, 400)))
    assert (found.joined, found.splits) == (False, (FIRST._replace(stop=200), THIRD, LAST))


def test_and_with_those_between_that_are_empty() -> None:
    found = coverage(ranges((0, 110), (110, 320), (200, 200), (315, 400)))
    assert found.splits == (FIRST, SECOND._replace(stop=LAST.stop))


def test_records_behind_a_blank_are_none() -> None:
    found = coverage(ranges((0, 110), (110, 400), (205, 310), (310, 400)))
    assert found.splits == (FIRST, SECOND._replace(stop=300), LAST)


def test_only_a_part_of_the_log_is_meant() -> None:
    found = [one._replace(of=2) for one in ranges((0, 110), (100, 205), (205, 310), (310, 400))[1:3]]
    assert coverage(found, [SECOND, THIRD]).joined
    assert coverage(found, [SECOND._replace(stop=300)]).joined
    with pytest.raises(Unreadable, match="a part of the file was not read at offset 1300"):
        coverage(found, [SECOND, THIRD, LAST])
    with pytest.raises(Unreadable, match="a part of the file was not read at offset 1000"):
        coverage(found, [FIRST, SECOND, THIRD])
    with pytest.raises(Unreadable, match="a part of the log was not read"):
        coverage(found, [SECOND, THIRD, FIRST._replace(path="/s/commitlog/0", file_from_offset=0)])
    with pytest.raises(Unreadable, match="a part of the file was not read at offset 1100"):
        coverage([found[0]._replace(begin=1105), found[1]], [SECOND, THIRD])  # nothing proves where it begins


def test_a_task_that_was_run_twice_counts_once() -> None:
    found = ranges((0, 110), (110, 205), (205, 310), (310, 400))
    found = [one._replace(counts=RecordCounts(2, 100, begin=one.begin, end=one.end)) for one in found]
    gap = Range(sequence_split("/s"), 0, 0, 5, RecordCounts(damages=1, begin=1400))
    found = [one._replace(of=5) for one in found] + [gap]
    twice = coverage([*found, *found])
    assert twice.joined
    assert twice.counts == RecordCounts(messages=8, bytes=400, damages=1, begin=1000, end=1400)


def test_a_task_that_found_other_records_the_second_time() -> None:
    found = ranges((0, 110), (110, 205), (205, 310), (310, 400))
    other = found[1]._replace(counts=RecordCounts(messages=7))
    with pytest.raises(Unreadable, match="Spark read this file twice, and it changed in between at offset 1100"):
        coverage([*found, other])


@pytest.mark.parametrize(("missing", "offset"), [(0, 1000), (1, 1100), (3, 1300)])
def test_a_split_is_missing(missing: int, offset: int) -> None:
    found = ranges((0, 110), (110, 205), (205, 310), (310, 400))
    with pytest.raises(Unreadable, match=f"a part of the file was not read at offset {offset}"):
        coverage(found[:missing] + found[missing + 1 :])


def test_a_file_is_missing() -> None:
    found = [one._replace(of=5) for one in ranges((0, 110), (110, 205), (205, 310), (310, 400))]
    with pytest.raises(Unreadable, match="of 5 splits, 4 were read"):
        coverage(found)


def test_nothing_was_read() -> None:
    with pytest.raises(Unreadable, match="nothing proves that it was read"):
        coverage([])


def test_a_row_tells_its_range() -> None:
    counts = RecordCounts(messages=2, bytes=95, begin=1110, end=1205)
    found = Range(SECOND, 1110, 1205, 4, counts)
    assert range_of(json.dumps(found._asdict())) == found
