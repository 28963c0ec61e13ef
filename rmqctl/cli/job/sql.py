"""`rmqctl job sql`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.job.job_run import JobOptions, finish, job_run, print_result, scanned
from rmqctl.cli.job.spark_options import spark_options, stores_argument
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.spark.question.log_records import LogRecords, Scan
    from rmqctl.spark.scan.split import Split

OTHER_VIEWS = {"queues": "rocketmq-queues", "index": "rocketmq-index"}


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
    """,
)
@click.argument("query")
@stores_argument
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
@options_in(asked=JobOptions)
def command(query: str, stores: tuple[Path, ...], output: str, asked: JobOptions) -> int:
    """Run QUERY, a SELECT in Spark SQL, on views of the stores.

    The views are messages, damage, queues and index, with the following columns.

    messages: broker store path physicalOffset size topic queueId queueOffset bodyCrc bodyLength flag sysFlag
    bornTimestamp bornHost storeTimestamp storeTime storeHost reconsumeTimes preparedTransactionOffset msgId tagsCode
    tags keys uniqKey properties body. damage: broker store path physicalOffset size damage detail, and if the record
    shows them: topic queueId queueOffset storeTimestamp. queues (the units of consume queues): broker store topic
    queueId queueOffset physicalOffset size tagsCode batchSize. index (the entries of the index): broker store path
    entry slot keyHash phyOffset timeDiff storeTimestamp prevIndex.

    QUERY runs with your rights. Therefore QUERY can read any file that you can read, such as csv.`/etc/passwd`, and can
    call any Java method by reflect(). Do not run a QUERY that you do not understand. Do not let other people write a
    QUERY that runs with your rights.

    Bytes are printed as base64, and times as RFC 3339. If you need many rows, use `rmqctl job export`.
    """
    from rmqctl.spark.question.log_records import ask
    from rmqctl.spark.question.sql import columns_of, is_named, rows, select

    if query and " " not in query and Path(query).is_dir():
        raise click.UsageError(f"QUERY comes before STORE: rmqctl job sql 'SELECT ...' {quoted(Path(query))}")
    with job_run("sql", stores, asked) as run:
        for name, source in OTHER_VIEWS.items():
            if is_named(name, query):
                run.table(source).createOrReplaceTempView(name)
        read: list[Scan] = []
        if is_named("messages", query) or is_named("damage", query):
            records = run.records(columns_of(query))
            _make_views(records)
            select(run.spark, query)  # a bad query ends here, before the log is read
            _, read = ask([run.groups((), "broker")], lambda groups: groups.count())
            _make_views(records, read[0].splits)
        answer = select(run.spark, query)
        names, found = answer.columns, rows(answer)
    document = {"columns": names, "rows": found} | ({"scanned": scanned(read[0])} if read else {})
    print_result(run, document, "rows", output, names, {name: _cell(name) for name in names})
    return finish(run, read)


def _make_views(records: LogRecords, splits: Sequence[Split] = ()) -> None:
    """Define the views messages and damage for the query.

    The views read only the parts of the log in `splits`. If `splits` is empty, the views have the whole log. Spark
    checks a query without reading the views.
    """
    from rmqctl.spark.question.sql import views

    for name, frame in views(records.table(splits)).items():
        frame.createOrReplaceTempView(name)


def _cell(name: str) -> Any:
    return lambda row: row[name]
