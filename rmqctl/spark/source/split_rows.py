"""Read a split of a log as record batches.

The column reader reads good messages. Blanks, damage and very large messages are read one by one, as in `rmqctl dump
--damaged`.

Reading begins at the first record in the split, in the first split of a file at the first byte, and ends where the task
of the next split begins. Damage or zeros between two records belong to the split of the earlier record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.forensics.message_filter import Filter
from rmqctl.format import properties
from rmqctl.format.body.bodies import NO_BODIES, Bodies
from rmqctl.format.body.message_row import damage_row, message_row
from rmqctl.format.message import Damage, Message
from rmqctl.format.timestamp import MAX_MS, MIN_MS
from rmqctl.kernels import cq_unit_compare, dispatch_scan, filter_scan, group_scan, row_scan, scan, send_hash
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.logfile.system.remote_storage import root_path
from rmqctl.spark.scan.coverage import Range, sequence_split
from rmqctl.spark.scan.record_counts import RecordCounts, counts_of, total
from rmqctl.spark.scan.split import opened
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.spark.source import block_rows
from rmqctl.spark.source.block_rows import BlockRows
from rmqctl.spark.source.group_rows import GroupRows
from rmqctl.spark.source.message_columns import US_PER_MS, MessageColumns, body_text
from rmqctl.spark.source.message_schema import (
    CONFIRMED,
    KIND_BLANK,
    KIND_DAMAGE,
    KIND_MESSAGE,
    KIND_RANGE,
    Blocks,
    Division,
    Sends,
    Unconfirmed,
    arrow_schema,
    columns_for,
    gathered,
)
from rmqctl.spark.source.queue_check import QueueCheck
from rmqctl.spark.source.send_rows import SendRows
from rmqctl.spark.source.source_stores import broker_of
from rmqctl.spark.source.stream.boundary import LOOK_BACK
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.read.commit_log import UNREADABLE, goes_on
from rmqctl.store.read.file_scan import FileScan, RecordRun, ZeroTail, end_position, next_readable
from rmqctl.store.read.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.logfile.column_reader import Columns
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.spark.scan.pieces import Pieces
    from rmqctl.spark.scan.split import Split
    from rmqctl.spark.source.message_schema import Summary
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.file_scan import ScanItem

ROWS_GATHERED_MAX = 1024
BYTES_GATHERED_MAX = 4 * 1024 * 1024


class RowReading(NamedTuple):
    """The settings for making rows."""

    names: tuple[str, ...]  # the columns
    conf: BrokerConf = BrokerConf()
    follow_links: bool = False
    ranges: bool = False  # each task adds a row of kind 'range': its range, the counts for it, and `tasks`
    tasks: int = 0  # their number
    wanted: tuple[Filter, ...] = ()  # a row must meet all of them
    summary: Summary | None = None  # what the rows are, if not one for each message, blank and damage
    charset: str | None = None  # of bodies as text; None: UTF-8

    @property
    def schema(self) -> Any:
        """Return the pyarrow schema of the rows."""
        return arrow_schema(columns_for(self.summary), self.names)

    def warm_up(self) -> None:
        """Compile or load the kernels, once for each process."""
        warm_up_once(scan, *_KERNELS[type(self.summary)], *((filter_scan,) if self.wanted else ()))

    def wants(self, item: ScanItem) -> bool:
        """Return whether an item has rows.

        A blank has none if a message must meet more than a range of offsets. Damage may hide any message, so only that
        range counts for it.
        """
        if isinstance(item, Message):
            return all(one.matches(item) for one in self.wanted)
        if isinstance(item, Damage):
            return all(one.touches(item) for one in self.wanted)
        at = item.physical_offset
        return all(
            one == Filter(from_offset=one.from_offset, to_offset=one.to_offset)
            and (one.from_offset or 0) <= at
            and (one.to_offset is None or at < one.to_offset)
            for one in self.wanted
        )


def split_batches(split: Split, reading: RowReading, *, exact: bool = False) -> Iterator[Any]:
    """Yield the record batches (pyarrow) of a split.

    With `exact`, the split must consist of whole messages, blanks and damages. Raises Unreadable if the file does not
    exist, or if the driver's host has a different file. Raises the errors of ReadOnlyStore.
    """
    reading.warm_up()
    with opened(split) as file:
        yield from _SplitRows(split, file, reading).batches(exact=exact)


def piece_batches(pieces: Pieces, reading: RowReading) -> Iterator[Any]:
    """Yield the record batches (pyarrow) of pieces of a file.

    Raises the errors of `split_batches`.
    """
    reading.warm_up()
    with opened(pieces.split) as file:
        batches = _SplitRows(pieces.split, file, reading).batches_at(pieces.places)
        for table in gathered(batches, len, ROWS_GATHERED_MAX):  # each batch costs Spark some time
            yield from table.combine_chunks().to_batches()


def damage_batches(root: str, damages: Sequence[Damage], reading: RowReading) -> Iterator[Any]:
    """Yield the record batches of the damage between a log's files.

    With `reading.ranges`, a row of kind 'range' has its counts.
    """
    found: list[dict[str, Any]] = []
    shown = [damage for damage in damages if reading.wants(damage)]
    if isinstance(reading.summary, Blocks):
        found = block_rows.damage_rows(shown)
    elif reading.summary is None or isinstance(reading.summary, Unconfirmed):
        rows = ItemRows(root, _Store(root, reading), NO_BODIES)
        found = [rows.row(damage, damage.path) for damage in shown]
    if reading.ranges:
        found.append(range_row(Range(sequence_split(root), 0, 0, reading.tasks, total(map(counts_of, damages)))))
    if found:
        yield _batch(found, reading.schema)


class _Store:
    """The store that a task reads; the first call opens it."""

    def __init__(self, root: str, reading: RowReading) -> None:
        self._root = root_path(root)
        self._reading = reading
        self._store: ReadOnlyStore | None = None

    def __call__(self) -> ReadOnlyStore:
        if self._store is None:
            reading = self._reading
            log_only = not isinstance(reading.summary, Unconfirmed)
            self._store = ReadOnlyStore(self._root, reading.conf, follow_links=reading.follow_links, log_only=log_only)
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


class _MessageRows:
    def __init__(self, root: str, store: _Store, reading: RowReading) -> None:
        self._schema = reading.schema
        bodies = Bodies(charset=reading.charset)
        self._others = ItemRows(root, store, bodies)
        same = {"broker": broker_of(root), "store": root, "kind": KIND_MESSAGE, "damage": None, "detail": None}
        self._columns = MessageColumns(reading.names, same, lambda message: store().tags_code(message), bodies)

    def of_run(self, columns: Columns) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_arrays(self._columns.arrays(columns), schema=self._schema)

    def of_item(self, item: ScanItem, path: str) -> list[dict[str, Any]]:
        return [self._others.row(item, path)]

    def rest(self) -> Any:
        # `of_run` and `of_item` have already returned all rows
        return None


class _UnconfirmedRows(_MessageRows):
    """Makes rows for the messages that their queues do not confirm.

    Messages at queue offset 0, blanks and damage also have rows.
    """

    def __init__(self, root: str, store: _Store, reading: RowReading) -> None:
        super().__init__(root, store, reading)
        same = {"broker": broker_of(root), "store": root, "kind": KIND_MESSAGE, "damage": None, "detail": CONFIRMED}
        self._confirmed = MessageColumns(reading.names, same, lambda message: store().tags_code(message))
        self._opened = store
        self._check: QueueCheck | None = None

    def of_run(self, columns: Columns) -> Any:
        import pyarrow as pa

        if self._check is None:
            self._check = QueueCheck(self._opened())
        belongs, confirmed = self._check.check(columns)
        wanted = (
            (self._columns, belongs & ~confirmed),
            (self._confirmed, confirmed & (columns.rows["queue_offset"] == 0)),
        )
        found = [
            pa.RecordBatch.from_arrays(makers.arrays(columns._replace(rows=columns.rows[rows])), schema=self._schema)
            for makers, rows in wanted
            if rows.any()
        ]
        return pa.Table.from_batches(found).combine_chunks().to_batches()[0] if found else None


_KERNELS: dict[type[Any], tuple[Any, ...]] = {
    type(None): (row_scan,),
    Division: (group_scan,),
    Sends: (row_scan, send_hash),
    Blocks: (row_scan,),
    Unconfirmed: (row_scan, dispatch_scan, cq_unit_compare),
}


def _rows_for(split: Split, store: _Store, reading: RowReading) -> Any:
    summary = reading.summary
    if isinstance(summary, Division):
        return GroupRows(split.root, reading.schema, summary)
    if isinstance(summary, Sends):
        return SendRows(split, reading.schema, summary)
    if isinstance(summary, Blocks):
        return BlockRows(split.file, reading.schema, summary)
    if isinstance(summary, Unconfirmed):
        return _UnconfirmedRows(split.root, store, reading)
    return _MessageRows(split.root, store, reading)


class _SplitRows:
    def __init__(self, split: Split, file: MappedFile, reading: RowReading) -> None:
        self._split = split
        self._file = file
        self._reading = reading
        self._schema = reading.schema
        self._store = _Store(split.root, reading)
        self._rows = _rows_for(split, self._store, reading)
        self._went_on = split.start > 0  # then the split begins with a record
        self._counts = RecordCounts()

    def batches(self, *, exact: bool) -> Iterator[Any]:
        split = self._split
        reached = self._scan_at_start()
        first: int | None = split.start
        if not exact and split.start > 0:
            first = next_readable(self._file, reached.position, split.stop, reader=split.reader)
        begin = end = split.start if first is None else first
        if first is not None:
            reached.position = first
            items = reached.items(split.stop) if exact else _up_to_next_record(reached, self._file, split)
            yield from self._batches_of(items)
            end = reached.position
        yield from self._ending(begin, end)

    def batches_at(self, places: Sequence[tuple[int, int]]) -> Iterator[Any]:
        """Yield the record batches of several parts [start, stop) of the file.

        An item must begin at each start. Items that begin before `stop` are read.
        """
        columns = None if self._split.has_entries else ColumnReader()
        for start, stop in places:
            self._went_on = start > 0
            scan = FileScan(self._file, start, columns, self._of_run, reader=self._split.reader)
            yield from self._batches_of(scan.items(stop))
        yield from self._ending(self._split.start, self._split.stop)

    def _scan_at_start(self) -> FileScan:
        """Return the scan of the file, at the start of the split.

        In DLedger's log, it is at the first entry there. It has read some MiB before, because an entry is compared with
        the previous one, and because a split may start between a header and its record.
        """
        split, columns = self._split, None if self._split.has_entries else ColumnReader()
        reached = FileScan(self._file, split.start, columns, self._of_run, reader=split.reader)
        if split.has_entries:
            before = next_readable(self._file, max(split.start - LOOK_BACK, 0), split.start, reader=split.reader)
            reached.position = split.start if before is None else before
            for _ in reached.items(split.start):
                pass
            reached.ended = False
        return reached

    def _of_run(self, columns: Columns) -> Any:
        for one in self._reading.wanted:
            columns = columns._replace(rows=columns.rows[one.rows(columns)])
        return self._rows.of_run(columns) if len(columns.rows) else None

    def _ending(self, begin: int, end: int) -> Iterator[Any]:
        """Yield what follows the last item: the rest of the rows, and the range."""
        self._store.close()
        rest = self._rows.rest()
        if rest is not None:
            yield rest
        if self._reading.ranges:
            base = self._split.file_from_offset
            found = Range(self._split, base + begin, base + end, self._reading.tasks, self._counts)
            yield _batch([range_row(found)], self._schema)

    def _batches_of(self, items: Iterator[ScanItem | RecordRun | ZeroTail]) -> Iterator[Any]:
        # a record run becomes one batch; the rows of other items are collected into batches
        rows: list[dict[str, Any]] = []
        size = 0
        for item in items:
            if isinstance(item, RecordRun) or len(rows) == ROWS_GATHERED_MAX or size > BYTES_GATHERED_MAX:
                if rows:
                    yield _batch(rows, self._schema)
                rows, size = [], 0
            if not isinstance(item, RecordRun):
                rows += self._rows_of(item)
                size += 0 if isinstance(item, ZeroTail) else item.size
            else:
                self._counts = self._counts.plus(counts_of(item))
                if item.result is not None:
                    yield item.result
            self._went_on = self._went_on or goes_on(item)
        if rows:
            yield _batch(rows, self._schema)

    def _rows_of(self, item: ScanItem | ZeroTail) -> list[dict[str, Any]]:
        """Count the item, and return its rows: none for the zeros after the log's end."""
        if isinstance(item, ZeroTail):
            damage = never_closed(self._store().commit_log, item, went_on=self._went_on)
            return [] if damage is None else self._counted(damage, self._file.name)
        is_elsewhere = isinstance(item, Damage) and item.code not in UNREADABLE  # a task may not read the store at all
        path = self._store().commit_log.path_of(item.physical_offset) if is_elsewhere else self._file.name
        return self._counted(item, path)

    def _counted(self, item: ScanItem, path: str) -> list[dict[str, Any]]:
        counts = counts_of(item)
        if counts.unreadable and isinstance(item, Damage):
            at = item.physical_offset - self._split.file_from_offset
            counts = counts._replace(unread_path=self._split.path, unread_at=at, why_unread=item.detail)
        self._counts = self._counts.plus(counts)
        rows: list[dict[str, Any]] = self._rows.of_item(item, path) if self._reading.wants(item) else []
        return rows


def _up_to_next_record(reached: FileScan, file: MappedFile, split: Split) -> Iterator[ScanItem | RecordRun | ZeroTail]:
    """Yield the items of a split, up to the first record of the next task.

    That task searches for it from the end of the split on.
    """
    yield from reached.items(split.stop)
    while not reached.ended and (
        next_readable(file, reached.position, reached.position + 1, reader=split.reader) is None
    ):
        yield from reached.items(reached.position + 1)


def range_row(found: Range) -> dict[str, Any]:
    """Return a row of kind 'range', with the range and the counts of a task.

    `range_of` turns it back into a Range.
    """
    split = found.split
    place = {"path": split.path, "physicalOffset": found.begin, "size": found.end - found.begin}
    told = json.dumps(found._asdict())
    return {"broker": broker_of(split.root), "store": split.root, "kind": KIND_RANGE, **place, "detail": told}


def _batch(rows: list[dict[str, Any]], schema: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(rows, schema=schema)


def never_closed(log: CommitLog, zeros: ZeroTail, *, went_on: bool) -> Damage | None:
    """Return a `no-blank` damage for `zeros` if a later log file has records.

    The task that reads the zeros checks this. None as well if the damage is reported for an earlier file. `went_on`
    says whether the file has readable items before the zeros.
    """
    found = log.never_closed(zeros)
    if found is None or went_on or not _is_open_before(log, zeros):
        return found
    return None


def _is_open_before(log: CommitLog, zeros: ZeroTail) -> bool:
    """Return whether the file before `zeros.physical_offset` ends in zeros.

    If two successive files do, the damage is reported for the earlier one. A file that has neither readable items nor
    zeros is skipped.
    """
    columns = ColumnReader()
    for file in reversed([file for file in log.queue.files if file.end <= zeros.physical_offset]):
        columns.forget()
        last = None
        for item in FileScan(file, 0, columns, reader=log.reader_of(file)).items(end_position(file)):
            last = item if goes_on(item) or isinstance(item, ZeroTail) else last
        file.close()
        if last is not None:
            return isinstance(last, ZeroTail)
    return False


class ItemRows:
    """Makes rows for the blanks, damage and very large messages of one store.

    The column reader does not read very large messages. Each row is a dict of columns. `root` is the folder of the
    store, `store` returns the open store, and `bodies` makes the text of bodies.
    """

    def __init__(self, root: str, store: Callable[[], ReadOnlyStore], bodies: Bodies = NO_BODIES) -> None:
        self._store = store
        self._bodies = bodies
        self._same = {"broker": broker_of(root), "store": root}

    def row(self, item: ScanItem, path: str) -> dict[str, Any]:
        """Return the row of a message, blank or damage.

        `path` is that of the log file, in the form that findings use.
        """
        if isinstance(item, Message):
            row = message_row(item, path=path, tags_code=self._store().tags_code(item))
            return self._same | {"kind": KIND_MESSAGE} | row | _texts(item, self._bodies)
        if isinstance(item, Damage):
            row = damage_row(item, path=path)
            return (
                self._same
                | {"kind": KIND_DAMAGE}
                | row
                | ({} if item.message is None else _texts(item.message, self._bodies))
            )
        return self._same | {
            "kind": KIND_BLANK,
            "path": path,
            "physicalOffset": item.physical_offset,
            "size": item.size,
        }


def _texts(message: Message, bodies: Bodies) -> dict[str, Any]:
    """Return the columns that `rmqctl dump` does not print or prints differently."""
    found = message.properties
    times = {"bornTime": message.born_timestamp, "storeTime": message.store_timestamp}
    return {
        **{name: ms * US_PER_MS if MIN_MS <= ms <= MAX_MS else None for name, ms in times.items()},
        "tags": found.get(properties.TAGS),
        "keys": found.get(properties.KEYS),
        "uniqKey": found.get(properties.UNIQ_KEY),
        "properties": list(found.items()),
        "body": bytes(message.body),
        "bodyText": body_text(message, bodies),
    }
