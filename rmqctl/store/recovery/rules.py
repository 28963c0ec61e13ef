"""The rules of a broker's start, and its effects on a store.

A broker's start has two parts: first load(), then start(). load() recovers first the queues and then the log. The
broker locks the store later, in start(). After the recovery, load() cuts the queues and the log to the same end. In
this text, `4.7, 4.9` means all versions of 4.x, and `5.3` means 5.0 and later.

**1. Load.** The store does not load if a log file or a queue file does not have the configured length. The store does
not load if a file name is not an offset.

**2. Queues** (ConsumeQueue.recover). For each queue, the broker checks the last three files. A unit is in use if
physicalOffset >= 0 and size > 0. The first unit that is not in use ends the queue. The broker deletes later files of
the queue. Therefore one bad unit can end a queue too early. Older files of the queue are not checked. The *queues' end*
is the largest max physical offset of all queues. The max physical offset of a queue is the end of its last unit's
record.

**3. Start file.** Without the file `abort`, the version decides where the log scan begins:

| version         | the scan begins at                                     | the scan dispatches these good records    |
|-----------------|--------------------------------------------------------|-------------------------------------------|
| up to 5.3.1     | the third file from the end                            | none                                      |
| 5.3.2 and later | the last file that begins at or before the queues' end | records with PHYSICALOFFSET > queues' end |

If the log has fewer than three files, versions up to 5.3.1 begin at the first file. The profile 5.3 of rmqctl follows
5.3.2, also for stores of 5.0 to 5.3.1.

With the file `abort`, all versions begin at the start file and dispatch all good records. The start file is the last
log file whose first record meets these conditions:

- The magic code is known. 4.x knows the magic code of V1, and 5.3 knows the magic codes of V1 and V2.
- The storeTimestamp is not 0, and is at or before the safe time.

The safe time is 3 s before min(physicMsgTimestamp, logicsMsgTimestamp) of the checkpoint, but at least 0.

If `abort` exists and no log file can be the start file, the scan begins at the first log file.

Without `abort`, the scan of 5.3.2 compares with `>` instead of `>=` (see the table), which is a bug. The first record
without a unit begins exactly at the queues' end, and 5.3.2 does not dispatch this record.

**4. Scan** (CommitLog.recoverNormally, recoverAbnormally). The broker reads the log record by record:

| what the scan finds                                   | 4.7, 4.9                | 5.3                     |
|-------------------------------------------------------|-------------------------|-------------------------|
| a good record                                         | the scan continues      | the scan continues      |
| a V2 record                                           | **the log ends here**   | the scan continues      |
| a blank                                               | next file               | next file               |
| a blank of the last file                              | **the log ends here**   | **the log ends here**   |
| a blank whose TOTALSIZE exceeds the rest of the file  | next file               | **the log ends here**   |
| zeros, a bad magic, size, length or body checksum     | **the log ends here**   | **the log ends here**   |
| the file's end without a blank                        | **the log ends here**   | **the log ends here**   |
| a wrong PHYSICALOFFSET or `__CRC32#`                  | continues (no check)    | continues (no check)    |
| a wrong checksum of an empty body                     | continues (no check)    | continues (no check)    |
| a missing file                                        | continues (no check)    | continues (no check)    |

Therefore *one flipped bit removes all records after this bit*. In the table, "next file" means the next log file that
exists. If log files are missing, the scan continues after the missing files. If a pre-allocated log file follows a
blank, the log ends at the start of the pre-allocated file.

**5. Cut.** The broker cuts the log where the scan ended, and deletes later log files. The cut does not change bytes of
the remaining log files. The broker cuts the queues if the queues' end (calculated before the scan) is at or after the
log's end. After a cut of the queues, no unit points to the log's end or after it. If the first unit of a queue's last
file points to the log's end or after it, the file is deleted. In a queue's last file, the cut does not check whether
the first unit is in use. In 4.x, the broker cuts first the log and then the queues. In 5.3, the broker cuts first the
queues and then the log. If the log has no file, all queues are deleted.

**6. Minimum offsets** (correctMinOffset). 4.x searches the queue's first file for a unit that points to the log's start
or after it. The queue offset of the first found unit is the minimum offset. If 4.x finds no unit, the minimum offset
does not change. Before the first correction, the minimum offset is 0. In 5.3, the minimum offset is the queue's end if
the last unit points to a place before the log's start. If the last unit points into the log, 5.3 finds the minimum
offset by a binary search in the first file. In 5.3, a store does not load if the last file of a queue has no unit.

**7. start().** In start(), 4.x dispatches the log from the queues' end up to the log's end. If the queues' end is
before the log's start, the dispatch begins at the log's start. start() *waits* until the dispatch is complete. If the
dispatch reaches an offset that no log file contains, start() waits forever. After the dispatch, start() corrects the
minimum offsets again. In 5.3, start() dispatches nothing. In 5.3, a record gets no unit if the scan does not dispatch
the record.

The dispatch in start() does not verify checksums. The dispatch does not end at bytes that are not a good record:

| what the dispatch of 4.x finds          | the dispatch continues at |
|-----------------------------------------|---------------------------|
| a blank                                 | the next log file         |
| zeros, a bad magic, size or length      | the next log file         |
| lengths that do not add up to TOTALSIZE | the end of these lengths  |

In the last case, the broker adds TOTALSIZE to its offset, which then differs from the place where it reads. If no blank
follows in the file, the broker also adds TOTALSIZE to the offset where it continues. A slave (brokerId is not 0) does
not skip zeros or a bad magic, size or length: its start() waits forever.

**8. Index** (IndexService.load). With abort, the broker deletes each index file whose endTimestamp is after the
checkpoint's indexMsgTimestamp. The indexMsgTimestamp is the endTimestamp of the newest full index file. Normally, the
last index file has a later endTimestamp, and is deleted.

**Dispatch into a queue** (ConsumeQueue.putMessagePositionInfo). A record is skipped if it ends at or before the queue's
max physical offset. A record is skipped if its QUEUEOFFSET is not 0 and is less than the queue's max offset. A
dispatched record gets its unit *at the queue's end*, and not at its QUEUEOFFSET. If a queue has no files, the queue
begins at the QUEUEOFFSET of the first record. If the first unit of a queue is not at the start of a file, pre-blank
units fill the space before the first unit.

The rules in this text describe the versions 4.7.1, 4.9.7 and 5.3.3. The rules do not cover the settings
duplicationEnable, controller mode, forceVerifyPropCRC, messageIndexSafe and recheckReputOffsetFromCq, which are off by
default.
"""

# `rmqctl.store.recovery.simulation` applies the rules to a store. The rule for a good record is in
# `rmqctl.format.broker_check`, and the rule for the dispatch into a queue is in `rmqctl.kernels.queue_simulate`.

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from rmqctl.format.checkpoint import Checkpoint
from rmqctl.format.message import HEADS, MAGIC_OFFSET, MAGIC_V1, MAGIC_V2, head_of
from rmqctl.format.profile import Profile

FILES_FROM_END = 3
SAFETY_MS = 3000
NO_QUEUE = -1  # the queues' end where no queue has a unit
EVERYTHING = -(2**63)
_MAGIC = struct.Struct(">I")
HEAD_SIZE = HEADS[0].size + 24  # enough for the store time in every head


class Mode(Enum):
    """The two kinds of recovery: NORMAL without `abort`, ABNORMAL with `abort`."""

    NORMAL = "normal"
    ABNORMAL = "abnormal"


def mode_of(*, has_abort: bool) -> Mode:
    """Return ABNORMAL if `abort` exists, and NORMAL otherwise."""
    return Mode.ABNORMAL if has_abort else Mode.NORMAL


class FolderEntry(NamedTuple):
    """A file or a subfolder in a folder; `size` is in bytes."""

    name: str
    size: int
    is_folder: bool = False


def load_refusal(entries: Iterable[FolderEntry], file_size: int, profile: Profile) -> str | None:
    """Return why MappedFileQueue.load fails for a folder.

    All files must have `file_size` bytes. The result is None if the folder loads.
    """
    ordered = sorted(entries)
    for number, entry in enumerate(ordered):
        if entry.is_folder and profile.loads_around_folders:
            continue
        if entry.is_folder:
            return f"{entry.name} is a folder, where only files may be"
        if is_deleted_at_load(entry, profile, is_last=number == len(ordered) - 1):
            continue
        if entry.size != file_size:
            return f"{entry.name} has {entry.size} bytes, every file must have {file_size}"
        if not entry.name.isdecimal():
            return f"{entry.name} is no offset"
    return None


def is_deleted_at_load(entry: FolderEntry, profile: Profile, *, is_last: bool) -> bool:
    """Return whether load() deletes a file.

    5.x deletes the last file of a folder if the file has 0 bytes.
    """
    return profile.loads_around_folders and is_last and not entry.size and not entry.is_folder


def queue_type_refusal(topic: str, *, is_batch_folder: bool, is_batch_topic: bool, profile: Profile) -> str | None:
    """Return why 5.x does not load a queue.

    topics.json and the queue's folder must have the same queue type (queueTypeShouldBe).
    """
    if not profile.knows_topic_attributes or is_batch_folder == is_batch_topic:
        return None
    said, lies = ("BatchCQ", "SimpleCQ") if is_batch_topic else ("SimpleCQ", "BatchCQ")
    return f"the queue type of topic {topic} is {said} by topics.json, its queues are of type {lies}"


class FileHead(NamedTuple):
    """The fields that recovery reads from the head of a log file."""

    magic_code: int
    store_timestamp: int


def head_of_file(raw: bytes) -> FileHead:
    """Return the head of a log file.

    `raw` has at least the first HEAD_SIZE bytes of the file. The bytes may be damaged, because the function does not
    check them.
    """
    layout = head_of(raw)
    at = layout.offset("STORETIMESTAMP")
    return FileHead(_MAGIC.unpack_from(raw, MAGIC_OFFSET)[0], int.from_bytes(raw[at : at + 8], "big", signed=True))


def safe_timestamp(checkpoint: Checkpoint | None) -> int:
    """Return the time (ms) up to which log and queues were flushed to disk.

    Without a checkpoint, the result is 0 (StoreCheckpoint.getMinTimestamp).
    """
    if checkpoint is None:
        return 0
    return max(min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - SAFETY_MS, 0)


def is_matched_recover(head: FileHead, safe: int, profile: Profile) -> bool:
    """Return whether an abnormal recovery may begin at a file with the given head.

    The rule is CommitLog.isMappedFileMatchedRecover.
    """
    if head.magic_code != MAGIC_V1 and not (head.magic_code == MAGIC_V2 and profile.knows_long_topics):
        return False
    return head.store_timestamp != 0 and head.store_timestamp <= safe


def third_from_end(count: int) -> int:
    """Return the number of the file where a normal recovery of 4.x begins.

    `count` is the number of files.
    """
    return max(count - FILES_FROM_END, 0)


class StartFile(NamedTuple):
    """The number of the file where the log scan begins, and the reason."""

    number: int
    why: str


def start_file(
    mode: Mode, profile: Profile, bases: Sequence[int], queues_end: int, matches: Callable[[int], bool]
) -> StartFile:
    """Return the file where the log scan begins, and the reason.

    `bases` has the first physical offset of each file, ascending. The log must have at least one file.
    `matches(number)` is the result of is_matched_recover for log file `number`.
    """
    if mode is Mode.ABNORMAL:
        found = next((number for number in reversed(range(len(bases))) if matches(number)), None)
        if found is None:
            return StartFile(0, "no file's first record was stored before the checkpoint: the first file")
        return StartFile(found, "the last file whose first record was stored before the checkpoint")
    if profile.recovers_from_queues:
        found = next((number for number in reversed(range(1, len(bases))) if bases[number] <= queues_end), 0)
        if bases[found] <= queues_end:
            return StartFile(found, f"the last file that begins before the queues end, at {queues_end}")
        return StartFile(found, f"the queues end at {queues_end}, before the log begins: the first file")
    number = third_from_end(len(bases))
    return StartFile(
        number, "the third file from the end" if number else f"no more than {FILES_FROM_END} files: the first one"
    )


def dispatches_from(mode: Mode, profile: Profile, queues_end: int) -> int | None:
    """Return the lowest PHYSICALOFFSET of the records that the scan dispatches.

    The result is None if the scan dispatches no record.
    """
    if mode is Mode.ABNORMAL:
        return EVERYTHING
    return queues_end + 1 if profile.recovers_from_queues else None


def cuts_queues(queues_end: int, log_end: int) -> bool:
    """Return whether the broker cuts the queues at the log's end.

    `queues_end` is the end of the queues before the scan.
    """
    return queues_end >= log_end


def reput_from(queues_end: int, log_start: int) -> int:
    """Return the physical offset where start() of 4.x begins to dispatch.

    `queues_end` is the end of the queues after load().
    """
    return max(queues_end, log_start, 0)


def first_gap(extents: Iterable[tuple[int, int]], start: int, end: int) -> int | None:
    """Return the first offset in [start, end) that no file contains.

    `extents` has the first offset and the end of each file, in ascending order.
    """
    for begin, behind in extents:
        if start >= end:
            return None
        if begin > start:
            return start
        start = max(start, behind)
    return start if start < end else None


def is_index_dropped(mode: Mode, end_timestamp: int, checkpoint: Checkpoint | None) -> bool:
    """Return whether load() deletes an index file with end time `end_timestamp` (ms)."""
    return mode is Mode.ABNORMAL and end_timestamp > (checkpoint.index_msg_timestamp if checkpoint else 0)


class QueueView(Protocol):
    """The values that correctMinOffset reads from a consume queue, in units."""

    @property
    def min_offset(self) -> int:
        """Return the min offset before its correction."""

    @property
    def max_offset(self) -> int:
        """Return the position after the last unit in use."""

    @property
    def first(self) -> int:
        """Return the queue offset of the first unit in the first file."""

    @property
    def readable(self) -> int:
        """Return how many units of the first file are in use."""

    @property
    def last_readable(self) -> int:
        """Return how many units of the last file are in use."""

    def physical_offset(self, queue_offset: int) -> int:
        """Return the physical offset that a unit in use contains."""

    def first_reaching(self, start: int, end: int, bound: int) -> int | None:
        """Return the first unit in [start, end) that points to `bound` or after it.

        All units in [start, end) are in one file.
        """


def empty_last_file_refusal(queue: QueueView, profile: Profile) -> str | None:
    """Return why 5.x does not load a queue whose last file has no unit.

    In the last file, correctMinOffset reads at a negative position, and fails. The result is None if the queue loads.
    """
    if not profile.expired_queue_begins_at_end or queue.last_readable or queue.min_offset >= queue.max_offset:
        return None
    return "its last file has no unit: correctMinOffset fails"


def correct_min_offset(queue: QueueView, log_start: int, profile: Profile) -> int:
    """Return the min offset that correctMinOffset finds in a queue with files."""
    if not profile.expired_queue_begins_at_end:
        found = queue.first_reaching(queue.first, queue.first + queue.readable, log_start)
        return queue.min_offset if found is None else found
    if queue.min_offset >= queue.max_offset:
        return queue.min_offset
    if queue.physical_offset(queue.max_offset - 1) < log_start:
        return queue.max_offset
    return _bisected_min_offset(queue, log_start)


def _bisected_min_offset(queue: QueueView, log_start: int) -> int:
    """Return the min offset that 5.x finds by binary search in the first file.

    As in ConsumeQueue.correctMinOffset, the search begins at the old min offset. If the first file begins after the old
    min offset, the search begins at the start of the first file. The search ends at the end of the first file.
    """
    start = max(queue.min_offset, queue.first)
    high = queue.first + queue.readable - 1
    if start > high or (queue.min_offset >= queue.first and queue.physical_offset(start) >= log_start):
        return queue.min_offset
    low = start
    while high - low > 1:
        middle = start + (low + high - 2 * start) // 2
        found = queue.physical_offset(middle)
        if found == log_start:
            low = high = middle
        elif found > log_start:
            high = middle
        else:
            low = middle
    found_at = queue.first_reaching(low, high + 1, log_start)
    return queue.min_offset if found_at is None else found_at
