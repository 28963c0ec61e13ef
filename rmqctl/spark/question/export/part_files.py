"""Write the files of an export, each with about the wanted size.

A task writes below a folder of its own. The driver publishes the files of the tasks whose results it got
(`rmqctl.spark.question.export.local_target`, `rmqctl.spark.question.export.remote_target`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.logfile.system.remote_storage import file_system, root_path
from rmqctl.spark.question.export.export_format import ExportFormat

if TYPE_CHECKING:
    import pyarrow as pa

OPEN_MAX = 128  # files that one task has open
GROUP_BYTES = 32 * 1024 * 1024  # of a row group in Parquet, before compression
ONE_FILE = 2**62  # bytes: the size with which an export makes one file of text, also without messages
GROUPS_MIN = 4  # of a file of the wanted size, so that its size differs by at most a quarter
_UNLIKE = (
    "body",
    "bodyText",
    "properties.key_value.value",
    "msgId",
    "keys",
    "uniqKey",
    "physicalOffset",
    "queueOffset",
    "bodyCrc",
)


class PartFile(NamedTuple):
    """A file of an export."""

    path: str  # or URL
    partition: str  # the folder to which it belongs, such as `topic=T/day=D`, or ""
    messages: int
    size: int  # bytes

    def name(self, number: int, run: str, suffix: str) -> str:
        """Return the name that file `number` of the export `run` gets in the target."""
        return f"{self.partition}/part-{number:05}-{run}{suffix}".removeprefix("/")


class Sink(NamedTuple):
    """The place and the form in which tasks write."""

    folder: str  # path or URL
    format: ExportFormat
    file_size: int  # the wanted size of a file in bytes


class _Part:
    # `writer` writes tables to `stream` as Parquet, each as a row group; it is None for a file of text
    def __init__(self, path: str, partition: str, stream: Any, writer: Any) -> None:
        self._path = path
        self._partition = partition
        self._stream = stream
        self._writer = writer
        self._messages = 0
        self._given = 0

    def write(self, piece: pa.Table | bytes, messages: int, size: int) -> None:
        if self._writer is None:
            self._stream.write(piece)
        else:
            self._writer.write_table(piece, row_group_size=len(piece))
        self._messages += messages
        self._given += size

    def size_with(self, size: int) -> int:
        # the new bytes are expected to compress as well as the bytes before
        written = int(self._stream.tell())
        return written + size * written // self._given if self._given else 0

    def closed(self) -> PartFile:
        if self._writer is not None:
            self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return PartFile(self._path, self._partition, self._messages, size)


class PartFiles:
    """The files that one task writes.

    `name` is that of the task's folder below the folder of `sink`; no other task may use it.
    """

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._folder = root_path(sink.folder) / name
        self._system, self._inner = file_system(self._folder)
        self._open: dict[str, _Part] = {}
        self._closed: list[PartFile] = []
        self._begun = 0

    def add(self, partition: str, piece: pa.Table | bytes, messages: int) -> None:
        """Write messages: a table for Parquet, otherwise bytes without the header."""
        if isinstance(piece, bytes):
            self._write(partition, piece, messages, len(piece))
            return
        most = min(GROUP_BYTES, self._sink.file_size // GROUPS_MIN) or 1
        groups = -(-piece.nbytes // most) or 1
        rows = -(-len(piece) // groups) or 1
        for begin in range(0, len(piece), rows):
            group = piece.slice(begin, rows)
            self._write(partition, group, len(group), group.nbytes)

    def close(self) -> list[PartFile]:
        """Close all files, and return them."""
        for partition in list(self._open):
            self._end(partition)
        return self._closed

    def _write(self, partition: str, piece: pa.Table | bytes, messages: int, size: int) -> None:
        part = self._open.get(partition)
        if part is not None and part.size_with(size) > self._sink.file_size:
            self._end(partition)
            part = None
        if part is None:
            if len(self._open) == OPEN_MAX:
                self.close()
            part = self._open[partition] = self._begin(partition, piece)
        part.write(piece, messages, size)

    def _begin(self, partition: str, piece: pa.Table | bytes) -> _Part:
        name = f"{self._begun}{self._sink.format.suffix}"
        self._begun += 1
        if not self._open and not self._closed:
            self._system.create_dir(self._inner, recursive=True)
        stream = self._system.open_output_stream(f"{self._inner}/{name}")
        if isinstance(piece, bytes):
            stream.write(self._sink.format.header)
        writer = None if isinstance(piece, bytes) else _parquet_writer(stream, piece.schema)
        return _Part(str(self._folder / name), partition, stream, writer)

    def _end(self, partition: str) -> None:
        self._closed.append(self._open.pop(partition).closed())


def _parquet_writer(stream: Any, schema: pa.Schema) -> Any:
    # columns whose values differ in each message get no dictionary, because it would only cost time
    from pyarrow import parquet

    alike = [field.name for field in schema if field.name not in _UNLIKE]
    with_limits = [field.name for field in schema if field.name not in ("body", "bodyText", "properties")]
    return parquet.ParquetWriter(
        stream, schema, compression="snappy", use_dictionary=alike, write_statistics=with_limits
    )
