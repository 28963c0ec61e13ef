"""The store that `rmqctl replicate` creates, or opens to continue a copy.

    STORE/rmqctl-mirror.json      marks the store as a mirror, and has the address of its master

All data of a mirror are also on its master, so no operator has to decide how to repair it after `replicate` was killed:
`replicate` recovers it as a slave recovers at its start, and pulls again what the recovery has removed. If the recovery
would lose messages, the mirror is refused, because a killed `replicate` never loses messages. A store that is not a
mirror is refused if it was not shut down cleanly.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, NeedsRecovery, NotAStore
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config import store_path
from rmqctl.store.config.file_sizes import geometry_of_conf
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.engine.new_store import is_as_created
from rmqctl.store.engine.opening import check_layout, check_queues, check_shut_down, end_of_log
from rmqctl.store.journal.journals import JournalEntry, check_none_unfinished, check_not_in_use, list_journals
from rmqctl.store.journal.transaction import drop, make_change, undo_last
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery.rules import Mode
from rmqctl.store.write.commit_log_writer import put_settings
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.replicate.master import Master

VERB = "replicate"
SUMMARY = "the start of a mirror that was killed"


def is_mirror(root: Path) -> bool:
    """Return whether `rmqctl replicate` created the store."""
    return WritableStorage(root).entry(root / store_path.MIRROR).kind is Kind.FILE


def is_new(root: Path) -> bool:
    """Return whether `root` is missing, empty, or a store that never had a message.

    Raises OSError. Raises NotAStore if `root` is not a folder.
    """
    storage = WritableStorage(root)
    kind = storage.entry(root).kind
    if kind is Kind.MISSING:
        return True
    if kind is not Kind.DIRECTORY:
        raise NotAStore("this is not a folder, and a store is a folder", path=str(root))
    return is_as_created(storage, root)


def open_mirror(root: Path, master: Master, threads: int, note: Callable[[str], None]) -> MessageStore:
    """Return the mirror of `master` at `root`, open for appending.

    If the last run on it was killed, `note` is called with a line about the recovery. Raises BadRequest if the store's
    log files do not have the master's file size. Raises NeedsRecovery if a mirror is damaged, or if a store that is not
    a mirror was not shut down cleanly. Also raises the errors of MessageStore.
    """
    if is_new(root):
        return _create(root, master)
    _check_file_size(root, master)
    if is_mirror(root):
        _start_abnormally(root, master, threads, note)
    return MessageStore(root, master.conf, profile=master.profile)


def _check_file_size(root: Path, master: Master) -> None:
    store = ReadOnlyStore(root)
    sizes = {file.size_on_disk for file in store.commit_log.queue.files}
    store.close()
    if sizes - {master.file_size}:
        what = f"its log files have {min(sizes)} bytes, the master's {master.file_size}"
        raise BadRequest(what, path=str(root), hint="give another STORE")


def mark_as_mirror(root: Path, master: Master) -> None:
    """Mark the store as a mirror. Raises OSError."""
    text = json.dumps({"master": str(master.address)})
    WritableStorage(root).replace_file(root / store_path.MIRROR, text.encode() + b"\n")


def _ends_in_an_append(store: ReadOnlyStore, end: int) -> bool:
    """Return whether the log ends at `end` because an append was killed.

    An append writes the first bytes of its data last: a killed one leaves zeros at `end`, and records may follow them.
    """
    in_use = store.commit_log.files_in_use()
    return store.commit_log.at(end) is None and (not in_use or end >= in_use[-1].file_from_offset)


def forget_starts(root: Path) -> None:
    """Drop all journals of a mirror if all journals are from recoveries.

    Called before a recovery, and at the end of a run that compared the mirror with the master's log.
    """
    storage = WritableStorage(root)
    journals = list_journals(storage, root)
    if journals and all(entry.verb == VERB for entry in journals):
        drop(root, storage)


def _create(root: Path, master: Master) -> MessageStore:
    storage = WritableStorage(root)
    if storage.entry(root).kind is Kind.MISSING:
        storage.make_folder(root)
    mark_as_mirror(root, master)
    settings = put_settings(master.conf, master.profile)
    return MessageStore.create(root, settings, geometry_of_conf(master.conf), master.conf)


def end_after_start(root: Path, master: Master, threads: int) -> int | None:
    """Return the physical offset at which `replicate` would continue the copy.

    Writes nothing. None if a recovery of the mirror was killed: the next run first undoes it. Raises the errors of
    open_mirror.
    """
    _check_file_size(root, master)
    storage = WritableStorage(root)
    check_not_in_use(storage, root)
    can_recover = is_mirror(root)
    if can_recover and _is_start_unfinished(list_journals(storage, root)):
        return None
    check_none_unfinished(storage, root)
    store = ReadOnlyStore(root, master.conf)
    try:
        check_layout(store)
        if can_recover and store.path.has_abort:
            return _plan_start(store, master, threads).max_phy_offset
        check_shut_down(store)
        end = end_of_log(store, threads)
        check_queues(store, end)
        return end
    finally:
        store.close()


def _is_start_unfinished(journals: list[JournalEntry]) -> bool:
    return bool(journals) and journals[-1].is_unfinished and journals[-1].verb == VERB


def _plan_start(store: ReadOnlyStore, master: Master, threads: int) -> RepairPlan:
    """Plan the recovery of a mirror after `replicate` was killed.

    Raises NeedsRecovery if a broker could not start with the mirror, or if the recovery would lose messages, unless a
    killed append explains the loss.
    """
    from rmqctl.operations.repair.analysis import RecoveryPolicy
    from rmqctl.operations.repair.recovery_plan import plan_recovery

    plan = plan_recovery(store, RecoveryPolicy(master.profile, Mode.ABNORMAL, threads)).repair
    problem = plan.start_problem
    if plan.lost.records and not _ends_in_an_append(store, plan.max_phy_offset):
        problem = f"the log would lose {counted(plan.lost.records, 'message')}"
    if problem:
        root = store.path.root
        hint = f"`rmqctl recover {quoted(root)} --dry-run` shows the damage; or replicate into another STORE"
        raise NeedsRecovery(f"this mirror was killed, and is damaged: {problem}", path=str(root), hint=hint)
    return replace(plan, profile=master.profile)  # the index of the mirror may be too new to show it


def _start_abnormally(root: Path, master: Master, threads: int, note: Callable[[str], None]) -> None:
    from rmqctl.operations.repair.execute import build

    storage = WritableStorage(root)
    check_not_in_use(storage, root)
    if _is_start_unfinished(list_journals(storage, root)):
        undo_last(root, storage)
    store = ReadOnlyStore(root, master.conf)
    try:
        if not store.path.has_abort:
            return
        plan = _plan_start(store, master, threads)
        forget_starts(root)
        make_change(store, VERB, SUMMARY, partial(build, store, plan, threads))
    finally:
        store.close()
    note(f"this mirror was killed: it goes on at offset {plan.max_phy_offset}")
