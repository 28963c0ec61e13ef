"""`rocketmq-index`: the entries of all index files, one row for each entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.errors import Unreadable
from rmqctl.format.columns import ENTRIES
from rmqctl.spark.source.message_schema import arrow_schema, record_batch
from rmqctl.spark.source.source_stores import broker_of, stores_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqctl.format.columns import Rows
    from rmqctl.format.index_entry import IndexHeader
    from rmqctl.store.read.index.index_service import IndexFile

# timeDiff is in seconds after the file's beginTimestamp, and storeTimestamp is their sum in ms since 1970. The sum may
# be wrong for entry 1 of each file but the first, because the broker computes its timeDiff from an earlier
# beginTimestamp of the file (FORMAT 4).
INDEX_COLUMNS = {
    "broker": "string", "store": "string", "path": "string", "entry": "int", "slot": "int", "keyHash": "int",
    "phyOffset": "bigint", "timeDiff": "int", "storeTimestamp": "bigint", "prevIndex": "int",
}  # fmt: skip
ENTRIES_PER_BATCH = 65536
MS_PER_SECOND = 1000


class IndexTask(NamedTuple):
    """The input of one task: the index file `name` of the store at `root`."""

    root: str
    name: str


class IndexSource:
    """The source of `spark.read.format("rocketmq-index")`.

    Its options are `path`, `paths`, `brokerConf` and `followLinks`.
    """

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._stores = stores_of(options)
        self._columns = tuple(columns)

    def tasks(self) -> list[IndexTask]:
        """Return one task for each index file.

        Raises the errors of ReadOnlyStore if a store cannot be opened.
        """
        tasks = []
        for root in self._stores.roots:
            with self._stores.opened(root) as store:
                tasks += [IndexTask(root, index_file.file.path.name) for index_file in store.index.files]
        return tasks

    def read(self, task: IndexTask) -> Iterator[Any]:
        """Yield the record batches (pyarrow) of an index file.

        Yields nothing if the file was deleted after its task was made. Raises Unreadable if it cannot be read.
        """
        schema = arrow_schema(INDEX_COLUMNS, self._columns)
        with self._stores.opened(task.root) as store:
            for index_file in (found for found in store.index.files if found.file.path.name == task.name):
                same = {"broker": broker_of(task.root), "store": task.root, "path": index_file.file.name}
                try:
                    for columns in _entries(index_file):
                        yield record_batch(schema, columns, same, len(columns["entry"]))
                except OSError as error:
                    raise Unreadable(f"cannot be read: {error.strerror}", path=str(index_file.file.path)) from error


def _entries(index_file: IndexFile) -> Iterator[dict[str, Any]]:
    """Yield the entries of an index file in blocks (dicts of columns).

    Yields nothing if the file is shorter than an index header. Raises OSError.
    """
    header = index_file.header()
    if header is None:
        return
    for first, raw in index_file.entry_blocks(header.index_count, ENTRIES_PER_BATCH):
        entries = np.frombuffer(raw, ENTRIES)
        yield _columns(entries, first, header, index_file.slots)


def _columns(entries: Rows, first: int, header: IndexHeader, slots: int) -> dict[str, Any]:
    hashes, seconds = entries["keyHash"].astype(np.int32), entries["timeDiff"].astype(np.int32)
    return {
        "entry": np.arange(first, first + len(entries), dtype=np.int32),
        "slot": hashes % np.int32(max(slots, 1)),
        "keyHash": hashes,
        "phyOffset": entries["phyOffset"].astype(np.int64),
        "timeDiff": seconds,
        "storeTimestamp": header.begin_timestamp + seconds.astype(np.int64) * MS_PER_SECOND,
        "prevIndex": entries["prevIndex"].astype(np.int32),
    }
