"""A message store that is open only for reading, with a broker's look-ups.

A look-up finds a message by physical offset, id, key, queue offset or time.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest, ChangedSince, LayoutNotSupported, Unreadable
from rmqctl.format import checkpoint, properties
from rmqctl.format.cq_unit import is_ext_address
from rmqctl.format.message import Damage, Message, tags_code
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.storage import Kind, Stamp
from rmqctl.store.config import store_path
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.config_file import TOPIC_TABLE, TOPICS_CONFIG, ConfigFile, load_config, table
from rmqctl.store.config.store_path import Layout, StorePath
from rmqctl.store.config.topics import SCHEDULE_TOPIC, QueueKey
from rmqctl.store.read.clock import ClockFall, LogClock, first_stored_at
from rmqctl.store.read.commit_log import UNREADABLE, CommitLog, message_of
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue, UnitQueue
from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
from rmqctl.store.read.index.index_database import index_in_database
from rmqctl.store.read.index.index_service import IndexService
from rmqctl.store.read.index.tag_index import tags_are_indexed
from rmqctl.store.read.store_folders import StoreFolders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.logfile.system.storage import Storage

Fingerprint = tuple[tuple[str, Stamp | None], ...]


class ReadOnlyStore:
    """The message store in the folder `root`, read through `storage`.

    What `conf` does not set is found from the store's files. If `storage` is None, the files in `root` are read
    directly. No method writes to the store. `foreign` has a Damage for each foreign or unreadable file or folder.

    If the queues are only in RocksDB, `queues` is empty. Without `log_only` (for callers that read only the log),
    LayoutNotSupported is raised for such queues. Raises NotAStore or Unreadable.
    """

    def __init__(
        self,
        root: Path,
        conf: BrokerConf | None = None,
        *,
        follow_links: bool = False,
        log_only: bool = False,
        storage: Storage | None = None,
    ) -> None:
        self.conf = conf or BrokerConf()
        self.opened_at = time.time_ns() // 1_000_000  # ms
        self.opened_again = partial(ReadOnlyStore, root, conf, follow_links=follow_links, log_only=log_only)
        self.path = StorePath(root, self.conf, follow_links=follow_links, log_only=log_only, storage=storage)
        self.storage = self.path.storage
        self.foreign: list[Damage] = []
        self.conflicting_queues: list[QueueKey] = []  # batch queues of a topic that also has consume queues
        self.folders = StoreFolders(self.path, self.foreign)
        try:
            log_files = MappedFileQueue(self.storage, self.path.commitlogs, self.conf.commitlog_file_size)
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}", path=str(error.filename or root)) from error
        self.foreign += log_files.foreign
        self.foreign += self.folders.top_level_problems(has_log_paths=bool(self.conf.commitlog_paths))
        self.commit_log = CommitLog(log_files, self.path.entries_in)
        self._configs: dict[str, ConfigFile] = {}
        self._topic_queues: dict[str, dict[QueueKey, UnitQueue]] = {}

    @cached_property
    def queues(self) -> dict[QueueKey, UnitQueue]:
        """Return all readable consume queues, by (topic, queueId).

        As in a broker, all consume queues come before the batch consume queues. They are found by listing folders:
        topic names in messages are never used in paths.
        """
        plain_topics = self.folders.topics_in(store_path.CONSUMEQUEUE)  # first, as its findings come first
        batch_topics = self.folders.topics_in(store_path.BATCHCONSUMEQUEUE)
        found: dict[QueueKey, UnitQueue] = {}
        for topic in (*plain_topics, *batch_topics):
            found.update(self.topic_queues(topic))
        if not batch_topics:
            return found
        return dict(sorted(found.items(), key=lambda item: isinstance(item[1], BatchConsumeQueue)))

    def topic_queues(self, topic: str) -> dict[QueueKey, UnitQueue]:
        """Return the readable consume queues of one topic, by (topic, queueId).

        Only the topic's folders are listed, and only by the first call.
        """
        if topic not in self._topic_queues:
            found = self.folders.files_of(store_path.CONSUMEQUEUE, topic, self.conf.consumequeue_file_size)
            plain = {(topic, queue_id): ConsumeQueue(topic, queue_id, files) for queue_id, files in found}
            found = self.folders.files_of(store_path.BATCHCONSUMEQUEUE, topic, self.conf.batchconsumequeue_file_size)
            batch = {(topic, queue_id): BatchConsumeQueue(topic, queue_id, files) for queue_id, files in found}
            self.conflicting_queues += batch if plain else ()
            self._topic_queues[topic] = {**batch, **plain}
        return self._topic_queues[topic]

    @property
    def allocated(self) -> int:
        """Return how many bytes log, queues and index have on the disk.

        Raises Unreadable.
        """
        queues = sum(queue.queue.allocated for queue in self.queues.values())
        return self.commit_log.queue.allocated + queues + self.index.allocated

    def queue(self, topic: str, queue_id: int) -> UnitQueue | None:
        """Return one consume queue, or None if it does not exist or cannot be read.

        Only the folders of the topic are listed.
        """
        return self.topic_queues(topic).get((topic, queue_id))

    @property
    def queue_topics(self) -> set[str]:
        """Return the topics that have a folder for their queues, even without a queue."""
        return {*self.folders.topics_in(store_path.CONSUMEQUEUE), *self.folders.topics_in(store_path.BATCHCONSUMEQUEUE)}

    def check_size_of_conf(self) -> None:
        """Raise BadRequest if the log files contradict the file size of broker.conf.

        That takes at least two log files, all of one size and without a gap between them.
        """
        said, files = self.conf.commitlog_file_size, self.commit_log.queue.files
        sizes = {file.size_on_disk for file in files} | {
            behind.file_from_offset - file.file_from_offset for file, behind in pairwise(files)
        }
        if said is not None and len(files) > 1 and len(sizes) == 1 and said not in sizes:
            what = (
                f"broker.conf says mappedFileSizeCommitLog={said}, but all {len(files)} files of the log have "
                f"{sizes.pop()} bytes"
            )
            raise BadRequest(what, path=str(self.path.root), hint="check that this is the broker.conf of this store")

    def check_one_queue_type(self) -> None:
        """Raise LayoutNotSupported if a topic has queues in both queue folders.

        These are consumequeue and batchconsumequeue; only the owner of the store can decide which has the right queues.
        """
        if not self.queues or not self.conflicting_queues:
            return
        topic = self.conflicting_queues[0][0]
        both = f"{store_path.CONSUMEQUEUE}/ and {store_path.BATCHCONSUMEQUEUE}/"
        hint = (
            f"move away those of the type that queue.type in config/{TOPICS_CONFIG} does not name (no queue.type: "
            "the batch queues)"
        )
        raise LayoutNotSupported(
            f"topic {topic} has queues in both {both}: no broker of 5.x starts", path=str(self.path.root), hint=hint
        )

    @cached_property
    def extensions(self) -> dict[QueueKey, ConsumeQueueExt]:
        """Return all readable consume queue extensions, by (topic, queueId)."""
        part, size = store_path.CONSUMEQUEUE_EXT, self.conf.consumequeue_ext_file_size
        return {
            (topic, queue_id): ConsumeQueueExt(files)
            for topic in self.folders.topics_in(part)
            for queue_id, files in self.folders.files_of(part, topic, size)
        }

    def is_unread(self, topic: str, queue_id: int | None = None) -> bool:
        """Return whether the store may have a queue that could not be read.

        That is so if its folder, or one above it, could not be listed; a link out of the store counts as such a folder.
        Without `queue_id`, it may be any queue of the topic.
        """
        known = self.topic_queues(topic) if queue_id is None else self.queue(topic, queue_id)
        if queue_id is not None and known is not None:
            return False
        return any(
            self.folders.is_unread(part, topic, queue_id)
            for part in (store_path.CONSUMEQUEUE, store_path.BATCHCONSUMEQUEUE)
        )

    def is_extension_unread(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue may have an extension that could not be read."""
        return (topic, queue_id) not in self.extensions and self.folders.is_unread(
            store_path.CONSUMEQUEUE_EXT, topic, queue_id
        )

    @cached_property
    def index(self) -> IndexService:
        """Return the index of the store. Raises Unreadable."""
        folder = self.path.part(store_path.INDEX)
        try:
            index = IndexService(self.storage, folder, self.conf.index_slots)
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}", path=str(folder)) from error
        self.foreign += [self.folders.not_ours(path, kind) for path, kind in index.foreign]
        try:
            index.database = index_in_database(self.path, self.conf, has_files=bool(index.files))
        except OSError as error:
            self.folders.cannot_be_read(self.path.part(store_path.SIGN_OF_5_4), error)
        return index

    @cached_property
    def tags_are_indexed(self) -> bool | None:
        """Return whether the index has entries for TAGS; None if a sample is no answer.

        Only the first call examines the index. Raises Unreadable.
        """
        return tags_are_indexed(self)

    def reopen_queue(self, key: QueueKey) -> None:
        """List the files of a queue again.

        Needed if the queue is new, or if another program writes to it. Raises OSError.
        """
        queue = self.queue(*key)
        if queue is not None:
            queue.queue.refresh()
            return
        folder = self.path.part(store_path.CONSUMEQUEUE) / key[0] / str(key[1])
        files = self.folders.files(str(folder), self.conf.consumequeue_file_size)
        if files is not None:
            self.topic_queues(key[0])[key] = self.queues[key] = ConsumeQueue(*key, files)

    def reopen_index(self) -> None:
        """Close the index files; the next look-up lists the files again."""
        self.index.close()
        del self.index

    def checkpoint(self) -> checkpoint.Checkpoint | None:
        """Return the content of the checkpoint file, or None.

        None if it does not exist or is too short. Raises OSError.
        """
        path = self.path.part(store_path.CHECKPOINT)
        if self.storage.entry(path).kind is not Kind.FILE:
            return None
        return checkpoint.decode(self.storage.read_start(path, checkpoint.CHECKPOINT_FILE_SIZE))

    def config(self, name: str) -> ConfigFile:
        """Load config/`name` as a broker does, once.

        If the broker reads a database that is not read here, the content is None.
        """
        if name not in self._configs:
            folder, why = self.path.part(store_path.CONFIG), self.path.unread_config(name)
            found = ConfigFile(name, folder / name, None, why) if why else load_config(self.storage, folder, name)
            self._configs[name] = found
        return self._configs[name]

    @property
    def lacks_config(self) -> bool:
        """Return whether topics, groups or offsets were asked for, and not read."""
        return any(map(self.path.unread_config, self._configs))

    @property
    def listed_topics(self) -> dict[str, Any]:
        """Return the entries of topics.json by topic; none if it is missing or not valid."""
        return table(self.config(TOPICS_CONFIG), TOPIC_TABLE)

    def list_all(self) -> None:
        """List the folders of all queues and extensions.

        `foreign` gets a Damage for each unreadable or unknown file or folder.
        """
        _ = self.queues, self.extensions

    @property
    def partly_read(self) -> bool:
        """Return whether a part of the store is missing or could not be read.

        Examples: a link that is not followed, a commit log folder that does not exist, a database without the extra.
        """
        is_lacking = self.has_unreadable or self.lacks_config
        return is_lacking or any(damage.code == "log-missing" for damage in self.foreign)

    def check_database(self) -> None:
        """Read all queues in RocksDB, before they are listed.

        If the database is damaged, no queue is shown, and `foreign` says why.
        """
        if self.path.queue_database is not None:
            self.path.queue_database.read_all()

    @property
    def behind_of_database(self) -> int:
        """Return how many bytes of the log the queues in RocksDB do not have yet."""
        if self.path.layout is not Layout.ROCKSDB or not self.path.reads_queues or self.path.is_queue_database_linked:
            return 0
        database = self.path.queue_database
        with suppress(OSError):  # what lists the queues says that it is damaged
            done = max(database.dispatched_end if database else 0, self.commit_log.min_offset)
            return max(self.commit_log.end()[0] - done, 0)
        return 0

    @property
    def is_only_database_unreadable(self) -> bool:
        """Return whether all that could not be read is the database of the queues."""
        unread = {(damage.code, damage.path) for damage in self.foreign if damage.code in (*UNREADABLE, "log-missing")}
        return self.path.layout is Layout.ROCKSDB and unread == {("unreadable", store_path.CONSUMEQUEUE)}

    @property
    def has_unreadable(self) -> bool:
        """Return whether a part of the store could not be read."""
        return any(damage.code in UNREADABLE for damage in self.foreign)

    def fingerprint(self) -> Fingerprint:
        """Return the state of the files that each start of a broker changes.

        These are the log files, the checkpoint and the abort file, each with size, mtime, mode, owner and device.
        Raises OSError.
        """
        known = [file.path for file in self.commit_log.queue.files]
        found = [entry.path for folder in self.path.commitlogs for entry in self.storage.listing(folder)]
        paths = dict.fromkeys((*known, *found, self.path.part(store_path.CHECKPOINT), self.path.part(store_path.ABORT)))
        return tuple((str(path), self.storage.stamp(path)) for path in paths)

    def check_as_it_was(self, fingerprint: Fingerprint) -> None:
        """Raise ChangedSince if the store's files differ from `fingerprint`.

        Raises OSError if a file cannot be examined.
        """
        if self.fingerprint() != fingerprint:
            what = "the store was changed while it was looked at; nothing was changed by this"
            raise ChangedSince(what, path=str(self.path.root), hint="run it again")

    def lock_holder(self) -> int | None:
        """Return the PID of the broker that has the store open on this host, or None.

        None also if the broker runs on another host, or if the lock file cannot be opened.
        """
        try:
            return self.storage.lock_holder(self.path.part(store_path.LOCK))
        except OSError:  # a lock file that cannot be opened does not show a holder
            return None

    def tags_code(self, message: Message) -> int:
        """Return the tagsCode of a message, usually the hashCode of TAGS.

        That of a scheduled message is the delivery time in its unit. If no unit points to it, it is the hashCode of
        TAGS.
        """
        unit = self.unit_of(message) if message.topic == SCHEDULE_TOPIC else None
        if unit is not None:
            return self._tags_code_of(unit, message)
        return tags_code(message.properties)

    def _tags_code_of(self, unit: CqUnit, message: Message) -> int:
        """Return the hashCode of TAGS if the extension has no unit at the address."""
        if not is_ext_address(unit.tags_code):
            return unit.tags_code
        extension = self.extensions.get((message.topic, message.queue_id))
        found = extension.tags_code(unit.tags_code) if extension is not None else None
        return tags_code(message.properties) if found is None else found

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> CqUnit | None:
        """Return the unit at a queue offset of a consume queue, or None."""
        queue = self.queue(topic, queue_id)
        return queue.find(queue_offset) if queue else None

    def unit_of(self, message: Message) -> CqUnit | None:
        """Return the unit that leads to a message at its queue offset, or None."""
        unit = self.unit(message.topic, message.queue_id, message.queue_offset)
        return unit if unit is not None and unit.physical_offset == message.physical_offset else None

    def message_in_its_place(self, damage: Damage) -> Message | None:
        """Return the message that belongs in a damaged place, or None.

        Its PHYSICALOFFSET shows that it does, or its unit, or an entry of the index. Brokers do not check
        PHYSICALOFFSET: they serve what units and entries lead to.
        """
        found = damage.message_in_its_place
        if found is None and damage.message is not None:
            with suppress(OSError, Unreadable):  # the audit of the queue, or of the index, reports it
                found = damage.message if self._is_led_to(damage.message) else None
        return found

    def _is_led_to(self, message: Message) -> bool:
        keys = (message.properties.get(properties.UNIQ_KEY, ""), *properties.keys(message.properties))
        return self.unit_of(message) is not None or self.index.leads_to(message.physical_offset, message.topic, keys)

    def by_key(self, topic: str, key: str) -> Iterator[Message | Damage]:
        """Yield the messages of `topic` whose UNIQ_KEY or one of KEYS is `key`.

        They are found by the index, and come in log order. A damaged message is yielded as its Damage; so is damage
        without a readable record to which the index points, because the lost record may have had the key.
        """
        for offset in self.index.phy_offsets(topic, key):
            found = self.commit_log.at(offset)
            message = message_of(found)
            if message is not None and message.topic == topic and has_key(message, key):
                yield found if isinstance(found, Damage) else message
            elif isinstance(found, Damage) and message is None and offset >= self.commit_log.min_offset:
                yield found

    def by_time(self, queue: UnitQueue, time: int) -> CqUnit | None:
        """Return a queue's first unit whose message was stored at `time` (ms) or later.

        The store time is read from the message in the log. None if there is no such message.
        """
        return first_stored_at(self.commit_log, self.falls_before_end(queue), queue, time)

    def falls_before_end(self, queue: UnitQueue) -> tuple[ClockFall, ...]:
        """Return where the broker's clock went back, up to the end of a queue."""
        last = queue.last()
        return self._clock.falls_until(None if last is None else self.commit_log.message_at(last.physical_offset))

    @cached_property
    def _clock(self) -> LogClock:
        return LogClock(self.commit_log)

    def close(self) -> None:
        """Close every descriptor that a look-up opened."""
        self.commit_log.queue.close()
        opened = vars(self)  # has a cached property only after its first use
        queues = [queue for of_topic in self._topic_queues.values() for queue in of_topic.values()]
        for queue in (*queues, *opened.get("extensions", {}).values()):
            queue.queue.close()
        if "index" in opened:
            self.index.close()


def has_key(message: Message, key: str) -> bool:
    """Return whether `key` is the UNIQ_KEY of a message, or one of its KEYS."""
    found = message.properties
    return found.get(properties.UNIQ_KEY) == key or key in properties.keys(found)
