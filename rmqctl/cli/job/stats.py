"""`rmqctl job stats`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.cli.job.job_run import Row, columns_of, finish, job_run, print_result, rows_of, scanned, shown
from rmqctl.cli.job.spark_options import spark_options, stores_argument
from rmqctl.cli.shared.options import output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb

KEYS = (
    "broker", "store", "topic", "queueId", "messages", "bytes", "bodyBytes", "minSize", "avgSize", "maxSize",
    "minQueueOffset", "maxQueueOffset", "firstStoreTimestamp", "firstStoreTime", "lastStoreTimestamp", "lastStoreTime",
    "messagesPerSecond",
)  # fmt: skip
COLUMNS = columns_of(
    "BROKER=broker TOPIC=topic QUEUE=queueId MESSAGES=messages BYTES=bytes AVG=avgSize MAX=maxSize "
    "FIRST=firstStoreTime LAST=lastStoreTime PER_S=messagesPerSecond"
)
DIGITS = 3


@click.command(
    cls=Verb,
    short_help="Messages, bytes, sizes and rates by queue.",
    exit_codes=SCAN_VERB,
    examples="""
        # all brokers' messages, by topic and queue
        rmqctl job stats /mnt/incident/*/store
        # the ten largest queues
        rmqctl job stats store -o json | jq '.queues | sort_by(-.bytes) | .[:10]'
    """,
)
@stores_argument
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
def command(stores: tuple[Path, ...], output: str) -> int:
    """Count messages and bytes by broker, topic and queue.

    `stats` counts each whole message of the log, even if no queue has the message. `stats` also shows the sizes of
    messages, the first and the last store time, and the messages per second between these two times. `stats` exits with
    1 if the log is damaged.
    """
    from rmqctl.spark.question.log_records import ask
    from rmqctl.spark.question.stats import COLUMNS as NEEDED
    from rmqctl.spark.question.stats import stats

    with job_run("stats", stores) as run:
        rows, read = ask([run.groups(NEEDED, "queue")], lambda groups: rows_of(stats(groups)))
    found = sorted(map(_row, rows), key=lambda row: (row["broker"], row["store"], row["topic"], row["queueId"]))
    print_result(run, scanned(read[0]) | {"queues": found}, "queues", output, KEYS, COLUMNS)
    return finish(run, read)


def _row(row: Row) -> Row:
    rate = row["messagesPerSecond"]
    rounded = {
        "avgSize": round(row["avgSize"], DIGITS),
        "messagesPerSecond": None if rate is None else round(rate, DIGITS),
    }
    return shown(row | rounded, KEYS)
