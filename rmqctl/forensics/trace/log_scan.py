"""A scan of one store's log for the records of a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.forensics.trace.stage import Record
from rmqctl.format.message import Damage, Message
from rmqctl.store.read.commit_log import NOT_READ, SMALL_SEGMENT_SIZE, UNREADABLE, ScanSummary
from rmqctl.store.read.file_scan import RecordRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.forensics.message_filter import Filter
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@dataclass
class ScannedPart:
    """The physical offsets [start, end) of a part of the log that was read."""

    start: int
    end: int
    first_ms: int | None = None  # store time of the first good message, if there is one
    last_ms: int | None = None  # store time of the last good message, if there is one
    placeholders: list[int] = field(default_factory=list)  # physical offsets


class LogScan:
    """Scans the log of one store; `number` is the number of the store.

    `damages` has the damage that scans found, by physical offset, and `parts` the parts of the log that were read.
    `warm_up` is called before the kernels are used.
    """

    def __init__(self, store: ReadOnlyStore, number: int, *, threads: int, warm_up: Callable[[], None]) -> None:
        self.store = store
        self.number = number
        self.damages: dict[int, Damage] = {}
        self.parts: list[ScannedPart] = []
        self._threads = threads
        self._warm_up = warm_up

    @property
    def incomplete(self) -> bool:
        """Whether a scan could not read a part of the log."""
        return any(damage.code in UNREADABLE for damage in self.damages.values())

    def records(self, wanted: Filter, start: int | None = None, stop: int | None = None) -> Iterator[Record]:
        """Yield the records that match a filter, from the log files in [start, stop).

        These are physical offsets. Damaged records whose fields can be read are included.
        """
        begin = self.store.commit_log.min_offset if start is None else start
        part = ScannedPart(begin, begin)
        self.parts.append(part)
        for item in self.store.commit_log.with_shifted(self._items(wanted, part, start, stop), self._note):
            if isinstance(item, Message):
                yield Record(self.number, item)
            elif item.message is not None and wanted.matches(item.message):
                yield Record(self.number, item.message, item.code)

    def _note(self, damage: Damage) -> None:
        self.damages[damage.physical_offset] = damage._replace(message=None)

    def _items(
        self, wanted: Filter, part: ScannedPart, start: int | None, stop: int | None
    ) -> Iterator[Message | Damage]:
        self._warm_up()
        summary = ScanSummary()

        def take(columns: Columns) -> tuple[list[Message], int, int, list[int]]:
            times = columns.rows["store_timestamp"]
            found = columns.messages(columns.rows[wanted.rows(columns)])
            return found, int(times[0]), int(times[-1]), _placeholders(columns)

        for item in self.store.commit_log.scan_columns(
            summary, take, threads=self._threads, start=start, stop=stop, segment_size=SMALL_SEGMENT_SIZE
        ):
            if not isinstance(item, Damage) or item.code not in NOT_READ:
                part.end = item.end
            if isinstance(item, RecordRun):
                found, first_ms, last_ms, placeholders = item.result
                part.placeholders += placeholders
                part.first_ms, part.last_ms = part.first_ms or first_ms, last_ms
                yield from found
            elif isinstance(item, Message):
                part.first_ms, part.last_ms = part.first_ms or item.store_timestamp, item.store_timestamp
                part.placeholders += [item.physical_offset] if item.placeholder is not None else []
                if wanted.matches(item):
                    yield item
            elif isinstance(item, Damage):
                yield item


def _placeholders(columns: Columns) -> list[int]:
    return [columns.physical_offset + position for position in columns.placeholders()["position"].tolist()]
