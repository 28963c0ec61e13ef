"""The folders of a store, what does not belong there, and what cannot be read."""

from __future__ import annotations

from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.format.message import Damage
from rmqctl.logfile.mapped_file_queue import LINK_TEXT, MappedFileQueue
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config import store_path
from rmqctl.store.config.store_path import Layout, is_rocksdb_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.logfile.system.plain_folders import PlainFile
    from rmqctl.store.config.store_path import StorePath

QUEUE_ID_DIGITS_MAX = 10


class StoreFolders:
    """The folders of the store at `path`.

    `foreign` gets what does not belong there, or cannot be read.
    """

    def __init__(self, path: StorePath, foreign: list[Damage]) -> None:
        self.path, self.storage, self.foreign = path, path.storage, foreign
        self._unread: set[tuple[str, ...]] = set()  # folders whose queues may be lacking
        self._topic_names: dict[str, dict[str, None]] = {}  # by queue folder, in the order of the names

    def is_unread(self, part: str, topic: str, queue_id: int | None) -> bool:
        """Return whether a queue, or any of a topic, may be in an unread folder."""
        if (part,) in self._unread or (part, topic) in self._unread:
            return True
        if queue_id is None:
            return any(unread[:2] == (part, topic) for unread in self._unread)
        return (part, topic, str(queue_id)) in self._unread

    def top_level_problems(self, *, has_log_paths: bool) -> list[Damage]:
        """Return the problems in the store's top folder.

        `has_log_paths`: broker.conf names the folders of the log.
        These are a commit log folder that does not exist, a link out of the store, a folder in place of a file such as
        the checkpoint, and a file in place of the folder config.
        """
        missing = [path for path in self.path.commitlogs if self.storage.entry(path).kind is Kind.MISSING]
        hint = "broker.conf's storePathCommitLog says where it is: give --broker-conf"
        own = self.path.part(store_path.COMMITLOG)
        if missing and has_log_paths and self.storage.entry(own).kind is Kind.DIRECTORY:
            hint = "that of this store exists: leave out --broker-conf, or storePathCommitLog in a copy of it"
        told = [
            Damage("log-missing", 0, 0, f"there is no such commit log folder; {hint}", path=self.storage.display(path))
            for path in missing
        ]
        kinds = dict.fromkeys(store_path.SINGLE_FILES, Kind.FILE) | {store_path.CONFIG: Kind.DIRECTORY}
        entries = [(self.storage.entry(self.path.part(part)), kind) for part, kind in kinds.items()]
        links = [(path, Kind.LINK_OUT) for path in self.path.linked_parts]
        if (self.path.part(store_path.ROCKSDB_FOLDER), Kind.LINK_OUT) in links:
            self._leave_unread(self.path.part(store_path.CONSUMEQUEUE))
        others = [(entry.path, entry.kind) for entry, kind in entries if entry.kind not in (kind, Kind.MISSING)]
        return told + [self.not_ours(*pair) for pair in (*others, *links)]

    def topics_in(self, part: str) -> dict[str, None]:
        """Return the names of the folders in a part, such as consumequeue."""
        if part not in self._topic_names:
            self._topic_names[part] = dict.fromkeys(self._folder_names(str(self.path.part(part))))
        return self._topic_names[part]

    def files_of(self, part: str, topic: str, configured: int | None) -> Iterator[tuple[int, MappedFileQueue]]:
        """Yield the queueIds of a topic with their files, of `configured` bytes each."""
        if topic not in self.topics_in(part):
            return
        folder = f"{self.path.part(part)}/{topic}"
        names = self._folder_names(folder)
        are_queues = [_is_queue_id(name) for name in names]
        plain = self.storage.plain_folders(folder, [*compress(names, are_queues)])
        for name, is_queue in zip(names, are_queues, strict=True):
            if not is_queue:
                self.foreign.append(self.not_ours(Path(folder, name), Kind.DIRECTORY))
                continue
            files = self.files(f"{folder}/{name}", configured, next(plain))
            if files is not None:
                yield int(name), files

    def _folder_names(self, text: str) -> list[str]:
        """Add all other entries of the folder to `foreign`."""
        try:
            entries = self.storage.kinds(text)
            is_link_out = not entries and self.storage.entry(Path(text)).kind is Kind.LINK_OUT
        except OSError as error:
            self.cannot_be_read(Path(text), error)
            return []
        if is_link_out:
            self.foreign.append(self.not_ours(Path(text), Kind.LINK_OUT))
            self._leave_unread(Path(text))
        in_rocksdb = self.path.layout in (Layout.COMBINED, Layout.ROCKSDB) and text == str(
            self.path.part(store_path.CONSUMEQUEUE)
        )
        a_folder = Kind.DIRECTORY  # looked up once: a store may have 200,000 queues
        for name, kind in [pair for pair in entries if pair[1] is not a_folder]:
            if in_rocksdb and kind is Kind.FILE and is_rocksdb_name(name):
                continue
            self.foreign.append(self.not_ours(Path(text, name), kind))
            if kind is Kind.LINK_OUT:
                self._leave_unread(Path(text, name))
        return [name for name, kind in entries if kind is a_folder]

    def files(
        self, folder: str, configured: int | None = None, plain: list[PlainFile] | None = None
    ) -> MappedFileQueue | None:
        """Return the files of a queue, or None if the folder cannot be read.

        `plain` is as in MappedFileQueue.
        """
        try:
            files = MappedFileQueue(self.storage, [folder], configured, plain)
        except OSError as error:
            self.cannot_be_read(Path(folder), error)
            return None
        self.foreign += files.foreign
        return files

    def cannot_be_read(self, folder: Path, error: OSError) -> None:
        """Note that a folder cannot be read."""
        path = self.storage.display(folder)
        self.foreign.append(Damage("unreadable", 0, 0, f"cannot be read: {error.strerror}", path=path))
        self._leave_unread(folder)

    def _leave_unread(self, folder: Path) -> None:
        self._unread.add(folder.relative_to(self.path.root).parts)

    def not_ours(self, path: Path, kind: Kind) -> Damage:
        """Return what to say of a file or folder that does not belong where it is."""
        code = "link-not-followed" if kind is Kind.LINK_OUT else "foreign-file"
        what = LINK_TEXT if kind is Kind.LINK_OUT else f"{kind.value} that does not belong here"
        return Damage(code, 0, 0, what, path=self.storage.display(path))


def _is_queue_id(name: str) -> bool:
    return name.isdecimal() and len(name) <= QUEUE_ID_DIGITS_MAX and str(int(name)) == name
