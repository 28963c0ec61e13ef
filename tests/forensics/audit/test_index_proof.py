"""Checks of index files and of parts of the log, joined: when they prove the whole index."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import pytest

from rmqctl.forensics.audit.index_audit import TagsCounts
from rmqctl.forensics.audit.index_proof import FileProof, PartProof, joined, prove_file, prove_part
from rmqctl.forensics.finding import Finding
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from tests.conftest import Golden

FILES = (FileProof(True, 10, 1000, 1900), FileProof(True, 5, 1900, 2400))
NONE, ALL = TagsCounts(), TagsCounts(indexed=3)


DANGLING = (Finding("index-dangling", "index/20261121091529472", 1500, "", file_offset=4711),)
HEADER = (Finding("index-header", "index/20261121091529472", None, "", file_offset=0),)


def part(begin: int, end: int, entries: int, tags: TagsCounts = NONE, findings: tuple[Finding, ...] = ()) -> PartProof:
    return PartProof(findings, begin, end, entries, tags)


def test_parts_that_hold_all_entries_prove_the_index() -> None:
    assert joined(FILES, [part(1000, 2000, 11), part(2000, 3000, 4)], 0) == ((), NONE)


def test_findings_of_a_part_between_right_ones() -> None:
    parts = [part(1000, 1500, 5), part(1500, 2000, 6, NONE, DANGLING), part(2000, 3000, 4)]
    assert joined(FILES, parts, 0) == (DANGLING, NONE)


def test_entries_of_expired_messages_belong_to_no_part() -> None:
    assert joined(FILES, [part(1500, 3000, 10)], 5) == ((), NONE)


def test_an_empty_index_of_an_empty_log() -> None:
    assert joined([], [], 0) == ((), NONE)


@pytest.mark.parametrize(
    ("files", "parts", "expired"),
    [
        (FILES, [part(1000, 3000, 14)], 0),
        (FILES, [part(1000, 3000, 15)], 1),
        (FILES, [part(1000, 2000, 11, NONE, DANGLING), part(2000, 3000, 4, NONE, DANGLING)], 0),
        (
            FILES,
            [part(1000, 2000, 11, NONE, DANGLING), part(2000, 2500, 0), part(2500, 3000, 4, NONE, DANGLING)],
            0,
        ),
        (FILES, [part(1000, 3000, 15, NONE, HEADER)], 0),
        ((FILES[0], FILES[1]._replace(is_right=False)), [part(1000, 3000, 15)], 0),
        ((FILES[0], FILES[1]._replace(first=1899)), [part(1000, 3000, 15)], 0),
        (FILES, [part(1000, 2000, 11), part(1999, 3000, 4)], 0),
    ],
    ids=[
        "entry left out",
        "one too many",
        "successive parts",
        "and one without keys",
        "wrong header",
        "wrong file",
        "files out of order",
        "parts overlap",
    ],
)
def test_what_proves_nothing(files: tuple[FileProof, ...], parts: list[PartProof], expired: int) -> None:
    assert joined(files, parts, expired) is None


def test_a_file_without_entries_has_no_place_in_the_order() -> None:
    files = (FILES[0], FileProof(True, 0, 0, 0), FILES[1])
    assert joined(files, [part(1000, 3000, 15)], 0) == ((), NONE)


@pytest.mark.parametrize(
    ("tags", "together"),
    [
        ([ALL, ALL], TagsCounts(indexed=6)),
        ([TagsCounts(open=2, open_from=100), ALL], TagsCounts(before=2, indexed=3)),
        ([TagsCounts(open=2, open_from=100), TagsCounts(before=1, indexed=3)], TagsCounts(before=3, indexed=3)),
        ([ALL, TagsCounts(open=2, open_from=200)], TagsCounts(indexed=3, open=2, open_from=200)),
        (
            [TagsCounts(indexed=3, open=1, open_from=90), TagsCounts(open=2, open_from=200)],
            TagsCounts(indexed=3, open=3, open_from=90),
        ),
        ([TagsCounts(indexed=3, open=1, open_from=90), ALL], None),
        ([ALL, TagsCounts(before=1, indexed=3)], None),
    ],
)
def test_messages_without_an_entry_for_tags(tags: list[TagsCounts], together: TagsCounts | None) -> None:
    """Only the first and the last messages of a log may have none: they are from brokers of other versions."""
    parts = [part(1000 * at, 1000 * (at + 1), 0, of_part) for at, of_part in enumerate(tags)]
    found = joined([], parts, 0)
    assert (found and found.tags) == together


def test_an_index_that_this_process_cannot_list_proves_nothing(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not in a store without the file `lock`, where the index shows the version."""

    def refuse(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    root = golden("497-basic")
    (root / "lock").unlink()
    monkeypatch.setattr("rmqctl.store.read.read_only_store.IndexService", refuse)
    with closing(ReadOnlyStore(root)) as store:
        proof = prove_part(store, DispatchRequestBuilder(with_keys=True), 0, 1000, [])
        assert joined([], [proof], 0) is None
        assert not prove_file(store, "index/20261121091529472").is_right
