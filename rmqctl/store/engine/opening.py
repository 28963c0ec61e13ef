"""What is checked and left in a store before MessageStore writes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import READ_ALL_HINT, LayoutNotSupported, NeedsRecovery, Unreadable
from rmqctl.format.message import Damage
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config.config_file import TOPICS_CONFIG, batch_topics
from rmqctl.store.config.store_path import ABORT_BAK, CONFIG, SIGN_OF_5_4, named_commitlogs
from rmqctl.store.engine.consume_queue_store import SEE_VERIFY, check_queue
from rmqctl.store.read.commit_log import ScanSummary, is_served
from rmqctl.store.read.version_guess import looks_like_3x, store_of_3x
from rmqctl.store.recovery.rules import third_from_end
from rmqctl.text import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def check_layout(store: ReadOnlyStore) -> None:
    """Check that rmqctl can write to `store`.

    Raises LayoutNotSupported for RocksDB, DLedger and brokers of 3.x, and Unreadable if a part of the store could not
    be read.
    """
    store.path.check_can_be_changed()
    if store.path.config_databases:
        what = f"its topics are in RocksDB ({CONFIG}/{store.path.config_databases[0]}), where rmqctl can add none"
        raise LayoutNotSupported(what, path=str(store.path.root), hint="send the messages with a producer")
    if looks_like_3x(store):
        raise store_of_3x(store)
    store.list_all()
    if store.has_unreadable:  # a missing folder of the log is no fault: it gets its first file later
        what = "a part of the store was not read: `rmqctl verify` shows which"
        raise Unreadable(what, path=str(store.path.root), hint=READ_ALL_HINT)
    store.check_one_queue_type()


def check_shut_down(store: ReadOnlyStore) -> None:
    """Raise NeedsRecovery if the store was not shut down cleanly."""
    if store.path.has_abort:
        root = store.path.root
        hint = f"`rmqctl recover {quoted(root)} --dry-run` shows what it takes"
        raise NeedsRecovery("the store was not shut down cleanly: `abort` is there", path=str(root), hint=hint)


def check_queues(store: ReadOnlyStore, log_end: int) -> None:
    """Raise NeedsRecovery if a queue cannot be opened for writing.

    The log ends at the physical offset `log_end`. Consume queue extensions are not checked.
    """
    batches = batch_topics(store.config(TOPICS_CONFIG))
    for key in store.queues:
        check_queue(store, key, log_end, batches)


def end_of_log(store: ReadOnlyStore, threads: int) -> int:
    """Return the physical offset after the last record of the log.

    Raises NeedsRecovery if a starting broker would stop before it. It does not stop at a damaged record that it serves
    to consumers.
    """
    log = store.commit_log
    for damage in log.queue.anomalies:
        raise NeedsRecovery(f"{damage.code}: {damage.detail}", path=damage.path, hint=SEE_VERIFY)
    in_use = log.files_in_use()
    if not in_use:
        return log.min_offset
    summary, end = ScanSummary(), 0
    start = in_use[third_from_end(len(in_use))].file_from_offset
    for item in log.scan_columns(summary, threads=threads, start=start):
        end = item.end
        if isinstance(item, Damage) and not is_served(item):
            what, at = f"{item.code} in the log", item.physical_offset
            raise NeedsRecovery(what, path=log.path_of(at), offset=at, hint=SEE_VERIFY)
    return max(summary.end, end)


def writable_storage_of(root: Path, conf: BrokerConf) -> WritableStorage:
    """Return a storage that writes in `root`, and in broker.conf's log folders."""
    found = WritableStorage(root)
    for folder in named_commitlogs(root, conf):
        found.trust(folder)
    return found


def leave_signs(storage: WritableStorage, root: Path, profile: Profile) -> None:
    """Create the files that show which broker version uses the store.

    A broker of `profile` creates them at its start: 5.x writes the previous content of `abort` into `abort.bak` (empty
    after a clean shutdown), and 5.4 creates the folder of an empty database. Raises OSError.
    """
    if profile.writes_pid_into_abort:
        storage.replace_file(root / ABORT_BAK, b"")
    if profile.indexes_tags:
        storage.make_folder(root / SIGN_OF_5_4)
