"""The rules of a broker's start, by version, and its effects on a store.

A start has two parts. load() recovers first the queues and then the log, and cuts both to the same end. Only then, in
start(), does the broker lock the store.

The rules go by exact version, from 4.1.0 to 5.5.1. `--broker-version` names the version. Without it, rmqctl takes 4.7.1
for the profile 4.7, 4.9.7 for 4.9, 5.3.3 for 5.3 and 5.5.0 for 5.4. What changed, and when:

| since   | change                                                                                           |
|---------|--------------------------------------------------------------------------------------------------|
| 4.2.0   | a message whose QUEUEOFFSET its queue already has gets no unit                                    |
| 4.3.2   | queues are cut if they reach the log's end; before: always with `abort`, never without            |
| 4.5.0   | a file of a wrong length fails the load; start() dispatches what the queues miss                  |
| 4.6.0   | hosts can have 20 bytes, for IPv6, as SYSFLAG says                                                |
| 4.9.2   | a file of a wrong length is passed over again, in this version alone                              |
| 5.0.0   | start() dispatches nothing; min offsets are found by binary search                                |
| 5.1.0   | V2 records are known; folders among the files are ignored                                         |
| 5.1.3   | an empty last file is deleted; before, it fails the load                                          |
| 5.3.2   | a normal recovery begins at the queues' end, and dispatches; records must fit into their file     |
| 5.3.4   | the start file's first record is checked as a whole; queues are compared after the scan           |
| 5.4.0   | the scan begins at most 10 files before the end (commitLogRecoverMaxNum)                          |
| 5.5.0   | an abnormal recovery begins by logicsPhysicalOffset; a queue's empty last file does not fail      |
| 5.5.1   | the min offset of a queue without files is 0                                                      |

**1. Load.** The store does not load if a log file or a queue file does not have the configured length, or if a file
name is not an offset; with enableConsumeQueueExt, this also goes for the files of consumequeue_ext/. Since 5.1.0, it
does not load with a folder in index/ that is named as an index file. A file with a name of fewer digits is loaded as
the last one, and the log then ends where this file ends. Up to 4.4.0, and in 4.9.2, a file of a wrong length and all
files after it are left out instead: the store starts without their messages.

**2. Queues** (ConsumeQueue.recover). The broker checks the last three files of each queue. A unit is in use if
physicalOffset >= 0 and size > 0. The first unit that is not in use ends the queue, and later files are deleted, so one
bad unit can end a queue too early. Older files are not checked. The *queues' end* is the largest max physical offset of
all queues. That of a queue is the end of its last unit's record; up to 4.4.0, it is the start of this record.

**3. Start file.** Without the file `abort`, the log scan begins here:

| version         | the scan begins at                                     | the scan dispatches these good records    |
|-----------------|--------------------------------------------------------|-------------------------------------------|
| up to 5.3.1     | the third file from the end, or the first              | none                                      |
| 5.3.2, 5.3.3    | the last file that begins at or before the queues' end | records with PHYSICALOFFSET > queues' end |
| 5.3.4 and later | the same, if its first record is good; else an earlier | the same                                  |

With the file `abort`, all versions begin at the start file and dispatch all good records. It is the last log file whose
first record meets these conditions:

- It is a record: its magic code is known (V1; since 5.1.0 also V2) and its storeTimestamp is not 0. Since 5.3.4, the
  record must also be good.
- Up to 5.4.0, its storeTimestamp is at or before the safe time: 3 s before min(physicMsgTimestamp, logicsMsgTimestamp)
  of the checkpoint, but at least 0.
- Since 5.5.0, its PHYSICALOFFSET is at or before logicsPhysicalOffset of the checkpoint. If that is 0, its
  storeTimestamp is at or before logicsMsgTimestamp.

If there is no such file, the scan begins at the first log file.

Since 5.4.0, with and without `abort`, the scan begins at most commitLogRecoverMaxNum (10) files before the end of the
log. **Queues that miss older messages miss them for good**: of 36 files with 3,000 messages, no queues and no
checkpoint, 5.5.0 serves the 711 messages of the last 10 files.

Without `abort`, the scan since 5.3.2 compares with `>` instead of `>=` (see the table), which is a bug: the first
record without a unit begins exactly at the queues' end, and is not dispatched.

**4. Scan** (CommitLog.recoverNormally, recoverAbnormally). The broker reads the log record by record:

| what the scan finds                                   | up to 5.3.1                        | 5.3.2 and later         |
|-------------------------------------------------------|------------------------------------|-------------------------|
| a good record                                         | the scan continues                 | the scan continues      |
| a V2 record                                           | up to 5.0.0: **the log ends here** | the scan continues      |
| a blank                                               | next file                          | next file               |
| a blank of the last file                              | **the log ends here**              | **the log ends here**   |
| a blank whose TOTALSIZE exceeds the rest of the file  | next file                          | **the log ends here**   |
| zeros, a bad magic, size, length or body checksum     | **the log ends here**              | **the log ends here**   |
| the file's end without a blank                        | **the log ends here**              | **the log ends here**   |
| a wrong PHYSICALOFFSET or `__CRC32#`                  | continues (no check)               | continues (no check)    |
| a wrong checksum of an empty body                     | continues (no check)               | continues (no check)    |
| a missing file                                        | continues (no check)               | continues (no check)    |

So *one flipped bit removes all records after this bit*. "Next file" is the next log file that exists: after missing
files, the scan continues. If a pre-allocated log file follows a blank, the log ends at the start of that file.

Up to 4.3.1, with `abort`, the scan passes over a record whose lengths do not add up to TOTALSIZE: it counts TOTALSIZE
bytes, and reads on where these lengths end. If they differ, the log ends at another place than its last record.

**5. Cut.** The broker cuts the log where the scan ended, and deletes later log files. The bytes of the remaining log
files do not change. The broker cuts the queues if the queues' end is at or after the log's end: the queues' end before
the scan, and since 5.3.4 the one after it. Up to 4.3.1, it cuts the queues always with `abort`, and never without.
After a cut of the queues, no unit points to the log's end or after it. If the first unit of a queue's last file does,
the file is deleted; the cut does not check whether this unit is in use. Up to 5.1.4, the log is cut first, since 5.2.0
the queues. If the log has no file, all queues are deleted; up to 4.4.0, only with `abort`.

**6. Minimum offsets** (correctMinOffset). In 4.x, the minimum offset is the queue offset of the first unit in the
queue's first file that points to the log's start or after it. If there is none, it does not change; before the first
correction, it is 0. In 5.x, it is the queue's end if the last unit points to a place before the log's start. If the
last unit points into the log, 5.x finds it by a binary search in the first file. In 5.0.0 to 5.4.0, a store does not
load if the last file of a queue has no unit.

**7. start().** In start(), 4.5.0 to 4.9.8 dispatch the log from the queues' end, or from the log's start if that is
later, up to the log's end. start() *waits* until this is complete, and forever if the dispatch reaches an offset that
no log file contains. Then it corrects the minimum offsets again. Up to 4.4.0, and in 5.x, start() dispatches nothing: a
record gets no unit if the scan does not dispatch it.

The dispatch in start() does not verify checksums, and does not end at bytes that are not a good record:

| what the dispatch of 4.5.0 to 4.9.8 finds | the dispatch continues at |
|-------------------------------------------|---------------------------|
| a blank                                   | the next log file         |
| zeros, a bad magic, size or length        | the next log file         |
| lengths that do not add up to TOTALSIZE   | the end of these lengths  |

In the last case, the broker adds TOTALSIZE to its offset, which then differs from the place where it reads. If no blank
follows in the file, it also adds TOTALSIZE to the offset where it continues. A slave (brokerId is not 0) does not skip
zeros or a bad magic, size or length: its start() waits forever.

**8. Index** (IndexService.load). With `abort`, the broker deletes each index file whose endTimestamp is after the
checkpoint's indexMsgTimestamp, which is the endTimestamp of the newest full index file. So the last index file is
normally deleted.

**Dispatch into a queue** (ConsumeQueue.putMessagePositionInfo). A record is skipped if it ends at or before the queue's
max physical offset; up to 4.4.0, if it starts there or before. Since 4.2.0, it is also skipped if its QUEUEOFFSET is
not 0 and is less than the queue's max offset. A dispatched record gets its unit *at the queue's end*, and not at its
QUEUEOFFSET. A queue without files begins at the QUEUEOFFSET of its first record; if that is not at the start of a file,
pre-blank units fill the space before it.

**broker.conf.** These settings change a start, in the versions that know them:

| setting                       | since | a start then                                                             |
|-------------------------------|-------|--------------------------------------------------------------------------|
| checkCRCOnRecover=false       | 4.1.0 | checks no checksum                                                       |
| forceVerifyPropCRC            | 5.2.0 | ends the log at the first record without a right `__CRC32#`              |
| duplicationEnable             | 5.0.0 | ends the log at the first record with properties, but no DUP_INFO        |
| duplicationEnable             | 5.0.0 | fails to load at a record that is none, where it reads the log again     |
| duplicationEnable             | 4.1.0 | dispatches nothing in 4.x; since 4.5.0, start() waits forever for it     |
| enableMultiDispatch           | 4.9.3 | is needed for units in light queues; in 4.9.3, fails without properties  |
| messageIndexSafe              | 4.1.0 | begins at a file that is also not later than indexMsgTimestamp           |
| recheckReputOffsetFromCq      | 5.0.0 | dispatches in start(), as 4.5.0 to 4.9.8 do                              |
| commitLogRecoverMaxNum        | 5.4.0 | begins at most this number of files before the end                       |
| checkCommitLogOffsetOnRecover | 5.5.0 | with `abort`, ends the log at a PHYSICALOFFSET outside of its file       |
| enableAcceleratedRecovery     | 5.5.0 | with `abort`, begins at logicsPhysicalOffset; fails to load if this is 0 |
| enableAcceleratedRecovery     | 5.5.0 | with `abort`, fails to load if this is after the start file              |

The rules do not cover controller mode.
"""

# `rmqctl.store.recovery.simulation` applies the rules to a store. The rule for a good record is in
# `rmqctl.format.broker_check`, and the rule for the dispatch into a queue is in `rmqctl.kernels.queue_simulate`.

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from rmqctl.format.checkpoint import Checkpoint
from rmqctl.format.message import HEADS, MAGIC_OFFSET, MAGIC_V1, MAGIC_V2, PHYSICALOFFSET_OFFSET, head_of
from rmqctl.format.profile import QueueCut, StartRules
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX

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


def load_refusal(entries: Iterable[FolderEntry], file_size: int, rules: StartRules) -> str | None:
    """Return why MappedFileQueue.load fails for a folder, or None if it loads.

    All files must have `file_size` bytes.
    """
    ordered = sorted(entries)
    for number, entry in enumerate(ordered):
        if entry.is_folder and rules.loads_around_folders:
            continue
        if entry.size != file_size and rules.stops_loading_at_wrong_length:
            return None
        if entry.is_folder:
            return f"{entry.name} is a folder, where only files may be"
        if rules.deletes_empty_last_file and number == len(ordered) - 1 and not entry.size:  # since 5.1.3
            continue
        if entry.size != file_size:
            return f"{entry.name} has {entry.size} bytes, every file must have {file_size}"
        if not (entry.name.isdecimal() and int(entry.name) <= OFFSET_MAX):  # Long.parseLong
            return f"{entry.name} is no offset"
    return None


def index_refusal(entries: Iterable[FolderEntry], rules: StartRules) -> str | None:
    """Return why IndexService.load fails, or None; `entries` are those of index/.

    5.1.0 and later cannot open a folder that is named as an index file, and do not load the store.
    """
    if not rules.loads_around_folders:
        return None
    found = next((entry.name for entry in entries if entry.is_folder and entry.name.isdecimal()), None)
    return found and f"index: {found} is a folder, where only files may be"


def loads_until(entries: Iterable[FolderEntry], file_size: int, rules: StartRules) -> str | None:
    """Return the name of the first file that load() leaves out, or None.

    Up to 4.4.0, and in 4.9.2, load() leaves out the first file of a wrong length, and all files after it.
    """
    if not rules.stops_loading_at_wrong_length:
        return None
    return next((entry.name for entry in sorted(entries) if entry.size != file_size), None)


def queue_type_refusal(topic: str, *, is_batch_folder: bool, is_batch_topic: bool, rules: StartRules) -> str | None:
    """Return why 5.x does not load a queue, or None.

    topics.json and the queue's folder must have the same queue type (queueTypeShouldBe).
    """
    if not rules.has_batch_queues or is_batch_folder == is_batch_topic:
        return None
    said, lies = ("BatchCQ", "SimpleCQ") if is_batch_topic else ("SimpleCQ", "BatchCQ")
    return f"the queue type of topic {topic} is {said} by topics.json, its queues are of type {lies}"


class FileHead(NamedTuple):
    """The fields that recovery reads from the head of a log file."""

    magic_code: int
    store_timestamp: int
    physical_offset: int = 0


def head_of_file(raw: bytes, rules: StartRules) -> FileHead:
    """Return the head of a log file from at least its first HEAD_SIZE bytes.

    Nothing is checked: the bytes may be damaged.
    """
    layout = head_of(raw) if rules.knows_ipv6 else HEADS[0]
    at = layout.offset("STORETIMESTAMP")
    begins = (at, PHYSICALOFFSET_OFFSET)
    stored, place = (int.from_bytes(raw[begin : begin + 8], "big", signed=True) for begin in begins)
    return FileHead(_MAGIC.unpack_from(raw, MAGIC_OFFSET)[0], stored, place)


def safe_timestamp(checkpoint: Checkpoint | None, rules: StartRules) -> int:
    """Return the time (ms) up to which log and queues were flushed to disk, or 0.

    The search for the start file compares with it; without a checkpoint, it is 0 (StoreCheckpoint.getMinTimestamp).
    5.5.0 and later use logicsMsgTimestamp.
    """
    if checkpoint is None:
        return 0
    safe = checkpoint.logics_msg_timestamp
    if not rules.recovers_by_logics_offset:
        safe = max(min(checkpoint.physic_msg_timestamp, safe) - SAFETY_MS, 0)
    return min(safe, checkpoint.index_msg_timestamp) if rules.message_index_safe else safe


def is_known_head(head: FileHead, rules: StartRules) -> bool:
    """Return whether the head of a file is that of a record with a store time."""
    if head.magic_code != MAGIC_V1 and not (head.magic_code == MAGIC_V2 and rules.knows_long_topics):
        return False
    return head.store_timestamp != 0


def is_matched_recover(
    first: FileHead, mode: Mode, checkpoint: Checkpoint | None, queues_end: int, rules: StartRules
) -> bool:
    """Return whether the scan may begin at a file, by its first record.

    `first` is the head of this record, which must be known. The rule is CommitLog.isMappedFileMatchedRecover; a normal
    recovery follows it since 5.3.4.
    """
    indexed = checkpoint.index_msg_timestamp if checkpoint else 0
    is_indexed = first.store_timestamp <= indexed or not rules.message_index_safe
    if mode is Mode.NORMAL:
        return first.physical_offset <= queues_end and is_indexed
    reached = checkpoint.logics_physical_offset if checkpoint else 0
    if rules.recovers_by_logics_offset and reached > 0:
        return first.physical_offset <= reached and is_indexed
    return first.store_timestamp <= safe_timestamp(checkpoint, rules)


def third_from_end(count: int) -> int:
    """Return the number of the file, of `count`, where 4.x begins without `abort`."""
    return max(count - FILES_FROM_END, 0)


class StartFile(NamedTuple):
    """The number of the file where the log scan begins, and the reason."""

    number: int
    why: str


def start_file(
    mode: Mode, rules: StartRules, bases: Sequence[int], queues_end: int, matches: Callable[[int], bool]
) -> StartFile:
    """Return the file where the log scan begins, and the reason.

    `bases` has the first physical offset of each file, ascending, of at least one file. `matches(number)` is
    is_matched_recover of that log file.
    """
    last = len(bases) - 1
    if mode is Mode.NORMAL and not rules.recovers_from_queues:
        number = third_from_end(len(bases))
        why = "the third file from the end" if number else f"no more than {FILES_FROM_END} files: the first one"
        return StartFile(number, why)
    lowest = max(len(bases) - rules.recover_max_num, 0) if rules.recover_max_num else 0
    if mode is Mode.ABNORMAL or rules.checks_first_record:
        found = next((number for number in range(last, lowest - 1, -1) if matches(number)), None)
    else:
        found = next((number for number in range(last, -1, -1) if bases[number] <= queues_end), None)
    if found is None and lowest:
        limit = f"the scan begins at most {rules.recover_max_num} files before the end (commitLogRecoverMaxNum)"
        return StartFile(lowest, limit)
    if mode is Mode.NORMAL:
        if found is not None:
            return StartFile(found, f"the last file that begins before the queues end, at {queues_end}")
        return StartFile(0, f"the queues end at {queues_end}, before the log begins: the first file")
    if found is None:
        return StartFile(0, "no file's first record was stored before the checkpoint: the first file")
    return StartFile(found, "the last file whose first record was stored before the checkpoint")


def accelerated_refusal(
    mode: Mode, checkpoint: Checkpoint | None, start_file_end: int, rules: StartRules
) -> str | None:
    """Return why enableAcceleratedRecovery makes load() fail, or None."""
    if mode is Mode.NORMAL or not rules.accelerated or checkpoint is None:
        return None
    begin = checkpoint.logics_physical_offset
    if begin > start_file_end:
        what = f"logicsPhysicalOffset in the checkpoint is {begin}, after the file where the scan begins"
        return f"enableAcceleratedRecovery fails: {what}"
    if checkpoint.physic_msg_timestamp <= 0 or begin > 0:
        return None
    return "enableAcceleratedRecovery needs logicsPhysicalOffset in the checkpoint, which is 0"


def scan_from(mode: Mode, base: int, checkpoint: Checkpoint | None, rules: StartRules) -> int:
    """Return where the scan begins in the start file, which begins at `base`."""
    if mode is Mode.NORMAL or not rules.accelerated or checkpoint is None:
        return base
    return max(checkpoint.logics_physical_offset, base)


def dispatches_from(mode: Mode, rules: StartRules, queues_end: int) -> int | None:
    """Return the lowest PHYSICALOFFSET that the scan dispatches, or None for none."""
    if mode is Mode.ABNORMAL:
        return None if rules.awaits_confirmation else EVERYTHING
    return queues_end + 1 if rules.recovers_from_queues else None


def cuts_queues(mode: Mode, rules: StartRules, queues_end: int, end_after_scan: int, log_end: int) -> bool:
    """Return whether the broker cuts the queues at the log's end.

    `queues_end` is the end of the queues before the scan, `end_after_scan` the end after it.
    """
    if rules.queue_cut is QueueCut.IF_ABNORMAL:
        return mode is Mode.ABNORMAL
    return (end_after_scan if rules.queue_cut is QueueCut.BY_END_AFTER_SCAN else queues_end) >= log_end


def reput_from(queues_end: int, log_start: int) -> int:
    """Return the physical offset where start() of 4.5.0 to 4.9.8 begins to dispatch.

    `queues_end` is the end of the queues after load().
    """
    return max(queues_end, log_start, 0)


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


def empty_last_file_refusal(queue: QueueView, rules: StartRules) -> str | None:
    """Return why 5.0.0 to 5.4.0 do not load a queue whose last file has no unit.

    In the last file, correctMinOffset reads at a negative position, and fails. None if the queue loads.
    """
    if not rules.fails_on_empty_last_queue_file or queue.last_readable or queue.min_offset >= queue.max_offset:
        return None
    return "its last file has no unit: correctMinOffset fails"


def correct_min_offset(queue: QueueView, log_start: int, rules: StartRules) -> int:
    """Return the min offset that correctMinOffset finds in a queue with files."""
    if not rules.expired_queue_begins_at_end:
        found = queue.first_reaching(queue.first, queue.first + queue.readable, log_start)
        return queue.min_offset if found is None else found
    if queue.min_offset >= queue.max_offset:
        return queue.min_offset
    if queue.last_readable and queue.physical_offset(queue.max_offset - 1) < log_start:
        return queue.max_offset
    return _bisected_min_offset(queue, log_start)


def _bisected_min_offset(queue: QueueView, log_start: int) -> int:
    """Find the min offset by binary search in the first file, as 5.x does.

    The search (ConsumeQueue.correctMinOffset) begins at the old min offset, or at the start of the first file if that
    is later, and ends at the file's end.
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
