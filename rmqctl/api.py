"""rmqctl for Python programs: what a message store holds, without its broker.

    import rmqctl.api as rmq

    with rmq.open("/data/rocketmq/store") as store:
        for message in store.messages(topic="orders", since=datetime(2026, 11, 21, tzinfo=UTC)):
            print(message.queue_id, message.queue_offset, message.body)

Nothing here writes to a store. Damage is no error: it is left out of `messages` and `to_arrow`, and `verify` names it.
All errors are RmqctlError (of `rmqctl.errors`), such as NotAStore or BadRequest, or OSError.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqctl.errors import BadRequest
from rmqctl.format.body.bodies import NO_BODIES, Bodies
from rmqctl.format.message import Message as Record
from rmqctl.format.properties import KEYS, TAGS
from rmqctl.kernels import filter_scan, row_scan, scan
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where, warm_up
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.read.commit_log import SMALL_SEGMENT_SIZE, ScanSummary
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

    import pyarrow as pa

    from rmqctl.forensics.message_filter import Filter
    from rmqctl.logfile.column_reader import Columns

T = TypeVar("T")
Document = dict[str, Any]
Time = datetime | int  # an int is in ms since 1970; a datetime without time zone is local
THREADS = 2
# of what the table of `rocketmq` on Spark has, those that say something of a message in one store
ARROW_COLUMNS = (
    "physicalOffset", "size", "topic", "queueId", "queueOffset", "bornTimestamp", "bornHost", "storeTimestamp",
    "storeTime", "storeHost", "reconsumeTimes", "sysFlag", "msgId", "tags", "keys", "uniqKey", "properties", "body",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the log."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int  # bytes
    store_timestamp: int  # ms since 1970
    keys: str | None  # several are separated by blanks
    tags: str | None
    body: bytes  # decompressed; as stored if that fails
    properties: dict[str, str]


def open(  # noqa: A001 -- `rmq.open`
    path: str | PathLike[str],
    *,
    broker_conf: str | PathLike[str] | None = None,
    follow_links: bool = False,
    threads: int = THREADS,
) -> Store:
    """Open the store in the folder `path`, storePathRootDir of a broker or a copy.

    `broker_conf` is the path of its broker.conf, for unusual file sizes or log folders elsewhere. `threads` read the
    log. Raises NotAStore, Unreadable or BadRequest.
    """
    cache_where(find_cache)
    conf = None if broker_conf is None else read_broker_conf(Path(broker_conf))
    return Store(ReadOnlyStore(Path(path), conf, follow_links=follow_links, log_only=True), threads)


class Store:
    """A store that is open for reading; `open` makes it. Use it as a context manager."""

    def __init__(self, store: ReadOnlyStore, threads: int) -> None:
        self._opened, self._is_closed = store, False
        self._name = str(store.path.root)
        self._threads = threads

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all files of the store. What reads it raises BadRequest from then on."""
        self._is_closed = True
        self._opened.close()

    @property
    def _store(self) -> ReadOnlyStore:
        if self._is_closed:
            raise BadRequest("the store is closed", path=self._name, hint="read it inside of `with`")
        return self._opened

    def _while_open(self, found: Iterator[T]) -> Iterator[T]:
        for one in found:
            yield one
            _ = self._store  # raises if it was closed meanwhile

    def _with_queues(self) -> ReadOnlyStore:
        """Raise LayoutNotSupported if the queues are in RocksDB, and cannot be read."""
        if not self._store.path.reads_queues:
            ReadOnlyStore(self._store.path.root, self._store.conf, follow_links=self._store.storage.follow_links)
        return self._store

    @property
    def problems(self) -> list[str]:
        """What could not be read up to now, in words."""
        return [f"{damage.path}: {damage.detail}" for damage in self._opened.foreign]

    def messages(
        self,
        topic: str | None = None,
        key: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
    ) -> Iterator[Message]:
        """Yield the messages that meet all conditions, in the order of the log.

        `key` is one of KEYS, or the UNIQ_KEY. `since` and `until` are store times, both included. The log is scanned
        from the first file that can have such a time. Raises BadRequest if one is no time.
        """
        from rmqctl.forensics.message_filter import Filter

        topics = frozenset() if topic is None else frozenset({topic})
        wanted = Filter(topics=topics, key=key, since=_ms(since), until=_ms(until))
        return self._while_open(self._messages(wanted))

    def _messages(self, wanted: Filter) -> Iterator[Message]:
        from rmqctl.forensics.dump import Dump

        dump = Dump(self._store, wanted, on_damage=lambda _: None, threads=self._threads)
        dump.warm_up(with_lines=False)
        for item in dump.scan(lambda run: [*map(_message, run.messages(run.rows[wanted.rows(run)]))]):
            if isinstance(item, RecordRun):
                yield from item.result
            elif isinstance(item, Record) and wanted.matches(item):
                yield _message(item)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return all messages as a pyarrow.RecordBatchReader, in the order of the log.

        `columns` are names of rmqctl-spark(7)'s table (None: ARROW_COLUMNS). `body` is as stored. Needs pyarrow.
        """
        try:
            import pyarrow as pa
        except ImportError as error:
            raise BadRequest("to_arrow needs pyarrow", hint="pip install pyarrow") from error
        from rmqctl.spark.source.message_schema import MESSAGE_COLUMNS, arrow_schema, chosen

        known = {name: MESSAGE_COLUMNS[name] for name in (*ARROW_COLUMNS, "path", "bodyText", "tagsCode")}
        names = list(ARROW_COLUMNS) if columns is None else chosen(known, ",".join(columns))
        schema = arrow_schema(known, names)
        return pa.RecordBatchReader.from_batches(schema, self._while_open(self._batches(names, schema)))

    def _batches(self, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from rmqctl.spark.source.message_columns import MessageColumns
        from rmqctl.spark.source.split_rows import ItemRows

        store, local = self._store, threading.local()
        warm_up(scan, row_scan)

        def take(run: Columns) -> pa.RecordBatch:
            if not hasattr(local, "columns"):
                local.columns = MessageColumns(names, {}, store.tags_code)
            return pa.RecordBatch.from_arrays(local.columns.arrays(run), schema=schema)

        others = ItemRows(self._name, lambda: store)
        scanned = store.commit_log.scan_columns(
            ScanSummary(), take, threads=self._threads, segment_size=SMALL_SEGMENT_SIZE
        )
        for item in scanned:
            if isinstance(item, RecordRun):
                yield item.result
            elif isinstance(item, Record):
                row = others.row(item, store.commit_log.path_of(item.physical_offset))
                yield pa.RecordBatch.from_pylist([row], schema=schema)

    def verify(self, level: int = 3) -> Document:
        """Return the document of `rmqctl verify --level LEVEL -o json`, 1 to 3."""
        from rmqctl.forensics.verify import Verification

        store = self._store if level == 1 else self._with_queues()
        verification = Verification(store, level, self._threads)
        verification.run()
        return self._document("verify", verification.report.to_json())

    def query(self, *, by_scan: bool = False, body: str = "none", **asked: Any) -> Document:
        """Return the document of `rmqctl query -o json`.

        `asked` are its options: topic, key, ids (a tuple), msg_id, unique_key, queue_id, offset, at (ms since 1970).
        `by_scan` is --scan. Raises BadRequest if nothing is asked.
        """
        from rmqctl.forensics.search import Question, Search

        store = self._store if by_scan else self._with_queues()
        search = Search(store, _question(Question, asked), bodies=Bodies(body), threads=self._threads)
        return self._document("query", {"items": list(search.by_scan() if by_scan else search.rows())})

    def trace(self, *, by_scan: bool = False, body: str = "none", **asked: Any) -> Document:
        """Return the document of `rmqctl trace -o json`.

        `asked` is one of key, unique_key, msg_id, offset (physical) and ids (a tuple), and maybe topic. `by_scan` is
        --scan. Raises BadRequest if nothing is asked.
        """
        from rmqctl.forensics.trace.document import document
        from rmqctl.forensics.trace.trace import Question, Trace

        question, bodies = _question(Question, asked), Bodies(body)
        trace = Trace(
            [self._store],
            question,
            threads=self._threads,
            warm_up=lambda: warm_up(scan, filter_scan, size=self._store.commit_log.queue.allocated),
            by_scan=by_scan,
            bodies=bodies,
        )
        return self._document("trace", document(trace, [self._name]))

    def lag(self, group: str | None = None) -> Document:
        """Return the document of `rmqctl lag -o json`, of one group or of all."""
        from rmqctl.forensics.groups.document import document
        from rmqctl.forensics.groups.lag import Lag
        from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups

        groups = ConsumerGroups(self._with_queues())
        if group is not None:
            groups.check_group(group)
        return self._document("lag", document(Lag(self._store, group, groups=groups), self._name))

    def _document(self, verb: str, found: Document) -> Document:
        return {"schema": f"rmqctl.{verb}/1", "store": self._name} | found


def _question(kind: Any, asked: dict[str, Any]) -> Any:
    unknown = [name for name in asked if name not in kind._fields]
    given = [name for name, value in asked.items() if value is not None and name != "topic"]
    if unknown or not given:
        what = f"there is no condition {unknown[0]!r}" if unknown else "nothing is asked"
        raise BadRequest(what, hint=f"there are {', '.join(kind._fields)}")
    return kind(**asked)


def _ms(when: Time | None) -> int | None:
    if isinstance(when, datetime):
        return round(when.timestamp() * 1000)
    if not (when is None or isinstance(when, int)):
        raise BadRequest(f"{when!r} is no time", hint="give a datetime, or an int of ms since 1970")
    return when


def _message(found: Record) -> Message:
    properties = found.properties
    return Message(
        found.topic,
        found.queue_id,
        found.queue_offset,
        found.physical_offset,
        found.store_timestamp,
        properties.get(KEYS),
        properties.get(TAGS),
        NO_BODIES.plain(found)[0],
        properties,
    )
