"""Which messages were sent: a file of receipts, one line of JSON each.

1. Before a group of batches leaves, FILE.intent names its messages, durably.
2. Each batch is marked there before it leaves; after the answer, its receipts are appended to FILE.
3. FILE is flushed to disk before the next group overwrites FILE.intent.

So after a kill, only the messages of the marked batch that have no receipt can be in the cluster unknown; after a crash
of the host, which may lose marks and receipts, those of the group. They are sent again, and `inDoubt` in their receipts
says that they may be there twice. A torn FILE.intent belongs to a group that never left.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

import msgspec

from rmqctl.errors import BadRequest, StoreInUse
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from rmqctl.operations.send.outgoing import Outgoing

Row = dict[str, Any]
PIECE = 1024 * 1024  # bytes read at a time
INTENT_MAX = 64 * 1024 * 1024  # bytes
MARK = struct.Struct(">II")  # the first and the end of the messages on their way, of those of the group
_ENCODER = msgspec.json.Encoder()
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # changes when the host starts


class Receipts:
    """The receipts in the file `path`, for one process at a time.

    A context manager. With `only_read`, the file may be missing, and nothing is written. All methods raise OSError;
    opening raises BadRequest if the file has something else in it, and StoreInUse if another process has it.
    """

    def __init__(self, path: Path, *, only_read: bool) -> None:
        self._only_read = only_read
        self._path, self._intent_path = path, path.with_name(f"{path.name}.intent")
        self._storage = WritableStorage(path.parent)
        self._file = self._intent = -1
        self._end = 0
        self._group: list[Row] = []
        self._leaving = range(0)  # those of the group that are on their way
        self._done: set[str] = set()
        self.in_doubt: dict[str, Row] = {}  # may be sent already: without a receipt, by msgId
        self.doubted: list[Row] = []  # receipts of those that may be there twice

    def __enter__(self) -> Self:
        is_new, has_none = (self._storage.entry(path).kind is Kind.MISSING for path in (self._path, self._intent_path))
        if self._only_read:
            self._file = -1 if is_new else self._storage.open(self._path)
            self._intent = -1 if has_none else self._storage.open(self._intent_path)
        else:
            lock = self._storage.lock(self._intent_path)
            if lock is None:
                raise StoreInUse("another rmqctl is sending with these receipts", path=str(self._path))
            self._intent = lock
            self._file = self._storage.make_file(self._path) if is_new else self._storage.open_for_writing(self._path)
            self._storage.sync_folder(self._path.parent)
        if self._file >= 0:
            self._load()
        if self._intent >= 0:
            self.in_doubt = {row["msgId"]: row for row in self._load_intent() if row["msgId"] not in self._done}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._only_read and self._file >= 0:
            self._storage.sync(self._file)
            if kind is None and not self.in_doubt:
                self._storage.remove_file(self._intent_path)
        for descriptor in (self._file, self._intent):
            if descriptor >= 0:
                self._storage.close(descriptor)

    def has(self, message: Outgoing) -> bool:
        """Return whether a message was sent."""
        return message.msg_id in self._done

    def begin(self, group: Iterable[Outgoing]) -> None:
        """Note durably that these messages are about to leave."""
        self._storage.sync(self._file)
        self._group = [
            {"msgId": one.msg_id, "physicalOffset": one.physical_offset, "topic": one.topic} for one in group
        ]
        text = msgspec.json.encode({"boot": _boot(), "inDoubt": [*self.in_doubt.values()], "group": self._group})
        self._storage.write(self._intent, 0, MARK.pack(0, 0) + b"%08x %s\n" % (crc32(text), text))
        self._storage.sync(self._intent)

    def mark(self, leaving: range) -> None:
        """Note that these messages of the group leave now."""
        self._leaving = leaving
        self._storage.write(self._intent, 0, MARK.pack(leaving.start, leaving.stop))

    def doubt(self) -> None:
        """Note that the messages that left last may have arrived."""
        self.in_doubt |= {row["msgId"]: row for row in self._group[self._leaving.start : self._leaving.stop]}

    def add(self, rows: Sequence[Row]) -> None:
        """Append receipts."""
        doubted = [row for row in rows if row["msgId"] in self.in_doubt] if self.in_doubt else []
        for row in doubted:
            row["inDoubt"] = True
        self.doubted += doubted
        data = _ENCODER.encode_lines(rows)
        self._storage.write(self._file, self._end, data)
        self._end += len(data)
        self._done.update(row["msgId"] for row in rows)
        for row in doubted:
            self.in_doubt.pop(row["msgId"], None)

    def _load(self) -> None:
        rest, number = b"", 0
        while piece := self._storage.read(self._file, self._end + len(rest), PIECE):
            whole, cut, rest = (rest + piece).rpartition(b"\n")
            for line in whole.split(b"\n") if cut else ():
                number += 1
                self._remember(line, number)
            self._end += len(whole) + len(cut)
        if not self._only_read:
            self._storage.resize(self._file, self._end)  # a crash of the host may have cut the last line

    def _remember(self, line: bytes, number: int) -> None:
        try:
            row = msgspec.json.decode(line)
            self._done.add(row["msgId"])
            if row.get("inDoubt"):
                self.doubted.append(row)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise BadRequest(f"line {number} is no receipt of `rmqctl send`", path=str(self._path)) from None

    def _load_intent(self) -> list[Row]:
        raw = self._storage.read(self._intent, 0, INTENT_MAX)
        check, _, text = raw[MARK.size :].partition(b"\n")[0].partition(b" ")
        if check != b"%08x" % crc32(text):
            return []
        found = msgspec.json.decode(text)
        start, end = MARK.unpack_from(raw) if found["boot"] == _boot() else (0, len(found["group"]))
        return [*found["inDoubt"], *found["group"][start:end]]


def _boot() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return f"{time.time_ns()}"  # not Linux: any end may have been a crash of the host
