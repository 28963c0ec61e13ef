"""The facts about a store that are needed to attribute findings to causes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rmqctl.forensics.audit.state_audit import config_files, queue_end
from rmqctl.forensics.doctor.twins import is_twin
from rmqctl.forensics.groups.delay_levels import undelivered
from rmqctl.forensics.groups.queue_ends import ends_of
from rmqctl.format.timestamp import duration, rfc3339
from rmqctl.store.config.store_path import CHECKPOINT, COMMITLOG, CONFIG, Layout
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.consumers.consumer_offsets import DELAY_OFFSET, consumer_offsets
from rmqctl.store.read.topic_names import unknown_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rmqctl.forensics.finding import Finding
    from rmqctl.forensics.groups.delay_levels import Undelivered
    from rmqctl.forensics.renamed_files import RenamedFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Stored = tuple[str, str | None, int | None, int | None]  # path, topic, queueId, offset
FILES_NAMED_MAX = 1000  # names of missing files that are spelled out
LATE_MS = 60_000  # a broker writes a log file for the last time some seconds after its last message
NEAR_MS = 10_000  # a full file of a copy is not older than its log's last message by more


@dataclass(frozen=True)
class StoreFacts:
    """Facts of a store. Offsets of the log are physical offsets in bytes."""

    log_files: Mapping[int, str] = field(default_factory=dict)  # the first offset of each log file: its path
    log_file_size: int = 0  # the usual one
    log_end: int = 0  # of the last good record
    queue_ends: Mapping[QueueKey, int] = field(default_factory=dict)  # queue offset
    has_index: bool = True
    has_abort: bool = False
    # smallest physical offset of a unit, in queues whose last unit points into the log; None: there is none, or the
    # start of the log is not missing
    oldest_unit: int | None = None
    owners: Mapping[Stored, Sequence[str]] = field(default_factory=dict)  # groups of each stored offset
    missed: Mapping[QueueKey, int] = field(default_factory=dict)  # messages of the log that have no unit
    still_missed: int | None = None  # units that will be missing at queue ends after the next start; None: not known
    checkpoint: str = ""  # in words
    copied: str = ""  # what of the first log file shows a copy, or ""
    lost_config: frozenset[str] = frozenset()  # files of config/ that cannot be loaded, and have no good .bak
    # log files that were probably renamed: path in the store to whole and right path
    renamed: Mapping[str, tuple[Path, Path]] = field(default_factory=dict)
    # what waits in the delay levels with findings, by queueId
    undelivered: Mapping[int, Undelivered] = field(default_factory=dict)
    in_rocksdb: bool = False  # the queues: a broker that dies leaves none of them, or too few units
    held: Mapping[QueueKey, int] = field(default_factory=dict)  # messages in each queue that a stored offset is after
    unknown: frozenset[str] = frozenset()  # topics with such an offset that do not exist
    # messages with the queue offset of another message: topic, queueId, physical offset
    twins: frozenset[tuple[str | None, int | None, int | None]] = frozenset()

    @property
    def is_healed(self) -> bool:
        """Whether the next start fills the queues that are behind the log."""
        return self.still_missed == 0

    @cached_property
    def bases(self) -> list[int]:
        """Return the first offset of each log file, ascending."""
        return sorted(self.log_files)

    @cached_property
    def base_of(self) -> dict[str, int]:
        """Return the first offset of each log file, by the path of the file."""
        return {path: base for base, path in self.log_files.items()}

    @property
    def log_begin(self) -> int:
        """The offset of the first log file, or 0 if the log has no files."""
        return self.bases[0] if self.bases else 0

    @property
    def log_folder(self) -> str:
        """Return the folder of the last log file."""
        return str(PurePosixPath(self.log_files[self.bases[-1]]).parent) if self.bases else COMMITLOG

    def file_of(self, offset: int) -> str:
        """Return the path of the file that has, or should have, an offset of the log."""
        place = bisect_right(self.bases, offset)
        base = self.bases[place - 1] if place else None
        if base is not None and (offset < base + self.log_file_size or not self.log_file_size):
            return self.log_files[base]
        size = max(self.log_file_size, 1)
        grid = self.log_begin % size
        return f"{self.log_folder}/{max((offset - grid) // size * size + grid, 0):020d}"

    def ranges_of(self, path: str) -> list[tuple[int, int]]:
        """Return the offsets [begin, end) that a log file has."""
        return [(base, base + self.log_file_size) for base, name in self.log_files.items() if name == path]

    def files_between(self, begin: int, end: int) -> list[str]:
        """Return the paths of all files that should have the offsets [begin, end)."""
        size = max(self.log_file_size, 1)
        offsets = [at for at, _ in zip(range(begin, end, size), range(FILES_NAMED_MAX), strict=False)]
        return list(dict.fromkeys(map(self.file_of, [*offsets, *([end - 1] if end > begin else [])])))


def facts_of(
    store: ReadOnlyStore,
    findings: Iterable[Finding],
    log_end: int,
    last_stored: int,
    missed: Mapping[QueueKey, int],
    still_missed: int | None,
    renamed: Iterable[RenamedFile],
) -> StoreFacts:
    """Return the facts of a store for which `verify` has reported `findings`.

    `last_stored` is the store time of the last message, in ms. For `missed` and `still_missed`, see StoreFacts.
    `renamed` are the log files whose records fit another name. Raises OSError.
    """
    codes = {finding.code for finding in findings}
    log = store.commit_log.queue
    has_queues = store.path.reads_queues
    return StoreFacts(
        log_files={file.file_from_offset: file.name for file in log.files},
        log_file_size=log.file_size,
        log_end=log_end,
        queue_ends={key: queue_end(store, *key) or 0 for key in store.queues} if codes and has_queues else {},
        has_index=has_queues and bool(store.index.files or store.index.database),
        has_abort=store.path.has_abort,
        oldest_unit=_oldest_unit(store) if "log-start-missing" in codes else None,
        owners=_owners(store) if codes & {"offset-beyond-queue", "offset-went-back"} else {},
        missed=missed,
        still_missed=still_missed,
        checkpoint=_checkpoint_in_words(store, last_stored),
        copied=_copied_in_words(store, log_end, last_stored) if store.path.has_abort else "",
        lost_config=frozenset(f"{CONFIG}/{file.name}" for file in config_files(store) if file.content is None),
        renamed=_renamed(store, renamed),
        in_rocksdb=store.path.layout is Layout.ROCKSDB or store.path.is_refilled,
        twins=frozenset(
            (finding.topic, finding.queue_id, finding.physical_offset)
            for finding in findings
            if is_twin(store, finding)
        ),
        held={
            (finding.topic, finding.queue_id): ends_of(store, (finding.topic, finding.queue_id)).behind(None) or 0
            for finding in findings
            if finding.code == "offset-beyond-queue" and finding.topic is not None and finding.queue_id is not None
        },
        unknown=frozenset(
            finding.topic
            for finding in findings
            if finding.code == "offset-beyond-queue"
            and finding.topic is not None
            and unknown_topic(store, finding.topic)
        ),
        undelivered={
            finding.queue_id: undelivered(store, finding.queue_id)
            for finding in findings
            if finding.path.endswith(DELAY_OFFSET) and finding.queue_id is not None
        },
    )


def _renamed(store: ReadOnlyStore, by_records: Iterable[RenamedFile]) -> dict[str, tuple[Path, Path]]:
    # of two files with one right path, take the one with a suffix
    aside = store.commit_log.queue.set_aside()
    taken = {right for _, right in aside}
    found = {store.storage.display(path): (path, right) for path, right in aside}
    return found | {file.name: (file.path, file.right_path) for file in by_records if file.right_path not in taken}


def _oldest_unit(store: ReadOnlyStore) -> int | None:
    found, log_begin = [], store.commit_log.min_offset
    for queue in store.queues.values():
        start = queue.first_offset if isinstance(queue, ConsumeQueue) else 0
        first = next((unit for unit in queue.units(start, queue.max_offset) if not unit.is_pre_blank), None)
        last = queue.last()
        if first is not None and last is not None and last.physical_offset >= log_begin:
            found.append(first.physical_offset)
        queue.queue.close()
    return min(found, default=None)


def _owners(store: ReadOnlyStore) -> dict[Stored, list[str]]:
    found: dict[Stored, list[str]] = {}
    for known in consumer_offsets(store):
        place = (f"{CONFIG}/{known.source}", known.topic, known.queue_id, known.offset)
        found.setdefault(place, []).append(known.owner)
    return found


def _checkpoint_in_words(store: ReadOnlyStore, last_stored: int) -> str:
    try:
        found = store.checkpoint()
    except OSError:
        found = None
    if found is None:
        return f"{CHECKPOINT} is missing or too short: an abnormal recovery scans the whole log"
    flushed = min(found.physic_msg_timestamp, found.logics_msg_timestamp)
    if flushed <= 0:
        return f"{CHECKPOINT} is zero: an abnormal recovery scans the whole log"
    distance = last_stored - flushed
    if distance > 0:
        return f"{CHECKPOINT} covers all but the last {duration(distance)}"
    return f"{CHECKPOINT} covers all messages" + (f", and the {duration(-distance)} after them" if distance else "")


def _copied_in_words(store: ReadOnlyStore, log_end: int, last_stored: int) -> str:
    """Return what of the first log file shows a copy, or "".

    A broker writes a log file before it stores messages in the next one, a copy later than all. Where the copy has the
    times of the original, nothing shows.
    """
    files = [file for file in store.commit_log.queue.files if file.file_from_offset < log_end]
    second = store.commit_log.message_at(files[1].file_from_offset) if len(files) > 1 else None
    if second is None:
        return ""
    first, full = (store.storage.entry(file.path).mtime for file in (files[0], files[-2]))
    if first - second.store_timestamp <= LATE_MS or full < last_stored - NEAR_MS:
        return ""
    stored = rfc3339(second.store_timestamp)
    return f"a copy: written at {rfc3339(first)}, although the next file begins with a message of {stored}"
