"""Records as rows, for `rmqctl dump`.

The records are selected by filters, by ranges, or as the last N records. New records can be shown as they arrive.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest
from rmqctl.forensics.message_row import damage_row, message_row
from rmqctl.format.message import Blank, Damage, Message
from rmqctl.store.read.commit_log import SMALL_SEGMENT_SIZE, UNREADABLE, ScanSummary
from rmqctl.store.read.file_scan import RecordRun, ScanItem

if TYPE_CHECKING:
    from rmqctl.forensics.message_filter import Filter
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]
POLL_SECONDS = 0.2
TAIL_RECORD_SIZE = 4096
TAIL_GROWTH = 8


class Dump:
    """The rows of a store's log that the filter `wanted` selects.

    `on_damage` is called with each damage in the selected range, without its body. `damages` counts these calls.
    `incomplete` is set if something could not be read. `summary` is updated while the rows are read.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        wanted: Filter,
        *,
        body: str = "none",
        damaged: bool = False,
        on_damage: Callable[[Damage], None],
        threads: int = 1,
    ) -> None:
        self.summary = ScanSummary()
        self.damages = 0
        self.incomplete = False
        self._store = store
        self._log = store.commit_log
        self._wanted = wanted
        self._body = body
        self._damaged = damaged
        self._on_damage = on_damage
        self._threads = threads

    def warm_up(self) -> None:
        """Compile or load the kernels that `rows` and `lines` need."""
        from rmqctl.kernels import filter_scan, json_lines, scan
        from rmqctl.kernels.warm_up import warm_up

        warm_up(scan, filter_scan, json_lines)

    def rows(self) -> Iterator[Row]:
        """Yield all rows, in the order of the log."""
        self.warm_up()

        def take(columns: Columns) -> tuple[str, list[Message]]:
            return columns.path, [columns.message(row) for row in self._wanted.rows(columns).tolist()]

        for item in self._scan(take):
            if isinstance(item, RecordRun):
                path, messages = item.result
                for message in messages:
                    yield from self._shown(message, path)
            else:
                yield from self._row(item)

    def lines(self, to_line: Callable[[Row], str]) -> Iterator[bytes]:
        """Yield the rows as blocks of many JSON Lines.

        The kernel writes most rows; `to_line` writes the others.
        """
        from rmqctl.forensics.line_writer import LineWriter

        self.warm_up()
        writer = LineWriter(self._wanted, self._body)
        for item in self._scan(writer.take):
            if not isinstance(item, RecordRun):
                yield from ((to_line(row) + "\n").encode() for row in self._row(item))
                continue
            path, pieces = item.result
            for piece in pieces:
                if isinstance(piece, Message):
                    yield from ((to_line(row) + "\n").encode() for row in self._shown(piece, path))
                else:
                    yield piece

    def _scan(self, take: Callable[[Columns], Any]) -> Iterator[ScanItem | RecordRun]:
        return self._log.scan_columns(
            self.summary,
            take,
            threads=self._threads,
            start=self._first_file(),
            stop=self._wanted.to_offset,
            segment_size=SMALL_SEGMENT_SIZE,
        )

    def tail(self, count: int) -> list[Row]:
        """Return the last `count` rows.

        Records can only be read forwards. So the function reads the end of the log, and begins earlier and earlier
        until it has enough rows. Each step back is larger than the step before.
        """
        first = max(self._log.min_offset, self._wanted.from_offset or 0, self._first_file() or 0)
        end, _ = self._log.end()
        span = count * TAIL_RECORD_SIZE
        while True:
            start = max(end - span, first)
            self.summary = ScanSummary()
            rows: deque[Row] = deque(maxlen=count)
            heard: list[Damage] = []
            for item in self._log.scan(self.summary, start=start, stop=self._wanted.to_offset):
                rows.extend(self._rows_of(item))
                heard += [item._replace(message=None)] if isinstance(item, Damage) else []
            if len(rows) == count or start == first:
                for damage in heard:
                    self._hear(damage)
                return list(rows)
            span *= TAIL_GROWTH

    def around(self, physical_offset: int, context: int) -> list[Row]:
        """Return the record at an offset, and `context` records before and after it.

        Damage counts as a record.
        """
        file = self._log.queue.find(physical_offset)
        if file is None:
            hint = f"it begins at {self._log.min_offset}; `rmqctl info` shows where it ends"
            raise BadRequest(f"no file of the commit log holds the offset {physical_offset}", hint=hint)
        before: deque[list[Row]] = deque(maxlen=context + 1)
        scan = self._log.scan(self.summary, start=file.file_from_offset)
        for item in scan:
            before.append(self._shown(item))
            if item.physical_offset + max(item.size, 1) > physical_offset:
                self._hear_if_damage(item)
                break
        behind = []
        for item in islice(scan, context):
            behind.append(self._shown(item))
            self._hear_if_damage(item)
        self.summary.stopped = f"{context} records after {physical_offset}"
        return [row for rows in (*before, *behind) for row in rows]

    def follow(self, position: int | None = None) -> Iterator[Row]:
        """Yield new rows without an end, from `position` on (default: the log's end).

        Only completely written records are yielded. A record counts as completely written if (1) it is valid, (2) its
        last byte was written (files are zero before, and a broker copies a record from its first byte to its last), and
        (3) another record follows, or the record stays unchanged for a whole poll. Damage is skipped if complete
        records follow it.
        """
        if position is None:
            position, _ = self._log.end()
        unsure: Message | None = None
        while self._wanted.to_offset is None or position < self._wanted.to_offset:
            item = self._log.at(position)
            if isinstance(item, Blank):
                position = item.end
            elif isinstance(item, Message) and last_byte_written(item) and (item == unsure or self._is_followed(item)):
                position, unsure = item.end, None
                self.summary.count(item)
                yield from self._row(item)
            elif (passed := self._past_damage(item, position)) is not None:
                position, unsure = passed, None
            else:
                unsure = item if isinstance(item, Message) and last_byte_written(item) else None
                time.sleep(POLL_SECONDS)
                self._log.queue.refresh()

    def _past_damage(self, item: ScanItem | None, position: int) -> int | None:
        """Return where to continue after damage or missing files.

        The result is None if nothing follows: a broker may be writing a record there.
        """
        if not isinstance(item, Damage):
            return None
        if item.code == "outside-log":
            later = [file.file_from_offset for file in self._log.queue.files if file.file_from_offset > position]
            following = later[0] if later else None
        else:
            following = self._log.next_record(position + 1)
        if following is not None:
            lost = "file-gap" if item.code == "outside-log" else item.code
            self._hear(item._replace(code=lost, size=following - position, message=None))
        return following

    def _is_followed(self, message: Message) -> bool:
        following = self._log.at(message.end)
        return following is not None and not (isinstance(following, Damage) and following.code == "outside-log")

    def _row(self, item: ScanItem) -> Iterator[Row]:
        self._hear_if_damage(item)
        yield from self._rows_of(item)

    def _rows_of(self, item: ScanItem) -> list[Row]:
        """Return the row of an item; None if it is not wanted."""
        if isinstance(item, Damage):
            return self._shown(item) if self._damaged and self._wanted.touches(item) else []
        return self._shown(item) if isinstance(item, Message) and self._wanted.matches(item) else []

    def _shown(self, item: ScanItem, path: str | None = None) -> list[Row]:
        path = self._log.path_of(item.physical_offset) if path is None else path
        if isinstance(item, Damage):
            return [damage_row(item, path=path, body=self._body)]
        if isinstance(item, Message):
            return [message_row(item, path=path, tags_code=self._store.tags_code(item), body=self._body)]
        return []

    def _hear_if_damage(self, item: ScanItem) -> None:
        if isinstance(item, Damage):
            self._hear(item._replace(message=None))

    def _hear(self, damage: Damage) -> None:
        if self._wanted.touches(damage):
            self.damages += 1
            self.incomplete = self.incomplete or damage.code in UNREADABLE
            self._on_damage(damage)

    def _first_file(self) -> int | None:
        """Return the file where reading begins.

        If a first offset is given, this is the file with this offset. Otherwise, this is the last file whose first
        message is older than `since`.
        """
        if self._wanted.from_offset is not None:
            file = self._log.queue.at_or_before(self._wanted.from_offset)
            return file.file_from_offset if file else None
        if self._wanted.since is None:
            return None
        start = None
        for file in self._log.queue.files:
            first = self._log.message_at(file.file_from_offset)
            file.close()
            if first is None or first.store_timestamp >= self._wanted.since:
                break
            start = file.file_from_offset
        return start


def last_byte_written(message: Message) -> bool:
    """Return whether the last byte of a record was written.

    A broker writes a record over zeros, from its first byte to its last.
    """
    last = message.properties_bytes or message.topic_bytes
    return not last or last[-1] != 0
