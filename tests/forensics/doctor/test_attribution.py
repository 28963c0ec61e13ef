"""Findings and their causes: fifty findings of one lost file are one cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqctl.forensics.catalogue.catalogue import CATALOGUE
from rmqctl.forensics.doctor.attribution import DEPENDENT, FILE_FINDINGS, NAMED_CAUSES, attribute
from rmqctl.forensics.doctor.causes import CAUSES
from rmqctl.forensics.doctor.store_facts import StoreFacts
from rmqctl.forensics.finding import Finding

SIZE = 1000
FACTS = StoreFacts(
    log_files={base: f"commitlog/{base:020d}" for base in (1000, 2000, 3000)},
    log_file_size=SIZE,
    log_end=3500,
    queue_ends={("orders", number): 10 for number in range(50)},
)


def unit(code: str, at: int, queue_id: int = 0, queue_offset: int = 5, count: int = 1) -> Finding:
    path = f"consumequeue/orders/{queue_id}/00000000000000000000"
    return Finding(code, path, at, "detail", topic="orders", queue_id=queue_id, queue_offset=queue_offset, count=count)


def in_log(code: str, at: int, size: int = 100) -> Finding:
    return Finding(code, FACTS.file_of(at), at, "detail", size=size)


def test_every_finding_has_a_cause() -> None:
    assert NAMED_CAUSES.keys() | DEPENDENT | FILE_FINDINGS | {"log-start-missing"} == CATALOGUE.keys()
    assert {code for code, _ in NAMED_CAUSES.values()} <= CAUSES.keys()


def test_a_lost_file_is_one_cause() -> None:
    gap = Finding("file-gap", "commitlog/00000000000000003000", 2000, "detail", size=SIZE)
    units = [unit("unit-lost-message", 2000 + 10 * number, number) for number in range(50)]
    (cause,) = attribute([gap, *units, Finding("index-dangling", "index/1", 2500, "detail")], FACTS)
    assert (cause.code, cause.subjects, cause.findings) == ("log-file-gone", ["commitlog/00000000000000002000"], [gap])
    assert len(cause.consequences) == 51


def test_the_end_of_the_log_is_lost_where_a_unit_continues_it() -> None:
    ended = replace(FACTS, log_end=4000)
    (cause,) = attribute([unit("dangling-unit", 4100, 1), unit("dangling-unit", 4000, 2)], ended)
    assert (cause.code, cause.subjects) == ("log-tail-gone", ["commitlog/00000000000000004000"])


def test_a_queue_that_goes_on_elsewhere_is_ahead() -> None:
    (cause,) = attribute([unit("dangling-unit", 3600)], FACTS)
    assert (cause.code, cause.subjects) == ("queue-ahead", ["consumequeue/orders/0"])


def test_the_first_files_are_named_from_the_oldest_unit() -> None:
    finding = Finding("log-start-missing", "commitlog/00000000000000001000", 0, "detail", size=1000, count=9)
    (cause,) = attribute([finding], replace(FACTS, oldest_unit=40))
    assert cause.subjects == ["commitlog/00000000000000000000"]


@pytest.mark.parametrize(
    ("ends", "code", "offset"),
    [
        ({}, "queues-gone", 0),
        ({("orders", 1): 10}, "queue-gone", 0),
        ({("orders", 0): 5}, "queue-behind", 5),
        ({("orders", 0): 9}, "queue-damaged", 5),
    ],
)
def test_what_is_missing_of_the_queues(ends: dict[tuple[str, int], int], code: str, offset: int) -> None:
    (cause,) = attribute([unit("missing-unit", 1500, queue_offset=offset, count=4)], replace(FACTS, queue_ends=ends))
    assert cause.code == code


@pytest.mark.parametrize(("count", "code"), [(1, "record-damaged"), (2, "log-file-misplaced")])
def test_records_of_another_place_come_in_runs(count: int, code: str) -> None:
    (cause,) = attribute([replace(in_log("bad-physical-offset", 1500), count=count)], FACTS)
    assert cause.code == code


def test_damage_comes_first_and_takes_its_consequences() -> None:
    found = attribute([in_log("bad-magic", 1500), unit("unit-lost-message", 1550), unit("unit-size", 1700, 3)], FACTS)
    assert [(cause.code, len(cause.consequences)) for cause in found] == [("record-damaged", 1), ("queue-damaged", 0)]


def test_a_log_file_that_cannot_be_read_takes_what_points_into_it() -> None:
    """A rebuild of the queues, which agree with the bytes that nobody can read, would help nobody."""
    unread = in_log("unreadable", 2000, SIZE)
    units = [unit("unit-lost-message", 2000 + 10 * number, number) for number in range(50)]
    (cause,) = attribute([unread, *units, Finding("index-dangling", "index/1", 2500, "detail")], FACTS)
    assert (cause.code, cause.findings, len(cause.consequences)) == ("unreadable-part", [unread], 51)


def test_a_cut_file_takes_the_record_that_the_cut_tore() -> None:
    cut = Finding("file-length", "commitlog/00000000000000002000", 2400, "detail", size=600)
    (cause,) = attribute([cut, in_log("bad-size", 2390, 10), unit("unit-lost-message", 2390)], FACTS)
    assert (cause.code, len(cause.consequences)) == ("log-file-length", 2)


@pytest.mark.parametrize(
    ("healed", "others", "code"),
    [
        (True, (), "broker-died"),
        (False, (), "queue-behind"),
        (False, ("file-length",), "queue-behind"),
        (True, ("unit-hole",), "queue-damaged"),
    ],
)
def test_queues_and_the_death_are_one_cause(healed: bool, others: tuple[str, ...], code: str) -> None:
    """The death, if a start fills the queues; else what it does not fill."""
    lost = [unit(found, 3400, number, queue_offset=10) for found in ("missing-unit", *others) for number in (0, 1)]
    facts = replace(FACTS, still_missed=0 if healed else 1, has_abort=True)
    (cause,) = attribute([*lost, Finding("abort", "abort", None, "detail")], facts)
    assert (cause.code, len(cause.findings) + len(cause.consequences)) == (code, len(lost) + 1)


def test_a_queue_that_misses_more_than_a_crash_takes_is_not_of_the_death() -> None:
    both = [unit("unit-mismatch", 1100), Finding("abort", "abort", None, "detail")]
    assert [cause.code for cause in attribute(both, replace(FACTS, has_abort=True))] == ["queue-damaged", "broker-died"]


def test_an_offset_after_a_queue_that_lost_messages_is_a_consequence() -> None:
    beyond = Finding("offset-beyond-queue", "config/consumerOffset.json", None, "detail", topic="orders", queue_id=0)
    (cause,) = attribute([unit("dangling-unit", 3500), beyond], FACTS)
    assert (cause.code, cause.consequences[-1:]) == ("log-tail-gone", [beyond])
    assert [cause.code for cause in attribute([beyond], FACTS)] == ["group-ahead"]


def test_two_queues_that_disagree_about_one_record_blame_the_record() -> None:
    found = attribute([unit("missing-unit", 1500, 7), unit("unit-mismatch", 1500, 8)], FACTS)
    assert [(cause.code, cause.subjects) for cause in found] == [
        ("record-of-another-queue", ["commitlog/00000000000000001000"])
    ]


def test_index_findings_on_a_record_of_another_queue_are_consequences() -> None:
    pair = [entry("index-dangling", 1500), entry("index-missing", 1500)]
    found = [unit("missing-unit", 1500, 7), unit("unit-mismatch", 1500, 8), *pair]
    (cause,) = attribute(found, replace(FACTS, has_index=True))
    assert (cause.code, cause.consequences) == ("record-of-another-queue", pair)


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([unit("unit-tags-code", 1500)], "queue-with-other-tags"),
        ([unit("unit-tags-code", at) for at in (1500, 1600, 1700)], "queue-damaged"),
        ([unit("unit-tags-code", 1500), unit("unit-size", 1500)], "queue-damaged"),
        ([replace(unit("unit-tags-code", 1500), topic="SCHEDULE_TOPIC_XXXX")], "queue-damaged"),
    ],
)
def test_one_tags_code_that_differs_blames_neither_the_record_nor_the_queue(findings: list[Finding], code: str) -> None:
    facts = replace(FACTS, queue_ends={**FACTS.queue_ends, ("SCHEDULE_TOPIC_XXXX", 0): 10})
    assert [cause.code for cause in attribute(findings, facts)] == [code]


def entry(code: str, at: int | None) -> Finding:
    return Finding(code, "index" if code == "index-missing" else "index/1", at, "detail")


def test_a_whole_index_that_disagrees_about_one_record_blames_the_record() -> None:
    pair = [entry("index-dangling", 1500), entry("index-missing", 1500)]
    other = entry("index-missing", 1700)
    changed, index = attribute([*pair, other], replace(FACTS, has_index=True))
    assert (changed.code, changed.subjects) == ("record-with-other-keys", ["commitlog/00000000000000001000"])
    assert (changed.findings, index.findings) == (pair, [other])


@pytest.mark.parametrize("chain", [[entry("index-chain", None)], []])
def test_an_index_that_is_inconsistent_or_of_another_log_is_damaged_itself(chain: list[Finding]) -> None:
    places = [1500] if chain else [1500, 1600, 1700]
    pairs = [entry(code, at) for at in places for code in ("index-dangling", "index-missing")]
    (cause,) = attribute([*chain, *pairs], replace(FACTS, has_index=True))
    assert cause.code == "index-damaged"


def test_queues_whose_files_were_swapped_are_damaged_themselves() -> None:
    both = [unit("unit-mismatch", at, number) for at in (1100, 1200, 1300) for number in (7, 8)]
    (cause,) = attribute(both, FACTS)
    assert (cause.code, len(cause.subjects)) == ("queue-damaged", 2)


def test_a_file_that_no_queue_agrees_with_is_of_another_log() -> None:
    mismatched = [unit("unit-mismatch", 2000 + 10 * number, number) for number in range(20)]
    (cause,) = attribute([*mismatched, Finding("index-dangling", "index/1", 2500, "detail")], FACTS)
    assert (cause.code, cause.subjects) == ("log-file-replaced", ["commitlog/00000000000000002000"])
