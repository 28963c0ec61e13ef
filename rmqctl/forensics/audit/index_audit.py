"""Check that keys in the log have index entries, and that entries have messages.

The audit checks that the chains of entries are complete. Entries and messages are both in log order, so one pass
compares them. The kernels of `rmqctl.kernels.index_match` compare blocks of entries with batches of messages. The audit
keeps three blocks of entries in memory, and the slot tables of their index files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.finding import Finding
from rmqctl.format.index_entry import ENTRY_FIRST, INDEX_ENTRY, INDEX_HEADER, SLOT_SIZE, IndexEntry, IndexHeader
from rmqctl.kernels import index_match
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.kernels.index_match import INDEX_EVENTS, MERGE_STATE
from rmqctl.store.config.store_path import SIGN_OF_5_4
from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, NotPassed
from rmqctl.store.read.index.index_service import SLOTS_MAX
from rmqctl.store.read.version_guess import looks_like_3x
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.format.columns import Bytes, Row
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.index.index_service import IndexFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ENTRIES_PER_BLOCK = 65536
EVENTS_AT_ONCE = 4096
KEYS_OF_A_MESSAGE_MAX = 32768


class _Block(NamedTuple):
    """Successive entries of one index file.

    The block has the bytes of the entries and the number of the first entry. The block marks the entries that are not
    compared.
    """

    file: FileCheck
    first: int
    data: Bytes
    skipped: Bytes
    incomplete: bool

    def entry(self, number: int) -> IndexEntry:
        """Return one entry of the block."""
        at = (number - self.first) * INDEX_ENTRY.size
        return IndexEntry._make(INDEX_ENTRY.struct.unpack(self.data[at : at + INDEX_ENTRY.size].tobytes()))


class TagsCounts(NamedTuple):
    """The counts of the messages that have TAGS, as in MERGE_STATE.

    `indexed` messages have an entry for TAGS. The messages without this entry are counted in `before` if they come
    before the first indexed message, and in `open` if they come after the last indexed message. `open_from` is the
    physical offset of the first of the `open` messages.
    """

    before: int = 0
    indexed: int = 0
    open: int = 0
    open_from: int = 0

    def with_next(self, following: TagsCounts) -> TagsCounts | None:
        """Return the counts of this part of the log and the next part together.

        The result is None if messages without an entry for TAGS are between messages that have this entry.
        """
        if not following.indexed:
            open_from = self.open_from if self.open else following.open_from
            return self._replace(open=self.open + following.open, open_from=open_from)
        gap = self.open + following.before
        if not self.indexed:
            return following._replace(before=gap)
        return None if gap else following._replace(before=self.before, indexed=self.indexed + following.indexed)


def tags_notes(store: ReadOnlyStore, tags: TagsCounts, last_offset: int) -> Iterator[str]:
    """Yield remarks on entries for TAGS that are missing because of an upgrade.

    `tags` counts all messages of the log, and `last_offset` is the physical offset in the last entry. There are no
    remarks if no message has an entry for its TAGS, and no broker of 5.4 has started on the store.
    """
    indexes_tags = tags.indexed or SIGN_OF_5_4 in store.path.version_signs()
    # if the open messages begin after the last entry, no key of these messages is in the index
    last = tags.open if tags.open_from <= last_offset else 0
    for count, where in ((tags.before, "first"), (last, "last")):
        if count and indexes_tags:
            yield (
                f"the index has no entry for TAGS of the {where} {counted(count, 'message')} that has any: a "
                "broker before 5.4 wrote "
                "them, or the index was rebuilt for one; a query by tag finds them after `rmqctl rebuild STORE "
                "index --profile 5.4`"
            )


class IndexAudit:
    """Collects differences between log and index in `findings`.

    With `part`, only the entries of messages in [begin, end) (physical offsets) are compared, and chains, order and
    headers are not checked. With `files`, `check_files` checks only these index files, and no message is compared.
    `entries` counts the entries that were read. Raises Unreadable if the index folder cannot be listed.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        builder: DispatchRequestBuilder,
        *,
        part: tuple[int, int] | None = None,
        files: Sequence[IndexFile] | None = None,
    ) -> None:
        self.findings: list[Finding] = []
        self.entries = 0
        self._store = store
        self._files = files
        self._builder = builder
        self._like_3x = False
        self._incomplete_ahead = False
        self._open: dict[str, Finding] = {}
        self._missing: Finding | None = None
        self._missing_from = 0
        self._last_offset = 0
        self._not_passed = NotPassed()
        self._found = np.zeros(KEYS_OF_A_MESSAGE_MAX, np.uint8)
        self._state = np.zeros(1, MERGE_STATE)
        self._events = np.zeros(EVENTS_AT_ONCE, INDEX_EVENTS)
        self._check_events = np.zeros(3 * ENTRIES_PER_BLOCK, INDEX_EVENTS)
        self._blocks = self._read_blocks() if part is None else self._part_blocks(*part)
        self._block: _Block | None = None
        self._following: _Block | None = None
        self._advance()
        self._advance()

    def on_messages(self, described: DispatchColumns) -> None:
        """Process messages of the log, in log order."""
        described = self._not_passed.take(described)
        state = self._state[0]
        state["row"] = 0
        while state["row"] < len(described.messages):
            block = self._block
            lacks_more = block is not None and self._incomplete_ahead and not block.incomplete
            more = self._following is not None or lacks_more
            self._merge(described, block, more=more, log_start=self._store.commit_log.min_offset)
            if block is not None and state["entry"] == len(block.skipped) and more:
                self._advance()

    def finish(self) -> None:
        """Check the entries after the last message."""
        last = np.zeros(1, DISPATCH_COLUMNS)
        last["physical_offset"] = np.iinfo(np.int64).max
        self.on_messages(DispatchColumns(last, np.zeros(0, np.int32)))

    def check_files(self) -> None:
        """Check slots, order and headers of all files, without messages."""
        while self._block is not None:
            self._advance()

    def notes(self) -> Iterator[str]:
        """Yield remarks on entries that are missing because of a broker's upgrade.

        The remarks count the first and the last messages of the log that have no entry for TAGS.
        """
        yield from tags_notes(self._store, self.tags, self._last_offset)

    @property
    def tags(self) -> TagsCounts:
        """Return the counts of the messages that have TAGS."""
        return TagsCounts(*(int(self._state[0][f"tags_{name}"]) for name in TagsCounts._fields))

    def _merge(self, described: DispatchColumns, block: _Block | None, *, more: bool, log_start: int) -> None:
        """Compare a batch of messages with a block of entries, and add findings."""
        state = self._state[0]
        state["events"] = 0
        incomplete = self._incomplete_ahead if block is None else block.incomplete
        report_missing = self._store.conf.index_enabled and not incomplete
        data, first, skipped, header = (
            _NOTHING if block is None else (block.data, block.first, block.skipped, block.file.bounds)
        )
        index_match.merge(
            described.messages, described.hashes, data, first, skipped, more, header, log_start, self._like_3x,
            report_missing, self._found, self._state, self._events,
        )  # fmt: skip
        for event in self._events[: state["events"]]:
            if event["kind"] == index_match.NOT_INDEXED:
                self._not_indexed(event, described)
            elif event["kind"] == index_match.TAGS_NOT_INDEXED:
                self._tags_not_indexed(int(event["value"]), int(event["count"]))
            elif block is not None:
                self._entry_event(event, block)

    def _advance(self) -> None:
        """Continue with the next block, and read the following block in advance."""
        before = self._block.file if self._block else None
        self._block, self._following = self._following, None
        self._state["entry"] = 0
        if self._block is not None and self._block.file is not before:
            self._state["begin_is_wrong"] = 0
        try:
            self._following = next(self._blocks, None)
        except OSError as error:
            self._cannot_be_read(error)

    def _cannot_be_read(self, error: OSError) -> None:
        self._incomplete_ahead = True
        path = self._store.storage.display(self._store.index.folder)
        self.findings.append(Finding("unreadable", path, None, f"the index cannot be read: {error.strerror}"))

    def _read_blocks(self) -> Iterator[_Block]:
        """Check slots and order of all entries, and yield the entries in blocks.

        The check of a block needs the first entry of the next block.
        """
        before: _Block | None = None
        whole = True
        try:
            for block in self._raw_blocks():
                if before is not None:
                    following = int.from_bytes(
                        block.data[INDEX_ENTRY.offset("phyOffset") :][:8].tobytes(), "big", signed=True
                    )
                    yield self._checked(before, following, last_of_file=block.file is not before.file)
                before = block
        except OSError as error:
            self._cannot_be_read(error)
            whole = False
        if before is not None:
            yield self._checked(before, -1, last_of_file=whole)

    def _raw_blocks(self) -> Iterator[_Block]:
        """Yield the unchecked entries of all index files, in blocks."""
        if self._files is None:
            self._like_3x = looks_like_3x(self._store)
        for index_file in self._store.index.files if self._files is None else self._files:
            file = index_file.file
            header = index_file.header()
            problem = self._store.index.length_problem(index_file)
            if problem is not None:
                self.findings.append(Finding("index-length", file.name, None, problem, file_offset=0))
                self._incomplete_ahead = True
            if header is None or index_file.slots > SLOTS_MAX:
                continue
            check = FileCheck(index_file, header)
            has_entries = False
            for first, data in index_file.entry_blocks(header.index_count, ENTRIES_PER_BLOCK):
                has_entries = True
                yield self._block_of(check, first, data)
            if not has_entries:
                self._end_file(check)

    def _block_of(self, check: FileCheck, first: int, data: bytes) -> _Block:
        raw = np.frombuffer(data, np.uint8)
        skipped = np.zeros(len(raw) // INDEX_ENTRY.size, np.uint8)
        self.entries += len(skipped)
        return _Block(check, first, raw, skipped, self._incomplete_ahead)

    def _part_blocks(self, begin: int, end: int) -> Iterator[_Block]:
        """Yield the entries of messages in [begin, end) in blocks, without a check.

        Entries may be left out if the index files are not in order. Then `entries` is too low.
        """
        self._like_3x = looks_like_3x(self._store)
        for index_file, header in self._store.index.files_between(begin, end):
            check = FileCheck(index_file, header)
            first, behind = (index_file.first_reaching(offset, header.index_count) for offset in (begin, end))
            for number, data in index_file.entry_blocks(behind, ENTRIES_PER_BLOCK, first):
                yield self._block_of(check, number, data)

    def _checked(self, block: _Block, following: int, *, last_of_file: bool) -> _Block:
        events = self._check_events
        self._last_offset, used = index_match.check_entries(
            block.data, block.first, block.file.heads, self._last_offset, following, block.skipped, events
        )
        for event in events[:used]:
            self._check_event(event, block)
        block.file.on_messages(block)
        if last_of_file:
            self._end_file(block.file)
        return block

    def _end_file(self, check: FileCheck) -> None:
        if check.index_file.file.size == self._store.index.usual_size:
            self.findings += check.finish()
        check.index_file.file.close()

    def _check_event(self, event: Row, block: _Block) -> None:
        number, value = int(event["entry"]), int(event["value"])
        entry = block.entry(number)
        if event["kind"] == index_match.ORDER:
            detail = f"entry {number} leads to {entry.phy_offset}, the one before to {value}"
            self._add("index-order", block, number, detail, int(event["count"]))
            return
        problem = f"keyHash {entry.key_hash} is negative"
        if event["kind"] == index_match.CHAIN:
            problem = f"prevIndex is {entry.prev_index}, the slot's entry before it is {value}"
        self._add("index-chain", block, number, f"entry {number}: {problem}", int(event["count"]))

    def _entry_event(self, event: Row, block: _Block) -> None:
        """Add the finding for a difference between an entry and the log."""
        kind, number, value, count = int(event["kind"]), int(event["entry"]), int(event["value"]), int(event["count"])
        entry, header = block.entry(number), block.file.header
        if kind == index_match.NO_MESSAGE:
            self._add(
                "index-dangling",
                block,
                number,
                f"entry {number} leads to {entry.phy_offset}, where no message is",
                count,
            )
        elif kind == index_match.NO_SUCH_KEY:
            self._add(
                "index-dangling",
                block,
                number,
                f"entry {number}: the message has no key with hash {entry.key_hash}",
                count,
            )
        elif kind == index_match.TIME:
            detail = f"entry {number}: timeDiff is {entry.time_diff} s, the message's is {value} s"
            self._add("index-time", block, number, detail, count)
        elif kind == index_match.BEGIN:
            what = f"beginTimestamp is {header.begin_timestamp}, the first message's store time {value}"
            self._add_header(block, "beginTimestamp", what)
        else:
            what = f"endTimestamp is {header.end_timestamp}, the last message's store time {value}"
            self._add_header(block, "endTimestamp", what)

    def _not_indexed(self, event: Row, described: DispatchColumns) -> None:
        """Add a finding for messages that are not in the index.

        One finding counts all successive messages that are not in the index.
        """
        first, last = described.messages[event["row"]], described.messages[event["last_row"]]
        if self._missing is None or not event["entry"]:
            at = int(first["physical_offset"])
            path = self._store.storage.display(self._store.index.folder)
            what = f"{int(event['value'])} keys of the message are not in the index"
            self._missing = Finding("index-missing", path, at, what, count=0)
            self._missing.topic, self._missing.queue_id = self._builder.keys[int(first["queue"])]
            self._missing.queue_offset = int(first["queue_offset"])
            self._missing_from = at
            self.findings.append(self._missing)
        self._missing.count += int(event["count"])
        self._missing.size = int(last["physical_offset"]) + int(last["size"]) - self._missing_from

    def _tags_not_indexed(self, first: int, count: int) -> None:
        """Add a finding for messages whose TAGS are not in the index.

        The index has the TAGS of messages before and after these messages.
        """
        path = self._store.storage.display(self._store.index.folder)
        what = "TAGS of the message are not in the index, although those of messages before and after it are"
        self.findings.append(Finding("index-missing", path, first, what, count=count))

    def _add_header(self, block: _Block, field: str, detail: str) -> None:
        self.findings.append(
            Finding("index-header", block.file.name, None, detail, file_offset=INDEX_HEADER.offset(field))
        )

    def _add(self, code: str, block: _Block, number: int, detail: str, count: int) -> None:
        before = self._open.get(code)
        file_offset = block.file.place(number)
        if before is not None and before.path == block.file.name and _ends_at(before) == file_offset:
            before.count += count
            return
        at = block.entry(number).phy_offset
        finding = Finding(code, block.file.name, at, detail, file_offset=file_offset, count=count)
        self._open[code] = finding
        self.findings.append(finding)


_NOTHING = (np.frombuffer(b"", np.uint8), 0, np.zeros(0, np.uint8), np.zeros(3, np.int64))


def _ends_at(finding: Finding) -> int | None:
    return None if finding.file_offset is None else finding.file_offset + finding.count * INDEX_ENTRY.size


class FileCheck:
    """The chains of entries in one file, compared with its slots and header.

    `heads` (int32) has the number of the newest entry of each slot.
    """

    def __init__(self, index_file: IndexFile, header: IndexHeader) -> None:
        self.index_file = index_file
        self.header = header
        self.bounds = np.array(
            [header.begin_timestamp, header.end_timestamp, header.index_count], np.int64
        )  # the values that the merge needs
        self.name = index_file.file.name
        self.heads = np.zeros(index_file.slots, np.int32)
        self.first: IndexEntry | None = None
        self.last: IndexEntry | None = None

    def place(self, number: int) -> int:
        """Return the position of an entry in the file."""
        return INDEX_HEADER.size + self.index_file.slots * SLOT_SIZE + number * INDEX_ENTRY.size

    def on_messages(self, block: _Block) -> None:
        """Process the entries of a block. Blocks must be in the order of the file."""
        self.first = self.first or block.entry(block.first)
        self.last = block.entry(block.first + len(block.skipped) - 1)

    def finish(self) -> Iterator[Finding]:
        """Yield the differences between slots, header and entries."""
        yield from self._wrong_slots()
        for field, problem in self._header_problems(int(np.count_nonzero(self.heads))):
            yield Finding("index-header", self.name, None, problem, file_offset=INDEX_HEADER.offset(field))

    def _wrong_slots(self) -> Iterator[Finding]:
        """Yield a finding if slots do not point to the newest entries of their chains."""
        found: Finding | None = None
        for first, data in self.index_file.slot_blocks():
            stored = np.frombuffer(data, ">i4")
            wrong = np.flatnonzero(stored != self.heads[first : first + len(stored)])
            if found is None and len(wrong):
                slot = first + int(wrong[0])
                detail = f"slot {slot} leads to entry {stored[wrong[0]]}, its newest is {self.heads[slot]}"
                found = Finding(
                    "index-chain", self.name, None, detail, file_offset=INDEX_HEADER.size + slot * SLOT_SIZE, count=0
                )
            if found is not None:
                found.count += len(wrong)
        if found is not None:
            yield found

    def _header_problems(self, occupied: int) -> Iterator[tuple[str, str]]:
        header = self.header
        if not ENTRY_FIRST <= header.index_count <= self.index_file.capacity:
            yield "indexCount", f"indexCount is {header.index_count}, the file has room for {self.index_file.capacity}"
        entries = header.index_count - 1
        if (
            not occupied <= header.hash_slot_count <= max(entries, occupied)
        ):  # brokers up to 4.7.0 count entries, later ones slots
            yield (
                "hashSlotCount",
                f"hashSlotCount is {header.hash_slot_count}: {occupied} slots are used, by {entries} entries",
            )
        if self.first and self.first.phy_offset != header.begin_phy_offset:
            yield (
                "beginPhyOffset",
                f"beginPhyOffset is {header.begin_phy_offset}, the first entry leads to {self.first.phy_offset}",
            )
        if self.last and self.last.phy_offset != header.end_phy_offset:
            yield (
                "endPhyOffset",
                f"endPhyOffset is {header.end_phy_offset}, the last entry leads to {self.last.phy_offset}",
            )
