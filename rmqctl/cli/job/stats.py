"""`rmqctl job stats`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from rmqctl.cli.job.job_run import Row, finish, job_run, print_result, rows_of, scanned, shown
from rmqctl.cli.job.spark_options import spark_options, stores_argument
from rmqctl.cli.output.render import print_table
from rmqctl.cli.shared.options import output_option, progress_option
from rmqctl.cli.shared.sizes import shown_size
from rmqctl.cli.shared.verb import SCAN_VERB, Verb

KEYS = (
    "broker", "store", "topic", "queueId", "messages", "bytes", "bodyBytes", "minSize", "avgSize", "maxSize",
    "minQueueOffset", "maxQueueOffset", "firstStoreTimestamp", "firstStoreTime", "lastStoreTimestamp", "lastStoreTime",
    "messagesPerSecond",
)  # fmt: skip
TOTAL_KEYS = ("topic", "queueCount", *KEYS[4:10], *KEYS[12:])
FIGURES: dict[str, Callable[[Row], Any]] = {
    "MESSAGES": lambda row: f"{row['messages']:,}",
    "BYTES": lambda row: shown_size(row["bytes"]),
    "AVG": lambda row: f"{row['avgSize']:,.0f}",
    "MAX": lambda row: f"{row['maxSize']:,}",
    "FIRST": itemgetter("firstStoreTime"),
    "LAST": itemgetter("lastStoreTime"),
    "PER_S": lambda row: None if row["messagesPerSecond"] is None else f"{row['messagesPerSecond']:,.1f}",
}
TOTALS = {"TOPIC": itemgetter("topic"), "QUEUES": itemgetter("queueCount")} | FIGURES
COLUMNS = {name.upper(): itemgetter(name) for name in ("broker", "topic")} | {"QUEUE": itemgetter("queueId")} | FIGURES
DIGITS = 3
MS_PER_SECOND = 1000


@click.command(
    cls=Verb,
    short_help="Messages, bytes, sizes and rates by queue.",
    exit_codes=SCAN_VERB,
    examples="""
        # all brokers' messages, by topic and by queue
        rmqctl job stats /mnt/incident/*/store
        # the ten largest topics
        rmqctl job stats store -o json | jq '.topics[:10]'
    """,
)
@stores_argument
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
def command(stores: tuple[Path, ...], output: str) -> int:
    """Count messages and bytes by topic over all stores, and by queue.

    The largest topic comes first. JSON has both lists, with exact bytes; JSON Lines and CSV have the queues.

    `stats` counts each whole message of the log, even if no queue has the message. `stats` also shows the sizes of
    messages, the first and the last store time, and the messages per second between these two times. `stats` exits with
    1 if the log is damaged.
    """
    from rmqctl.spark.question.log_records import ask
    from rmqctl.spark.question.stats import COLUMNS as NEEDED
    from rmqctl.spark.question.stats import stats

    with job_run("stats", stores) as run:
        rows, read = ask([run.groups(NEEDED, "queue")], lambda groups: rows_of(stats(groups)))
    found = sorted(rows, key=lambda row: (row["broker"], row["store"], row["topic"], row["queueId"]))
    queues, totals = [_row(row, KEYS) for row in found], [_row(row, TOTAL_KEYS) for row in _totals(found)]
    if output == "table":
        print_table(list(TOTALS), [[cell(row) for cell in TOTALS.values()] for row in totals])
        print()
    print_result(run, scanned(read[0]) | {"topics": totals, "queues": queues}, "queues", output, KEYS, COLUMNS)
    return finish(run, read)


def _totals(queues: list[Row]) -> list[Row]:
    """Return a row for each topic, the largest first."""
    topics: dict[str, list[Row]] = {}
    for row in queues:
        topics.setdefault(row["topic"], []).append(row)
    return sorted((_total(topic, rows) for topic, rows in topics.items()), key=lambda row: -row["bytes"])


def _total(topic: str, queues: list[Row]) -> Row:
    row: Row = {"topic": topic, "queueCount": len(queues)}
    row |= {key: sum(one[key] for one in queues) for key in ("messages", "bytes", "bodyBytes")}
    row |= {key: min(one[key] for one in queues) for key in ("minSize", "firstStoreTimestamp")}
    row |= {key: max(one[key] for one in queues) for key in ("maxSize", "lastStoreTimestamp")}
    seconds = (row["lastStoreTimestamp"] - row["firstStoreTimestamp"]) / MS_PER_SECOND
    rate = row["messages"] / seconds if seconds else None
    return row | {"avgSize": row["bytes"] / row["messages"], "messagesPerSecond": rate}


def _row(row: Row, keys: Sequence[str]) -> Row:
    rate = row["messagesPerSecond"]
    rounded = {
        "avgSize": round(row["avgSize"], DIGITS),
        "messagesPerSecond": None if rate is None else round(rate, DIGITS),
    }
    return shown(row | rounded, keys)
