"""`rmqctl job export`: write messages for other programs.

Tasks of Python write the files, so no body passes through the JVM. A second job merges the small files.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from rmqctl.spark.question.export.export_task import export_part, merge_files, to_merge
from rmqctl.spark.question.export.part_files import PartFile, Sink
from rmqctl.spark.question.proof import NEEDED
from rmqctl.spark.scan.coverage import coverage
from rmqctl.spark.scan.task_answers import results
from rmqctl.spark.source.message_source import MessageSource, splits_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from rmqctl.forensics.message_filter import Filter
    from rmqctl.spark.question.log_records import LogRecords
    from rmqctl.spark.scan.coverage import Coverage


def write(records: LogRecords, sink: Sink, wanted: Filter) -> tuple[list[PartFile], Coverage]:
    """Write the messages of a log that `wanted` selects to files.

    They are in the folder of `sink`. Returns the files, and what was read. Only these files belong to the export: the
    folder may also have those of tasks that failed or that Spark ran twice. Every executor must have access to it under
    the same path or URL.

    Raises Unreadable if a part of a log was not read, and the errors of Spark and of the tasks.
    """
    columns = tuple(dict.fromkeys((*NEEDED, *sink.format.needed)))
    options = {**records.options, "paths": json.dumps(list(records.paths)), "ranges": "true"}
    options |= {"splits": splits_to_json(records.only)} if records.only else {}
    while True:
        source = MessageSource(options, columns, wanted)
        found = results(records.spark, [partial(export_part, source, task, sink) for task in source.tasks()])
        read = coverage((one.range for one in found), records.only)
        if read.joined:
            files = [file for one in found for file in one.files]
            return _merged(records.spark, files, sink), read
        options["splits"] = splits_to_json(read.splits)


def _merged(spark: SparkSession, files: Sequence[PartFile], sink: Sink) -> list[PartFile]:
    groups = to_merge(files, sink.file_size)
    gone = {file for group in groups for file in group}
    merged = results(spark, [partial(merge_files, group, sink) for group in groups]) if groups else []
    kept = [*(file for file in files if file not in gone), *(file for group in merged for file in group)]
    return sorted(kept, key=lambda file: file.partition)
