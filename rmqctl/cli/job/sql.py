"""`rmqctl job sql`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqctl.cli.job.export_target import MODES, export_target
from rmqctl.cli.job.job_run import finish, job_run, print_result, print_written, scanned
from rmqctl.cli.job.spark_options import spark_options, stores_argument
from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import POSITIVE, LocalPath, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from rmqctl.cli.job.job_run import JobRun, Row
    from rmqctl.spark.question.export.part_files import PartFile
    from rmqctl.spark.scan.coverage import Coverage

T = TypeVar("T")

PATIENCE_SECONDS = 2
LIMIT = 100_000
OTHER_VIEWS = {"queues": "rocketmq-queues", "index": "rocketmq-index"}


@dataclass(frozen=True)
class FileOptions:
    """The options of `job sql` for an answer that is written to files."""

    target: Path | None
    file_format: str
    mode: str


@click.command(
    cls=Verb,
    short_help="A SELECT on messages, damage, queues and index.",
    exit_codes=SCAN_VERB,
    examples="""
        # messages by topic
        rmqctl job sql "SELECT topic, count(*) FROM messages GROUP BY topic" /mnt/incident/*/store
        # any property
        rmqctl job sql "SELECT physicalOffset, properties['TRACE_ID'] FROM messages WHERE keys = 'order-4711'" store
        # the damaged places
        rmqctl job sql "SELECT damage, count(*), sum(size) FROM damage GROUP BY damage" store
        # an answer with many rows, as Parquet
        rmqctl job sql "SELECT physicalOffset, body FROM messages WHERE topic = 'orders'" store --to orders
    """,
)
@click.argument("query")
@stores_argument
@click.option(
    "--limit",
    type=POSITIVE,
    default=LIMIT,
    help="Print at most this many rows. With --to, all rows are written.",
)
@click.option(
    "--to",
    "target",
    metavar="DIR",
    type=LocalPath(),
    help="Write the rows to files in this folder, and print only where. All executors must see DIR under this path.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(("parquet", "jsonl", "csv")),
    default="parquet",
    help="The format of the files in DIR.",
)
@click.option(
    "--mode",
    type=MODES,
    default="error",
    help="What to do if DIR has files: end with an error, replace what `job export` or `job sql` has written, or keep "
    "it and add files.",
)
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
@options_in(files=FileOptions)
def command(query: str, stores: tuple[Path, ...], limit: int, output: str, files: FileOptions) -> int:
    """Run QUERY, a SELECT in Spark SQL, on views of the stores.

    The views are messages, damage, queues and index, with the following columns.

    messages: broker store path physicalOffset size topic queueId queueOffset bodyCrc bodyLength flag sysFlag
    bornTimestamp bornTime bornHost storeTimestamp storeTime storeHost reconsumeTimes preparedTransactionOffset msgId
    tagsCode tags keys uniqKey properties body bodyText (decompressed text, null where that fails). damage: broker store
    path physicalOffset size damage detail, and if the record shows them: topic queueId queueOffset storeTimestamp.
    queues (the units of consume queues): broker store topic queueId queueOffset physicalOffset size tagsCode batchSize.
    index (the entries of the index): broker store path entry slot keyHash phyOffset timeDiff storeTimestamp prevIndex.

    QUERY runs with your rights. Therefore QUERY can read any file that you can read, such as csv.`/etc/passwd`, and can
    call any Java method by reflect(). Do not run a QUERY that you do not understand. Do not let other people write a
    QUERY that runs with your rights.

    If conditions of QUERY compare physicalOffset, storeTimestamp or storeTime with constants, `sql` reads only parts of
    the log that can have such rows, and says so on stderr. Functions that number the rows of Spark's partitions, such
    as monotonically_increasing_id(), then give other numbers. Damage in the other parts is not found, and does not
    change the exit code. For store times, `sql` looks at the first message of each file, and at some inside a
    large one. If these times go back by more than a minute, `sql` reads all of it. If the clock of a broker was wrong
    only between two of them, rows can be missed. To read the
    whole log, write abs(physicalOffset) or abs(storeTimestamp) in place of the column. A condition on topic does not
    reduce what `sql` reads: a message can be in the log and not in its queue, and QUERY must find this message, too.
    With --remote, `sql` always reads the whole log.

    Only ORDER BY gives the rows an order. Bytes are printed as base64, and times as RFC 3339. If the answer has more
    than --limit rows, `sql` says so on stderr, and prints the first rows. With --to, Spark writes all rows to files.
    DIR gets the files in one step when the whole answer is there, as in `rmqctl job export`. If the query fails, or if
    `sql` is killed, DIR stays as it was. In CSV files, bytes are base64. CSV files cannot have maps or lists: let QUERY
    make texts of them, for example by to_json(properties).
    """
    from rmqctl.spark.question.sql import is_named

    if query and " " not in query and Path(query).is_dir():
        raise click.UsageError(f"QUERY comes before STORE: rmqctl job sql 'SELECT ...' {quoted(Path(query))}")
    if files.target is not None and output not in ("table", "json"):
        raise click.UsageError("with --to, -o is table or json: --format is the format of the files")
    with job_run("sql", stores, log_only=not is_named("queues", query)) as run:
        for name, source in OTHER_VIEWS.items():
            if is_named(name, query):
                run.table(source).createOrReplaceTempView(name)
        if files.target is not None:
            return _to_files(run, query, stores, output, files, files.target)
        read: list[Coverage] = []
        if _needs_log(query):
            (names, found), read = _answered(run, query, lambda: _rows(run, query, limit + 1))
        else:
            names, found = _rows(run, query, limit + 1)
    is_cut = len(found) > limit
    found = found[:limit]
    document = {"columns": names, "rows": found} | ({"scanned": scanned(read[0])} if read else {})
    print_result(run, document, "rows", output, names, {name: _cell(name) for name in names})
    if is_cut:
        remark(f"the answer has more than {counted(limit, 'row')}; a higher --limit prints more, and --to writes all")
    return finish(run, read)


def _needs_log(query: str) -> bool:
    from rmqctl.spark.question.sql import is_named

    return is_named("messages", query) or is_named("damage", query)


def _to_files(run: JobRun, query: str, stores: tuple[Path, ...], output: str, files: FileOptions, target: Path) -> int:
    """Write the answer to a query to files. Return the exit code."""
    from rmqctl.spark.question.export.answer_files import write_answer
    from rmqctl.spark.question.export.export_format import SUFFIXES
    from rmqctl.spark.question.sql import refusals, select

    read: list[Coverage] = []
    with export_target(target, stores, files.mode, SUFFIXES[files.file_format]) as there:

        def write() -> list[PartFile]:
            found = select(run.spark, query)
            with refusals():
                return write_answer(found, there.staging, files.file_format)

        if _needs_log(query):
            found, read = _answered(run, query, write)
        else:
            found = write()
        there.publish(found)
    document = {"to": str(target.absolute()), "format": files.file_format, "fileCount": len(found)}
    print_written(run, document | ({"scanned": scanned(read[0])} if read else {}), output)
    return finish(run, read)


def _answered(run: JobRun, query: str, answer: Callable[[], T]) -> tuple[T, list[Coverage]]:
    """Return what `answer` makes of a query on the log, and what was read.

    `answer` may be called several times, and the last result counts. The views are defined before.

    Most queries read the whole log once. Some need only a part of it, such as `LIMIT 10`. Then the whole log is read
    before, to find its splits.
    """
    from pyspark.sql.utils import is_remote

    from rmqctl.spark.question.log_records import ask
    from rmqctl.spark.question.sql import columns_of, division_of, make_views, needed, select
    from rmqctl.spark.scan.coverage import NotAllRead

    columns = columns_of(query)
    why = "rows that the query's conditions on physicalOffset and store time allow"
    only = run.splits_within(needed(run.spark, query, columns), why)
    by = division_of(query, columns)
    records = run.records(columns) if by is None else run.groups([*columns, "messages"], by)
    records = records._replace(only=only)

    def answered(table: DataFrame) -> T:
        make_views(table)
        return answer()

    if not is_remote():  # Spark Connect does not tell what was observed in a view
        with suppress(NotAllRead):
            return ask([records], answered, patience=PATIENCE_SECONDS)
    make_views(records.table(()))
    select(run.spark, query)  # a bad query ends here, before the log is read
    read = run.whole_log(only)
    return answered(records.table(read.splits)), [read]


def _rows(run: JobRun, query: str, limit: int) -> tuple[list[str], list[Row]]:
    """Return the columns and at most `limit` rows of the answer to a query."""
    from rmqctl.spark.question.sql import rows, select

    answer = select(run.spark, query)
    return answer.columns, rows(answer, limit)


def _cell(name: str) -> Any:
    return lambda row: row[name]
