"""`spark.readStream.format("rocketmq")`: logs as streams.

A stream reads logs while brokers write them. For a stream, Spark stores one physical offset for each store. A physical
offset of a stream is never inside a record. The driver first scans the new part of each log, so that each split begins
where a record begins. Spark's tasks make the rows from the splits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest
from rmqctl.forensics.follow import last_byte_written
from rmqctl.format.message import Damage
from rmqctl.kernels import scan
from rmqctl.spark.scan.split import Split, head_of
from rmqctl.spark.scan.split_size import MIB, SPLIT_MIB, SPLIT_MIB_MAX
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.spark.source.log_walk import steps, written
from rmqctl.spark.source.message_source import Task, Wrong, part_batches
from rmqctl.spark.source.source_stores import number, stores_of
from rmqctl.spark.source.split_rows import RowReading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqctl.store.read.commit_log import CommitLog

BATCH_MIB, BATCH_MIB_MAX = 1024, 1024 * 1024
SETTLE_SECONDS = 0.2  # the last record counts as written if it does not change for this time
EARLIEST, LATEST = "earliest", "latest"


class StreamSource:
    """The source of `spark.readStream.format("rocketmq")`.

    The options `path`, `paths`, `brokerConf` and `followLinks` define the stores. `startingOffset` is earliest (the
    beginning of the log) or latest (the end of the log). `splitMiB` is the number of MiB of the log that each task
    reads. `batchMiB` is the approximate number of MiB of each store's log in one batch. Raises BadRequest if an option
    is not valid.
    """

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._stores = stores_of(options)
        self._columns = tuple(columns)
        self._split_size = number(options, "splitMiB", SPLIT_MIB, 1, SPLIT_MIB_MAX) * MIB
        self.batch_size = number(options, "batchMiB", BATCH_MIB, 1, BATCH_MIB_MAX) * MIB
        self._starting = options.get("startingOffset", EARLIEST)
        if self._starting not in (EARLIEST, LATEST):
            raise BadRequest(f"startingOffset is {self._starting!r}", hint=f"{EARLIEST} or {LATEST}")

    def begin(self) -> dict[str, int]:
        """Return, for each store, the physical offset where a new stream begins.

        Raises the errors of ReadOnlyStore if a store cannot be opened.
        """
        warm_up_once(scan)
        offsets = {}
        for root in self._stores.roots:
            with self._stores.opened(root) as store:
                log = store.commit_log
                offsets[root] = log.min_offset
                in_use = log.files_in_use() if self._starting == LATEST else []
                if in_use:
                    offsets[root] = _written_end(log, in_use[-1].file_from_offset, None)
        return offsets

    def end(self, start: Mapping[str, int], most: int | None) -> dict[str, int]:
        """Return, for each store, the physical offset where the next batch ends.

        A batch reads about `most` bytes of each log. A batch never reads beyond the written part of a log. If `most` is
        None, the batch ends where the written part ends.
        """
        warm_up_once(scan)
        offsets = {}
        for root in self._stores.roots:
            with self._stores.opened(root) as store:
                log = store.commit_log
                offsets[root] = _written_end(log, start.get(root, log.min_offset), most)
        return offsets

    def tasks(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[Task]:
        """Return the tasks for the data between the offsets `start` and `end`.

        Each split consists of whole messages, blanks and damages.
        """
        warm_up_once(scan)
        parts: list[Split | Wrong] = []
        for root, stop in end.items():
            with self._stores.opened(root) as store:
                parts += self._parts(root, store.commit_log, start.get(root, store.commit_log.min_offset), stop)
        return [Task(part, len(parts)) for part in parts]

    def read(self, task: Task) -> Iterator[Any]:
        """Return the record batches of a task."""
        return part_batches(
            task.part, RowReading(self._columns, self._stores.conf, self._stores.follow_links), exact=True
        )

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
                stop = next(
                    (step.end for step in steps(log, position) if step.end - position >= self._split_size), stop
                )
            stop = min(stop, file.end, end)
            yield Split(root, str(file.path), 0, base, file.size, head_of(file), position - base, stop - base)
            position = stop


def _written_end(log: CommitLog, position: int, most: int | None) -> int:
    found = written(log, position, most)
    if found.unsure is None or not last_byte_written(found.unsure):
        return found.end
    time.sleep(SETTLE_SECONDS)
    return found.unsure.end if log.at(found.unsure.physical_offset) == found.unsure else found.end


def _gone(position: int, following: int) -> Damage:
    return Damage(
        "file-gap",
        position,
        following - position,
        f"{following - position} bytes from {position} on do not exist any more",
    )
