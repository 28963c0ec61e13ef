"""Sort the files of a store by what they are for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.format.message import Damage
from rmqctl.logfile.system.disk_usage import usage_below
from rmqctl.store.config import store_path

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore

PARTS = ("commitlog", "consumequeue", "index", "config", "other")
_FOLDERS = {
    **dict.fromkeys((*store_path.QUEUE_PARTS, store_path.ROCKSDB_FOLDER), "consumequeue"),
    store_path.INDEX: "index",
    store_path.CONFIG: "config",
}
_TOPIC_DEPTH = 3  # consumequeue/TOPIC/QUEUE...


class StoreFiles:
    """The sizes of all files of a store.

    They are below its folder, and in log folders that broker.conf names elsewhere. `parts` has the bytes of each of
    PARTS, and `others` those of `other` by file or folder. What cannot be read is added to `foreign` of the store.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        self.parts: Counter[str] = Counter(dict.fromkeys(PARTS, 0))
        self.others: Counter[str] = Counter()
        self.allocated_parts, self.allocated_others = self.parts.copy(), Counter[str]()
        """The same, as space on the disk."""
        self.of_topics: Counter[str] = Counter()
        """The bytes of the queues in files, by topic."""
        self._store = store
        self._log = {str(file.path) for file in store.commit_log.queue.files}
        self._read()

    @property
    def bytes(self) -> int:
        """The length of all files."""
        return self.parts.total()

    def _read(self) -> None:
        path, storage = self._store.path, self._store.storage.of_disk
        known = [*path.commitlogs, *map(path.part, _FOLDERS), path.root]
        for file in usage_below(storage, known, self._unreadable):
            names = storage.display(file.path).split("/")
            part = "commitlog" if str(file.path) in self._log else _FOLDERS.get(names[0], "other")
            self.parts[part] += file.size
            self.allocated_parts[part] += file.allocated
            if part == "other":
                name = names[0] or str(file.path.parent)
                self.others[name] += file.size
                self.allocated_others[name] += file.allocated
            elif names[0] in store_path.QUEUE_PARTS and len(names) > _TOPIC_DEPTH:
                self.of_topics[names[1]] += file.size

    def _unreadable(self, error: OSError) -> None:
        path = str(error.filename or self._store.path.root)
        self._store.foreign.append(Damage("unreadable", 0, 0, f"cannot be read: {error.strerror}", path=path))
