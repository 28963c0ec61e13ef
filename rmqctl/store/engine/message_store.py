"""A store that is open for writing.

Messages go to the log first; queues and index are filled from it. The files have the same content as a broker's.

    MessageStore(root)               takes the lock, creates abort, finds the ends of the log and of the queues
    put_message, put_messages        write to the log
    dispatch                         updates topics.json, queues and index from the log
    reader                           reads the dispatched messages, from any thread
    flush, close                     flush to disk; close also writes the checkpoint and removes abort

The lock keeps out a second rmqctl, and makes a broker's start() fail. Do not start a broker all the same: its load()
writes to the store before it locks the file `lock`. The system releases the lock if this process closes any descriptor
of `lock`.
"""

from __future__ import annotations

import errno
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.format.message import Blank, Damage, Message
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.kernels import dispatch_scan, index_build, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.column_reader import Columns
from rmqctl.logfile.memory.allocate import AllocateMappedFileService
from rmqctl.logfile.memory.transient_store_pool import TransientStorePool
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.store.config import store_path
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.engine.consume_queue_store import ConsumeQueueStore
from rmqctl.store.engine.delay_offsets import DelayOffsets
from rmqctl.store.engine.described_log import DescribedLog, DescribedPart
from rmqctl.store.engine.dispatcher import Dispatcher
from rmqctl.store.engine.new_store import NewStore, folders_of_new
from rmqctl.store.engine.opening import check_layout, check_shut_down, end_of_log, leave_signs, writable_storage_of
from rmqctl.store.engine.schedule import ScheduleMessageService
from rmqctl.store.ha.log_source import LogFiles
from rmqctl.store.journal.journals import check_none_unfinished, in_use
from rmqctl.store.read.commit_log import UNREADABLE, is_served
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.store_file_sizes import geometry_of_store
from rmqctl.store.read.version_guess import guess_profile, shows_version
from rmqctl.store.serve.message_reader import MessageReader, QueueEnd
from rmqctl.store.write.commit_log_writer import CommitLogWriter, PutSettings, put_settings
from rmqctl.store.write.index_writer import IndexWriter
from rmqctl.store.write.put_message import (
    EncodingRules,
    PutEncodedResult,
    PutMessageResult,
    PutMessageStatus,
    RunningFlags,
)
from rmqctl.store.write.store_checkpoint import StoreCheckpoint
from rmqctl.store.write.topic_config import TopicConfigs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.engine.dispatcher import MessageArrivingListener
    from rmqctl.store.engine.store_stats import StoreStats
    from rmqctl.store.write.put_message import EncodedLines


DISK_SPACE_CLEAN_FORCIBLY_PERCENT = 85  # diskSpaceCleanForciblyRatio: no new log files on a fuller disk
_NO_FLAGS = RunningFlags.NONE  # a look-up in an Enum is slow


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class MessageStore:
    """The store at `root`, open for appending.

    `arriving` is called for each message after it was added to the queues and the index. Set the attribute `stats` to
    count puts. `shows_version` is True if the files of the store show which broker version wrote them.

    Opening raises NotAStore, LayoutNotSupported, StoreInUse, NeedsRecovery or Unreadable. Methods raise OSError if the
    file system fails.
    """

    def __init__(
        self,
        root: Path,
        conf: BrokerConf | None = None,
        *,
        profile: Profile | None = None,
        property_crc: bool = False,
        settings: PutSettings | None = None,
        geometry: Geometry | None = None,
        threads: int = 1,
        arriving: MessageArrivingListener | None = None,
    ) -> None:
        self.running_flags = RunningFlags.NONE
        self.stats: StoreStats | None = None
        self.conf = conf or BrokerConf()
        self._failure: OSError | None = None
        self._new: NewStore | None = None
        self.is_removed = False
        self._once_lock = threading.Lock()
        self._root = root
        self._reput_from_offset = 0
        self._described = DescribedLog()
        self._storage = writable_storage_of(root, self.conf)
        self._threads = threads
        self._arriving = arriving
        check_layout(ReadOnlyStore(root, conf))
        descriptor = self._storage.lock(root / store_path.LOCK)
        if descriptor is None:
            raise in_use(root)
        self._lock = descriptor
        with ExitStack() as held:
            held.callback(self._storage.close, self._lock)
            check_none_unfinished(self._storage, root)
            self._before = ReadOnlyStore(root, conf)  # read again: from now on, only this process changes the store
            held.callback(self._before.close)
            known = profile or guess_profile(self._before)
            self.shows_version = shows_version(self._before)
            has_light_queues = any(topic.startswith(LMQ_PREFIX) for topic, _ in self._before.queues)
            found = settings or put_settings(
                self.conf, known, property_crc=property_crc, has_light_queues=has_light_queues
            )
            self._open(root, found, geometry, held)
            self._held = held.pop_all()

    @staticmethod
    def warm_up() -> None:
        """Compile or load the numba kernels, which opening a store does else."""
        warm_up(scan, dispatch_scan, index_build)

    @classmethod
    def create(
        cls, root: Path, settings: PutSettings, geometry: Geometry, conf: BrokerConf | None = None
    ) -> MessageStore:
        """Return a new, empty store.

        Raises FileExistsError if `root` or a folder of the log is not empty; a store that never had a message counts as
        empty. Raises LayoutNotSupported if broker.conf asks for DLedger or for queues in RocksDB.
        """
        storage, logs = folders_of_new(root, conf or BrokerConf())
        new = NewStore(storage, [root, *logs])
        try:
            leave_signs(storage, root, settings.profile)  # first: a store of 5.x is never treated as an older one
            for folder in (*logs, root / store_path.CONSUMEQUEUE, root / store_path.INDEX):
                storage.make_folder(folder)
            created = cls(root, conf, settings=settings, geometry=geometry)
        except BaseException:
            with suppress(OSError):
                new.remove()
            raise
        created._new = new
        return created

    @property
    def min_phy_offset(self) -> int:
        """Return the physical offset of the log's first byte; 0 without files."""
        files = self._log.queue.files
        return files[0].file_from_offset if files else 0

    @property
    def max_phy_offset(self) -> int:
        """Return the physical offset after the last record."""
        return self._log.queue.max_offset

    def put_message(self, message: MessageExtBrokerInner, *, as_it_is: bool = False) -> PutMessageResult:
        """Store one message; a later `dispatch` adds it to the queues and the index.

        `as_it_is` is for copies of stored messages: the property DELAY is ignored.

        If the disk is full, nothing is stored, the status shows the reason, and messages are accepted again when there
        is room. After an OSError of `flush`, `flush_log` or `dispatch`, the store accepts no more messages: the caller
        must close and recover it.
        """
        begin = self.stats.now() if self.stats is not None else 0.0
        result = self._refusal() or self._log.put_message(message, as_it_is=as_it_is)
        if self.stats is not None:
            self.stats.record(begin, [result])
        return result

    def put_each(self, messages: Sequence[MessageExtBrokerInner], *, as_it_is: bool = False) -> list[PutMessageResult]:
        """Store each message as `put_message` does, but faster."""
        begin = self.stats.now() if self.stats is not None else 0.0
        refusal = self._refusal()
        results = self._log.put_each(messages, as_it_is=as_it_is) if refusal is None else [refusal] * len(messages)
        if self.stats is not None:
            self.stats.record(begin, results)
        return results

    def put_messages(self, messages: Sequence[MessageExtBrokerInner]) -> PutMessageResult:
        """Store all messages of a batch, or none."""
        begin = self.stats.now() if self.stats is not None else 0.0
        result = self._refusal() or self._log.put_messages(messages)
        if self.stats is not None:
            self.stats.record(begin, [result])
        return result

    def encoding_rules(self) -> EncodingRules | None:
        """Return the rules for encoding the records that `put_encoded` stores, or None.

        None if records have `__CRC32#`, because this checksum depends on the record's offset.
        """
        return self._log.encoding_rules()

    def put_encoded(self, encoded: EncodedLines, begin: int) -> PutEncodedResult:
        """Store records that were encoded by the rules of `encoding_rules`.

        They are those from row `begin` of `encoded` on, up to the end of the current log file. `stats` does not count
        them.
        """
        refusal = self._refusal()
        if refusal is not None:
            return PutEncodedResult(len(encoded.rows) - begin, refusal, [])
        result = self._log.put_encoded(encoded, begin)
        if result.failure is None and self._described.wants(result.wrote_offset, result.end, self._reput_from_offset):
            rows = encoded.rows[begin : begin + result.records]
            base = result.wrote_offset - int(rows[0]["position"])
            columns = Columns(base, result.end - base, rows, encoded.records, "")
            self._described.add(DescribedPart(result.wrote_offset, result.end, self._builder.take(columns)))
        return result

    def append_to_commit_log(self, start_offset: int, data: memoryview, item: Columns | Message | Blank) -> None:
        """Append checked records from a master, and dispatch them.

        `item` has the decoded records of `data`; see CommitLogWriter.append_to_commit_log. topics.json is not changed,
        because a slave gets it from its master. After an OSError, the store accepts no more records.
        """
        with self._once():
            self._log.append_to_commit_log(start_offset, data, _last_store_time(item))
            if not isinstance(item, Blank):
                described = self._builder.of(item) if isinstance(item, Message) else self._builder.take(item)
                self._dispatcher.dispatch(described)
            self._reput_from_offset = start_offset + len(data)

    def _refusal(self) -> PutMessageResult | None:
        log, failure = self._log, self._failure or self._log.queue.flush_error
        if failure is None and self.running_flags is _NO_FLAGS and not log.waiting_since:
            return None
        if failure is not None or not self.running_flags.is_writeable:
            why = failure.strerror if failure is not None else repr(self.running_flags)
            return PutMessageResult(
                PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=f"the store accepts no messages: {why}"
            )
        if log.is_os_page_cache_busy:
            return PutMessageResult(
                PutMessageStatus.OS_PAGE_CACHE_BUSY, remark="another put has been waiting for the disk for a second"
            )
        return None

    def dispatch(self) -> None:
        """Add new messages of the log to the queues and the index; update topics.json.

        After an OSError, the store accepts no more messages.
        """
        with self._once():
            end = self.max_phy_offset
            try:
                self.topic_configs.note(self._log.take_written_queues())
                self.topic_configs.persist()
                if self._reput_from_offset < end:
                    self._dispatch_up_to(end)
            except OSError:
                self.running_flags |= RunningFlags.WRITE_LOGICS_QUEUE_ERROR
                raise

    @contextmanager
    def _once(self) -> Iterator[None]:
        """Allow one dispatch or flush at a time; after a failure, allow none.

        After a failure or Ctrl-C, a queue file or an index file may be half written. After a failed sync, the next sync
        may report success for data that the system has discarded.
        """
        with self._once_lock:
            if self._failure is not None:
                raise self._failure
            try:
                yield
            except OSError as error:
                self._failure = error
                raise
            except BaseException:
                self._failure = OSError(errno.EINTR, "it was interrupted while queues and index were written")
                raise

    def _dispatch_up_to(self, end: int) -> None:
        self._log.queue.commit()
        at = self._reput_from_offset
        for part in self._described.take(at, end):
            self._dispatch_scanned(at, part.start)
            self._dispatcher.dispatch(part.described)
            at = part.end
        self._dispatch_scanned(at, end)
        self._reput_from_offset = end

    def _dispatch_scanned(self, start: int, stop: int) -> None:
        if start == stop:
            return
        log = self._before.commit_log
        log.queue.refresh()
        for item in self._builder.scan(log, threads=self._threads, start=start, stop=stop, exact=True):
            if isinstance(item, RecordRun):
                self._dispatcher.dispatch(item.result)
            elif isinstance(item, Damage) and item.code in UNREADABLE:
                raise OSError(errno.EIO, item.detail, log.path_of(item.physical_offset))
            elif isinstance(item, Damage) and is_served(item) and (message := item.message_in_its_place) is not None:
                self._dispatcher.dispatch(self._builder.of(message))
        log.queue.close()

    def _message_at(self, physical_offset: int) -> Message | None:
        """Return a record; look for new log files if its offset is in none."""
        log = self._before.commit_log
        if log.queue.find(physical_offset) is None:
            log.queue.refresh()
        return log.message_at(physical_offset)

    def schedule_message_service(self) -> ScheduleMessageService:
        """Return the service that delivers the store's delayed messages.

        It continues from the offsets in config/delayOffset.json. Raises Unreadable.
        """
        offsets = DelayOffsets(self._storage, self._root / store_path.CONFIG, self._settings.profile, now_ms)
        return ScheduleMessageService(
            self.reader, partial(self.put_message, as_it_is=True), offsets, self._before.conf.delays_ms
        )

    def queue_end(self, key: QueueKey) -> QueueEnd | None:
        """Return where a queue ends; None if the queue does not exist."""
        return self.queue_store.end_of(key)

    def index_written_out(self) -> AbstractContextManager[Path | None]:
        """Write all index entries; keep the index files unchanged in the `with` block.

        The block gets the path of the current index file, or None if none is open.
        """
        return self._index.written_out()

    @property
    def profile(self) -> Profile:
        """Return the profile whose rules the store follows."""
        return self._settings.profile

    @property
    def failure(self) -> OSError | None:
        """Return the error that stopped all writing; None without an error."""
        return self._failure or self._log.queue.flush_error

    @property
    def log_queue(self) -> WritableMappedFileQueue:
        """Return the MappedFileQueue of the log."""
        return self._log.queue

    def log_source(self) -> LogFiles:
        """Return the log as a source for HAService.

        It has all bytes that are written to a log file, flushed or not.
        """
        queue, is_pooled = self._log.queue, bool(self.conf.writing.pool_size)
        end = (lambda: queue.committed_where) if is_pooled else (lambda: queue.max_offset)
        return LogFiles(self._storage, lambda: queue.files, end, queue.file_size)

    def note_flushed(self) -> None:
        """Set physicMsgTimestamp in memory if the whole log is flushed.

        `flush` writes the checkpoint to disk.
        """
        last = self._log.queue.last
        if last is not None and self._log.queue.flushed_where >= self._log.queue.max_offset:
            self.checkpoint.set_physic(last.store_timestamp)

    def flush_log(self) -> None:
        """Flush the log to disk.

        After an OSError, the store accepts no more messages.
        """
        self._log.queue.commit()
        self._log.queue.flush()

    def flush(self) -> None:
        """Flush everything to disk, and write the checkpoint.

        After an OSError, the store accepts no more messages.
        """
        with self._once():
            self.flush_log()
            self.queue_store.flush()
            self._index.flush()
            last = self._log.queue.last
            self.checkpoint.set_physic(last.store_timestamp if last is not None else 0)
            self.checkpoint.set_logics(self._dispatcher.logics_timestamp)
            self.checkpoint.flush()

    def close(self, *, keeps_empty: bool = True) -> None:
        """Dispatch and flush all messages, and close the store.

        The files are then as after a clean shutdown of a broker. After an OSError, the store is closed, but `abort`
        still exists. A second call does nothing. No thread may put messages during or after the call. With
        `keeps_empty=False`, an empty store that `create` made is deleted.
        """
        if self.running_flags & RunningFlags.NOT_WRITEABLE:
            return
        self.running_flags |= RunningFlags.NOT_WRITEABLE
        with self._held:
            if self._new is not None and not keeps_empty and self.max_phy_offset == 0:
                self._allocate.shutdown()
                self._new.remove()
                self.is_removed = True
                return
            if self._log.queue.last is not None:
                self._log.queue.last.mend()
            self.flush_log()
            self.dispatch()
            self.flush()
            self._allocate.shutdown()
            self._storage.unlink(self._root / store_path.ABORT)

    def _open(self, root: Path, settings: PutSettings, geometry: Geometry | None, held: ExitStack) -> None:
        before = self._before
        check_shut_down(before)
        self.warm_up()
        self._geometry = geometry or geometry_of_store(before)
        self._settings = settings._replace(delay_level_max=len(before.conf.delays_ms))
        self._builder = DispatchRequestBuilder(with_keys=True, with_tags=settings.profile.indexes_tags)
        self.topic_configs = TopicConfigs(
            self._storage, before.path.part(store_path.CONFIG), settings.profile, now_ms, before.queues
        )
        self.checkpoint = StoreCheckpoint(self._storage, root / store_path.CHECKPOINT)
        end = end_of_log(before, self._threads)
        log_queue = self._open_log_queue(end)
        held.callback(self._allocate.shutdown)
        held.callback(log_queue.close)
        self.queue_store = queues = ConsumeQueueStore(self._storage, before, self._geometry, end)
        held.callback(queues.close)
        self._log = CommitLogWriter(log_queue, queues.offsets, self._settings, now_ms, queues.batch_topics)
        self._index = self._open_index()
        held.callback(self._index.close)
        self._dispatcher = Dispatcher(
            self._builder,
            self.queue_store.find_or_create,
            self._index if before.conf.index_enabled else None,
            self._message_at,
            before.conf.delays_ms,
            self._arriving,
        )
        self._reput_from_offset = max(before.commit_log.min_offset, self.queue_store.max_physical_offset)
        conf = before.conf._replace(
            commitlog_file_size=self._geometry.commitlog_file_size,
            consumequeue_file_size=self._geometry.consumequeue_file_size,
            index_slots=self._geometry.index_slots,
        )
        self.reader = MessageReader(ReadOnlyStore(root, conf), settings.profile, self)
        held.callback(self.reader.close)
        abort = b""
        if self._settings.profile.writes_pid_into_abort:
            leave_signs(self._storage, root, self._settings.profile)
            abort = str(self._storage.process_id()).encode()
        self._storage.replace_file(root / store_path.ABORT, abort)
        self.dispatch()
        self.queue_store.recover_topic_queue_table()

    def _open_log_queue(self, end: int) -> WritableMappedFileQueue:
        writing, size = self.conf.writing, self._geometry.commitlog_file_size
        pool = TransientStorePool(writing.pool_size, size) if writing.pool_size else None
        self._allocate = AllocateMappedFileService(self._storage, pool=pool, warm=writing.warm_files)
        path = self._before.path
        return WritableMappedFileQueue(
            self._storage,
            path.writable_commitlogs,
            size,
            self._before.commit_log.queue,
            end,
            self._allocate,
            lambda folder: self._storage.used_percent(folder) > DISK_SPACE_CLEAN_FORCIBLY_PERCENT,
        )

    def _open_index(self) -> IndexWriter:
        folder, on_full = self._root / store_path.INDEX, self.checkpoint.set_index
        slots, entries = self._geometry.index_slots, self._geometry.index_entries
        writer = IndexWriter(self._storage, folder, slots, entries, made_at=lambda _: now_ms(), on_full=on_full)
        if self._before.index.files:
            writer.go_on_with(self._before.index.files[-1])
        return writer


def _last_store_time(item: Columns | Message | Blank) -> int:
    if isinstance(item, Blank):
        return 0
    return item.store_timestamp if isinstance(item, Message) else int(item.rows[-1]["store_timestamp"])
