"""The record runs of a store's log, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rmqctl.logfile.column_reader import ColumnReader, Columns
from rmqctl.store.read.file_scan import FileScan, RecordRun
from rmqctl.store.read.read_only_store import ReadOnlyStore


def record_runs(root: Path) -> Iterator[Columns]:
    with closing(ReadOnlyStore(root)) as store:
        for file in store.commit_log.queue.files:
            for item in FileScan(file, 0, ColumnReader(), lambda columns: columns).items(file.size + 1):
                if isinstance(item, RecordRun):
                    yield item.result
