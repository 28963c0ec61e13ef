"""The queues of a store, found without topics.json.

They are found by the names of folders, the offsets of groups, and the messages of the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.kernels import dispatch_scan, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

COMPACTION_LOG = "compaction/compactionLog"  # a folder for each compaction topic (5.x)


@dataclass(frozen=True)
class NamesInStore:
    """The queues and topics that were found in a store."""

    queues: frozenset[QueueKey]
    folders: frozenset[QueueKey]  # queues that have a folder
    batch_topics: frozenset[str]  # with batch consume queues
    compaction_topics: frozenset[str]  # that a broker compacts


def prepare_scan(store: ReadOnlyStore) -> None:
    """Compile or load the kernels that `queues_in_log` needs."""
    warm_up(scan, dispatch_scan, size=store.commit_log.queue.allocated)


def queues_in_log(store: ReadOnlyStore, threads: int) -> list[QueueKey]:
    """Return the queues of all messages of the log. Raises OSError."""
    builder = DispatchRequestBuilder(with_keys=False)
    for _ in builder.scan(store.commit_log, threads=threads):
        pass  # the builder numbers the queues that it sees
    return builder.keys


def names_in_store(store: ReadOnlyStore, in_log: Iterable[QueueKey]) -> NamesInStore:
    """Return the queues of a store, including the queues `in_log`.

    Names that no topic can have are left out: a damaged record may have any. Raises LayoutNotSupported if a topic has
    both consume queues and batch consume queues, Unreadable if a folder or a file of the log cannot be read, and
    OSError.
    """
    store.check_one_queue_type()
    folders = frozenset(key for key in store.queues if is_topic_name(key[0]))
    batch = frozenset(key[0] for key in folders if isinstance(store.queues[key], BatchConsumeQueue))
    offsets = [(stored.topic, stored.queue_id) for stored in consumer_offsets(store)]
    named = frozenset(key for key in (*offsets, *in_log) if is_topic_name(key[0]) and key[1] >= 0)
    if store.partly_read:
        raise Unreadable("a part of the store cannot be read, so topics may be missing", path=str(store.path.root))
    return NamesInStore(folders | named, folders, batch, _compaction_topics(store))


def is_topic_name(name: str) -> bool:
    """Return whether a topic can have this name."""
    return len(name) > 0 and all("!" <= letter <= "~" for letter in name) and not set('"/@\\') & set(name)


def _compaction_topics(store: ReadOnlyStore) -> frozenset[str]:
    folder = store.path.part(COMPACTION_LOG)
    if store.storage.entry(folder).kind is not Kind.DIRECTORY:
        return frozenset()
    return frozenset(entry.name for entry in store.storage.listing(folder) if entry.kind is Kind.DIRECTORY)
