"""A whole store, read-only: its parts, and the broker's look-ups by offset, id, key, queue offset and time."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from rmqctl.errors import ChangedSince, Unreadable
from rmqctl.format import checkpoint, properties
from rmqctl.format.cq_unit import is_ext_address
from rmqctl.format.damage import Damage
from rmqctl.format.message import Message, tags_code
from rmqctl.logfile.mapped_file_queue import LINK_TEXT, MappedFileQueue
from rmqctl.logfile.storage import Kind, Stamp
from rmqctl.store import store_path
from rmqctl.store.commit_log import UNREADABLE, CommitLog, message_of
from rmqctl.store.config import TOPIC_TABLE, TOPICS_CONFIG, BrokerConf, ConfigFile, load_config, table
from rmqctl.store.consume_queue import BatchConsumeQueue, ConsumeQueue, UnitQueue
from rmqctl.store.consume_queue_ext import ConsumeQueueExt
from rmqctl.store.index_service import IndexService
from rmqctl.store.store_path import StorePath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.format.cq_unit import CqUnit

QueueKey = tuple[str, int]
Stamps = tuple[tuple[str, Stamp | None], ...]
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
QUEUE_ID_DIGITS_MAX = 10


class ReadOnlyStore:
    """The store at `root`, laid out as `conf` says or as its files show. Nothing here writes.

    Raises NotAStore, LayoutNotSupported or Unreadable. `foreign` collects what lies in its folders and does not belong there,
    `unreadable_folders` the names of topic and queue folders that cannot be listed.
    """

    def __init__(self, root: Path, conf: BrokerConf | None = None, *, follow_links: bool = False) -> None:
        self.conf = conf or BrokerConf()
        self.path = StorePath(root, self.conf, follow_links=follow_links)
        self.storage = self.path.storage
        self.foreign: list[Damage] = []
        self.unreadable_folders: set[str] = set()
        try:
            log_files = MappedFileQueue(self.storage, self.path.commitlogs, self.conf.commitlog_file_size)
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}", path=str(error.filename or root)) from error
        self.foreign += log_files.foreign
        self.foreign += self._top_level_problems()
        self.commit_log = CommitLog(log_files)
        self._configs: dict[str, ConfigFile] = {}

    @cached_property
    def queues(self) -> dict[QueueKey, UnitQueue]:
        """Every queue by (topic, queueId), found by listing folders: no path is ever made from a message's topic."""
        found: dict[QueueKey, UnitQueue] = {}
        for topic, queue_id, folder in self._queue_folders(store_path.CONSUMEQUEUE):
            found[topic, queue_id] = ConsumeQueue(topic, queue_id, self._files(folder, self.conf.consumequeue_file_size))
        for topic, queue_id, folder in self._queue_folders(store_path.BATCHCONSUMEQUEUE):
            if (topic, queue_id) not in found:
                found[topic, queue_id] = BatchConsumeQueue(topic, queue_id, self._files(folder, self.conf.batchconsumequeue_file_size))
        return found

    @cached_property
    def extensions(self) -> dict[QueueKey, ConsumeQueueExt]:
        """The extensions of queues that have one."""
        folders, size = self._queue_folders(store_path.CONSUMEQUEUE_EXT), self.conf.consumequeue_ext_file_size
        return {(topic, queue_id): ConsumeQueueExt(self._files(folder, size)) for topic, queue_id, folder in folders}

    @cached_property
    def index(self) -> IndexService:
        """The index files. Raises Unreadable."""
        folder = self.path.part(store_path.INDEX)
        try:
            index = IndexService(self.storage, folder, self.conf.index_slots)
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}", path=str(folder)) from error
        self.foreign += [self._not_ours(path, kind) for path, kind in index.foreign]
        return index

    def reopen_queue(self, key: QueueKey) -> None:
        """List the files of a queue again that someone fills meanwhile, or that is new. Raises OSError."""
        if key in self.queues:
            self.queues[key].queue.refresh()
        else:
            folder = self.path.part(store_path.CONSUMEQUEUE) / key[0] / str(key[1])
            self.queues[key] = ConsumeQueue(*key, self._files(folder, self.conf.consumequeue_file_size))

    def reopen_index(self) -> None:
        """List the index files again at the next look-up."""
        self.index.close()
        del self.index

    def checkpoint(self) -> checkpoint.Checkpoint | None:
        """The checkpoint; None when it is missing or too short. Raises OSError."""
        path = self.path.part(store_path.CHECKPOINT)
        if self.storage.entry(path).kind is not Kind.FILE:
            return None
        return checkpoint.decode(self.storage.read_file(path, checkpoint.CHECKPOINT_FILE_SIZE))

    def config(self, name: str) -> ConfigFile:
        """config/`name`, as a broker would load it."""
        if name not in self._configs:
            self._configs[name] = load_config(self.storage, self.path.part(store_path.CONFIG), name)
        return self._configs[name]

    @property
    def listed_topics(self) -> dict[str, Any]:
        """What config/topics.json says of each topic; empty without a good one."""
        return table(self.config(TOPICS_CONFIG), TOPIC_TABLE)

    @property
    def partly_read(self) -> bool:
        """Whether something that belongs to the store was not read: a link, a folder that is closed or not there."""
        return any(damage.code in UNREADABLE or damage.code == "log-missing" for damage in self.foreign)

    def stamps(self) -> Stamps:
        """Sizes and mtimes of what every broker's start changes: log, checkpoint, abort. Raises OSError."""
        known = [file.path for file in self.commit_log.queue.files]
        found = [entry.path for folder in self.path.commitlogs for entry in self.storage.listing(folder)]
        paths = dict.fromkeys((*known, *found, self.path.part(store_path.CHECKPOINT), self.path.part(store_path.ABORT)))
        return tuple((str(path), self.storage.stamp(path)) for path in paths)

    def check_as_it_was(self, stamps: Stamps) -> None:
        """Raises ChangedSince where these files are not any more as `stamps` says, OSError."""
        if self.stamps() != stamps:
            what = "the store was changed while it was looked at; nothing was changed by this"
            raise ChangedSince(what, path=str(self.path.root), hint="run it again")

    def lock_holder(self) -> int | None:
        """PID of the broker that has the store open on this host; None: nobody, or on another host."""
        try:
            return self.storage.lock_holder(self.path.part(store_path.LOCK))
        except OSError:  # a lock file that cannot be opened tells nothing
            return None

    def tags_code(self, message: Message) -> int:
        """The tagsCode of a message: hashCode of TAGS; of a scheduled one the delivery time that its unit has."""
        if message.topic == SCHEDULE_TOPIC:
            unit = self.unit(SCHEDULE_TOPIC, message.queue_id, message.queue_offset)
            if unit is not None and unit.physical_offset == message.physical_offset:
                return self._tags_code_of(unit, message)
        return tags_code(message.properties)

    def _tags_code_of(self, unit: CqUnit, message: Message) -> int:
        """Of a scheduled message's unit: the extension has it where the unit has an address."""
        if not is_ext_address(unit.tags_code):
            return unit.tags_code
        extension = self.extensions.get((message.topic, message.queue_id))
        found = extension.tags_code(unit.tags_code) if extension is not None else None
        return tags_code(message.properties) if found is None else found

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> CqUnit | None:
        """The unit of a queue offset; None when the queue or the unit is not there."""
        queue = self.queues.get((topic, queue_id))
        return queue.find(queue_offset) if queue else None

    def by_key(self, topic: str, key: str) -> Iterator[Message | Damage]:
        """The messages of `topic` that really have `key` among KEYS or as UNIQ_KEY, through the index, in log order.

        Where the index leads to bytes that hold no record any more, the Damage: it may have been such a message.
        """
        for offset in self.index.phy_offsets(topic, key):
            found = self.commit_log.at(offset)
            message = message_of(found)
            if message is not None and message.topic == topic and has_key(message, key):
                yield found if isinstance(found, Damage) else message
            elif isinstance(found, Damage) and message is None and offset >= self.commit_log.min_offset:
                yield found

    def by_time(self, queue: UnitQueue, time: int) -> CqUnit | None:
        """The first unit in a queue whose message was stored at `time` (ms) or later."""
        low = self.commit_log.min_offset

        def stored_then(unit: CqUnit) -> bool:
            message = self.commit_log.message_at(unit.physical_offset) if unit.physical_offset >= low else None
            return message is not None and message.store_timestamp >= time

        return queue.first_where(stored_then)

    def close(self) -> None:
        """Close every descriptor that a look-up opened."""
        self.commit_log.queue.close()
        opened = vars(self)  # a cached property is there once it was asked for
        for queue in [*opened.get("queues", {}).values(), *opened.get("extensions", {}).values()]:
            queue.queue.close()
        if "index" in opened:
            self.index.close()

    def _top_level_problems(self) -> list[Damage]:
        """Commit log folders that are not there, and links out of the store among the single files and config."""
        missing = [path for path in self.path.commitlogs if self.storage.entry(path).kind is Kind.MISSING]
        hint = "broker.conf's storePathCommitLog says where it is: give --broker-conf"
        told = [
            Damage("log-missing", 0, 0, f"there is no such commit log folder; {hint}", path=self.storage.display(path)) for path in missing
        ]
        parts = (store_path.CHECKPOINT, store_path.ABORT, store_path.LOCK, store_path.CONFIG)
        entries = [self.storage.entry(self.path.part(part)) for part in parts]
        return told + [self._not_ours(entry.path, entry.kind) for entry in entries if entry.kind is Kind.LINK_OUT]

    def _queue_folders(self, part: str) -> Iterator[tuple[str, int, Path]]:
        """(topic, queueId, folder) below one of the queue folders; everything else there goes to `foreign`."""
        root = self.path.part(part)
        for topic in self._folders(root):
            for queue in self._folders(topic):
                if queue.name.isdecimal() and len(queue.name) <= QUEUE_ID_DIGITS_MAX and str(int(queue.name)) == queue.name:
                    yield topic.name, int(queue.name), queue
                else:
                    self.foreign.append(self._not_ours(queue, Kind.DIRECTORY))

    def _folders(self, folder: Path) -> list[Path]:
        kind = self.storage.entry(folder).kind
        if kind is Kind.LINK_OUT:
            self.foreign.append(self._not_ours(folder, kind))
        try:
            entries = self.storage.listing(folder)
        except OSError as error:
            self.foreign.append(Damage("unreadable", 0, 0, f"cannot be read: {error.strerror}", path=self.storage.display(folder)))
            self.unreadable_folders.add(folder.name)
            return []
        self.foreign += [self._not_ours(entry.path, entry.kind) for entry in entries if entry.kind is not Kind.DIRECTORY]
        return [entry.path for entry in entries if entry.kind is Kind.DIRECTORY]

    def _files(self, folder: Path, configured: int | None = None) -> MappedFileQueue:
        try:
            files = MappedFileQueue(self.storage, [folder], configured)
        except OSError as error:
            self.foreign.append(Damage("unreadable", 0, 0, f"cannot be read: {error.strerror}", path=self.storage.display(folder)))
            return MappedFileQueue(self.storage, [])
        self.foreign += files.foreign
        return files

    def _not_ours(self, path: Path, kind: Kind) -> Damage:
        code = "link-not-followed" if kind is Kind.LINK_OUT else "foreign-file"
        what = LINK_TEXT if kind is Kind.LINK_OUT else f"{kind.value} that does not belong here"
        return Damage(code, 0, 0, what, path=self.storage.display(path))


def has_key(message: Message, key: str) -> bool:
    """Whether a message has `key` as one of its KEYS or as its UNIQ_KEY."""
    found = message.properties
    return found.get(properties.UNIQ_KEY) == key or key in properties.keys(found)
