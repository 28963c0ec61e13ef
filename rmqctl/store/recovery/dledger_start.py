"""The start of a broker on a DLedger store.

DLedger ends its log by rules of its own, then the broker cuts its queues.

DLedger 0.3 loads the files of `dledger-ID/data/` and `index/` if all of a folder have the same length, and no file is
missing between two of them. Its recovery begins at the third file from the end, or before it at the last one whose
first entry has its unit in the index. From there, it follows the headers. The log ends at the first header

(1) of zeros, (2) with another magic code, pos or size than the place asks for, (3) whose index is not the next, or (4)
whose term is below that of the entry before it.

It checks neither CRC nor record. A unit of the index that differs from its entry is written anew, as are all behind it.
If the log would end more than a file before its last file, the broker gives up, as it does if the committedIndex of
`dledger-ID/checkpoint` is no number. (Seen with RocketMQ 5.5.0 and 5.3.3.)

Where `abort` exists, brokers of 5.2.0 to 5.4.0 then cut the queues too early: of the last file, they count the records
without their headers. They dispatch again what lies behind committedIndex, but the units between are gone, although the
log has the messages. (Seen with 5.3.3 and 5.4.0; 5.2.0 drops even more, 5.1.4 and 5.5.0 none.)
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.message import BLANK_SIZE
from rmqctl.format.profile import VERSIONS
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.store_path import CHECKPOINT, INDEX
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.dledger.dledger_entry import (
    ENTRY_HEADER,
    ENTRY_INDEX_FILE_SIZE,
    ENTRY_UNIT,
    MAGIC_ENTRY,
    MAGIC_ENTRY_BLANK,
    decode_entry_header,
)
from rmqctl.store.recovery.replay import LoadedLog, ScanEnd
from rmqctl.store.recovery.rules import Mode, StartFile
from rmqctl.store.recovery.simulation import RestartOutcome, RestartSimulation, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmqctl.format.message import Damage
    from rmqctl.format.profile import Profile
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.dledger.dledger_entry import EntryHeader
    from rmqctl.store.read.read_only_store import ReadOnlyStore

LEAVES_HEADERS_OUT = frozenset(VERSIONS[VERSIONS.index("5.2.0") : VERSIONS.index("5.4.0") + 1])
MOVE_AWAY = (
    "move dledger-ID/index or dledger-ID/checkpoint away, whichever is named: DLedger writes its index anew from its "
    "log, and does without a checkpoint"
)
ZEROS = "zeros instead of a header"
COMMITTED, CHECKPOINT_SIZE_MAX = "committedIndex", 4096
DETAIL_MAX = 40
_JAVA_LONG = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class EntryIndex:
    """DLedger's own index of a node. Raises OSError."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self._files = {
            int(entry.name): MappedFile(storage, folder / entry.name, int(entry.name), ENTRY_INDEX_FILE_SIZE)
            for entry in storage.listing(folder)
            if entry.name.isdecimal() and entry.kind is Kind.FILE
        }

    def has(self, header: EntryHeader) -> bool:
        """Return whether an entry's unit agrees with its header."""
        number, position = divmod(header.entry_index * ENTRY_UNIT.size, ENTRY_INDEX_FILE_SIZE)
        file = self._files.get(number * ENTRY_INDEX_FILE_SIZE)
        return file is not None and file.read(position, ENTRY_UNIT.size) == header.unit

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


class EntryWalk:
    """A walk along the headers in `files`, by DLedger's rules.

    After it, `end` is the physical offset where DLedger ends the log, `why` says why if a header does, and
    `last_index` is the index of the last entry, or -1. `counted` is the end if the headers in the last file read are
    left out.
    """

    def __init__(self, files: Sequence[MappedFile]) -> None:
        self._files = files
        self.end = self.counted = files[0].file_from_offset
        self.last_index = self._last_term = -1
        self.why = ""

    def headers(self) -> Iterator[EntryHeader]:
        """Yield the header of each entry. Raises OSError."""
        for file in self._files:
            self.end = self.counted = file.file_from_offset
            while not self._is_blank(raw := file.read(self.end - file.file_from_offset, ENTRY_HEADER.size)):
                self.why = self._fault(raw, file.end - self.end)
                if self.why or not any(raw[4:BLANK_SIZE]):
                    return
                header = decode_entry_header(raw)
                yield header
                self.last_index, self._last_term = header.entry_index, header.term
                self.end += header.size
                self.counted += header.body_size
            self.end = file.end
            file.close()

    def _is_blank(self, raw: bytes) -> bool:
        return int.from_bytes(raw[:4], signed=True) == MAGIC_ENTRY_BLANK and len(raw) >= BLANK_SIZE

    def _fault(self, raw: bytes, room: int) -> str:
        if len(raw) >= BLANK_SIZE and not any(raw[4:BLANK_SIZE]):
            return ""  # SIZE 0: DLedger takes this for the end of its log
        if len(raw) < ENTRY_HEADER.size:
            return f"{room} bytes are left in the file, a header has {ENTRY_HEADER.size}"
        header = decode_entry_header(raw)
        if header.magic != MAGIC_ENTRY or header.pos != self.end:
            return f"magic code {header.magic}, pos {header.pos}: this is no header of an entry at {self.end}"
        if not ENTRY_HEADER.size < header.size <= room or header.size != ENTRY_HEADER.size + header.body_size:
            return f"size {header.size}, bodySize {header.body_size}: they do not fit"
        if self.last_index != -1 and header.entry_index != self.last_index + 1:
            return f"index {header.entry_index} after {self.last_index}"
        return f"term {header.term} after {self._last_term}" if header.term < self._last_term else ""


class EntryRecovery(NamedTuple):
    """The log of a node after DLedger's recovery; offsets are in bytes."""

    start_file: MappedFile
    end: int
    why: str  # the fault of the header at `end`; "" without one
    refused: str | None  # why the broker does not start
    rewritten_from: int | None  # index of the first entry whose unit is written anew
    counted: int  # the end without the headers in the last file
    committed_end: int  # where the entry committedIndex ends; 0 if it lies before the files that DLedger reads


def recover_entries(store: ReadOnlyStore) -> EntryRecovery:
    """Simulate DLedger's recovery, of a log with a file of DLedger.

    Raises OSError.
    """
    files, folder = entry_files(store), _folder(store)
    index = EntryIndex(store.storage, folder.with_name(INDEX))
    number = _first_file(files, index)
    walk, rewritten_from, committed, committed_end = EntryWalk(files[number:]), None, committed_index(store), 0
    for header in walk.headers():
        if header.entry_index <= committed:
            committed_end = header.pos + header.size
        if rewritten_from is None and not index.has(header):
            rewritten_from = header.entry_index
    index.close()
    refused = _refusal(store.storage, folder, store.commit_log.queue.file_size) or small_refusal(store)
    if refused is None and files[-1].file_from_offset - walk.end > files[-1].size:
        refused = f"DLedger would end its log at {walk.end}, more than a file before the last file"
        refused += f" ({walk.why})" if walk.why else ""
    return EntryRecovery(files[number], walk.end, walk.why, refused, rewritten_from, walk.counted, committed_end)


def units_wrong(store: ReadOnlyStore) -> tuple[int, int]:
    """Return how many units of DLedger's index differ from their entries.

    And the index of the first such entry, or 0. The comparison ends at the first wrong header. Raises OSError.
    """
    index, wrong, first = EntryIndex(store.storage, _folder(store).with_name(INDEX)), 0, 0
    for header in EntryWalk(entry_files(store)).headers():
        if not index.has(header):
            wrong, first = wrong + 1, first if wrong else header.entry_index
    index.close()
    return wrong, first


def small_refusal(store: ReadOnlyStore) -> str | None:
    """Return why no broker starts with DLedger's index or checkpoint, or None.

    The text begins with the path of a file. Raises OSError.
    """
    folder, committed = _folder(store), committed_text(store)
    if committed and not _JAVA_LONG.fullmatch(committed):
        path = store.storage.display(folder.with_name(CHECKPOINT))
        return f"{path} has the committedIndex {committed[:DETAIL_MAX]!r}, which is no number"
    return _refusal(store.storage, folder.with_name(INDEX), ENTRY_INDEX_FILE_SIZE)


def committed_text(store: ReadOnlyStore) -> str:
    """Return what DLedger's checkpoint says of committedIndex, or "".

    Raises OSError.
    """
    import javaproperties

    path = _folder(store).with_name(CHECKPOINT)
    if store.storage.entry(path).kind is not Kind.FILE:
        return ""
    text = store.storage.read_file(path, CHECKPOINT_SIZE_MAX).decode("latin-1")
    try:
        return javaproperties.loads(text).get(COMMITTED, "").strip()
    except ValueError:  # a broker starts, and leaves the file aside
        return ""


def committed_index(store: ReadOnlyStore) -> int:
    """Return committedIndex of DLedger's checkpoint, or -1. Raises OSError."""
    text = committed_text(store)
    return int(text) if _JAVA_LONG.fullmatch(text) else -1


def entry_files(store: ReadOnlyStore) -> list[MappedFile]:
    """Return the files of DLedger's log; those from before DLedger are left out."""
    return [file for file in store.commit_log.queue.files if file.path.parent == store.path.entries_in]


def _folder(store: ReadOnlyStore) -> Path:
    if store.path.entries_in is None:
        raise ValueError("not a DLedger store")
    return store.path.entries_in


def _first_file(files: Sequence[MappedFile], index: EntryIndex) -> int:
    for number in range(max(len(files) - 3, 0), 0, -1):
        header = next(EntryWalk(files[number : number + 1]).headers(), None)
        if header is not None and index.has(header):
            return number
    return 0


def _why_there(store: ReadOnlyStore, start: MappedFile) -> str:
    before, count = entry_files(store).index(start), len(entry_files(store))
    if not before:
        return "the log has at most three files" if count <= 3 else "no later file agrees with DLedger's index"
    if before == count - 3:
        return "the third file from the end"
    return "the last file before the third from the end that agrees with DLedger's index"


def _refusal(storage: Storage, folder: Path, file_size: int) -> str | None:
    entries = storage.listing(folder)
    for entry in entries:
        name = storage.display(folder / entry.name)
        if not entry.size or entry.size != file_size or entry.kind is Kind.DIRECTORY:
            right = file_size or "mappedFileSizeCommitLog"
            return f"{name} has {entry.size} bytes, every file there must have {right}"
        if not entry.name.isdecimal():
            return f"{name} is no offset"
    for before, behind in pairwise(entries):
        if int(behind.name) - int(before.name) != file_size:
            return f"{storage.display(folder / behind.name)} does not follow {before.name}"
    return None


class DLedgerRestart(RestartSimulation):
    """The restart of a broker on a DLedger store.

    What an abnormal recovery makes of the queues is not simulated: it adds what they lack, and may leave units that
    lead behind the end. Raises OSError.
    """

    @property
    def scanned_from(self) -> int:
        """Return where the caller's log scan must begin (physical offset)."""
        return min(self._found.end, self._dropped[0])

    @property
    def log_end(self) -> int:
        """The physical offset where DLedger ends the log."""
        return self._found.end

    @property
    def drops_units(self) -> bool:
        """Whether the broker cuts queues too early."""
        begin, until = self._dropped
        return begin < until

    @property
    def _dropped(self) -> tuple[int, int]:
        """The part of the log whose units the broker drops."""
        is_short = self.mode is Mode.ABNORMAL and self._profile.version in LEAVES_HEADERS_OUT
        end = self._found.end
        return (self._found.counted, min(self._found.committed_end, end)) if is_short else (end, end)

    def on_messages(self, described: DispatchColumns) -> None:
        """Count the messages behind the end, and those that lose their units."""
        offsets = described.messages["physical_offset"]
        begin, until = self._dropped
        is_lost = (offsets >= self._found.end) | ((offsets >= begin) & (offsets < until))
        self._losses.messages(described.messages[is_lost])

    def damage(self, damage: Damage) -> None:
        """Count a damaged place behind the end."""
        if damage.physical_offset >= self._found.end:
            self._losses.damage(damage)

    def _loaded_log(self) -> tuple[LoadedLog, str | None]:
        self._found = recover_entries(self._store)
        queue = self._store.commit_log.queue
        return LoadedLog(queue.files, queue.file_size, self._rules), self._found.refused

    def _begin(self) -> None: ...

    def _outcome(self) -> RestartOutcome:
        found, start = self._found, self._found.start_file
        if self._queues_end >= found.end:
            self._queues.cut(found.end)
        return RestartOutcome(
            self._profile,
            self.mode,
            refused=self._queues.correct_min_offsets(self._log.start),
            start_file_path=start.name,
            start_file=StartFile(self._log.files.index(start), _why_there(self._store, start)),
            end=ScanEnd(found.end, "", found.why or (ZEROS if self._losses.good and not self.drops_units else "")),
            min_phy_offset=self._log.start,
            max_phy_offset=found.end,
            deleted_log_files=self._deleted_log_files(found.end),
            fills_queues=self.mode is Mode.NORMAL,
        )


def plan_group_start(store: ReadOnlyStore, profile: Profile, threads: int = 1) -> RestartOutcome:
    """Simulate the restart of a broker on a DLedger store. Raises OSError."""
    builder = DispatchRequestBuilder(with_keys=False)
    return outcomes_of([DLedgerRestart(store, profile, builder)], store, builder, threads)[0]
