"""The splits of a log: what a task receives, and what it returns.

One task reads one split.
"""

from __future__ import annotations

import gc
import io
import pickle
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import Unreadable
from rmqctl.kernels import dispatch_scan, scan
from rmqctl.kernels.kernel_cache import find_folder
from rmqctl.kernels.warm_up import KernelModule, cache_in, warm_up
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.remote_storage import root_path, root_text, storage_of
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.parallel_scan import Part, cuts, scan_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from rmqctl.store.read.commit_log import CommitLog


HEAD_SIZE = 64  # bytes


class Split(NamedTuple):
    """The bytes [start, stop) of one file of a log.

    `start` and `stop` are positions in the file. `root` is the folder of the store, and `path` the path of the file.
    `file` is the number of the file in the log, counted from 0. `file_from_offset` is the physical offset where the
    file begins, and `size` is the length of the file in bytes. `head` is the first 64 bytes of the file in hex.
    """

    root: str
    path: str
    file: int
    file_from_offset: int
    size: int
    head: str
    start: int
    stop: int


class Found(NamedTuple):
    """The result of a task: a part of the log, and the queues of its messages.

    `queues` is a list of (topic, queueId). In the columns of the part, the number of a queue is the position of this
    queue in `queues`. If dispatch columns were not requested, `queues` is empty.
    """

    part: Part
    queues: list[tuple[bytes, int]]


class Reading(NamedTuple):
    """The settings for reading splits.

    With `described`, the result has dispatch columns. With `with_keys`, the dispatch columns include the hashes of the
    keys. With `with_tags`, TAGS counts as a key.
    """

    described: bool
    with_keys: bool
    with_tags: bool


def splits_of(log: CommitLog, root: Path, split_size: int) -> list[Split]:
    """Divide the whole log into splits of `split_size` bytes, in log order."""
    found = []
    for number, file in enumerate(log.queue.files):
        path = root_text(file.path.absolute())
        whole = Split(
            root_text(root.absolute()), path, number, file.file_from_offset, file.size, head_of(file), 0, file.size
        )
        found += [whole._replace(start=start, stop=stop) for start, stop in cuts(file, split_size)]
        file.close()
    return found


def head_of(file: MappedFile) -> str:
    """Return the first 64 bytes of a log file in hex.

    With an IPv4 born host, these bytes include the store time of the first record. The result is empty if the file
    cannot be read.
    """
    try:
        return file.read(0, HEAD_SIZE).hex()
    except OSError:
        return ""


class _Pickler(pickle.Pickler):
    """A pickler that writes memoryviews as bytes.

    Bodies of messages are memoryviews, which Python's own pickler refuses.
    """

    def reducer_override(self, value: Any) -> Any:
        return (memoryview, (bytes(value),)) if isinstance(value, memoryview) else NotImplemented


def packed(found: Found) -> bytes:
    """Return what a task found, packed into bytes.

    The task sends these bytes to the driver.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(found)
    return buffer.getvalue()


def unpacked(raw: bytes | pa.Buffer) -> Found:
    """Return what a task found, unpacked from the result of `packed`.

    The bytes must come from a task of this job, because unpickling runs code.
    """
    found: Found = pickle.loads(raw)  # noqa: S301 -- by a task of this job, over Spark's own channel
    return found


def read_split(split: Split, reading: Reading, position: int | None = None) -> Found:
    """Read a split, and return what the split contains.

    Without `position`, the part begins at the first record of the split. If `position` is given, the part begins at
    this position in the file, where an item must begin. Raises Unreadable if the file does not exist, or if it
    differs from the file on the driver's host.
    """
    warm_up_once(scan, *([dispatch_scan] if reading.described else []))
    builder = (
        DispatchRequestBuilder(with_keys=reading.with_keys, with_tags=reading.with_tags) if reading.described else None
    )
    with opened(split) as file:
        start = split.start if position is None else position
        exact = position is not None or split.start == 0
        part = scan_part(file, start, split.stop, ColumnReader(), builder.take if builder else None, exact=exact)
    return Found(part, builder.queues if builder else [])


@contextmanager
def opened(split: Split) -> Iterator[MappedFile]:
    """Open the file of a split, and close the file after the block.

    Raises Unreadable if the file does not exist, or if it differs from the file on the driver's host.
    """
    storage = storage_of(
        root_path(split.root), follow_links=True
    )  # whether links are followed was settled when the splits were made
    with MappedFile(storage, root_path(split.path), split.file_from_offset, split.size, kept=False) as file:
        _check_is_the_same(file, split)
        yield file


def _check_is_the_same(file: MappedFile, split: Split) -> None:
    """Raise Unreadable if this host has another file than the driver's host.

    The first 64 bytes of the file are compared. The comparison is skipped if the driver could not read the 64 bytes, or
    if all of them were zero.
    """
    if not split.head.strip("0"):  # not readable for the driver either, or not written yet, and perhaps in between
        return
    try:
        head, why = file.read(0, HEAD_SIZE).hex(), "another file than the driver sees"
    except OSError as error:
        head, why = "", str(error.strerror)
    if head != split.head:
        raise Unreadable(
            f"an executor finds there: {why}",
            path=split.path,
            hint="every executor must see the store under the same path",
        )


@cache
def warm_up_once(*modules: KernelModule) -> None:
    """Compile or load the kernels in a task, once for each process.

    The kernels are cached in a folder of the user who runs the task. If the same user runs the driver on the same host,
    the driver uses the same folder.
    """
    cache_in(find_folder())
    warm_up(*modules)
    # PySpark collects garbage after each task: with the compiler's objects, that takes twice what a task does
    gc.freeze()
