"""The tasks of an export.

Those of a first job write the messages of the splits, those of a second merge small files.
"""

from __future__ import annotations

import uuid
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.timestamp import MAX_MS, MIN_MS, rfc3339
from rmqctl.logfile.system.remote_storage import file_system, root_path
from rmqctl.spark.question.export.export_format import PARQUET, partition
from rmqctl.spark.question.export.part_files import GROUP_BYTES, ONE_FILE, PartFiles
from rmqctl.spark.scan.coverage import Range, range_of
from rmqctl.spark.source.message_schema import KIND_MESSAGE, KIND_RANGE, gathered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from rmqctl.spark.question.export.part_files import PartFile, Sink
    from rmqctl.spark.source.message_source import MessageSource, Task

GATHERED_BYTES = 2 * GROUP_BYTES  # messages that a task sorts by topic and day at once
COPIED_BYTES = 4 * 1024 * 1024
DAY_MS = 86_400_000


class Exported(NamedTuple):
    """The range of the log that a task read, and the files that it wrote."""

    range: Range
    files: list[PartFile]


def export_part(source: MessageSource, task: Task, sink: Sink) -> Exported:
    """Write the messages of one part of the log to files.

    The source must have the option `ranges`. Each call writes to a folder of its own, so a task may run twice.
    """
    files = PartFiles(sink, uuid.uuid4().hex)
    ranges: list[Range] = []
    if sink.file_size == ONE_FILE:
        files.add("", b"", 0)
    for table in gathered(_messages(source, task, ranges), attrgetter("nbytes"), GATHERED_BYTES):
        if sink.format.name == PARQUET:
            for name, part in _by_partition(table):
                files.add(name, part, len(part))
        else:
            for batch in table.to_batches():
                files.add("", sink.format.lines(batch.to_pylist()), len(batch))
    return Exported(ranges[0], files.close())


def merge_files(parts: Sequence[PartFile], sink: Sink) -> list[PartFile]:
    """Write the messages of several files of one partition to one file.

    Returns a list with this file.
    """
    # `to_merge` has limited the size of all files together, so no second file is begun
    files = PartFiles(sink._replace(file_size=2 * sink.file_size), uuid.uuid4().hex)
    name = parts[0].partition
    if sink.format.name == PARQUET:
        batches = (batch for part in parts for batch in _batches_of(part))
        for table in gathered(batches, attrgetter("nbytes"), GATHERED_BYTES):
            files.add(name, table, len(table))
    else:
        files.add(name, b"", 0)  # also if none has a message
        for part in parts:
            for number, piece in enumerate(_pieces_of(part, len(sink.format.header))):
                files.add(name, piece, 0 if number else part.messages)
    return files.close()


def _messages(source: MessageSource, task: Task, ranges: list[Range]) -> Iterator[pa.RecordBatch]:
    # at the end, the range of the part is added to `ranges`
    from pyarrow import compute

    for batch in source.read(task):
        kinds = batch.column("kind")
        is_message = compute.equal(kinds, KIND_MESSAGE)
        if is_message.false_count:
            found = batch.filter(compute.equal(kinds, KIND_RANGE)).to_pylist()
            ranges += [range_of(row["detail"]) for row in found]
            batch = batch.filter(is_message)  # noqa: PLW2901 -- the same rows, but for others
        if len(batch):
            yield batch.drop_columns(["kind", "detail"])


def _by_partition(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    topics = table.column("topic").combine_chunks().dictionary_encode()
    times = table.column("storeTimestamp").to_numpy()
    is_date = (times >= MIN_MS) & (times <= MAX_MS)
    # the day after the last date stands for all times that are no date
    days = np.where(is_date, times, MAX_MS + 1) // DAY_MS
    order = np.lexsort((days, topics.indices.to_numpy()))
    keys = np.stack((topics.indices.to_numpy()[order], days[order]), axis=1)
    begins = [0, *(np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1).tolist(), len(keys)]
    rows = table.drop_columns(["topic"])
    if len(begins) > 2:  # more than one partition
        rows = rows.combine_chunks().take(order)
    for begin, end in pairwise(begins):
        topic, day = keys[begin].tolist()
        date = rfc3339(day * DAY_MS)
        yield partition(topics.dictionary[topic].as_py(), date and date[:10]), rows.slice(begin, end - begin)


def _batches_of(part: PartFile) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    system, inner = file_system(root_path(part.path))
    with system.open_input_file(inner) as stream:
        file = parquet.ParquetFile(stream)
        for number in range(file.num_row_groups):
            yield from file.read_row_group(number).to_batches()


def _pieces_of(part: PartFile, header: int) -> Iterator[bytes]:
    system, inner = file_system(root_path(part.path))
    with system.open_input_file(inner) as stream:
        stream.seek(header)
        while piece := stream.read(COPIED_BYTES):
            yield piece


def to_merge(files: Sequence[PartFile], file_size: int) -> list[list[PartFile]]:
    """Return groups of small files, each to become one of at most `file_size` bytes.

    All files of a group have one partition. A file of at least half of `file_size` stays as it is.
    """
    groups: list[list[PartFile]] = []
    size = 0  # of the last group
    for part in sorted((part for part in files if part.size * 2 < file_size), key=lambda part: part.partition):
        if groups and groups[-1][0].partition == part.partition and size + part.size <= file_size:
            groups[-1].append(part)
            size += part.size
        else:
            groups.append([part])
            size = part.size
    return [group for group in groups if len(group) > 1]
