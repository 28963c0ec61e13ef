"""What parts of the log show of the index, joined: the same findings as of one part."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import pytest

from rmqctl.errors import Unreadable
from rmqctl.forensics.audit.index_audit import examine, without_gaps
from rmqctl.forensics.audit.index_findings import IndexEvent, IndexFindings, IndexPart
from rmqctl.forensics.finding import Finding
from rmqctl.kernels import index_match
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Golden

NO_MESSAGE, NO_SUCH_KEY, TIME, BEGIN, NOT_INDEXED, TAGS_NOT_INDEXED = (
    int(kind)
    for kind in (
        index_match.NO_MESSAGE,
        index_match.NO_SUCH_KEY,
        index_match.TIME,
        index_match.BEGIN,
        index_match.NOT_INDEXED,
        index_match.TAGS_NOT_INDEXED,
    )
)
FIRST, SECOND = "index/20261121091529472", "index/20261121091529598"  # of 497-basic


def entries(kind: int, code: str, place: int, count: int = 1, path: str = FIRST) -> IndexEvent:
    return IndexEvent(Finding(code, path, 1500, "", file_offset=place, count=count), kind)


def missing(begin: int, end: int, count: int, *, goes_on: bool) -> IndexEvent:
    finding = Finding("index-missing", "index", begin, "", size=end - begin, count=count)
    return IndexEvent(finding, NOT_INDEXED, goes_on)


def tags(count: int, first: int = 0) -> IndexEvent:
    return IndexEvent(Finding("index-missing", "index", first, "", count=count), TAGS_NOT_INDEXED)


@pytest.fixture
def store(golden: Golden) -> Iterator[ReadOnlyStore]:
    with closing(ReadOnlyStore(golden("497-basic"))) as opened:
        yield opened


def joined(store: ReadOnlyStore, *parts: list[IndexEvent], ends_missing: bool = False) -> list[Finding]:
    return IndexFindings(store, [IndexPart(0, 0, events, ends_missing=ends_missing) for events in parts]).findings


def test_entries_that_follow_each_other_are_one_finding(store: ReadOnlyStore) -> None:
    before, after = entries(NO_MESSAGE, "index-dangling", 4000, 3), entries(NO_SUCH_KEY, "index-dangling", 4060, 2)
    (found,) = joined(store, [before], [], [after])
    assert (found.file_offset, found.count) == (4000, 5)


@pytest.mark.parametrize(("place", "path"), [(4080, FIRST), (4060, SECOND)])
def test_other_entries_are_another_finding(store: ReadOnlyStore, place: int, path: str) -> None:
    before = entries(NO_MESSAGE, "index-dangling", 4000, 3)
    assert len(joined(store, [before], [entries(NO_MESSAGE, "index-dangling", place, path=path)])) == 2


def test_messages_that_are_not_in_the_index_go_on_in_the_next_part(store: ReadOnlyStore) -> None:
    before, after = missing(1000, 2000, 7, goes_on=True), missing(2500, 3000, 4, goes_on=True)
    (found,) = joined(store, [before], [], [after], ends_missing=True)
    assert (found.physical_offset, found.size, found.count) == (1000, 2000, 11)


def test_a_message_that_is_in_the_index_ends_the_finding(store: ReadOnlyStore) -> None:
    def parts(goes_on: bool) -> tuple[list[IndexEvent], list[IndexEvent]]:
        return [missing(1000, 2000, 7, goes_on=True)], [missing(2500, 3000, 4, goes_on=goes_on)]

    assert len(joined(store, *parts(goes_on=False), ends_missing=True)) == 2
    assert len(joined(store, *parts(goes_on=True), ends_missing=False)) == 2


def test_times_are_not_checked_where_they_count_from_a_wrong_one(store: ReadOnlyStore) -> None:
    begin = IndexEvent(Finding("index-header", FIRST, None, "", file_offset=0), BEGIN)
    times = entries(TIME, "index-time", 4000), entries(TIME, "index-time", 4000, path=SECOND)
    assert joined(store, [begin], [times[0]], [times[1]]) == [begin.finding, times[1].finding]


@pytest.mark.parametrize(
    ("parts", "found", "first", "last"),
    [
        ([([tags(0)], 0), ([tags(0)], 0)], [], 0, 0),
        ([([], 2), ([tags(0)], 0)], [], 2, 0),
        ([([], 2), ([tags(1, 2500)], 0)], [], 3, 0),
        ([([tags(0)], 0), ([], 2)], [], 0, 2),
        ([([tags(0)], 1), ([], 2)], [], 0, 3),
        ([([tags(0)], 1), ([tags(0)], 0)], [(1900, 1)], 0, 0),
        ([([tags(0)], 0), ([tags(1, 2500)], 0)], [(2500, 1)], 0, 0),
        ([([tags(0)], 1), ([], 1), ([tags(1, 3500)], 0)], [(1900, 3)], 0, 0),
    ],
)
def test_messages_without_an_entry_for_tags(
    store: ReadOnlyStore,
    parts: list[tuple[list[IndexEvent], int]],
    found: list[tuple[int, int]],
    first: int,
    last: int,
) -> None:
    """Only the first and the last messages of a log may have none: they are from brokers of other versions."""
    examined = [
        IndexPart(0, 0, events, last_offset=9999, tags_open=count, tags_open_from=1900 + 1000 * number)
        for number, (events, count) in enumerate(parts)
    ]
    index = IndexFindings(store, examined)
    assert [(finding.physical_offset, finding.count) for finding in index.findings] == found
    notes = [note.partition("TAGS of the ")[2] for note in index.notes()]
    assert [note.split(" message")[0] for note in notes] == [
        f"{where} {count}" for where, count in (("first", first), ("last", last)) if count
    ]


def test_parts_that_fit_together(store: ReadOnlyStore) -> None:
    builder = DispatchRequestBuilder(with_keys=True)
    parts = [examine(store, builder, (), offsets) for offsets in ((0, 1000), (1000, 10**6))]
    assert without_gaps(store, builder, parts) == parts
    assert sum(part.files for part in parts) == 2
    assert len(IndexFindings(store, parts).findings) == 2  # no message is in them


def test_what_lies_between_parts_is_examined(store: ReadOnlyStore) -> None:
    parts = [IndexPart(5000, 6000), IndexPart(7000, 10**6, files=1)]
    found = without_gaps(store, DispatchRequestBuilder(with_keys=True), parts)
    assert found is not None
    assert [(part.begin, part.end) for part in found] == [(0, 5000), (5000, 6000), (6000, 7000), (7000, 10**6)]


def test_parts_that_do_not_fit_together(store: ReadOnlyStore) -> None:
    builder = DispatchRequestBuilder(with_keys=True)
    whole = examine(store, builder, (), (0, 10**6))
    assert without_gaps(store, builder, [whole]) is not None
    assert without_gaps(store, builder, [whole, IndexPart(10**6 - 1, 10**7)]) is None
    assert without_gaps(store, builder, [whole._replace(files=1)]) is None
    assert without_gaps(store, builder, [whole._replace(is_incomplete=True)]) is None
    assert without_gaps(store, builder, [whole, None]) is None


def test_entries_behind_the_last_part(store: ReadOnlyStore) -> None:
    """A broker may have written them, and their messages, since the log was read."""
    builder = DispatchRequestBuilder(with_keys=True)
    assert without_gaps(store, builder, [examine(store, builder, (), (0, 50_000))]) is None


def test_an_index_that_cannot_be_listed(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not in a store without the file `lock`, where the index shows the version."""

    def refuse(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    root = golden("497-basic")
    (root / "lock").unlink()
    monkeypatch.setattr("rmqctl.store.read.read_only_store.IndexService", refuse)
    with closing(ReadOnlyStore(root)) as store, pytest.raises(Unreadable):
        examine(store, DispatchRequestBuilder(with_keys=True), [], (0, 1000))
