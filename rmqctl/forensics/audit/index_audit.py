"""Check that keys in the log have index entries, and that entries have messages.

The audit checks that the chains of entries are complete. Entries and messages are both in log order, so one pass
compares them. The kernels of `rmqctl.kernels.index_match` compare blocks of entries with batches of messages. The audit
keeps three blocks of entries in memory, and the slot tables of their index files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.audit.index_entries import Block, IndexEntries
from rmqctl.forensics.finding import Finding
from rmqctl.format.index_entry import INDEX_HEADER
from rmqctl.kernels import index_match
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.kernels.index_match import INDEX_EVENTS, MERGE_STATE
from rmqctl.store.config.store_path import SIGN_OF_5_4
from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, NotPassed
from rmqctl.store.read.version_guess import looks_like_3x
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.columns import Row
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore

EVENTS_AT_ONCE = 4096
KEYS_OF_A_MESSAGE_MAX = 32768


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
    headers are not checked. Raises Unreadable if the index folder cannot be listed.
    """

    def __init__(
        self, store: ReadOnlyStore, builder: DispatchRequestBuilder, *, part: tuple[int, int] | None = None
    ) -> None:
        self._store = store
        self._builder = builder
        self._like_3x = False
        self._missing: Finding | None = None
        self._missing_from = 0
        self._not_passed = NotPassed()
        self._found = np.zeros(KEYS_OF_A_MESSAGE_MAX, np.uint8)
        self._state = np.zeros(1, MERGE_STATE)
        self._events = np.zeros(EVENTS_AT_ONCE, INDEX_EVENTS)
        self._entries = IndexEntries(store)
        self.findings = self._entries.findings
        self._blocks = self._read(part)
        self._block: Block | None = None
        self._following: Block | None = None
        self._advance()
        self._advance()

    @property
    def entries(self) -> int:
        """Return how many entries were read."""
        return self._entries.entries

    def _read(self, part: tuple[int, int] | None) -> Iterator[Block]:
        self._like_3x = looks_like_3x(self._store)
        files = self._store.index.files
        yield from self._entries.checked(files) if part is None else self._entries.unchecked(*part)

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

    def finish(self) -> None:
        """Check the entries after the last message."""
        last = np.zeros(1, DISPATCH_COLUMNS)
        last["physical_offset"] = np.iinfo(np.int64).max
        self.on_messages(DispatchColumns(last, np.zeros(0, np.int32)))

    def notes(self) -> Iterator[str]:
        """Yield remarks on entries that are missing because of a broker's upgrade.

        The remarks count the first and the last messages of the log that have no entry for TAGS.
        """
        yield from tags_notes(self._store, self.tags, self._entries.last_offset)

    @property
    def tags(self) -> TagsCounts:
        """Return the counts of the messages that have TAGS."""
        return TagsCounts(*(int(self._state[0][f"tags_{name}"]) for name in TagsCounts._fields))

    def _merge(self, described: DispatchColumns, block: Block | None, *, more: bool, log_start: int) -> None:
        """Compare a batch of messages with a block of entries, and add findings."""
        state = self._state[0]
        state["events"] = 0
        incomplete = self._entries.is_incomplete if block is None else block.incomplete
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
            self._entries.cannot_be_read(error)

    def _entry_event(self, event: Row, block: Block) -> None:
        """Add the finding for a difference between an entry and the log."""
        kind, number, value, count = int(event["kind"]), int(event["entry"]), int(event["value"]), int(event["count"])
        entry, header = block.entry(number), block.file.header
        if kind == index_match.NO_MESSAGE:
            self._entries.add(
                "index-dangling",
                block,
                number,
                f"entry {number} leads to {entry.phy_offset}, where no message is",
                count,
            )
        elif kind == index_match.NO_SUCH_KEY:
            self._entries.add(
                "index-dangling",
                block,
                number,
                f"entry {number}: the message has no key with hash {entry.key_hash}",
                count,
            )
        elif kind == index_match.TIME:
            detail = f"entry {number}: timeDiff is {entry.time_diff} s, the message's is {value} s"
            self._entries.add("index-time", block, number, detail, count)
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

    def _add_header(self, block: Block, field: str, detail: str) -> None:
        self.findings.append(
            Finding("index-header", block.file.name, None, detail, file_offset=INDEX_HEADER.offset(field))
        )


_NOTHING = (np.frombuffer(b"", np.uint8), 0, np.zeros(0, np.uint8), np.zeros(3, np.int64))
