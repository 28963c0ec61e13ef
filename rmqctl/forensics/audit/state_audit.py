"""Audits of a store's small files.

These are abort, checkpoint, journals, configuration, and the files of DLedger and of a controller. Whether the start of
the log or entries at its end are missing is found here, too.

`dledger-ID/checkpoint` has the lines `committedIndex=N` and `endIndex=N`: the last entry that the group has agreed on,
and the last one that the node has; -1 before the first entry. DLedger writes it every few seconds, so a good log ends
at `committedIndex` or later. DLedger reads committedIndex alone, and does without the file.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.forensics.audit.cleaned import ReceiptsRead, read_receipts
from rmqctl.forensics.audit.lost_config import audit_lost_config
from rmqctl.forensics.finding import Finding
from rmqctl.format.checkpoint import CHECKPOINT, CHECKPOINT_FILE_SIZE, Checkpoint
from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.clean_config import HOUR_MS
from rmqctl.store.config.config_file import CONFIG_FILES, CONFIG_FILES_OF_5
from rmqctl.store.config.store_path import ABORT, BROKER_IDENTITY, COMMITLOG, CONFIG, EPOCH_FILE, INDEX
from rmqctl.store.config.store_path import CHECKPOINT as CHECKPOINT_NAME
from rmqctl.store.ha.controller_files import controller_files
from rmqctl.store.journal.journals import RMQCTL_FOLDER, list_journals
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets, delay_offsets
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqctl.store.config.config_file import ConfigFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consumers.consumer_offsets import StoredOffset
    from rmqctl.store.read.read_only_store import ReadOnlyStore

CHECKPOINT_SLACK_MS = 3000  # a recovery also steps back this far
SHUTDOWN_SLACK_MS = 60_000  # a clean shutdown flushes, but both times may lag a little


def audit_abort(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding if `abort` exists and no broker holds the lock."""
    if store.path.has_abort and store.lock_holder() is None:
        what = "the store was not shut down cleanly; the next start runs the abnormal recovery"
        yield Finding("abort", ABORT, None, what)


def audit_journals(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding for each invalid journal in STORE/.rmqctl.

    rmqctl never writes one, and `undo` could change any file by it.
    """
    try:
        faults = [entry.fault for entry in list_journals(store.storage, store.path.root) if entry.fault is not None]
    except Unreadable as error:
        faults = [error]
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):  # only the owner can read the folder
            yield Finding("unreadable", str(error.filename or RMQCTL_FOLDER), None, f"cannot be read: {error.strerror}")
        return
    for fault in faults:
        yield Finding("bad-journal", store.storage.display(Path(fault.path)), None, fault.what)


def audit_log_missing(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding if the store has queues but no file of the log.

    Call this only if the folders of the log exist and could be read.
    """
    told = any(damage.code in ("link-not-followed", "log-missing") for damage in store.foreign)
    if store.queues and not told:
        yield Finding("log-missing", COMMITLOG, None, f"no commit log file, but {len(store.queues)} queues")


def audit_checkpoint(store: ReadOnlyStore, newest: int, last: int, log_end: int) -> Iterator[Finding]:
    """Yield the findings on the checkpoint.

    `newest` is the largest store time of a message, `last` that of the last message (ms), both 0 if the log has none.
    `log_end` is the end of the log's files.
    """
    entry = store.storage.entry(store.path.part(CHECKPOINT_NAME))
    if entry.kind is Kind.LINK_OUT:
        return
    try:
        checkpoint = store.checkpoint()
    except OSError as error:
        yield Finding("unreadable", CHECKPOINT_NAME, None, f"cannot be read: {error.strerror}")
        return
    if checkpoint is None:
        if not store.path.is_refilled:
            what = "the checkpoint is missing or shorter than 48 bytes"
            yield Finding("checkpoint-missing", CHECKPOINT_NAME, None, what)
        return
    if entry.size != CHECKPOINT_FILE_SIZE:
        what = f"{entry.size} bytes instead of {CHECKPOINT_FILE_SIZE}"
        yield Finding("checkpoint-length", CHECKPOINT_NAME, None, what, file_offset=0)
    flushed = max(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp)
    if flushed < last - SHUTDOWN_SLACK_MS and not store.path.has_abort:
        detail = (
            f"its last time is {_moment(flushed)}, the last message's {_moment(last)}, and the store was shut "
            "down cleanly"
        )
        yield Finding("checkpoint-behind", CHECKPOINT_NAME, None, detail, file_offset=0)
    yield from _ahead(checkpoint, newest, log_end)


def _ahead(checkpoint: Checkpoint, newest: int, log_end: int) -> Iterator[Finding]:
    wrong = {}
    for field, value in zip(CHECKPOINT.fields[:3], checkpoint, strict=False):
        if value < 0 or value > newest + CHECKPOINT_SLACK_MS:
            wrong[field.name] = f"{_moment(value)}, the last message was stored at {_moment(newest)}"
    for field, value in zip(CHECKPOINT.fields[4:], checkpoint[4:], strict=True):
        if not 0 <= value <= log_end:
            wrong[field.name] = f"{value}, the log's files end at {log_end}"
    for name, what in wrong.items():
        yield Finding("checkpoint-ahead", CHECKPOINT_NAME, None, f"{name} is {what}", CHECKPOINT.offset(name))


def _moment(milliseconds: int) -> str:
    return f"{rfc3339(milliseconds) or 'no date'} ({milliseconds})"


def audit_config(store: ReadOnlyStore, ends: Mapping[QueueKey, int] | None = None) -> Iterator[Finding]:
    """Yield findings on lost or invalid files of config/, and on wrong offsets.

    An offset is wrong if it is after the end of its queue. `ends` are the queues' ends after a planned change; without
    it, the present ones count.
    """
    for name in CONFIG_FILES + CONFIG_FILES_OF_5:
        config = store.config(name)
        if config.problem and not store.path.unread_config(name):
            instead = "; its .bak is good" if config.content is not None else ""
            path = store.path.database_of(name) or f"{CONFIG}/{name}"
            yield Finding("config-invalid", path, None, config.problem + instead)
    yield from audit_lost_config(store)
    for found in [*consumer_offsets(store), *delay_offsets(store)]:
        end = _present_end(store, found) if ends is None else ends.get((found.topic, found.queue_id), 0)
        if end is not None and found.offset > end:
            detail = f"{found.owner} is at {found.offset} in {found.topic}/{found.queue_id}, the queue ends at {end}"
            finding = Finding("offset-beyond-queue", f"{CONFIG}/{found.source}", None, detail)
            yield replace(finding, topic=found.topic, queue_id=found.queue_id, queue_offset=found.offset)


def _present_end(store: ReadOnlyStore, found: StoredOffset) -> int | None:
    # as `queue_end`, but read the file again if the offset is after it: a broker may have written since
    end = queue_end(store, found.topic, found.queue_id)
    if end is None or found.offset <= end:
        return end
    with store.storage.reading_small_files_again():
        return queue_end(store, found.topic, found.queue_id)


def queue_end(store: ReadOnlyStore, topic: str, queue_id: int) -> int | None:
    """Return the queue offset where a queue ends: 0 without one, None if unreadable."""
    if store.is_unread(topic, queue_id):
        return None
    queue = store.queues.get((topic, queue_id))
    try:
        return queue.max_offset if queue else 0
    except OSError:
        return None


def audit_log_start(store: ReadOnlyStore, oldest: int, newest: int, spanning_units: int) -> Iterator[Finding]:
    """Yield a finding if the log's start is missing and did not expire.

    It is missing if units point before the log, and the log's first message is younger than fileReservedTime.
    `spanning_units` counts these units, in queues whose last unit points into the log. `rmqctl rebuild` removes them if
    an operator accepts the loss, but keeps those of a queue without a message in the log.

    A broker counts the age of a log file from the last write to it. The missing file was last written at about `oldest`
    (ms), the store time of the log's first message, and its age is counted up to `newest` (ms), the latest time in the
    store: not up to now, because the result for a copy of a store must never change.
    """
    if not spanning_units or not oldest:
        return
    reserved = store.conf.expiry.reserved_ms
    if newest - oldest < reserved:
        start = store.commit_log.min_offset
        detail = (
            f"{spanning_units} queue units point before {start}, but the first message left is only "
            f"{(newest - oldest) / HOUR_MS:.1f} h older than the last, and files expire after {reserved // HOUR_MS} h "
            "(fileReservedTime; --broker-conf): a file was lost, or deleted by hand or for want of disk"
        )
        yield Finding("log-start-missing", store.commit_log.path_of(start), 0, detail, size=start, count=spanning_units)


def receipts(store: ReadOnlyStore) -> ReceiptsRead:
    """Return whether receipts of `rmqctl clean` explain where the log starts.

    A receipt does if the deleted log file ended there. Raises OSError.
    """
    return read_receipts(store.storage, store.path.root, store.commit_log.min_offset)


def is_start_cleaned(store: ReadOnlyStore) -> bool:
    """Return whether a receipt records that `rmqctl clean` deleted the log's start.

    False also if the receipts cannot be read.
    """
    try:
        return receipts(store).is_cleaned
    except OSError:
        return False


def config_files(store: ReadOnlyStore) -> list[ConfigFile]:
    """Return every config file of the store, as a broker loads it."""
    loaded = [store.config(name) for name in CONFIG_FILES + CONFIG_FILES_OF_5]
    return [config for config in loaded if config.source is not None or config.problem]


def audit_controller_files(store: ReadOnlyStore, log_end: int) -> Iterator[Finding]:
    """Check epochFileCheckpoint and brokerIdentity; the log ends at `log_end` bytes."""
    files = controller_files(store)
    if files.epochs_problem:
        yield Finding("epochs-invalid", EPOCH_FILE, None, files.epochs_problem)
    if files.identity_problem:
        yield Finding("identity-invalid", BROKER_IDENTITY, None, files.identity_problem)
    last = files.epochs[-1] if files.epochs else None
    if last is not None and last.start_offset > log_end:
        detail = f"epoch {last.epoch} begins at {last.start_offset}, the log's files end at {log_end}"
        yield Finding("epochs-beyond-log", EPOCH_FILE, None, detail)


def audit_dledger(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield findings on files of DLedger with which no broker starts."""
    from rmqctl.store.recovery.dledger_start import small_refusal  # imports kernels

    refusal = small_refusal(store)
    if refusal is not None:
        path, _, detail = refusal.partition(" ")
        yield Finding("dledger-refused", path, None, f"{detail}: no broker starts")


def audit_committed(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding if entries are gone that the DLedger group has agreed on."""
    from rmqctl.store.recovery.dledger_start import committed_index

    (end, index), committed = store.commit_log.last_entry(), committed_index(store)
    if index < committed:
        missing = counted(committed - index, "entry", "entries")
        detail = (
            f"the group has agreed on entry {committed}, the log ends at {end} with entry {index}: {missing} missing"
        )
        yield Finding("entries-missing", store.commit_log.path_of(end), end, detail, count=committed - index)


def notes_of_entry_index(store: ReadOnlyStore) -> Iterator[str]:
    """Yield a note if units of DLedger's index differ from their entries.

    Brokers serve the messages all the same. Raises OSError.
    """
    from rmqctl.store.recovery.dledger_start import entry_files, recover_entries, units_wrong

    is_read = not any(path.name == INDEX for path in store.path.linked_parts)
    wrong, first = units_wrong(store) if is_read and entry_files(store) else (0, 0)
    if not wrong:
        return
    found = recover_entries(store)
    if found.refused is not None:
        return
    then = "no start writes it anew"
    if found.rewritten_from is not None:
        then = f"a start writes it anew from entry {found.rewritten_from} on"
    yield (
        f"DLedger's own index has no unit, or another one, for {counted(wrong, 'entry', 'entries')}, first for entry "
        f"{first}: brokers serve the messages all the same, and {then}"
    )
