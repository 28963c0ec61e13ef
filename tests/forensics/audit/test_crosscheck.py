"""Log against queues: each damage of a queue file is found at its unit, and what is merely odd is no finding."""

from __future__ import annotations

import random
import shutil
import struct
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.forensics.audit.units.queue_findings import FINDINGS_MAX
from rmqctl.forensics.verify import LEVEL_ALL, LEVEL_QUEUES, verify
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.clean_config import ExpirySettings
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Golden, expected
from tests.support.cqext_store import QUEUE as EXT_QUEUE
from tests.support.cqext_store import unpack_cqext
from tests.support.file_edits import (
    FIRST_FILE,
    LOG_FILE_SIZE,
    QUEUE_FILE,
    UNIT,
    edit_json,
    get_unit,
    peek,
    poke,
    set_unit,
    write_queue,
)
from tests.support.log_maker import Record, placed, write_log
from tests.support.verified_by_tasks import Said, notes, said

PRE_BLANK = (0, 0x7FFFFFFF, 0)
QUEUE_UNITS = 39
HIGH_BIT = 1 << 40


def at_unit(code: str, number: int, count: int = 1) -> Said:
    """A finding at a unit of OrderPaid/0."""
    return Said(code, QUEUE_FILE, number * UNIT, "OrderPaid", 0, number, count)


HEALTHY = (
    "326-tx-crash",
    "471-delay",
    "471-tx",
    "497-basic",
    "497-crash",
    "497-delay",
    "497-lmq",
    "497-tx",
    "533-lmq",
    "broker-497",
)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_store_has_no_finding(name: str, golden: Golden) -> None:
    root = golden(name)
    assert said(root, LEVEL_QUEUES) == set()
    assert notes(root) == []


@pytest.mark.parametrize("count", [1, 3, QUEUE_UNITS])
def test_units_that_are_missing_at_the_end_count_as_one(basic: Path, count: int) -> None:
    poke(basic / QUEUE_FILE, (QUEUE_UNITS - count) * UNIT, f"{count * UNIT}x")
    assert said(basic, LEVEL_QUEUES) == {at_unit("missing-unit", QUEUE_UNITS - count, count)}


def test_a_queue_that_is_missing_has_no_file_to_name(basic: Path) -> None:
    shutil.rmtree(basic / "consumequeue/OrderPaid/0")
    assert said(basic, LEVEL_QUEUES) == {
        Said("missing-unit", "consumequeue/OrderPaid/0", None, "OrderPaid", 0, 0, QUEUE_UNITS)
    }


def test_a_topic_that_is_missing_is_not_deleted_without_a_topics_json(basic: Path) -> None:
    shutil.rmtree(basic / "consumequeue/audit-log")
    counts = {0: 9, 1: 11, 2: 18, 3: 8}
    wanted = {
        Said("missing-unit", f"consumequeue/audit-log/{queue}", None, "audit-log", queue, 0, count)
        for queue, count in counts.items()
    }
    assert said(basic, LEVEL_QUEUES) == wanted


@pytest.mark.parametrize("number", [0, 5, 25, 38])
def test_a_unit_that_points_at_another_queues_message(basic: Path, number: int) -> None:
    own, _, tags_code = get_unit(basic, number)
    following = (
        message for message in sorted(expected("497-basic")["messages"], key=lambda row: int(row["physicalOffset"]))
    )
    other = next(message for message in following if message["physicalOffset"] > own)
    assert (other["cqTopic"], other["cqQueueId"]) != ("OrderPaid", 0)
    set_unit(basic, number, (other["physicalOffset"], other["size"], tags_code))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-mismatch", number)}


@pytest.mark.parametrize("number", [1, 5, 25, 38])
def test_a_unit_that_points_into_a_record(basic: Path, number: int) -> None:
    physical_offset, size, tags_code = get_unit(basic, number)
    set_unit(basic, number, (physical_offset + 8, size, tags_code))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-mismatch", number)}


@pytest.mark.parametrize("number", [0, 5, 25, 38])
def test_a_flipped_high_bit_in_a_units_offset_touches_no_neighbour(basic: Path, number: int) -> None:
    physical_offset, size, tags_code = get_unit(basic, number)
    set_unit(basic, number, (physical_offset | HIGH_BIT, size, tags_code))
    found = said(basic, LEVEL_QUEUES)
    assert {finding for finding in found if finding.code in ("dangling-unit", "unit-order")} == {
        at_unit("dangling-unit", number)
    }
    assert {replace(finding, code="") for finding in found} == {at_unit("", number)}
    assert {finding.code for finding in found} in (
        {"dangling-unit", code} for code in ("missing-unit", "unit-mismatch")
    )


@pytest.mark.parametrize("number", [5, 20])
def test_a_flipped_sign_in_a_units_offset_touches_no_neighbour(basic: Path, number: int) -> None:
    physical_offset, size, tags_code = get_unit(basic, number)
    set_unit(basic, number, (physical_offset - 2**63, size, tags_code))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-hole", number), at_unit("missing-unit", number)}


@pytest.mark.parametrize("difference", [-1, 1, 4096])
def test_a_units_size(basic: Path, difference: int) -> None:
    physical_offset, size, tags_code = get_unit(basic, 5)
    set_unit(basic, 5, (physical_offset, size + difference, tags_code))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-size", 5)}


@pytest.mark.parametrize("number", [0, 5, 38])
def test_a_units_tags_code(basic: Path, number: int) -> None:
    physical_offset, size, tags_code = get_unit(basic, number)
    set_unit(basic, number, (physical_offset, size, tags_code ^ 1))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-tags-code", number)}


def test_two_fields_of_one_unit_are_two_findings(basic: Path) -> None:
    physical_offset, size, tags_code = get_unit(basic, 5)
    set_unit(basic, 5, (physical_offset, size + 1, tags_code + 1))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-size", 5), at_unit("unit-tags-code", 5)}


def test_neighbours_with_the_same_damage_are_one_finding_and_others_another(basic: Path) -> None:
    for number in (5, 6, 7, 20):
        physical_offset, size, tags_code = get_unit(basic, number)
        set_unit(basic, number, (physical_offset, size, tags_code + 1))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-tags-code", 5, 3), at_unit("unit-tags-code", 20)}


def test_two_units_in_each_others_place(basic: Path) -> None:
    fifth, sixth = get_unit(basic, 5), get_unit(basic, 6)
    set_unit(basic, 5, sixth)
    set_unit(basic, 6, fifth)
    assert said(basic, LEVEL_QUEUES) - {at_unit("unit-order", 6)} == {at_unit("unit-mismatch", 5, 2)}


def test_a_unit_that_goes_back_in_the_log(basic: Path) -> None:
    _, _, tags_code = get_unit(basic, 6)
    set_unit(basic, 6, (452, 496, tags_code))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-mismatch", 6), at_unit("unit-order", 6)}


def test_two_units_for_one_message(basic: Path) -> None:
    set_unit(basic, 6, get_unit(basic, 5))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-mismatch", 6), at_unit("unit-order", 6)}


@pytest.mark.parametrize("number", [0, 5, 20, 36])
def test_a_zeroed_unit_between_used_ones(basic: Path, number: int) -> None:
    set_unit(basic, number, (0, 0, 0))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-hole", number), at_unit("missing-unit", number)}


def test_several_zeroed_units_are_one_hole(basic: Path) -> None:
    poke(basic / QUEUE_FILE, 5 * UNIT, f"{4 * UNIT}x")
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-hole", 5, 4), at_unit("missing-unit", 5, 4)}


def test_slots_in_a_hole_of_a_file_are_as_unused_as_zeros(basic: Path) -> None:
    """A small file is in memory without the zeros at its end; a copy of a store may have holes or zeros."""
    slots = (basic / QUEUE_FILE).stat().st_size // UNIT
    (basic / QUEUE_FILE).with_name(f"{slots * UNIT:020d}").write_bytes(
        struct.pack(">qiq", *get_unit(basic, QUEUE_UNITS - 1)).ljust(slots * UNIT, b"\0")
    )
    hole = at_unit("unit-hole", QUEUE_UNITS, slots - QUEUE_UNITS)
    assert hole in said(basic, LEVEL_QUEUES)


@pytest.mark.parametrize("unit", [(-1, 5, 0), (5, 0, 0), (0, 0, 7), (100, -1, 0)])
def test_bytes_behind_the_end_that_are_no_unit(basic: Path, unit: tuple[int, int, int]) -> None:
    set_unit(basic, 45, unit)
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-behind-end", 45)}


def test_units_behind_the_end_of_the_log_are_one_finding_a_queue(basic: Path) -> None:
    log_end = 3 * LOG_FILE_SIZE
    (basic / f"commitlog/{log_end:020d}").unlink()
    wanted = set()
    for queue in expected("497-basic")["queues"]:
        gone = [number for number, physical_offset, _ in queue["entries"] if physical_offset >= log_end]
        name = f"consumequeue/{queue['topic']}/{queue['queueId']}/{FIRST_FILE}"
        if gone:
            wanted.add(
                Said("dangling-unit", name, gone[0] * UNIT, queue["topic"], queue["queueId"], gone[0], len(gone))
            )
    assert len(wanted) > 10
    assert said(basic, LEVEL_QUEUES) == wanted


def test_the_message_of_a_unit_is_lost_in_damaged_bytes(basic: Path) -> None:
    physical_offset, _, _ = get_unit(basic, 5)
    poke(basic / "commitlog" / FIRST_FILE, physical_offset + 4, "i", 0)
    bad_magic = Said("bad-magic", f"commitlog/{FIRST_FILE}", physical_offset)
    assert said(basic, LEVEL_QUEUES) == {bad_magic, at_unit("unit-lost-message", 5)}


def test_a_message_with_a_damaged_body_keeps_its_unit(basic: Path) -> None:
    physical_offset, _, _ = get_unit(basic, 5)
    body_at = physical_offset + 88
    (byte,) = peek(basic / "commitlog" / FIRST_FILE, body_at, "B")
    poke(basic / "commitlog" / FIRST_FILE, body_at, "B", byte ^ 4)
    wanted = Said("bad-body-crc", f"commitlog/{FIRST_FILE}", physical_offset, "OrderPaid", 0, 5)
    assert said(basic, LEVEL_QUEUES) == {wanted}


@pytest.mark.parametrize("size", [990, 1001])
def test_a_queue_file_whose_length_is_no_multiple_of_a_unit(basic: Path, size: int) -> None:
    (basic / QUEUE_FILE).write_bytes((basic / QUEUE_FILE).read_bytes()[:size].ljust(size, b"\0"))
    found = said(basic, LEVEL_QUEUES)
    assert {(finding.code, finding.path) for finding in found} == {("file-length", QUEUE_FILE)}


@pytest.mark.parametrize("size", [1000 - UNIT, 1000 + UNIT])
def test_the_length_of_queue_files_may_be_configured(basic: Path, size: int) -> None:
    (basic / QUEUE_FILE).write_bytes((basic / QUEUE_FILE).read_bytes()[:size].ljust(size, b"\0"))
    found = said(basic, LEVEL_QUEUES, BrokerConf(consumequeue_file_size=1000))
    assert {(finding.code, finding.path) for finding in found} == {("file-length", QUEUE_FILE)}


def test_a_short_first_file_of_a_queue_of_two(golden: Golden) -> None:
    root = golden("broker-497")
    path = root / "consumequeue/orders/2" / FIRST_FILE
    path.write_bytes(path.read_bytes()[: 290 * UNIT])
    found = said(root, LEVEL_QUEUES)
    assert {(finding.code, finding.path) for finding in found if finding.code != "missing-unit"} <= {
        ("file-length", f"consumequeue/orders/2/{FIRST_FILE}"),
        ("file-gap", f"consumequeue/orders/2/{6000:020d}"),
    }
    missing = {
        (finding.topic, finding.queue_id, finding.queue_offset, finding.count)
        for finding in found
        if finding.code == "missing-unit"
    }
    assert missing == {("orders", 2, 290, 10)}
    assert "file-length" in {finding.code for finding in found}


def test_the_units_of_a_queues_second_file(golden: Golden) -> None:
    root = golden("broker-497")
    name = f"consumequeue/orders/2/{6000:020d}"
    physical_offset, size, tags_code = get_unit(root, 10, name)
    set_unit(root, 10, (physical_offset, size + 1, tags_code), name)
    assert said(root, LEVEL_QUEUES) == {Said("unit-size", name, 10 * UNIT, "orders", 2, 310)}


def test_a_missing_first_file_of_a_queue(golden: Golden) -> None:
    root = golden("broker-497")
    (root / "consumequeue/orders/2" / FIRST_FILE).unlink()
    found = said(root, LEVEL_QUEUES)
    assert {
        (finding.code, finding.topic, finding.queue_id, finding.queue_offset, finding.count) for finding in found
    } == {("missing-unit", "orders", 2, 0, 300)}


# --- the extension


def of_ext_queue(found: set[Said]) -> set[Said]:
    """Of the queue that has its extension: the others were left in the archive."""
    return {finding for finding in found if (finding.topic, finding.queue_id) == EXT_QUEUE}


@pytest.fixture
def cqext(tmp_path: Path) -> Path:
    root = unpack_cqext(tmp_path)
    for path in (root / "consumequeue").glob("*/*"):
        if (path.parent.name, int(path.name)) != EXT_QUEUE:
            shutil.rmtree(path)
    return root


def test_addresses_of_the_extension_lead_to_their_units(cqext: Path) -> None:
    assert of_ext_queue(said(cqext, LEVEL_QUEUES)) == set()


@pytest.mark.parametrize("number", [0, 3])
def test_an_address_that_leads_behind_the_extension(cqext: Path, number: int) -> None:
    name = f"consumequeue/{EXT_QUEUE[0]}/{EXT_QUEUE[1]}/{FIRST_FILE}"
    physical_offset, size, _ = get_unit(cqext, number, name)
    set_unit(cqext, number, (physical_offset, size, -(2**63) + 48 * 1024 * 1024 + 5), name)
    assert of_ext_queue(said(cqext, LEVEL_QUEUES)) == {Said("ext-missing", name, number * UNIT, *EXT_QUEUE, number)}


def test_an_address_that_leads_to_no_unit_of_the_extension(cqext: Path) -> None:
    name = f"consumequeue/{EXT_QUEUE[0]}/{EXT_QUEUE[1]}/{FIRST_FILE}"
    poke(cqext / f"consumequeue_ext/{EXT_QUEUE[0]}/{EXT_QUEUE[1]}/{FIRST_FILE}", 2 * UNIT, "h", 0)
    assert of_ext_queue(said(cqext, LEVEL_QUEUES)) == {Said("ext-missing", name, 2 * UNIT, *EXT_QUEUE, 2)}


def test_a_wrong_tags_code_in_the_extension(cqext: Path) -> None:
    name = f"consumequeue/{EXT_QUEUE[0]}/{EXT_QUEUE[1]}/{FIRST_FILE}"
    path = cqext / f"consumequeue_ext/{EXT_QUEUE[0]}/{EXT_QUEUE[1]}/{FIRST_FILE}"
    (tags_code,) = peek(path, 2 * UNIT + 2, "q")
    poke(path, 2 * UNIT + 2, "q", tags_code + 1)
    assert of_ext_queue(said(cqext, LEVEL_QUEUES)) == {Said("unit-tags-code", name, 2 * UNIT, *EXT_QUEUE, 2)}


# --- odd, but healthy


def test_a_deleted_topic_is_a_note(golden: Golden) -> None:
    root = golden("broker-497")
    shutil.rmtree(root / "consumequeue/events")
    edit_json(root / "config/topics.json", lambda content: content["topicConfigTable"].pop("events"))
    assert said(root, LEVEL_ALL) == set()
    assert notes(root) == [
        (
            "300 messages of topic 'events', which neither topics.json nor a group's offset names, have no queue: "
            "deleted topic"
        )
    ]


def test_a_listed_topic_without_its_queues_is_a_finding(golden: Golden) -> None:
    root = golden("broker-497")
    shutil.rmtree(root / "consumequeue/payments")
    wanted = {
        Said("missing-unit", f"consumequeue/payments/{queue}", None, "payments", queue, 0, 10) for queue in range(4)
    }
    assert said(root, LEVEL_QUEUES) == wanted


def test_expired_units_are_a_note(basic: Path) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    expired = sum(
        physical_offset < LOG_FILE_SIZE
        for queue in expected("497-basic")["queues"]
        for _, physical_offset, _ in queue["entries"]
    )
    assert said(basic, LEVEL_QUEUES) == set()
    at_once = ReadOnlyStore(basic, BrokerConf(expiry=ExpirySettings(reserved_ms=0)))
    assert verify(at_once).notes == [
        f"{expired} queue units before the log's first file: expired, or deleted by `rmqctl clean`"
    ]


@pytest.mark.parametrize("blanks", [1, 7, 50])
def test_pre_blank_units_at_a_queues_front(tmp_path: Path, blanks: int) -> None:
    records = [Record(queue_id=0, queue_offset=blanks + i, properties=b"") for i in range(5)]
    write_log(tmp_path, records, file_size=4096)
    units = [PRE_BLANK] * blanks + [(at, size, 0) for _, at, size in placed(records)]
    write_queue(tmp_path, "OrderPaid", 0, units, slots=60)
    assert said(tmp_path, LEVEL_QUEUES) == set()
    assert notes(tmp_path) == []


def test_a_pre_blank_unit_among_used_ones(basic: Path) -> None:
    set_unit(basic, 5, PRE_BLANK)
    found = said(basic, LEVEL_QUEUES)
    assert found
    assert {(finding.path, finding.queue_offset, finding.count) for finding in found} == {(QUEUE_FILE, 5, 1)}


def recreated(root: Path, *, before: int, after: int, units_from: int) -> list[tuple[Record, int, int]]:
    """A log with `before` messages of a queue, and `after` that begin at 0 again; the queue points at those from
    `units_from` on.
    """
    records = [Record(queue_id=0, queue_offset=i, properties=b"") for i in [*range(before), *range(after)]]
    write_log(root, records, file_size=8192)
    found = placed(records)
    write_queue(root, "OrderPaid", 0, [(at, size, 0) for _, at, size in found[units_from:][:after]])
    return found


@pytest.mark.parametrize(("before", "after"), [(6, 4), (4, 6), (1, 1), (5, 5)])
def test_a_topic_deleted_and_created_again(tmp_path: Path, before: int, after: int) -> None:
    recreated(tmp_path, before=before, after=after, units_from=before)
    assert said(tmp_path, LEVEL_QUEUES) == set()
    assert notes(tmp_path) == [
        f"{before} messages of OrderPaid/0 are from before the topic was deleted and created again"
    ]


def test_a_topic_created_again_misses_its_own_units_all_the_same(tmp_path: Path) -> None:
    records = [Record(queue_id=0, queue_offset=i, properties=b"") for i in [*range(6), *range(4)]]
    write_log(tmp_path, records, file_size=8192)
    name = write_queue(tmp_path, "OrderPaid", 0, [(at, size, 0) for _, at, size in placed(records)[6:9]])
    assert said(tmp_path, LEVEL_QUEUES) == {Said("missing-unit", name, 3 * UNIT, "OrderPaid", 0, 3)}


def test_a_queue_that_still_points_at_the_older_messages(tmp_path: Path) -> None:
    recreated(tmp_path, before=4, after=4, units_from=0)
    found = said(tmp_path, LEVEL_QUEUES)
    assert {(finding.code, finding.queue_offset, finding.count) for finding in found} == {("unit-mismatch", 0, 4)}


def test_every_unit_of_every_queue_is_checked(basic: Path) -> None:
    wanted = set()
    for queue in expected("497-basic")["queues"]:
        if not queue["maxOffset"]:
            continue
        number = queue["maxOffset"] - 1
        name = f"consumequeue/{queue['topic']}/{queue['queueId']}/{FIRST_FILE}"
        physical_offset, size, tags_code = get_unit(basic, number, name)
        set_unit(basic, number, (physical_offset, size, tags_code + 1), name)
        wanted.add(Said("unit-tags-code", name, number * UNIT, queue["topic"], queue["queueId"], number))
    assert said(basic, LEVEL_QUEUES) == wanted


def test_level_1_does_not_look_at_queues(basic: Path) -> None:
    set_unit(basic, 5, (0, 0, 0))
    assert said(basic, 1) == set()


def test_nothing_but_queues_is_one_finding_and_what_dangles(basic: Path) -> None:
    shutil.rmtree(basic / "commitlog")
    (basic / "commitlog").mkdir()
    found = said(basic, LEVEL_QUEUES)
    assert Said("log-missing", "commitlog") in found
    assert {finding.code for finding in found} <= {"log-missing", "dangling-unit"}


# consume_queue.max_offset bisects: a bad unit on its path (slot 25 of 50) ends the queue there, and all after it
# cascades
@pytest.mark.parametrize("number", [25])
def test_a_flipped_sign_in_a_unit_that_the_bisection_meets(basic: Path, number: int) -> None:
    physical_offset, size, tags_code = get_unit(basic, number)
    set_unit(basic, number, (physical_offset - 2**63, size, tags_code))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-hole", number), at_unit("missing-unit", number)}


@pytest.mark.parametrize("number", [25])
def test_a_zeroed_unit_that_the_bisection_meets(basic: Path, number: int) -> None:
    set_unit(basic, number, (0, 0, 0))
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-hole", number), at_unit("missing-unit", number)}


# units of expired messages are never confirmed, so nothing is their measure any more
def test_expired_units_must_ascend_too(basic: Path) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    third, fourth = get_unit(basic, 3), get_unit(basic, 4)
    set_unit(basic, 3, fourth)
    set_unit(basic, 4, third)
    assert said(basic, LEVEL_QUEUES) == {at_unit("unit-order", 4)}


# a queue of one file has no other to compare with: its length is that of the other queues, or of broker.conf
def test_a_queue_file_that_was_cut_in_its_units(basic: Path) -> None:
    (basic / QUEUE_FILE).write_bytes((basic / QUEUE_FILE).read_bytes()[: 30 * UNIT])
    found = said(basic, LEVEL_QUEUES)
    assert {(finding.code, finding.path) for finding in found if finding.code != "missing-unit"} == {
        ("file-length", QUEUE_FILE)
    }
    missing = [finding for finding in found if finding.code == "missing-unit"]
    assert [(finding.topic, finding.queue_id, finding.queue_offset, finding.count) for finding in missing] == [
        ("OrderPaid", 0, 30, 9)
    ]


# no consumequeue_ext at all: the address is taken for a tags code
def test_an_extension_that_is_gone(cqext: Path) -> None:
    name = f"consumequeue/{EXT_QUEUE[0]}/{EXT_QUEUE[1]}/{FIRST_FILE}"
    units = next(
        queue["maxOffset"]
        for queue in expected("471-cqext")["queues"]
        if (queue["topic"], queue["queueId"]) == EXT_QUEUE
    )
    shutil.rmtree(cqext / "consumequeue_ext")
    assert of_ext_queue(said(cqext, LEVEL_QUEUES)) == {Said("ext-missing", name, 0, *EXT_QUEUE, 0, units)}


@pytest.mark.parametrize("size", [1000 - UNIT, 1000 + UNIT])
def test_a_queue_file_of_another_length_than_the_others(basic: Path, size: int) -> None:
    (basic / QUEUE_FILE).write_bytes((basic / QUEUE_FILE).read_bytes()[:size].ljust(size, b"\0"))
    assert {(finding.code, finding.path) for finding in said(basic, LEVEL_QUEUES)} == {("file-length", QUEUE_FILE)}


def test_a_queue_file_of_garbage_has_few_findings_that_count_all(basic: Path) -> None:
    path, units = basic / QUEUE_FILE, 60_000
    path.write_bytes(random.Random(7).randbytes(units * 20))
    with closing(ReadOnlyStore(basic)) as store:
        found = [
            one
            for one in verify(store, LEVEL_QUEUES).findings
            if one.path == QUEUE_FILE and one.queue_offset is not None
        ]
    of_units = [one for one in found if one.code in ("unit-hole", "unit-behind-end", "dangling-unit")]
    counts = Counter(one.code for one in of_units)
    assert counts["unit-hole"] == counts["dangling-unit"] == FINDINGS_MAX
    assert sum(one.count for one in of_units) == units
    dangling = [one for one in of_units if one.code == "dangling-unit"]
    assert dangling[-1].detail.endswith("this finding counts all later ones of its kind in the queue")
