"""`spark.readStream.format("rocketmq")`: logs as streams.

A stream reads logs while brokers write them. For each store, Spark keeps a physical offset, never inside a record, with
the checksum of the record that ends there (`Mark`). The driver finds the offsets and the splits in a few MiB of each
log, and Spark's tasks read the splits.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, TypeVar

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.forensics.follow import last_byte_written
from rmqctl.forensics.message_filter import Filter
from rmqctl.format.message import Damage
from rmqctl.kernels import scan
from rmqctl.logfile.system.remote_storage import root_path
from rmqctl.spark.scan.json_option import from_json
from rmqctl.spark.scan.split import MIB, SPLIT_MIB, SPLIT_MIB_MAX, Split, whole_file
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.spark.source.message_source import Task, Wrong, part_batches
from rmqctl.spark.source.source_stores import (
    NARROWING,
    charset_of,
    filter_of,
    is_true,
    milliseconds,
    number,
    number_of_bytes,
    stores_of,
)
from rmqctl.spark.source.split_rows import RowReading
from rmqctl.spark.source.stream.boundary import LOOK_BACK, boundary, checksum, end_of_log, ends_before, last_before
from rmqctl.store.read.commit_log import message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.commit_log import CommitLog

SETTLE_SECONDS = 0.2  # the last record counts as written if it does not change for this time
EARLIEST, LATEST = "earliest", "latest"
OPTIONS = ("splitMiB", *NARROWING, "charset", "startingOffset", "endingOffset", "maxBytesPerTrigger", "failOnDataLoss")
T = TypeVar("T")
# What Spark stores for a store, as JSON: a physical offset; where the record begins that ends there; its CRC-32. A log
# that was cut and has grown over the offset again has another record there.
Mark = list[int]
NEVER = 2**63  # ms, later than all store times


class StreamSource:
    """The source of `spark.readStream.format("rocketmq")`.

    | option | |
    |---|---|
    | `path`, `paths`, `brokerConf`, `followLinks` | define the stores |
    | `startingOffset` | earliest, latest (the end of the log) or a time (RFC 3339, or ms since 1970) |
    | `endingOffset` | latest, or a time |
    | `failOnDataLoss` | false: go on after a log was cut, or lost files before they were read |
    | `topics`, `since`, `until`, `fromOffset`, `toOffset` | select messages (`filter_of`) |
    | `charset` | of bodyText, such as gbk |
    | `splitMiB` | MiB of the log that each task reads |
    | `maxBytesPerTrigger` | about what a batch reads from all logs together, such as 500m or 1g (powers of 1024) |

    With a time, the stream begins with the first message stored then or later, or ends before it. In place of one
    offset, each store may have its own, as a JSON object: by path, an offset, or a physical offset as a number. A store
    that is not named there begins at `earliest`, and ends at `latest`. Without `maxBytesPerTrigger`, and in
    Spark 4.0 and 4.1, a batch reads all new records. Raises BadRequest if an option is not valid.
    """

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._stores = stores_of(options, OPTIONS)
        self._columns = tuple(columns)
        self._split_size = number(options, "splitMiB", SPLIT_MIB, 1, SPLIT_MIB_MAX) * MIB
        self.batch_size = number_of_bytes(options, "maxBytesPerTrigger")
        self._charset = charset_of(options)
        asked = filter_of(options)
        self._wanted = () if asked == Filter() else (asked,)
        self._fails = is_true(options, "failOnDataLoss", "true")
        self._starting = _places(options, "startingOffset", self._stores.roots, EARLIEST)
        self._ending = _places(options, "endingOffset", self._stores.roots, LATEST)

    def begin(self) -> dict[str, int]:
        """Return, for each store, the physical offset where a new stream begins.

        Raises Unreadable if a log cannot be read, and the other errors of ReadOnlyStore.
        """
        return self._of_logs(self._stores.roots, lambda log, root: _place_in(log, self._starting[root]))

    def latest(self, start: Mapping[str, int]) -> dict[str, int]:
        """Return the physical offset where the written part of each log ends.

        The search begins at the store's offset in `start`, or at the beginning of the log. Raises Unreadable if a log
        cannot be read, or was cut before this offset, and the other errors of ReadOnlyStore.
        """

        def end_of(log: CommitLog, root: str) -> int:
            known = start.get(root, log.min_offset)
            if ends_before(log, known):
                if self._fails:
                    raise _cut(root, known)
                known = log.min_offset
            end, place = _written_end(log, known), self._ending[root]
            return end if place == LATEST else max(min(end, _place_in(log, place)), min(known, end))

        return self._of_logs(self._stores.roots, end_of)

    def end(self, start: Mapping[str, int], latest: Mapping[str, int], most: int | None) -> dict[str, int]:
        """Return, for each store, the physical offset where the next batch ends.

        The batch begins at `start`, or at the beginning of the log, and ends at `latest` or before. If more than `most`
        bytes are new, it reads about `most`: the same share of the new part of each log. Raises Unreadable if a log was
        cut before `start`.
        """
        self._check_not_cut(start, latest)
        missing = [root for root in latest if root not in start]
        first = {**start, **self._of_logs(missing, lambda log, _: log.min_offset)}
        new = {root: max(latest[root] - first[root], 0) for root in latest}
        total = sum(new.values())
        ends = {root: first[root] + size for root, size in new.items()}  # Spark compares the order, too
        if most is None or total <= most:
            return ends
        limited = self._of_logs(
            [root for root, size in new.items() if size],
            lambda log, root: min(boundary(log, first[root], first[root] + new[root] * most // total), ends[root]),
        )
        return ends | limited

    def marked(self, offsets: Mapping[str, int], known: Mapping[str, Mark | int]) -> dict[str, Mark | int]:
        """Return physical offsets as Spark stores them.

        `known` has marks that need not be made again. Raises Unreadable if a log cannot be read.
        """
        same = {root for root, mark in known.items() if _offset_of(mark) == offsets.get(root)}
        made = self._of_logs(
            [root for root in offsets if root not in same], lambda log, root: _mark(log, offsets[root])
        )
        return {root: known[root] if root in same else made[root] for root in offsets}

    def unmarked(self, marks: Mapping[str, Mark | int]) -> dict[str, int]:
        """Return the physical offsets of marks.

        A mark of an earlier checkpoint may be only a physical offset. Raises Unreadable if a log was cut before a mark,
        even if it has grown again, or if a log cannot be read. With `failOnDataLoss` false, a cut log goes on at the
        next record, or at its end.
        """

        def check(log: CommitLog, root: str) -> int:
            mark, offset = marks[root], _offset_of(marks[root])
            if ends_before(log, offset):
                what = _SHORT
            elif isinstance(mark, int) or mark[1] < log.min_offset or checksum(log, mark[1], offset) == mark[2]:
                return offset  # without a checksum, or expired, or the same
            else:
                what = _GROWN
            if self._fails:
                raise _cut(root, offset, what)
            return boundary(log, log.min_offset, offset)

        found = self._of_logs([root for root in self._stores.roots if root in marks], check)
        return {root: found.get(root, _offset_of(mark)) for root, mark in marks.items()}

    def tasks(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[Task]:
        """Return the tasks for the data between the offsets `start` and `end`.

        Each split consists of whole messages, blanks and damages. Raises Unreadable if a log was cut before `start`, or
        if its files from there on were deleted.
        """
        self._check_not_cut(start, end)
        warm_up_once(scan)
        parts: list[Split | Wrong] = []
        for root, stop in end.items():
            with self._stores.opened(root) as store:
                first = store.commit_log.min_offset
                begin = start.get(root, first)
                if self._fails and begin < min(first, stop):
                    raise Unreadable(
                        f"the log begins at {first}: its files before were deleted, and the stream has not read them",
                        path=root,
                        offset=begin,
                        hint="failOnDataLoss=false goes on with what there is",
                    )
                parts += self._parts(root, store.commit_log, begin, stop)
        return [Task(part, len(parts)) for part in parts]

    def read(self, task: Task) -> Iterator[Any]:
        """Return the record batches of a task."""
        return part_batches(
            task.part,
            RowReading(
                self._columns,
                self._stores.conf,
                self._stores.follow_links,
                wanted=self._wanted,
                charset=self._charset,
            ),
            exact=True,
        )

    def _check_not_cut(self, start: Mapping[str, int], end: Mapping[str, int]) -> None:
        for root, offset in start.items() if self._fails else ():
            if end.get(root, offset) < offset:
                raise _cut(root, offset)

    def _of_logs(self, roots: Iterable[str], question: Callable[[CommitLog, str], T]) -> dict[str, T]:
        warm_up_once(scan)
        found = {}
        for root in roots:
            with self._stores.opened(root) as store:
                try:
                    found[root] = question(store.commit_log, root)
                except OSError as error:
                    raise Unreadable(f"the log cannot be read: {error.strerror}", path=root) from error
        return found

    def _parts(self, root: str, log: CommitLog, position: int, end: int) -> Iterator[Split | Wrong]:
        while position < end:
            file = log.queue.find(position)
            if file is None:
                following = min(
                    [later.file_from_offset for later in log.queue.files if later.file_from_offset > position],
                    default=end,
                )
                yield Wrong(root, (_gone(position, min(following, end)),))
                position = following
                continue
            base, stop = file.file_from_offset, min(file.end, end)
            if stop - position > self._split_size:
                stop = min(boundary(log, position, position + self._split_size), stop)
            yield whole_file(log, file, 0, root_path(root))._replace(start=position - base, stop=stop - base)
            position = stop


def _written_end(log: CommitLog, known: int) -> int:
    found = end_of_log(log, known)
    if found.unsure is None or not last_byte_written(found.unsure):
        return found.end
    time.sleep(SETTLE_SECONDS)
    log.queue.close()  # what is read of a store at a URL is kept until then
    return found.unsure.end if log.at(found.unsure.physical_offset) == found.unsure else found.end


def _mark(log: CommitLog, offset: int) -> Mark:
    begin = last_before(log, offset)
    return [offset, begin, checksum(log, begin, offset)]


def _offset_of(mark: Mark | int) -> int:
    return mark if isinstance(mark, int) else mark[0]


def _places(options: Mapping[str, str], name: str, roots: Sequence[str], default: str) -> dict[str, str | int]:
    """Return what an option says of each store.

    It is EARLIEST, LATEST or a time as text, or a physical offset. Raises BadRequest.
    """
    text = options.get(name, default)
    given: dict[str, str | int] = dict.fromkeys(roots, text)
    if text.startswith("{"):
        hint = 'such as {"/data/rocketmq/store": 8192}'
        by_store = from_json(text, name, dict, hint, "offsets")
        unknown = next((path for path in by_store if path not in given), None)
        if unknown is not None:
            raise BadRequest(f"{name} names a store that is not read: {unknown}", hint=f"it reads {', '.join(roots)}")
        given = dict.fromkeys(roots, default) | by_store
    for place in given.values():
        if isinstance(place, str) and place not in (EARLIEST, LATEST):
            milliseconds(name, place, f"{EARLIEST}, {LATEST}, a JSON object of stores and offsets, ")
        elif not isinstance(place, str) and (type(place) is not int or place < 0):
            raise BadRequest(f"{name} is {place!r} for a store", hint="a physical offset, or a text such as a time")
    return given


def _place_in(log: CommitLog, place: str | int) -> int:
    """Return the physical offset between records that a value of `_places` means."""
    if place == EARLIEST:
        return log.min_offset
    if isinstance(place, int):
        return log.min_offset if place <= log.min_offset else boundary(log, log.min_offset, place)
    end = _written_end(log, log.min_offset)
    return end if place == LATEST else first_stored_since(log, milliseconds("", place), end)


_SHORT = "the log ends before the offset of the stream"


_GROWN = "the log has another record before the offset of the stream"


def _cut(root: str, offset: int, what: str = _SHORT) -> Unreadable:
    return Unreadable(
        f"{what}: it was cut, and the stream would miss new messages",
        path=root,
        offset=offset,
        hint="start the query again with a new checkpointLocation; startingOffset says where it begins",
    )


def _gone(position: int, following: int) -> Damage:
    return Damage(
        "file-gap",
        position,
        following - position,
        f"{following - position} bytes from {position} on do not exist any more",
    )


def first_stored_since(log: CommitLog, since: int, end: int) -> int:
    """Return the physical offset of the first message stored at `since` or later.

    Brokers store messages in the order of their store times, unless the clock of the host goes back: the first message
    of some files is looked at, and then some messages of one file.

    `since` is in ms since 1970. `end` is the physical offset where the written part of the log ends, and the result if
    there is no such message. Raises OSError if a file cannot be read.
    """
    files = [file for file in log.files_in_use() if file.file_from_offset < end]
    number = bisect_left(files, since, key=lambda file: _store_time(log, file.file_from_offset, end))
    if number == 0:
        return log.min_offset
    low = _last_stored_before(log, files[number - 1], min(files[number - 1].end, end), since)
    found = (message_of(item) for item in log.scan(start=low, stop=end))
    return next((message.physical_offset for message in found if message and message.store_timestamp >= since), end)


def _last_stored_before(log: CommitLog, file: MappedFile, end: int, since: int) -> int:
    """Return the physical offset of a record of `file` stored before `since`.

    At most LOOK_BACK bytes later, a message was stored at `since` or later, or the log or the file ends (at the
    physical offset `end`).
    """
    low, high = file.file_from_offset, end
    while high - low > LOOK_BACK:
        middle = (low + high) // 2
        found = log.next_record(middle)
        if found is None or found >= high or _store_time(log, found, high) >= since:
            high = middle
        else:
            low = found
    return low


def _store_time(log: CommitLog, position: int, end: int) -> int:
    """Return the store time (ms) of the first message that begins in [position, end).

    NEVER if there is none. `position` and `end` are physical offsets.
    """
    messages = (message_of(item) for item in log.scan(start=position, stop=end))
    return next((message.store_timestamp for message in messages if message is not None), NEVER)
