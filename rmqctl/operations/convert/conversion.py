"""Writes a store anew for another broker; the source is only read.

The log gets ordinary files of the size that the broker reads (`RelaidLog`), the queues become files with the same
units, led to where the records are now, the configuration becomes the JSON files of what the source's broker reads, and
the index is built anew by the rules of the version. So queue offsets and the positions of groups stay. Queues in
RocksDB are not written: `abort`, a missing checkpoint and the LOCK of a database that is gone let the broker's first
start fill it.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.errors import BadRequest
from rmqctl.forensics.preflight.option_names import is_known
from rmqctl.forensics.preflight.view import OF_ROCKSDB
from rmqctl.format.checkpoint import CHECKPOINT, CHECKPOINT_FILE_SIZE, Checkpoint
from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_UNIT, PRE_BLANK_SIZE
from rmqctl.format.profile import number_of, profile_of, start_rules
from rmqctl.logfile.file_tree import remove
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.convert.relaid_log import RelaidLog
from rmqctl.operations.plan import RebuildTimers
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.operations.rebuild.timer_files import timer_changes, timer_step
from rmqctl.store.config import store_path
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.config_file import BACKUP_SUFFIX, TIMER_CHECK
from rmqctl.store.config.file_sizes import TIMER_LOG_FILE_SIZE, conf_as_read, geometry_of_conf
from rmqctl.store.engine.new_store import named_when_complete, unfinished
from rmqctl.store.engine.opening import leave_signs
from rmqctl.store.journal.changes import Install
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.read.consumers.timer_check import has_timer
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.store_file_sizes import geometry_of_store
from rmqctl.store.timer.timer_start import log_file_size
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Entry, Storage
    from rmqctl.store.read.consume_queue import UnitQueue

STAGING = "converting"  # below the new store
BLOCK_UNITS = 51_200
SMALL_FILE_MAX = 256 * 1024 * 1024
COPY_BYTES = 4 * 1024 * 1024
# parts that are copied as they are, and the option of broker.conf that tells which versions know them
PARTS = {
    store_path.CONSUMEQUEUE_EXT: "enableConsumeQueueExt",
    store_path.COMPACTION: "enableCompaction",
    store_path.KV_FOLDER: "popConsumerKVServiceEnable",
    store_path.BROKER_IDENTITY: "enableControllerMode",
    **{f"{store_path.CONFIG}/{name}": "authConfigPath" for name in store_path.AUTH_DATABASES},
}
# the same, of parts that lead to places in the log
LEADING = {
    store_path.SIGN_OF_5_4: "indexRocksDBEnable",
    store_path.EPOCH_FILE: "enableControllerMode",
}
TIMER_OPTION = "timerWheelEnable"


class Conversion(NamedTuple):
    """What was written, and what of the source could not be kept."""

    messages: int
    not_kept: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result for a JSON document."""
        return {"messages": self.messages, "notKept": list(self.not_kept)}


class Converter:
    """Writes `source` to the folder `root` for a broker of `version` with `conf`.

    Without a broker.conf, files keep their sizes. Methods raise OSError.
    """

    def __init__(self, source: ReadOnlyStore, root: Path, version: str, conf: BrokerConf) -> None:
        self._source = source
        self._final, self._root = root, unfinished(root)
        self._version = version
        self._conf = conf_as_read(conf, version)
        self._storage = WritableStorage(self._root)
        self.geometry = geometry_of_conf(self._conf) if conf.path else geometry_of_store(source)
        self._in_rocksdb = conf.queues_in_rocksdb and is_known(OF_ROCKSDB, version)
        timer_size = self._conf.timer_log_file_size or (TIMER_LOG_FILE_SIZE if conf.path else log_file_size(source))
        self._log = RelaidLog(source, self._storage, self.geometry.commitlog_file_size)
        self._keeps_timers = self._log.stays and timer_size == log_file_size(source)

    def run(self, threads: int) -> Conversion:
        """Write the store.

        Raises BadRequest if the folder is not empty, or a size does not fit, and NeedsRecovery if the log is damaged.
        """
        ext_size = geometry_of_store(self._source).consumequeue_ext_file_size
        if self._source.extensions and self.geometry.consumequeue_ext_file_size != ext_size:
            what = "files of consumequeue_ext keep their size: units lead into them"
            raise BadRequest(what, path=self._conf.path, hint=f"set mappedFileSizeConsumeQueueExt={ext_size}")
        with named_when_complete(self._final):
            leave_signs(self._storage, self._root, profile_of(self._version))
            for name in (store_path.COMMITLOG, store_path.CONSUMEQUEUE, store_path.INDEX, store_path.CONFIG):
                self._storage.make_folder(self._root / name)
            self._log.write(threads)
            self._write_queues()
            self._copy_parts()
            self._write_state()
            self._build(threads)
        return Conversion(self._log.messages, tuple(self._not_kept()))

    def _write_queues(self) -> None:
        for (topic, queue_id), queue in sorted(self._source.queues.items()) if not self._in_rocksdb else ():
            is_batch = isinstance(queue, BatchConsumeQueue)
            part = store_path.BATCHCONSUMEQUEUE if is_batch else store_path.CONSUMEQUEUE
            unit_size = BATCH_CQ_UNIT.size if is_batch else CQ_UNIT.size
            size = self.geometry.batchconsumequeue_file_size if is_batch else self.geometry.consumequeue_file_size
            folder, descriptor, base = self._root / part / topic / str(queue_id), None, -1
            for position, data in self._units(queue, unit_size, size):
                if descriptor is None or position >= base + size:
                    if descriptor is not None:
                        self._storage.close(descriptor)
                    base = position // size * size
                    descriptor = self._storage.create(folder / f"{base:020d}", size)
                self._storage.write(descriptor, position - base, data)
            if descriptor is not None:
                self._storage.close(descriptor)
            queue.queue.close()

    def _units(self, queue: UnitQueue, unit_size: int, file_size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the units of a queue with their positions, in blocks within one new file."""
        files, end = queue.queue.files, queue.used_end
        begin = files[0].file_from_offset if files else 0
        if begin % file_size and end > begin:
            if isinstance(queue, BatchConsumeQueue):
                what = f"batch queue {queue.topic}/{queue.queue_id} begins at {begin}: files of {file_size} bytes"
                raise BadRequest(f"{what} cannot begin there", hint="keep mapperFileSizeBatchConsumeQueue")
            blank = CQ_UNIT.struct.pack(0, PRE_BLANK_SIZE, 0)
            yield begin // file_size * file_size, blank * (begin % file_size // unit_size)
        for file in files:
            position, stop = file.file_from_offset, min(file.end, end)
            while position < stop:
                behind = min(stop, position // file_size * file_size + file_size, position + BLOCK_UNITS * unit_size)
                raw = bytearray(file.read_exact(position - file.file_from_offset, behind - position))
                if not self._log.stays:
                    heads = np.frombuffer(raw, np.uint8).reshape(-1, unit_size)[:, :8]
                    offsets = np.ascontiguousarray(heads).view(">i8").ravel().astype(np.int64)
                    heads[:] = self._log.shifted(offsets).astype(">i8").view(np.uint8).reshape(-1, 8)
                yield position, bytes(raw)
                position = behind

    def _copy_parts(self) -> None:
        shown, disk, leads = self._source.storage, self._source.storage.of_disk, self._log.stays
        for entry in shown.listing(self._source.path.part(store_path.CONFIG)):
            is_file = entry.kind is Kind.FILE and not entry.name.endswith(BACKUP_SUFFIX)
            if is_file and (entry.name != TIMER_CHECK or self._keeps_timers):
                data = shown.read_file(entry.path, SMALL_FILE_MAX)
                self._storage.replace_file(self._root / store_path.CONFIG / entry.name, data)
        timers = dict.fromkeys((store_path.TIMER_LOG, store_path.TIMER_WHEEL), TIMER_OPTION)
        parts = PARTS | (LEADING if leads else {}) | (timers if self._keeps_timers else {})
        for name, option in parts.items():
            # 5.4.0 and 5.5.0 do not load it with queues in RocksDB: the start writes the folder anew
            is_left = self._in_rocksdb and name == store_path.COMPACTION
            if is_known(option, self._version) and not is_left:
                self._copy(disk, disk.entry(self._source.path.root / name), self._root / name)

    def _copy(self, disk: Storage, entry: Entry, target: Path) -> None:
        if entry.kind is Kind.DIRECTORY:
            self._storage.make_folder(target)
            for inner in disk.listing(entry.path):
                self._copy(disk, inner, target / inner.name)
        elif entry.kind is Kind.FILE:
            read, written = disk.open(entry.path), self._storage.create(target, entry.size)
            for position in range(0, entry.size, COPY_BYTES):
                data = disk.read(read, position, COPY_BYTES)
                if any(data):
                    self._storage.write(written, position, data)
            disk.close(read)
            self._storage.close(written)

    def _write_state(self) -> None:
        if self._in_rocksdb:
            for name in (store_path.ABORT, f"{store_path.CONSUMEQUEUE}/{store_path.SIGN_OF_DATABASE}"):
                self._storage.replace_file(self._root / name, b"")
            return
        time_ms, end = self._log.last_ms, self._log.end if number_of(self._version) >= (5,) else 0
        raw = CHECKPOINT.struct.pack(*Checkpoint(time_ms, time_ms, time_ms, end, end, end))
        self._storage.replace_file(self._root / store_path.CHECKPOINT, raw.ljust(CHECKPOINT_FILE_SIZE, b"\0"))

    def _build(self, threads: int) -> None:
        """Build the index, queues that are behind the log, and the timer's files."""
        conf = BrokerConf(**self.geometry._asdict(), timer_log_file_size=self._conf.timer_log_file_size)
        staging = self._root / STAGING
        with closing(ReadOnlyStore(self._root, conf)) as made:
            tags = profile_of(self._version).indexes_tags
            rebuild = Rebuild(made, Selection(queues=not self._in_rocksdb, tags=tags), staging, threads=threads)
            rebuild.run()
            moves = [store_path.INDEX]
            for counts in rebuild.result.queues:
                there = made.queues.get(counts.key)
                if there is None or there.max_offset < counts.max_offset:  # no start fills it: the stop looks clean
                    parts = rebuild.wanted.parts_of(counts.topic)
                    moves += [f"{part}/{counts.topic}/{counts.queue_id}" for part in parts]
        for name in moves:
            if self._storage.entry(staging / name).kind is Kind.DIRECTORY:
                self._install(staging / name, self._root / name)
        if not self._keeps_timers and is_known(TIMER_OPTION, self._version) and has_timer(self._source):
            self._build_timers(conf, staging, threads)
        remove(self._storage, staging)
        descriptor = self._storage.open_for_writing(next(iter(self._storage.listing(self._root / "commitlog"))).path)
        self._storage.sync_file_system(descriptor)
        self._storage.close(descriptor)

    def _build_timers(self, conf: BrokerConf, staging: Path, threads: int) -> None:
        with closing(ReadOnlyStore(self._root, conf)) as made:
            step = timer_step(self._source, made, self._log.end, threads)
            if step is not None and isinstance(step.action, RebuildTimers):
                for change in timer_changes(made, step.action, staging, time.time_ns() // 1_000_000):
                    if isinstance(change, Install):
                        self._install(change.staged, self._root / change.path)

    def _install(self, made: Path, target: Path) -> None:
        remove(self._storage, target)
        self._storage.make_folder(target.parent)
        self._storage.rename(made, target)

    def _not_kept(self) -> Iterator[str]:
        if self._log.moved:
            what = f"{counted(self._log.moved, 'message')} of {self._log.messages} lie at another physical offset"
            yield f"{what}: their offsetMsgIds are new, and producers cannot end transactions that are under way"
            if self._source.path.message_database is not None:
                yield f"{store_path.SIGN_OF_5_4}/: its index, timers and half messages lead to the old offsets"
        if self._in_rocksdb:
            if self._storage.of_disk.entry(self._source.path.root / store_path.COMPACTION).kind is Kind.DIRECTORY:
                yield f"{store_path.COMPACTION}/: the first start copies what the log still has of compacted topics"
            begin = self._source.commit_log.min_offset
            ranges = {key: queue.min_and_max(begin) for key, queue in self._source.queues.items()}
            for (topic, queue_id), (low, high) in sorted(ranges.items()):
                if low == high > 0:
                    yield f"{topic}/{queue_id} has no message left: its next one gets the queue offset 0, not {high}"
            if 0 < (most := start_rules(self._version).recover_max_num) < self._log.files:
                files = f"{most} of {self._log.files} log files"
                yield f"the first start fills the queues from {files}: set commitLogRecoverMaxNum={self._log.files}"
