"""A survey of a store, without a scan of the log.

It reads the store's folders, the begin and end of its files, and its small files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.format.message import Damage
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.config.store_path import CONFIG, CONSUMEQUEUE, SIGNS_OF_5
from rmqctl.store.ha.controller_files import controller_files
from rmqctl.store.read.clock import LogClock
from rmqctl.store.read.commit_log import UNREADABLE, message_of
from rmqctl.store.read.consumers.timer_check import has_timer, timer_check, timer_database
from rmqctl.store.read.index.tag_index import TAGS_IN_INDEX
from rmqctl.store.read.version_guess import ends_with_separator, guess_profile, looks_like_3x, signs_of_5
from rmqctl.store.rocksdb.message_rows import TIMELINE, TIMER, checkpoint_of

if TYPE_CHECKING:
    from rmqctl.forensics.survey.not_read import StorePart
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def survey(store: ReadOnlyStore, parts: list[StorePart]) -> dict[str, Any]:
    """Return the document of `info -o json`.

    `parts` are those of the store. Raises OSError if a needed file cannot be read.
    """
    log = store.commit_log
    in_use = log.files_in_use()
    with store.storage.keeping_small_files():
        topics, last_offset = _topics(store)
    end, last = log.end(last_offset)
    found = log.at(log.min_offset) if in_use else None
    first = message_of(found)
    if isinstance(found, Damage) and found.code in UNREADABLE:
        store.foreign.append(found)
    unused = [file.name for file in log.queue.files[len(in_use) :]]
    document = {
        "store": str(store.path.root),
        "parts": [part._asdict() | {"read": not part.detail} for part in parts],
        "version": _version(store),
        "layout": store.path.layout.value,
        "configDatabases": [f"{CONFIG}/{name}" for name in store.path.config_databases],
        "lock": {"file": store.path.has_lock_file, "heldBy": store.lock_holder()},
        "abort": store.path.has_abort,
        "checkpoint": _checkpoint(store),
        "commitLog": {
            "roots": [str(root) for root in store.path.commitlogs],
            "fileCount": len(log.queue.files),
            "fileSize": log.queue.file_size,
            "minPhyOffset": log.min_offset,
            "maxPhyOffset": end,
            "bytes": log.size,
            "allocatedBytes": log.queue.allocated,
            "preAllocated": unused,
            "firstStoreTimestamp": first.store_timestamp if first else None,
            "firstStoreTime": rfc3339(first.store_timestamp) if first else None,
            "lastStoreTimestamp": last.store_timestamp if last else None,
            "lastStoreTime": rfc3339(last.store_timestamp) if last else None,
            "clockWentBack": [fall.to_json() for fall in LogClock(log).falls_until(last)],
        },
        "consumeQueues": _consume_queues(store, len(topics)),
        "index": _index(store),
        "controller": _controller(store),
        "timer": _timer(store),
        "topics": topics,
        "notLookedAt": [part.path for part in parts if part.detail],
        "anomalies": [
            {"code": damage.code, "path": damage.path, "detail": damage.detail}
            for damage in [*log.queue.anomalies, *store.foreign]
        ],
    }
    store.close()
    return document


def _controller(store: ReadOnlyStore) -> dict[str, Any] | None:
    # None without epochFileCheckpoint and brokerIdentity
    files = controller_files(store)
    if not any(files):
        return None
    identity = files.identity
    return {
        "epochs": [{"epoch": entry.epoch, "startOffset": entry.start_offset} for entry in files.epochs],
        "brokerClusterName": identity.cluster_name if identity else None,
        "brokerName": identity.broker_name if identity else None,
        "brokerId": identity.broker_id if identity else None,
        "problems": [problem for problem in (files.epochs_problem, files.identity_problem) if problem],
    }


def _timer(store: ReadOnlyStore) -> dict[str, Any] | None:
    # None without the files of the timer (5.x)
    try:
        if not has_timer(store):
            return None
        database = timer_database(store)
        of_database = None if database is None else checkpoint_of(database, TIMELINE, TIMER)
        read_ms = of_database or timer_check(store).last_read_time_ms
    except OSError:
        read_ms = None
    return {"lastReadTimestamp": read_ms, "lastReadTime": None if read_ms is None else rfc3339(read_ms)}


def _index(store: ReadOnlyStore) -> dict[str, int]:
    return {
        "fileCount": len(store.index.files),
        "bytes": sum(index_file.file.size for index_file in store.index.files),
        "allocatedBytes": store.index.allocated,
    }


def _consume_queues(store: ReadOnlyStore, topic_count: int) -> dict[str, int]:
    queue_files = [queue.queue for queue in store.queues.values()]
    return {
        "topicCount": topic_count,
        "queueCount": len(store.queues),
        "fileCount": sum(len(files.files) for files in queue_files),
        "bytes": sum(file.size for files in queue_files for file in files.files),
        "allocatedBytes": sum(files.allocated for files in queue_files),
    }


def _topics(store: ReadOnlyStore) -> tuple[list[dict[str, Any]], int | None]:
    rows: dict[str, dict[str, Any]] = {}
    last_offset = None
    for (topic, queue_id), queue in sorted(store.queues.items()):
        row = rows.setdefault(topic, {"topic": topic, "queueCount": 0, "messages": 0})
        row["queueCount"] += 1
        try:
            low, high = queue.min_and_max(store.commit_log.min_offset)
            row["messages"] += high - low
            last = queue.last()
        except OSError as error:
            path = f"{CONSUMEQUEUE}/{topic}/{queue_id}"
            store.foreign.append(Damage("unreadable", 0, 0, f"cannot be read: {error.strerror}", path=path))
            continue
        if last is not None and (last_offset is None or last.physical_offset > last_offset):
            last_offset = last.physical_offset
        queue.queue.close()
    return list(rows.values()), last_offset


def _checkpoint(store: ReadOnlyStore) -> dict[str, Any] | None:
    checkpoint = store.checkpoint()
    if checkpoint is None:
        return None
    return {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
        "physicMsgTime": rfc3339(checkpoint.physic_msg_timestamp),
        "logicsMsgTimestamp": checkpoint.logics_msg_timestamp,
        "logicsMsgTime": rfc3339(checkpoint.logics_msg_timestamp),
        "indexMsgTimestamp": checkpoint.index_msg_timestamp,
        "indexMsgTime": rfc3339(checkpoint.index_msg_timestamp),
        "masterFlushedOffset": checkpoint.master_flushed_offset,
        "confirmPhyOffset": checkpoint.confirm_phy_offset,
        "logicsPhysicalOffset": checkpoint.logics_physical_offset,
    }


def _version(store: ReadOnlyStore) -> dict[str, Any]:
    signs = signs_of_5(store)
    separator = ends_with_separator(store)
    if signs:
        guess = _guess_of_5(max({**SIGNS_OF_5, TAGS_IN_INDEX: "5.4"}.get(sign, "5.0") for sign in signs), separator)
    elif store.path.has_lock_file:
        guess = _by_separator(separator, "4.0 to 4.9.0", "4.9.1 or later", "4.x")
        signs = ["lock"]
    elif separator is None or looks_like_3x(store):
        guess = "3.x (or a copy without its lock file)"
        signs = ["no lock file"]
    else:
        guess = _by_separator(
            separator, "4.0 to 4.2 (or a copy of up to 4.9.0 without its lock file)", "4.9.1 or later", "4.x"
        )
        signs = ["no lock file"]
    if separator is not None:
        signs = [*signs, "0x02 after the last property" if separator else "no 0x02 after the last property"]
    return {"guess": guess, "signs": signs, "profile": guess_profile(store).name}


def _guess_of_5(since: str, separator: bool | None) -> str:
    if since >= "5.4":
        return f"{since} or later"
    if since >= "5.3":
        return "5.3" if since == "5.3" else f"{since} to 5.3.4"
    ends = since == "5.2" or separator
    return _by_separator(ends, "5.2 or 5.3", f"{since} to 5.1.4", "5.x" if since == "5.0" else f"{since} to 5.3")


def _by_separator(separator: bool | None, with_it: str, without: str, unknown: str) -> str:
    if separator is None:
        return unknown
    return with_it if separator else without
