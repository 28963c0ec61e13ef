"""Causes that lie around a store: a full disk, a broker.conf that does not fit."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.forensics.finding import Finding
from rmqctl.format import properties
from rmqctl.format.message import Message
from rmqctl.format.profile import number_of
from rmqctl.operations.clean.disk_use import disk_use, stops_writing
from rmqctl.store.config.broker_conf import SIZE_KEYS, BrokerConf, SizeKey, SizeLine
from rmqctl.store.config.clean_config import known_to
from rmqctl.store.config.file_sizes import conf_as_read, usual_size
from rmqctl.store.config.store_path import CONFIG, CONSUMEQUEUE
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.read.consumers.consumer_offsets import (
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    OFFSET_FILES,
    consumer_offsets,
)
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.store_file_sizes import is_long_enough
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.store.read.consumers.consumer_offsets import StoredOffset

LMQ_SINCE = 4, 9, 3
UNCOVERED = "no flipped bit in fields without a checksum (rmqctl-store(7))"


class WrongSize(NamedTuple):
    """A size in broker.conf, of a file or in slots, that no file has."""

    key: SizeKey
    name: str  # the key that the simulated version reads
    said_as: str  # the key that broker.conf has: `name`, or one that this version ignores
    line: SizeLine
    taken: int  # by the broker
    actual: int  # in `key.unit`
    files: int  # that have `actual`


class UnreadOffsets(NamedTuple):
    """Offsets of groups that only `source` has, and the broker reads `target`."""

    source: Path
    target: Path
    has_entries: bool  # `target` has offsets of others
    missing: tuple[StoredOffset, ...]


def audit_disk(store: ReadOnlyStore, profile: Profile) -> Iterator[Finding]:
    """Yield a finding if a broker takes no messages because a disk is full.

    The disk of a copy says nothing about the broker: it counts where a broker holds the store, or where broker.conf is
    given. Raises OSError.
    """
    if not store.conf.path and store.lock_holder() is None:
        return
    disks = [disk_use(store.storage, path, profile) for path in store.path.commitlogs]
    queues = disk_use(store.storage, store.path.part(CONSUMEQUEUE), profile)
    why = stops_writing(known_to(profile, store.conf.expiry), profile, disks, queues)
    if why:
        free = min((disk.size - disk.used for disk in (*disks, queues) if disk.size), default=0)
        folder = store.storage.display(store.path.commitlogs[0])
        yield Finding("disk-over-limit", folder, None, f"{why}; {max(free, 0)} bytes are free")


def fitting(store: ReadOnlyStore, version: str, wrong: Iterable[WrongSize]) -> ReadOnlyStore:
    """Return the store with the sizes that `version` reads.

    Where broker.conf is wrong, those of the files count; where it is right, this is `store` itself.
    """
    if store.path.log_only:
        return store
    actual: dict[str, Any] = {one.key.field: one.actual for one in wrong}
    conf = conf_as_read(store.conf, version)._replace(**actual)
    return store if conf == store.conf else ReadOnlyStore(store.path.root, conf, storage=store.storage)


def wrong_sizes(store: ReadOnlyStore, version: str) -> list[WrongSize]:
    """Return the wrong sizes of broker.conf, for a broker of `version`.

    A size is wrong if no file has it, and two files, or a key that the version ignores, agree on another one. One file
    is enough where the value is no number, and of the index, which says its own number of slots. Raises OSError.
    """
    found, lines = [], store.conf.size_lines
    read = conf_as_read(store.conf, version)
    for key in SIZE_KEYS:
        name = key.name(number_of(version))
        said_as = next((one for one in (name, key.old, key.new) if one in lines), None)
        taken: int | None = getattr(read, key.field)
        if said_as is None or taken is None:
            continue
        sizes = _sizes(store, key)
        actual, files = sizes.most_common(1)[0] if sizes else (0, 0)
        others = {line.size for one, line in lines.items() if one in (key.old, key.new)}
        # None: no number, so not the file is wrong; index files say their slots themselves
        is_certain = files > 1 or not {actual, None}.isdisjoint(others) or key.field == "index_slots"
        if actual and taken not in sizes and taken not in _distances(store, key) and is_certain:
            found.append(WrongSize(key, name, said_as, lines[said_as], taken, actual, files))
    return found


def _sizes(store: ReadOnlyStore, key: SizeKey) -> Counter[int]:
    """Return how many files have each size.

    The capacity of index files may change: brokers find what a file has, in a file that they made longer, too.
    """
    if key.field == "index_slots":
        settings = store.conf._replace(index_slots=None)  # the files themselves say how many slots they have
        with closing(ReadOnlyStore(store.path.root, settings, storage=store.storage)) as own:
            return Counter(file.slots for file in own.index.files if is_long_enough(file))
    if key.field == "commitlog_file_size":
        return Counter(file.size_on_disk for file in store.commit_log.queue.files)
    if key.field == "consumequeue_ext_file_size":
        extensions = store.extensions.values() if store.conf.consumequeue_ext_enabled else ()
        return Counter(file.size_on_disk for extension in extensions for file in extension.queue.files)
    is_batch = key.field == "batchconsumequeue_file_size"
    queues = (queue for queue in store.queues.values() if isinstance(queue, BatchConsumeQueue) == is_batch)
    return Counter(file.size_on_disk for queue in queues for file in queue.queue.files)


def _distances(store: ReadOnlyStore, key: SizeKey) -> set[int]:
    # files that were all cut still have names at the right distance
    if key.field != "commitlog_file_size":
        return set()
    bases = [file.file_from_offset for file in store.commit_log.queue.files]
    return {after - before for before, after in pairwise(bases)}


def unread_offsets(store: ReadOnlyStore, version: str) -> UnreadOffsets | None:
    """Return the group offsets that a broker with enableLmq does not read.

    None if it has them all in lmqConsumerOffset.json, or if `version` is before 4.9.3, which does not know enableLmq.
    """
    if not store.conf.enable_lmq or number_of(version) < LMQ_SINCE:
        return None
    both = consumer_offsets(store, OFFSET_FILES)
    read = {(one.owner, one.topic, one.queue_id) for one in both if one.source == LMQ_CONSUMER_OFFSET}
    missing = [
        one for one in both if one.source == CONSUMER_OFFSET and (one.owner, one.topic, one.queue_id) not in read
    ]
    folder = store.path.part(CONFIG)
    if not missing:
        return None
    return UnreadOffsets(folder / CONSUMER_OFFSET, folder / LMQ_CONSUMER_OFFSET, bool(read), tuple(missing))


def audit_offsets(unread: UnreadOffsets | None) -> Iterator[Finding]:
    """Yield a finding if a broker does not read the offsets of groups."""
    if unread is not None:
        groups = counted(len({one.owner for one in unread.missing}), "group")
        has = f"the broker reads this file (enableLmq), and not {CONSUMER_OFFSET}, which has"
        offsets = counted(len(unread.missing), "more offset")
        yield Finding("lmq-offsets-missing", f"{CONFIG}/{LMQ_CONSUMER_OFFSET}", None, f"{has} {offsets} of {groups}")


def assumptions(store: ReadOnlyStore, profile: Profile, asked: str | None, *, is_healthy: bool) -> list[str]:
    """Return what no option said, or nothing can show, and doctor assumes.

    `asked` is the version or profile that the user gave. Raises OSError.
    """
    found = []
    if not store.conf.path:
        found.append("the defaults of broker.conf (no --broker-conf)")
        log, key = store.commit_log.queue, SIZE_KEYS[0]
        if len(log.files) == 1 and log.file_size not in (0, usual_size(key)):
            found.append(f"{key.name(number_of(profile.version))}={log.file_size}, as long as the log's only file")
    else:
        found += _unsaid_sizes(store, profile.version)
    if asked in (None, profile.name):
        found.append(f"version {profile.version} (no --broker-version)")
    first = next((item for item in store.commit_log.scan() if isinstance(item, Message)), None) if is_healthy else None
    if first is not None and properties.CRC32 not in first.properties:
        found.append(UNCOVERED)
    return found


def _unsaid_sizes(store: ReadOnlyStore, version: str) -> Iterator[str]:
    for key in SIZE_KEYS:
        if store.conf.size_lines.keys() & {key.old, key.new}:
            continue
        sizes = _sizes(store, key)
        if sizes and usual_size(key) not in sizes:
            size = sizes.most_common(1)[0][0]
            yield f"{key.name(number_of(version))}={size}, which broker.conf does not set (default: {usual_size(key)})"


def audit_conf(conf: BrokerConf, version: str, wrong: Iterable[WrongSize]) -> Iterator[Finding]:
    """Yield a finding for each wrong size in broker.conf."""
    for one in wrong:
        have = f"{one.files} files have" if one.files > 1 else "the file has"
        said = f"line {one.line.first}: {one.said_as}={conf.ignored.get(one.said_as, one.line.size)}"
        if one.said_as in conf.ignored:
            said += f" is no number: brokers ignore it, and take their default, {one.taken}"
        elif one.said_as != one.name:
            said += f" is ignored by {version}, which reads {one.name} and takes its default, {one.taken}"
        yield Finding("conf-size", conf.path, None, f"{said}; {have} {one.actual} {one.key.unit}")
