"""Which units a message must have: by its transaction kind, its tags, its delay, and the queues that LMQ names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.forensics.verify import LEVEL_QUEUES
from tests.conftest import Golden, expected
from tests.support.file_edits import FIRST_FILE, UNIT, get_unit, set_unit, write_queue
from tests.support.log_maker import Record, java_hash, of_properties, placed, write_log
from tests.support.verified_by_tasks import Said, said

PREPARED, COMMIT, ROLLBACK = 4, 8, 12
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
STORED = 1_795_252_516_848


def store_of(root: Path, records: list[Record]) -> list[tuple[Record, int, int]]:
    write_log(root, records, file_size=16384)
    return placed(records)


# --- transactions


@pytest.mark.parametrize("kind", [0, COMMIT])
def test_ordinary_and_commit_records_need_a_unit(tmp_path: Path, kind: int) -> None:
    store_of(tmp_path, [Record(queue_id=0, sys_flag=kind, properties=b"")])
    assert said(tmp_path, LEVEL_QUEUES) == {Said("missing-unit", "consumequeue/OrderPaid/0", None, "OrderPaid", 0, 0)}


@pytest.mark.parametrize("kind", [PREPARED, ROLLBACK])
def test_prepared_and_rollback_records_need_none(tmp_path: Path, kind: int) -> None:
    store_of(tmp_path, [Record(queue_id=0, sys_flag=kind, properties=b"")])
    assert said(tmp_path, LEVEL_QUEUES) == set()


@pytest.mark.parametrize("kind", [PREPARED, ROLLBACK])
def test_a_unit_that_points_at_a_record_that_has_none(tmp_path: Path, kind: int) -> None:
    records = [Record(queue_id=0, sys_flag=0, properties=b""), Record(queue_id=0, sys_flag=kind, properties=b"")]
    found = store_of(tmp_path, records)
    name = write_queue(tmp_path, "OrderPaid", 0, [(at, size, 0) for _, at, size in found])
    assert said(tmp_path, LEVEL_QUEUES) == {Said("unit-mismatch", name, UNIT, "OrderPaid", 0, 1)}


def test_a_transaction_from_end_to_end(tmp_path: Path) -> None:
    kinds = [(PREPARED, 0), (0, 0), (COMMIT, 1), (PREPARED, 0), (ROLLBACK, 0), (0, 2)]
    found = store_of(
        tmp_path, [Record(queue_id=0, sys_flag=kind, queue_offset=offset, properties=b"") for kind, offset in kinds]
    )
    units = [(at, size, 0) for record, at, size in found if record.sys_flag in (0, COMMIT)]
    write_queue(tmp_path, "OrderPaid", 0, units)
    assert said(tmp_path, LEVEL_QUEUES) == set()


# --- tags


@pytest.mark.parametrize("tags", ["TagA", "paid", "polygenelubricants", "Zażółć", "\U0001f600", "a" * 500])
@pytest.mark.parametrize("difference", [0, 1])
def test_the_tags_code_is_javas_hash(tmp_path: Path, tags: str, difference: int) -> None:
    found = store_of(tmp_path, [Record(queue_id=0, properties=of_properties(TAGS=tags))])
    name = write_queue(tmp_path, "OrderPaid", 0, [(at, size, java_hash(tags) + difference) for _, at, size in found])
    wanted = {Said("unit-tags-code", name, 0, "OrderPaid", 0, 0)} if difference else set()
    assert said(tmp_path, LEVEL_QUEUES) == wanted


def test_a_negative_hash_is_not_an_address() -> None:
    assert java_hash("polygenelubricants") == -(2**31)


@pytest.mark.parametrize("properties", [b"", of_properties(KEYS="k1"), of_properties(DELAY="3")])
def test_without_tags_the_code_is_zero(tmp_path: Path, properties: bytes) -> None:
    found = store_of(tmp_path, [Record(queue_id=0, properties=properties)])
    write_queue(tmp_path, "OrderPaid", 0, [(at, size, 0) for _, at, size in found])
    assert said(tmp_path, LEVEL_QUEUES) == set()


# --- delays


@pytest.mark.parametrize(
    ("tags_code", "is_right"),
    [
        (STORED + 1000, True),
        (STORED + 7_200_000, True),
        (STORED + 1001, False),
        (STORED, False),
        (STORED - 1000, False),
        (0, False),
        (java_hash("TagA"), False),
    ],
)
def test_the_tags_code_of_a_scheduled_message_is_its_delivery_time(
    tmp_path: Path, tags_code: int, is_right: bool
) -> None:
    properties = of_properties(DELAY="1", TAGS="TagA", REAL_TOPIC="OrderPaid", REAL_QID="2")
    found = store_of(tmp_path, [Record(topic=SCHEDULE, queue_id=0, properties=properties, store_timestamp=STORED)])
    name = write_queue(tmp_path, SCHEDULE, 0, [(at, size, tags_code) for _, at, size in found])
    assert said(tmp_path, LEVEL_QUEUES) == (set() if is_right else {Said("unit-tags-code", name, 0, SCHEDULE, 0, 0)})


@pytest.mark.parametrize(("difference", "is_found"), [(1, True), (-1, True), (1000, False)])
def test_a_delivery_time_of_a_golden_store(golden: Golden, difference: int, is_found: bool) -> None:
    root = golden("471-delay")
    name = f"consumequeue/{SCHEDULE}/14/{FIRST_FILE}"
    physical_offset, size, delivery = get_unit(root, 4, name)
    set_unit(root, 4, (physical_offset, size, delivery + difference), name)
    wanted = {Said("unit-tags-code", name, 4 * UNIT, SCHEDULE, 14, 4)} if is_found else set()
    assert said(root, LEVEL_QUEUES) == wanted


# --- LMQ


def lmq_record(names: str, offsets: str) -> Record:
    return Record(queue_id=3, properties=of_properties(INNER_MULTI_DISPATCH=names, INNER_MULTI_QUEUE_OFFSET=offsets))


def test_a_message_has_units_in_all_queues_that_it_names(tmp_path: Path) -> None:
    ((_, at, size),) = store_of(tmp_path, [lmq_record("%LMQ%dev0,%LMQ%all,copies", "0,0,0")])
    for topic, queue_id in (("OrderPaid", 3), ("%LMQ%dev0", 0), ("%LMQ%all", 0), ("copies", 3)):
        write_queue(tmp_path, topic, queue_id, [(at, size, 0)])
    assert said(tmp_path, LEVEL_QUEUES) == set()


def test_each_of_these_units_may_be_missing(tmp_path: Path) -> None:
    store_of(tmp_path, [lmq_record("%LMQ%dev0,copies", "7,9")])
    assert said(tmp_path, LEVEL_QUEUES) == {
        Said("missing-unit", "consumequeue/OrderPaid/3", None, "OrderPaid", 3, 0),
        Said("missing-unit", "consumequeue/%LMQ%dev0/0", None, "%LMQ%dev0", 0, 7),
        Said("missing-unit", "consumequeue/copies/3", None, "copies", 3, 9),
    }


@pytest.mark.parametrize(
    ("names", "offsets"),
    [("%LMQ%dev0", "0,1"), ("%LMQ%dev0,%LMQ%all", "0"), ("%LMQ%dev0", "x"), ("%LMQ%a/b", "0"), ("%LMQ%dev0", "-1")],
)
def test_names_that_its_broker_did_not_serve(tmp_path: Path, names: str, offsets: str) -> None:
    ((_, at, size),) = store_of(tmp_path, [lmq_record(names, offsets)])
    write_queue(tmp_path, "OrderPaid", 3, [(at, size, 0)])
    assert said(tmp_path, LEVEL_QUEUES) == set()


@pytest.mark.parametrize("name", ["497-lmq", "533-lmq"])
def test_an_lmq_queue_of_a_golden_store(name: str, golden: Golden) -> None:
    root = golden(name)
    queue_file = f"consumequeue/%LMQ%dev2/0/{FIRST_FILE}"
    physical_offset, size, tags_code = get_unit(root, 9, queue_file)
    set_unit(root, 9, (physical_offset, size - 1, tags_code), queue_file)
    shutil.rmtree(root / "consumequeue/%LMQ%dev1")
    units = next(queue["maxOffset"] for queue in expected(name)["queues"] if queue["topic"] == "%LMQ%dev1")
    assert said(root, LEVEL_QUEUES) == {
        Said("unit-size", queue_file, 9 * UNIT, "%LMQ%dev2", 0, 9),
        Said("missing-unit", "consumequeue/%LMQ%dev1/0", None, "%LMQ%dev1", 0, 0, units),
    }


def test_the_second_file_of_an_lmq_queue(golden: Golden) -> None:
    root = golden("497-lmq")
    queue_file = f"consumequeue/%LMQ%all/0/{1000:020d}"
    physical_offset, size, tags_code = get_unit(root, 33, queue_file)
    set_unit(root, 33, (physical_offset, size, tags_code + 1), queue_file)
    assert said(root, LEVEL_QUEUES) == {Said("unit-tags-code", queue_file, 33 * UNIT, "%LMQ%all", 0, 83)}
