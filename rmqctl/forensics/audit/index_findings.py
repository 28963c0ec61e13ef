"""The findings on an index, joined from the differences that its parts show.

What a part cannot know is left to the join: whether a difference goes on from the part before, whether an index file's
beginTimestamp, from which all times in the file count, is wrong, and whether messages without an entry for TAGS lie
between others that have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.index_entry import INDEX_ENTRY
from rmqctl.kernels.index_match import BEGIN, TAGS_NOT_INDEXED, TIME
from rmqctl.store.config.store_path import SIGN_OF_5_4
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.forensics.finding import Finding
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class IndexEvent(NamedTuple):
    """A difference between index and log, or inside the index, as one part sees it."""

    finding: Finding
    kind: int | None = None  # of INDEX_EVENTS; None: a fault of a whole index file
    # set for messages that are not in the index, if none that is there comes between them and those of the event
    # before, or the part's begin
    goes_on: bool = False

    def take(self, following: IndexEvent) -> bool:
        """Count a following difference, too, if both are one finding; return whether.

        Differences of successive index entries with the same code are one.
        """
        first, second = self.finding, following.finding
        continues = self.kind == following.kind if following.goes_on else _ends_at(first, second)
        if None in (self.kind, following.kind) or first.code != second.code or not continues:
            return False
        first.count += second.count
        if first.physical_offset is not None and second.physical_offset is not None and second.size is not None:
            first.size = second.physical_offset + second.size - first.physical_offset
        return True


class IndexPart(NamedTuple):
    """The differences that the index entries into one part of the log show.

    The part has the physical offsets [begin, end). The index files whose first entry leads into it are checked with it.
    """

    begin: int
    end: int
    events: Sequence[IndexEvent] = ()
    files: int = 0  # number of these
    is_incomplete: bool = False  # one of them is wrong or cannot be read: which entries lead where is not known
    last_offset: int = 0  # where the last of their entries leads
    ends_missing: bool = True  # the part ends with messages that are not in the index, or none of it must be there
    tags_open: int = 0  # messages at the part's end that have TAGS and no entry for them
    tags_open_from: int = 0  # the first of these


class IndexFindings:
    """Joins the results of all parts, which are in log order, to `findings`."""

    def __init__(self, store: ReadOnlyStore, parts: Iterable[IndexPart]) -> None:
        self.findings: list[Finding] = []
        self._store = store
        self._open: dict[str, IndexEvent] = {}  # by the code of the finding, what may go on
        self._wrong_begin = ""  # the last index file whose beginTimestamp is wrong
        self._last_offset = 0
        self._indexes_tags = False
        self._tags_before = 0  # messages without an entry for TAGS, before the first that has one
        self._tags_open = 0  # and after the last that has one
        self._tags_open_from = 0
        for part in parts:
            self._join(part)

    def notes(self) -> Iterator[str]:
        """Yield remarks on entries for TAGS that are missing because of an upgrade.

        There are none if no message has an entry for its TAGS, and no broker of 5.4 has started on the store.
        """
        indexes_tags = self._indexes_tags or SIGN_OF_5_4 in self._store.path.version_signs()
        # if the open messages begin after the last entry, no key of these messages is in the index
        last = self._tags_open if self._tags_open_from <= self._last_offset else 0
        for count, where in ((self._tags_before, "first"), (last, "last")):
            if count and indexes_tags:
                yield (
                    f"the index has no entry for TAGS of the {where} {counted(count, 'message')} that has any: a "
                    "broker before 5.4 wrote them, or the index was rebuilt for one; a query by tag finds them after "
                    "`rmqctl rebuild STORE index --profile 5.4`"
                )

    def _join(self, part: IndexPart) -> None:
        for event in part.events:
            self._add(event)
        if not part.ends_missing:
            self._open.pop("index-missing", None)
        if part.tags_open:
            self._tags_open_from = self._tags_open_from if self._tags_open else part.tags_open_from
            self._tags_open += part.tags_open
        self._last_offset = max(self._last_offset, part.last_offset)

    def _add(self, event: IndexEvent) -> None:
        finding, kind, _ = event
        before = self._open.get(finding.code)
        if kind == TAGS_NOT_INDEXED:
            self._add_tags(finding)
        elif kind == TIME and finding.path == self._wrong_begin:
            return
        elif before is None or not before.take(event):
            self._open[finding.code] = event
            self.findings.append(finding)
        if kind == BEGIN:
            self._wrong_begin = finding.path

    def _add_tags(self, finding: Finding) -> None:
        """Add messages whose TAGS are not in the index, unless none before them are."""
        if self._tags_open:
            finding.physical_offset = self._tags_open_from
            finding.count += self._tags_open
        if not self._indexes_tags:
            self._tags_before = finding.count
        elif finding.count:
            self.findings.append(finding)
        self._indexes_tags, self._tags_open = True, 0


def _ends_at(before: Finding, finding: Finding) -> bool:
    if before.file_offset is None or before.path != finding.path:
        return False
    return before.file_offset + before.count * INDEX_ENTRY.size == finding.file_offset
