"""Check that keys in the log have index entries, and that entries have messages.

The chains of entries must be complete, too. Entries and messages are both in log order, so one pass compares them: the
kernels of `rmqctl.kernels.index_match` compare blocks of entries with batches of messages. Three blocks of entries are
in memory, and the slot tables of their index files.

Several processes can each `examine` a part of the log; `IndexFindings` joins what they find, as it does for the whole
log in one part. A part relies on what the others check: that each index file is right, and that its entries follow
those of the file before. Where that is wrong, `without_gaps` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.audit.index_entries import Block, IndexEntries
from rmqctl.forensics.audit.index_findings import IndexPart
from rmqctl.forensics.finding import Finding
from rmqctl.format.index_entry import ENTRY_FIRST, INDEX_HEADER
from rmqctl.format.message import Damage
from rmqctl.kernels import index_match
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.kernels.index_match import INDEX_EVENTS, MERGE_STATE
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, NotPassed
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.version_guess import looks_like_3x

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqctl.format.columns import Row
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.file_scan import ScanItem, ZeroTail
    from rmqctl.store.read.read_only_store import ReadOnlyStore

EVENTS_AT_ONCE = 4096
KEYS_OF_A_MESSAGE_MAX = 32768


class IndexAudit:
    """Compares the index with the log, both in log order.

    With `part`, only the entries that lead to the physical offsets [begin, end) are compared, and only the chains,
    order and headers of the index files that begin there are checked. Raises Unreadable if the index folder cannot be
    listed.
    """

    def __init__(
        self, store: ReadOnlyStore, builder: DispatchRequestBuilder, *, part: tuple[int, int] | None = None
    ) -> None:
        self._store = store
        self._builder = builder
        self._like_3x = False
        self._part = part
        self._not_passed = NotPassed()
        self._found = np.zeros(KEYS_OF_A_MESSAGE_MAX, np.uint8)
        self._state = np.zeros(1, MERGE_STATE)
        self._state["missing_goes_on"] = 1  # if the part before ends so
        self._wrong_begin = ""  # the last index file whose beginTimestamp is wrong: its times say nothing
        self._events = np.zeros(EVENTS_AT_ONCE, INDEX_EVENTS)
        self._entries = IndexEntries(store)
        self._blocks = self._read(part)
        self._block: Block | None = None
        self._following: Block | None = None
        self._advance()
        self._advance()

    def _read(self, part: tuple[int, int] | None) -> Iterator[Block]:
        self._like_3x = looks_like_3x(self._store)
        files = self._store.index.files
        yield from self._entries.checked(files) if part is None else self._entries.of_part(*part)

    def on_messages(self, described: DispatchColumns) -> None:
        """Process messages of the log, in log order."""
        described = self._not_passed.take(described)
        state = self._state[0]
        state["row"] = 0
        while state["row"] < len(described.messages):
            block = self._block
            lacks_more = block is not None and self._entries.is_incomplete and not block.incomplete
            more = self._following is not None or lacks_more
            self._merge(described, block, more=more, log_start=self._store.commit_log.min_offset)
            if block is not None and state["entry"] == len(block.skipped) and more:
                self._advance()

    def finish(self) -> IndexPart:
        """Compare the entries after the last message, and return the result."""
        last = np.zeros(1, DISPATCH_COLUMNS)
        last["physical_offset"] = np.iinfo(np.int64).max
        self.on_messages(DispatchColumns(last, np.zeros(0, np.int32)))
        state, entries = self._state[0], self._entries
        begin, end = self._part or (0, OFFSET_MAX)
        of_files = (entries.events, entries.files, entries.is_incomplete, entries.last_offset)
        tags_open, tags_open_from = int(state["tags_open"]), int(state["tags_open_from"])
        return IndexPart(begin, end, *of_files, bool(state["missing_goes_on"]), tags_open, tags_open_from)

    def _merge(self, described: DispatchColumns, block: Block | None, *, more: bool, log_start: int) -> None:
        state = self._state[0]
        state["events"] = 0
        incomplete = self._entries.is_incomplete if block is None else block.incomplete
        report_missing = self._store.index.is_asked(self._store.conf) and not incomplete
        of_block = _NOTHING if block is None else (block.data, block.first, block.skipped, block.file.bounds)
        data, first, skipped, header = of_block
        index_match.merge(
            described.messages, described.hashes, data, first, skipped, more, header, log_start, self._like_3x,
            report_missing, self._found, self._state, self._events,
        )  # fmt: skip
        for event in self._events[: state["events"]]:
            if event["kind"] == index_match.NOT_INDEXED:
                self._not_indexed(event, described)
            elif event["kind"] == index_match.TAGS_NOT_INDEXED:
                self._tags_not_indexed(event)
            elif block is not None:
                self._entry_event(event, block)

    def _advance(self) -> None:
        self._block, self._following = self._following, None
        self._state["entry"] = 0
        try:
            self._following = next(self._blocks, None)
        except OSError as error:
            self._entries.cannot_be_read(error)

    def _entry_event(self, event: Row, block: Block) -> None:
        if event["kind"] == index_match.TIME and block.file.name == self._wrong_begin:
            return  # the join knows only later; a full file would have millions
        entry, header, value = block.entry(int(event["entry"])), block.file.header, int(event["value"])
        kind = event["kind"]
        if kind == index_match.NO_MESSAGE:
            detail = f" leads to {entry.phy_offset}, where no message is"
            self._entries.add_entries("index-dangling", event, block, detail)
        elif kind == index_match.NO_SUCH_KEY:
            detail = f": the message has no key with hash {entry.key_hash}"
            self._entries.add_entries("index-dangling", event, block, detail)
        elif kind == index_match.TIME:
            detail = f": timeDiff is {entry.time_diff} s, the message's is {value} s"
            self._entries.add_entries("index-time", event, block, detail)
        else:
            field, told, which = "endTimestamp", header.end_timestamp, "last"
            if kind == index_match.BEGIN:
                self._wrong_begin = block.file.name
                field, told, which = "beginTimestamp", header.begin_timestamp, "first"
            what = f"{field} is {told}, the {which} message's store time {value}"
            finding = Finding("index-header", block.file.name, None, what, INDEX_HEADER.offset(field))
            self._entries.add(finding, int(kind))

    def _not_indexed(self, event: Row, described: DispatchColumns) -> None:
        first, last = described.messages[event["row"]], described.messages[event["last_row"]]
        detail = f"{int(event['value'])} keys of the message are not in the index"
        finding = self._missing(int(first["physical_offset"]), detail, int(event["count"]))
        finding.topic, finding.queue_id = self._builder.keys[int(first["queue"])]
        finding.queue_offset = int(first["queue_offset"])
        finding.size = int(last["physical_offset"]) + int(last["size"]) - int(first["physical_offset"])
        self._entries.add(finding, int(event["kind"]), goes_on=bool(event["entry"]))

    def _tags_not_indexed(self, event: Row) -> None:
        detail = "TAGS of the message are not in the index, although those of messages before and after it are"
        finding = self._missing(int(event["value"]), detail, int(event["count"]))
        self._entries.add(finding, int(event["kind"]))

    def _missing(self, physical_offset: int, detail: str, count: int) -> Finding:
        path = self._store.storage.display(self._store.index.folder)
        return Finding("index-missing", path, physical_offset, detail, count=count)


_NOTHING = (np.frombuffer(b"", np.uint8), 0, np.zeros(0, np.uint8), np.zeros(3, np.int64))


def examine(
    store: ReadOnlyStore,
    builder: DispatchRequestBuilder,
    items: Iterable[ScanItem | RecordRun | ZeroTail],
    part: tuple[int, int] | None = None,
) -> IndexPart:
    """Compare the index with the log, or with a part of the log.

    `items` are those of the log or of the part, which has the physical offsets [begin, end). Their record runs must
    have DispatchColumns with the hashes of the keys, made by `builder`. Raises Unreadable if the index folder cannot be
    listed.
    """
    audit = IndexAudit(store, builder, part=part)
    for item in builder.runs(items):
        if isinstance(item, RecordRun):
            audit.on_messages(item.result)
        elif isinstance(item, Damage) and (message := store.message_in_its_place(item)) is not None:
            audit.on_messages(builder.of(message))
    return audit.finish()


def without_gaps(
    store: ReadOnlyStore, builder: DispatchRequestBuilder, parts: Iterable[IndexPart | None]
) -> list[IndexPart] | None:
    """Return `parts`, which are in log order, with what lies between them.

    No message is there, but entries may lead there. None if the log must be examined as one part: because the parts
    were wrong to rely on the order of the entries, because they overlap, or because entries lead behind the log's end,
    which a broker may have moved since. A None in `parts` is a part whose index could not be listed.
    """
    found: list[IndexPart] = []
    at = store.commit_log.min_offset
    for part in parts:
        if part is None or part.begin < at:
            return None
        if part.begin > at:
            found.append(examine(store, builder, (), (at, part.begin)))
        found.append(part)
        at = part.end
    behind = examine(store, builder, (), (at, OFFSET_MAX + 1))
    is_told = not (behind.events or any(part.is_incomplete for part in found))
    return found if is_told and sum(part.files for part in found) == _files_in_order(store) else None


def _files_in_order(store: ReadOnlyStore) -> int | None:
    """Return how many index files have entries.

    None if the entries of one do not follow those of the file before, or if a file without entries is wrong.
    """
    try:
        headers = [(file, file.header()) for file in store.index.files]
        filled = [header for _, header in headers if header is not None and header.index_count > ENTRY_FIRST]
        is_right = IndexEntries(store).are_right(file for file, header in headers if header not in filled)
    except OSError:
        return None
    store.index.close()
    ends = [offset for header in filled for offset in (header.begin_phy_offset, header.end_phy_offset)]
    return len(filled) if is_right and ends == sorted(ends) else None
