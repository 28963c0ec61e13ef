"""A store that is written to: the log, then from the log the queues and the index, as a broker leaves them.

    opened by `MessageStore.open`    lock, abort, the log's end, the queues' ends
    put_message, put_messages        into the log
    dispatch                         what the log has and the queues have not, into queues and index
    flush, close                     onto the disk; checkpoint; abort goes

A broker's load() writes before it takes the lock, and any descriptor of `lock` that this process closes drops ours: the lock
keeps two tools apart, and a broker's start() from us; it is no licence to work beside a broker.
"""

from __future__ import annotations

import errno
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import LayoutNotSupported, NeedsRecovery, StoreInUse
from rmqctl.format import dispatch_scan, index_build, scan
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.damage import Damage
from rmqctl.format.index_entry import ENTRIES_PER_SLOT
from rmqctl.format.message import Message
from rmqctl.logfile.allocate import AllocateMappedFileService
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.logfile.writable_storage import WritableStorage
from rmqctl.store import store_path
from rmqctl.store.commit_log import UNREADABLE, ScanSummary
from rmqctl.store.commit_log_writer import CommitLogWriter, PutSettings
from rmqctl.store.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.consume_queue_writer import ConsumeQueueWriter
from rmqctl.store.dispatch import Dispatcher
from rmqctl.store.dispatch_columns import Describer
from rmqctl.store.file_scan import Stretch
from rmqctl.store.index_writer import IndexWriter
from rmqctl.store.kernels import prepare
from rmqctl.store.profile_guess import guess_profile, looks_like_3x
from rmqctl.store.put_message import PutMessageResult, PutMessageStatus
from rmqctl.store.read_only_store import ReadOnlyStore
from rmqctl.store.running_flags import RunningFlags
from rmqctl.store.store_checkpoint import StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.format.profile import Profile
    from rmqctl.store.config import BrokerConf
    from rmqctl.store.read_only_store import QueueKey


FILES_CHECKED = 3  # of the log, as a broker does after a shutdown in order
SEE_VERIFY = "`rmqctl verify` shows what is wrong"


class Geometry(NamedTuple):
    """Sizes of a store's files: bytes, bytes, counts. The broker's own by default."""

    commitlog_file_size: int = 1 << 30
    consumequeue_file_size: int = 300_000 * CQ_UNIT.size
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class MessageStore:
    """The store at `root`, open for appending. Methods raise OSError where the file system fails.

    Raises on opening: NotAStore, LayoutNotSupported, StoreInUse, NeedsRecovery.
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
    ) -> None:
        self.running_flags = RunningFlags.NONE
        self._failure: OSError | None = None
        self._root = root
        self._reput_from_offset = 0
        self._storage = WritableStorage(root)
        self._threads = threads
        _check_layout(ReadOnlyStore(root, conf))
        self._lock = self._take_lock(root)
        with ExitStack() as held:
            held.callback(self._storage.close, self._lock)
            self._before = ReadOnlyStore(root, conf)  # once more: nobody else changes it from here on
            held.callback(self._before.close)
            self._open(root, settings or PutSettings(profile or guess_profile(self._before), property_crc=property_crc), geometry, held)
            self._held = held.pop_all()

    @classmethod
    def create(cls, root: Path, settings: PutSettings, geometry: Geometry) -> MessageStore:
        """A new, empty store. Raises FileExistsError where something is there already."""
        storage = WritableStorage(root)
        if storage.listing(root):
            raise FileExistsError(17, "there is something already", str(root))
        storage.make_folder(root / store_path.COMMITLOG)
        storage.make_folder(root / store_path.CONSUMEQUEUE)
        storage.make_folder(root / store_path.INDEX)
        return cls(root, settings=settings, geometry=geometry)

    @property
    def max_phy_offset(self) -> int:
        """Behind the last record."""
        return self._log.queue.max_offset

    def put_message(self, message: MessageExtBrokerInner, *, as_it_is: bool = False) -> PutMessageResult:
        """Store one message (`as_it_is`: a copy, not delayed again); queues and index follow with `dispatch`.

        On a full disk nothing is stored, and the status says so; when there is room again, messages are taken again. After an
        OSError of `flush`, `flush_log` or `dispatch` none are: close the store, and recover it.
        """
        return self._refusal() or self._log.put_message(message, as_it_is=as_it_is)

    def put_messages(self, messages: Sequence[MessageExtBrokerInner]) -> PutMessageResult:
        """Store a batch, whole or not at all."""
        return self._refusal() or self._log.put_messages(messages)

    def _refusal(self) -> PutMessageResult | None:
        """Why nothing is taken now; None: it is."""
        if self.running_flags and not self.running_flags.is_writeable:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=f"the store takes no messages: {self.running_flags!r}")
        failure = self._failure or self._log.queue.flush_error
        if failure is not None:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=f"the store takes no messages: {failure.strerror}")
        if self._log.is_os_page_cache_busy:
            return PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY, remark="another put has been waiting for the disk for a second")
        return None

    def dispatch(self) -> None:
        """Bring queues and index up to the log's end. After an OSError the store takes no more messages."""
        with self._once():
            end = self.max_phy_offset
            if self._reput_from_offset >= end:
                return
            try:
                self._dispatch_up_to(end)
            except OSError:
                self.running_flags |= RunningFlags.WRITE_LOGICS_QUEUE_ERROR
                raise

    @contextmanager
    def _once(self) -> Iterator[None]:
        """What failed is not tried again, but raised again.

        A queue or an index file may be half way, and after a failed sync the system may have dropped what it had not written: the
        next sync would succeed all the same.
        """
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            self._failure = error
            raise

    def _dispatch_up_to(self, end: int) -> None:
        self._log.queue.commit()
        log = self._before.commit_log
        log.queue.refresh()
        for item in log.scan_columns(ScanSummary(), self._describer.take, threads=self._threads, start=self._reput_from_offset, stop=end):
            described = item.taken if isinstance(item, Stretch) else self._describer.of(item) if isinstance(item, Message) else None
            if isinstance(item, Damage) and item.code in UNREADABLE:
                raise OSError(errno.EIO, item.detail, log.path_of(item.physical_offset))
            if described is not None:
                behind = described.messages["physical_offset"] >= self._reput_from_offset
                self._dispatcher.dispatch(described._replace(messages=described.messages[behind]))
        log.queue.close()
        self._reput_from_offset = end

    @property
    def log_queue(self) -> WritableMappedFileQueue:
        """The log's files."""
        return self._log.queue

    def note_flushed(self) -> None:
        """The log is on the disk up to `log_queue.flushed_where`: the checkpoint's time follows when all of it is."""
        last = self._log.queue.last
        if last is not None and self._log.queue.flushed_where >= self._log.queue.max_offset:
            self.checkpoint.set_physic(last.store_timestamp)

    def flush_log(self) -> None:
        """Have the log on the disk. After an OSError the store takes no more messages."""
        self._log.queue.commit()
        self._log.queue.flush()

    def flush(self) -> None:
        """Have everything on the disk, and say so in the checkpoint. After an OSError the store takes no more messages."""
        with self._once():
            self.flush_log()
            for writer in self._queues.values():
                writer.queue.flush()
            self._index.flush()
            last = self._log.queue.last
            self.checkpoint.set_physic(last.store_timestamp if last is not None else 0)
            self.checkpoint.set_logics(self._dispatcher.logics_timestamp)
            self.checkpoint.flush()

    def close(self) -> None:
        """Dispatch, flush, close; the store is then as a broker leaves it when it is shut down in order.

        After an OSError it is closed, too, and `abort` is still there. A second call does nothing.
        """
        if self.running_flags & RunningFlags.NOT_WRITEABLE:
            return
        self.running_flags |= RunningFlags.NOT_WRITEABLE
        with self._held:
            if self._log.queue.last is not None:
                self._log.queue.last.mend()
            self.flush_log()
            self.dispatch()
            self.flush()
            self._allocate.shutdown()
            self._storage.unlink(self._root / store_path.ABORT)

    def _close_queues(self) -> None:
        for writer in self._queues.values():
            writer.queue.close()

    def _take_lock(self, root: Path) -> int:
        descriptor = self._storage.lock(root / store_path.LOCK)
        if descriptor is None:
            raise StoreInUse("a broker has the store open", path=str(root), hint="stop it, or work on a copy")
        return descriptor

    def _open(self, root: Path, settings: PutSettings, geometry: Geometry | None, held: ExitStack) -> None:
        """`held` gets what is to be given back when the store is closed."""
        before = self._before
        if before.path.has_abort:
            raise NeedsRecovery("the store was not shut down in order: `abort` is there", path=str(root), hint=SEE_VERIFY)
        prepare(scan, dispatch_scan, index_build)
        self._geometry = geometry or _geometry_of(before)
        self._settings = settings
        self._describer = Describer(with_keys=True)
        self.checkpoint = StoreCheckpoint(self._storage, root / store_path.CHECKPOINT)
        end = self._end_of_log()
        self._allocate = AllocateMappedFileService(self._storage)
        held.callback(self._allocate.shutdown)
        log_queue = WritableMappedFileQueue(
            self._storage, before.path.commitlogs, self._geometry.commitlog_file_size, before.commit_log.queue, end, self._allocate
        )
        held.callback(log_queue.close)
        self._queues: dict[QueueKey, ConsumeQueueWriter] = {}
        held.callback(self._close_queues)
        offsets = self._open_queues(end)
        self._log = CommitLogWriter(log_queue, offsets, self._settings, now_ms)
        self._index = self._open_index()
        held.callback(self._index.close)
        self._dispatcher = Dispatcher(
            self._describer,
            self._queue_of,
            self._index if before.conf.index_enabled else None,
            before.commit_log.message_at,
            before.conf.delays_ms,
        )
        ends = [writer.max_physical_offset for writer in self._queues.values()]
        self._reput_from_offset = max([before.commit_log.min_offset, *ends])
        abort = str(self._storage.process_id()).encode() if self._settings.profile.writes_pid_into_abort else b""
        self._storage.replace_file(root / store_path.ABORT, abort)
        self.dispatch()
        offsets.update({key: writer.max_offset for key, writer in self._queues.items()})  # queues that lagged, or were not there

    def _end_of_log(self) -> int:
        """Where the last record ends. Raises NeedsRecovery where the end is not one that a broker leaves."""
        log = self._before.commit_log
        for damage in log.queue.anomalies:
            raise NeedsRecovery(f"{damage.code}: {damage.detail}", path=damage.path, hint=SEE_VERIFY)
        in_use = log.files_in_use()
        if not in_use:
            return log.min_offset
        summary = ScanSummary()
        for item in log.scan_columns(summary, threads=self._threads, start=in_use[-FILES_CHECKED:][0].file_from_offset):
            if isinstance(item, Damage):
                what = f"{item.code} in the log"
                raise NeedsRecovery(what, path=log.path_of(item.physical_offset), offset=item.physical_offset, hint=SEE_VERIFY)
        return summary.end

    def _open_queues(self, end: int) -> dict[QueueKey, int]:
        """Writers for the queues that are there; the next offset of each. Raises NeedsRecovery where one points behind the log."""
        offsets = {}
        for key, queue in self._before.queues.items():
            last = queue.last()
            if last is not None and last.end > end:
                what = f"queue {key[0]}/{key[1]} points behind the log's end {end}"
                raise NeedsRecovery(what, path=str(self._root), hint=SEE_VERIFY)
            offsets[key] = queue.max_offset
            if isinstance(queue, ConsumeQueue) and queue.queue.files:
                files = WritableMappedFileQueue(
                    self._storage, [queue.queue.files[0].path.parent], queue.queue.file_size, queue.queue, offsets[key] * CQ_UNIT.size
                )
                self._queues[key] = ConsumeQueueWriter(files, last.end if last is not None else 0)
        return offsets

    def _queue_of(self, key: QueueKey) -> ConsumeQueueWriter:
        if key not in self._queues:
            folder = self._root / store_path.CONSUMEQUEUE / key[0] / str(key[1])
            self._queues[key] = ConsumeQueueWriter(WritableMappedFileQueue(self._storage, [folder], self._geometry.consumequeue_file_size))
        return self._queues[key]

    def _open_index(self) -> IndexWriter:
        geometry = self._geometry
        folder = self._root / store_path.INDEX
        writer = IndexWriter(
            self._storage, folder, geometry.index_slots, geometry.index_entries, now=now_ms, on_full=self.checkpoint.set_index
        )
        if self._before.index.files:
            writer.go_on_with(self._before.index.files[-1])
        return writer


def _check_layout(store: ReadOnlyStore) -> None:
    if any(isinstance(queue, BatchConsumeQueue) for queue in store.queues.values()):
        raise LayoutNotSupported("a store with batch consume queues is read only", path=str(store.path.root))
    if looks_like_3x(store):
        raise LayoutNotSupported("a store of 3.x is read only", path=str(store.path.root))
    if store.extensions:
        raise LayoutNotSupported("a store with consume queue extensions is read only", path=str(store.path.root))


def _geometry_of(store: ReadOnlyStore) -> Geometry:
    """As the files show; the broker's own sizes where there is none."""
    usual = Geometry()
    sizes = [queue.queue.file_size for queue in store.queues.values() if queue.queue.files]
    slots = store.index.files[-1].slots if store.index.files else usual.index_slots
    entries = store.index.files[-1].capacity if store.index.files else usual.index_slots * ENTRIES_PER_SLOT
    return Geometry(
        commitlog_file_size=store.commit_log.queue.file_size or usual.commitlog_file_size,
        consumequeue_file_size=max(sizes, key=sizes.count, default=usual.consumequeue_file_size),
        index_slots=slots,
        index_entries=entries,
    )
