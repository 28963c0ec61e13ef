"""The common code of all jobs that read records of the log.

The code opens the stores and a Spark session, creates the DataFrames of records, shows the progress of the tasks, and
reports what was read.
"""

from __future__ import annotations

from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.cli.job.spark_options import spark_session
from rmqctl.cli.output.render import count_progress, print_document, print_line_of_text, print_rows, remark
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import open_store
from rmqctl.errors import ExitCode
from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.remote_storage import is_remote, root_path, root_text, storage_of
from rmqctl.spark.source.source_stores import broker_of
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rmqctl.spark.question.log_records import LogRecords
    from rmqctl.spark.scan.coverage import Coverage
    from rmqctl.spark.scan.record_counts import RecordCounts
    from rmqctl.spark.scan.split import Split
    from rmqctl.spark.source.bounded_splits import Bounds
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]


class JobRun(NamedTuple):
    """A Spark session with rmqctl's data sources, and the stores of a job."""

    name: str
    spark: SparkSession
    stores: list[ReadOnlyStore]
    layout: dict[str, str]
    split_mib: int

    def records(self, columns: Sequence[str], *stores: ReadOnlyStore) -> LogRecords:
        """Return the records of `stores` (default: of all stores of the job)."""
        from rmqctl.spark.question.log_records import LogRecords

        options = self.layout | {"splitMiB": str(self.split_mib)}
        return LogRecords(self.spark, [path_of(store) for store in stores or self.stores], options, columns)

    def groups(self, columns: Sequence[str], by: str, interval_ms: int = 0) -> LogRecords:
        """Return the message counts of all stores, by broker, topic or queue.

        If `interval_ms` is not 0, there is a separate count for each interval of store time.
        """
        records = self.records(columns)
        options = {**records.options, "by": by, "intervalMs": str(interval_ms)}
        return records._replace(source="rocketmq-groups", options=options)

    def splits_within(self, bounds: Bounds, why: str) -> tuple[Split, ...]:
        """Return the splits that can have records in `bounds`.

        The result is empty if all splits must be read. If splits are left out, this is reported on stderr. At least one
        split is read.
        """
        from rmqctl.spark.scan.split import MIB, splits_of
        from rmqctl.spark.source.bounded_splits import NO_BOUNDS, splits_within

        if bounds == NO_BOUNDS:
            return ()
        logs = [(store.commit_log, store.path.root, self.split_mib * MIB) for store in self.stores]
        every = [split for log in logs for split in splits_of(*log)]
        splits = [split for log in logs for split in splits_within(*log, bounds)]
        if splits == every:
            return ()
        remark(f"reading {len(splits) or 1} of {counted(len(every), 'split')}: the others have no {why}")
        return tuple(splits or every[:1])

    def whole_log(self, only: tuple[Split, ...] = ()) -> Coverage:
        """Read the logs of all stores, or only some splits, and return what was read.

        Raises the errors of `ask`.
        """
        from rmqctl.spark.question.log_records import ask

        groups = self.groups((), "broker")._replace(only=only)
        _, (read,) = ask([groups], lambda table: table.count())
        return read

    @property
    def names(self) -> list[str]:
        """Return the path or the URL of each store."""
        return [path_of(store) for store in self.stores]

    @property
    def is_partial(self) -> bool:
        """Return whether a part of a store could not be read.

        An unreadable part is, for example, a symbolic link, or a folder without read permission.
        """
        return any(store.partly_read for store in self.stores)

    def table(self, name: str, **options: str) -> DataFrame:
        """Return the table of the data source `name`, for all stores of the job."""
        paths = [path_of(store) for store in self.stores]
        return self.spark.read.format(name).options(**self.layout, **options).load(paths)


@contextmanager
def job_run(name: str, stores: Sequence[Path], *, log_only: bool = True) -> Iterator[JobRun]:
    """Open the stores and Spark for the job `name`, and close Spark after the block.

    With `log_only`, the job reads no queues.

    The stores are opened before Spark starts. An error of Spark is reported in one line. Raises BadRequest, Unreadable,
    and the errors of `open_store`.
    """
    opened = [open_store(store, log_only=log_only) for store in dict.fromkeys(stores)]
    layout, conf = {"followLinks": str(kept("follow_links")).lower()}, kept("broker_conf")
    if conf is not None:
        layout["brokerConf"] = str(conf.absolute())
    with spark_session() as spark, count_progress(kept("progress_mode"), name) as told:
        from rmqctl.spark.session.spark_error import quiet_query_logs, spark_errors
        from rmqctl.spark.session.task_watch import watched
        from rmqctl.spark.source.data_source import register

        quiet_query_logs()
        with spark_errors(f"job {name}"), watched(spark, told):
            register(spark)
            yield JobRun(name, spark, opened, layout, kept("split_mib"))


def path_of(store: ReadOnlyStore) -> str:
    """Return the absolute path or the URL of a store."""
    return root_text(store.path.root.absolute())


def rows_of(frame: DataFrame) -> list[Row]:
    """Return all rows of a DataFrame as dicts. Nested rows also become dicts."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def shown(row: Row, keys: Sequence[str]) -> Row:
    """Return the columns `keys` of a row, in this order.

    A time such as `storeTime` is made from `storeTimestamp`, if the row has this. Any other column that the row does
    not have is None.
    """
    return {key: rfc3339(row[f"{key}stamp"]) if f"{key}stamp" in row else row.get(key) for key in keys}


def columns_of(columns: str) -> dict[str, Callable[[Row], Any]]:
    """Return the columns of a table from a text of words `HEADING=key`.

    The result maps each heading to a function that returns the cell of a row.
    """
    pairs = (word.split("=") for word in columns.split())
    return {heading: itemgetter(key) for heading, key in pairs}


def print_result(
    run: JobRun, document: Row, rows: str, output: str, keys: Sequence[str], columns: dict[str, Callable[[Row], Any]]
) -> None:
    """Print a document as JSON, or the document's list `rows` in another format."""
    verb = f"job.{run.name}"
    if len({broker_of(name) for name in run.names}) < len(run.names) and "store" in keys:
        columns = {"STORE": itemgetter("store")} | columns
    if output == "json":
        print_document(verb, {"stores": run.names} | document)
    else:
        print_rows(verb, rows, document[rows], output, keys, columns, head={}, keeps_order=True)  # a query's, too


def print_written(run: JobRun, document: Row, output: str) -> None:
    """Print what a job has written: the document as JSON, or a line for people.

    The document has `to` and `fileCount`; `finish` says on stderr what was read.
    """
    if output == "json":
        print_document(f"job.{run.name}", {"stores": run.names} | document)
        return
    messages = f"{counted(document['messages'], 'message')} in " if "messages" in document else ""
    print_line_of_text(f"{messages}{counted(document['fileCount'], 'file')}: {document['to']}")


def scanned(scan: Coverage) -> Row:
    """Return the counts of messages, bytes, blanks and damages, for JSON."""
    return {name: getattr(scan.counts, name) for name in ("messages", "bytes", "blanks", "damages")}


def unread(counts: Sequence[RecordCounts]) -> str:
    """Return where and why executors could not read a place, and what to do.

    If this host can read the place, the executors lack access or credentials.
    """
    first = next((one for one in counts if one.why_unread), None)
    if first is None:
        return "`rmqctl verify STORE` says which, and why"
    place = root_path(first.unread_path)
    try:
        with MappedFile(storage_of(place.parent, follow_links=True), place, 0, first.unread_at + 1, kept=False) as file:
            file.read(first.unread_at, 1)
    except OSError:
        then = "`rmqctl verify STORE` names every such place"
    else:
        given = (
            "credentials, such as spark.executorEnv.AWS_ACCESS_KEY_ID in spark-defaults.conf"
            if is_remote(place)
            else "a user that may read it"
        )
        then = f"this host reads it, so the executors lack access: give them its {given}"
    return f"{first.unread_path}: {first.why_unread} ({then})"


def finish(run: JobRun, read: Sequence[Coverage], *, found: bool = False) -> int:
    """Report on stderr what was read and what was not read. Return the exit code.

    `found` says whether the job has findings.
    """
    read_counts = [scan.counts for scan in read]
    names = [f"{path_of(store)}: " for store in run.stores] if len(read_counts) > 1 else [""] * len(read_counts)
    for name, counts in zip(names, read_counts, strict=True):
        remark(
            f"{name}read {counted(counts.messages, 'message')} of {counted(counts.bytes, 'byte')}, "
            f"{counted(counts.blanks, 'blank')}, "
            f"{counted(counts.damages, 'damaged place')}"
        )
    for store in run.stores:
        for damage in store.foreign:
            remark(f"{root_text(store.path.root.absolute() / damage.path)}: {damage.detail}")
    is_unread = any(counts.unreadable for counts in read_counts)
    is_damaged = any(counts.damages for counts in read_counts)
    if is_unread:
        remark(f"a part of the log could not be read: {unread(read_counts)}")
    elif is_damaged:
        size = sum(counts.damaged_bytes for counts in read_counts)
        shown = "`rmqctl dump STORE --damaged` shows the records in them"
        unread_bytes = f"{counted(size, 'byte')} in damaged places were not read as messages: {shown}; " if size else ""
        remark(f"{unread_bytes}`rmqctl verify STORE` names the damaged places")
    if run.is_partial or is_unread:
        return int(ExitCode.PARTIAL)
    return int(ExitCode.FINDINGS if found or is_damaged else ExitCode.CLEAN)
