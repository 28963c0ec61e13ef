from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.cq_unit import CQ_UNIT, CqUnit
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import expected
from tests.support.cqext_store import SMALL_NAMES
from tests.support.memory_storage import memory_queue
from tests.support.property_settings import PROPERTY

UNITS_PER_FILE = 5
FILE_SIZE = UNITS_PER_FILE * 20
PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def unit(physical_offset: int, size: int = 100, tags_code: int = 7) -> bytes:
    return struct.pack(">qiq", physical_offset, size, tags_code)


def consume_queue(units: list[bytes], first: int = 0) -> ConsumeQueue:
    """A queue whose files hold these units and zeros; `first` is the queue offset of the first file's first slot."""
    data = b"".join(units)
    files = {
        first * 20 + at: data[at : at + FILE_SIZE].ljust(FILE_SIZE, b"\0")
        for at in range(0, max(len(data), FILE_SIZE), FILE_SIZE)
    }
    return ConsumeQueue("OrderPaid", 1, memory_queue(files))


def counted(count: int) -> list[bytes]:
    """Units whose messages lie 100 bytes apart."""
    return [unit(100 * i, tags_code=-i) for i in range(count)]


@pytest.mark.parametrize("count", range(2 * UNITS_PER_FILE + 2))
def test_the_max_offset_is_behind_the_last_unit(count: int) -> None:
    assert consume_queue(counted(count)).max_offset == count


@pytest.mark.parametrize("count", range(UNITS_PER_FILE + 2))
def test_a_queue_whose_files_begin_later_counts_on(count: int) -> None:
    queue = consume_queue(counted(count), first=1000)
    assert (queue.first_offset, queue.max_offset) == (1000, 1000 + count)


def all_slots(queue: ConsumeQueue) -> list[CqUnit]:
    """Every slot of every file as it stands."""
    found = []
    for first, data in queue.blocks(0, queue.slots_end):
        found += [CqUnit(at, *fields) for at, fields in enumerate(CQ_UNIT.struct.iter_unpack(data), first)]
    return found


def test_a_queue_without_files_is_empty() -> None:
    queue = ConsumeQueue("OrderPaid", 1, memory_queue({}))
    assert (queue.first_offset, queue.max_offset, queue.min_offset(0), queue.last(), queue.find(0)) == (
        0,
        0,
        0,
        None,
        None,
    )
    assert list(queue.units(0, 10)) == all_slots(queue) == []


def test_a_unit_is_found_by_its_queue_offset() -> None:
    queue = consume_queue(counted(7))
    assert [queue.find(at) for at in range(7)] == [CqUnit(at, 100 * at, 100, -at) for at in range(7)]


@pytest.mark.parametrize("queue_offset", [-1, 7, 9, 10, 2**62])
def test_a_queue_offset_without_a_unit_is_not_found(queue_offset: int) -> None:
    assert consume_queue(counted(7)).find(queue_offset) is None


def test_units_are_listed_over_the_ends_of_files() -> None:
    queue = consume_queue(counted(12))
    assert [found.queue_offset for found in queue.units(3, 11)] == list(range(3, 11))
    assert [found.queue_offset for found in queue.units(0, 10**9)] == list(range(12))
    assert list(queue.units(5, 5)) == []


def test_units_that_are_not_in_use_are_left_out() -> None:
    queue = consume_queue([unit(0), unit(-1), unit(200, 0), unit(300, -5), unit(400)])
    assert [found.queue_offset for found in queue.units(0, 5)] == [0, 4]


def test_the_last_unit_is_the_one_before_the_max_offset() -> None:
    assert consume_queue(counted(7)).last() == CqUnit(6, 600, 100, -6)


def test_a_queue_that_does_not_begin_at_0_begins_with_pre_blank_units() -> None:
    queue = consume_queue([PRE_BLANK, PRE_BLANK, unit(200), unit(300)])
    assert (queue.min_offset(0), queue.max_offset) == (2, 4)


def test_a_queue_of_pre_blank_units_has_no_last_unit() -> None:
    assert consume_queue([PRE_BLANK, PRE_BLANK]).last() is None


@pytest.mark.parametrize(
    ("log_begins_at", "min_offset"), [(0, 0), (1, 1), (100, 1), (550, 6), (600, 6), (601, 7), (10**9, 7)]
)
def test_the_min_offset_is_the_first_message_that_the_log_still_has(log_begins_at: int, min_offset: int) -> None:
    assert consume_queue(counted(7)).min_offset(log_begins_at) == min_offset


def test_a_missing_file_leaves_its_units_out() -> None:
    data = b"".join(counted(15))
    queue = ConsumeQueue("OrderPaid", 1, memory_queue({0: data[:100], 200: data[200:]}))
    assert [found.queue_offset for found in queue.units(0, 15)] == [*range(5), *range(10, 15)]
    assert (queue.max_offset, queue.find(7)) == (15, None)


def test_a_pre_allocated_file_is_not_in_use() -> None:
    assert consume_queue(counted(5) + [bytes(20)] * 5).max_offset == 5


def test_a_half_unit_at_a_files_end_is_none() -> None:
    queue = ConsumeQueue("OrderPaid", 1, memory_queue({0: b"".join(counted(2))[:-1]}))
    assert (queue.max_offset, queue.find(1)) == (1, None)


def test_slots_show_what_is_not_in_use_too() -> None:
    queue = consume_queue([unit(0), unit(-1, -2, -3), unit(200)])
    assert all_slots(queue) == [
        CqUnit(0, 0, 100, 7),
        CqUnit(1, -1, -2, -3),
        CqUnit(2, 200, 100, 7),
        CqUnit(3, 0, 0, 0),
        CqUnit(4, 0, 0, 0),
    ]


@PROPERTY
@given(st.binary(max_size=2 * FILE_SIZE), st.integers(0, 3), st.integers(-5, 30), st.integers(-5, 30))
def test_random_bytes_in_a_queue_never_raise(data: bytes, first: int, start: int, end: int) -> None:
    queue = consume_queue([data], first)
    assert first <= queue.min_offset(0) <= queue.max_offset <= first + 2 * UNITS_PER_FILE
    assert all(start <= found.queue_offset < end and found.size > 0 for found in queue.units(start, end))
    queue.last()
    assert all(slot.queue_offset >= first for slot in all_slots(queue))


UNIT = st.builds(unit, st.sampled_from((-1, 0, 100, 200, 300)), st.sampled_from((100, 100, 100, 0)))


@PROPERTY
@given(st.lists(UNIT | st.just(PRE_BLANK), max_size=2 * UNITS_PER_FILE), st.integers(0, 3), st.integers(0, 400))
def test_a_queue_whose_files_are_in_memory_gives_the_same_answers(units: list[bytes], first: int, begin: int) -> None:
    queue = consume_queue(units, first)

    def answers() -> list[object]:
        ends = [*queue.min_and_max(begin), *queue.end_by_scan(), queue.last()]
        return [*ends, *queue.units(0, queue.slots_end), *(queue.find(at) for at in range(queue.slots_end))]

    found = answers()
    used = [at for at, raw in enumerate(units) if any(raw)]
    assert queue.end_by_scan().data_end == queue.first_offset + (used[-1] + 1 if used else 0)
    with queue.queue.storage.keeping_small_files():
        assert answers() == found


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_the_queues_of_a_golden_store_are_the_brokers(name: str, golden: Callable[[str], Path]) -> None:
    store = ReadOnlyStore(golden(name))
    queues = store.queues
    for wanted in expected(name)["queues"]:
        queue = queues.get((wanted["topic"], wanted["queueId"]))
        if queue is None:
            assert wanted["maxOffset"] == 0, "only a queue without messages has no folder"
            continue
        assert (queue.min_offset(store.commit_log.min_offset), queue.max_offset) == (
            wanted["minOffset"],
            wanted["maxOffset"],
        )
        units = list(queue.units(0, queue.max_offset))
        assert [[found.physical_offset, found.size] for found in units] == [entry[1:] for entry in wanted["entries"]]
        if not wanted["topic"].startswith(
            "%LMQ%"
        ):  # there the broker tells the queue offset of the message's first queue
            assert [found.queue_offset for found in units] == [entry[0] for entry in wanted["entries"]]


BATCH_FILE_SIZE = 4 * 46
BATCHES = [(0, 3), (3, 1), (4, 10), (14, 2), (16, 4), (20, 1)]


def batch(base_offset: int, count: int, physical_offset: int) -> bytes:
    return struct.pack(">qiqqqhii", physical_offset, 500, 7, 1_795_252_516_848, base_offset, count, -1, 0)


def batch_queue(units: list[bytes], first_slot: int = 0) -> BatchConsumeQueue:
    data = b"".join(units)
    files = {
        first_slot * 46 + at: data[at : at + BATCH_FILE_SIZE].ljust(BATCH_FILE_SIZE, b"\0")
        for at in range(0, max(len(data), BATCH_FILE_SIZE), BATCH_FILE_SIZE)
    }
    return BatchConsumeQueue("Batched", 0, memory_queue(files))


BATCHED = [batch(base, count, 500 * at) for at, (base, count) in enumerate(BATCHES)]


@pytest.mark.parametrize("count", range(1, len(BATCHES) + 1))
def test_a_batch_queue_ends_behind_its_last_batch(count: int) -> None:
    queue = batch_queue(BATCHED[:count])
    base, size = BATCHES[count - 1]
    assert queue.max_offset == base + size
    assert queue.last() == CqUnit(base, 500 * (count - 1), 500, 7, size)


def test_every_queue_offset_is_found_in_its_batch() -> None:
    queue = batch_queue(BATCHED)
    found = [queue.find(at) for at in range(21)]
    assert [hit.queue_offset for hit in found if hit] == [base for base, count in BATCHES for _ in range(count)]


@pytest.mark.parametrize("queue_offset", [-1, 21, 10**12])
def test_a_queue_offset_outside_every_batch_is_not_found(queue_offset: int) -> None:
    assert batch_queue(BATCHED).find(queue_offset) is None


def test_a_queue_offset_between_two_batches_is_not_found() -> None:
    queue = batch_queue([batch(0, 3, 0), batch(10, 3, 500)])
    assert [queue.find(at) is not None for at in (2, 3, 9, 10)] == [True, False, False, True]


@pytest.mark.parametrize(
    ("start", "end", "bases"),
    [(0, 21, [0, 3, 4, 14, 16, 20]), (2, 4, [0, 3]), (5, 15, [4, 14]), (3, 3, []), (21, 99, [])],
)
def test_the_batches_that_touch_a_range_are_listed(start: int, end: int, bases: list[int]) -> None:
    assert [found.queue_offset for found in batch_queue(BATCHED).units(start, end)] == bases


@pytest.mark.parametrize(("log_begins_at", "min_offset"), [(0, 0), (1, 3), (1000, 4), (2500, 20), (2501, 21)])
def test_a_batch_queue_begins_with_the_first_batch_that_the_log_still_has(log_begins_at: int, min_offset: int) -> None:
    assert batch_queue(BATCHED).min_offset(log_begins_at) == min_offset


def test_a_batch_queue_whose_first_files_expired_is_read() -> None:
    queue = batch_queue(BATCHED[4:], first_slot=4)
    assert (queue.min_offset(0), queue.max_offset, queue.find(15)) == (16, 21, None)


def test_a_batch_queue_without_batches_is_empty() -> None:
    for queue in (batch_queue([]), BatchConsumeQueue("Batched", 0, memory_queue({}))):
        assert (queue.min_offset(0), queue.max_offset, queue.last(), queue.find(0), list(queue.units(0, 9))) == (
            0,
            0,
            None,
            None,
            [],
        )


@pytest.mark.parametrize("bad", [batch(-1, 3, 500), batch(3, 0, 500), batch(3, 1, -1), bytes(46)])
def test_a_batch_that_is_not_in_use_ends_the_queue(bad: bytes) -> None:
    assert batch_queue([batch(0, 3, 0), bad]).max_offset == 3


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 100)), max_size=9))
def test_batches_with_gaps_are_found_again(steps: list[tuple[int, int]]) -> None:
    units: list[bytes] = []
    held: set[int] = set()
    at = 0
    for gap, count in steps:
        units.append(batch(at + gap, count, 500 * len(units)))
        held |= set(range(at + gap, at + gap + count))
        at += gap + count
    queue = batch_queue(units)
    assert {queue_offset for queue_offset in range(at + 3) if queue.find(queue_offset)} == held
    assert all(before.queue_offset < after.queue_offset for before, after in pairwise(queue.units(0, at)))


@PROPERTY
@given(st.binary(max_size=2 * BATCH_FILE_SIZE), st.integers(-5, 30))
def test_random_bytes_in_a_batch_queue_never_raise(data: bytes, queue_offset: int) -> None:
    queue = batch_queue([data])
    queue.min_offset(0)
    found = queue.find(queue_offset)
    assert found is None or found.queue_offset <= queue_offset
    assert len(list(queue.units(0, 2**63))) <= 8
