"""`rmqctl job timeline`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from rmqctl.cli.job.job_run import columns_of, finish, job_run, print_result, rows_of, scanned, shown
from rmqctl.cli.job.spark_options import spark_options, stores_argument
from rmqctl.cli.shared.options import output_option, progress_option
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.cli.shared.times import UNIT_MS
from rmqctl.cli.shared.verb import SCAN_VERB, Verb

KEYS = ("broker", "store", "topic", "time", "timestamp", "messages", "bytes")
COLUMNS = columns_of("TIME=time BROKER=broker TOPIC=topic MESSAGES=messages BYTES=bytes")
INTERVAL_MAX_MS = 86_400_000


def _interval_ms(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,5})([smhd])", text, re.ASCII)
    length = int(found[1]) * UNIT_MS[found[2]] if found else 0
    if not 0 < length <= INTERVAL_MAX_MS:
        raise ValueError(f"{text!r} is no interval: use 1s to 1d, such as 10s, 5m, 1h")
    return length


@click.command(
    cls=Verb,
    short_help="Messages and bytes by interval.",
    exit_codes=SCAN_VERB,
    examples="""
        # messages of each broker by minute: a minute without a message has no line
        rmqctl job timeline /mnt/incident/*/store
        # messages of each topic in intervals of ten seconds, for a spreadsheet
        rmqctl job timeline store --interval 10s --by topic -o csv > timeline.csv
    """,
)
@stores_argument
@click.option(
    "--interval",
    "interval_ms",
    type=Parsed("INTERVAL", _interval_ms),
    default="1m",
    help="The length of an interval, 1s to 1d.",
)
@click.option(
    "--by",
    type=click.Choice(("broker", "topic")),
    default="broker",
    help="Print one line for each broker, or one line for each topic of each broker.",
)
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
def command(stores: tuple[Path, ...], interval_ms: int, by: str, output: str) -> int:
    """Count the messages that were stored in each interval, by broker or topic.

    The times in the output are store times in UTC. The beginning of each interval is a multiple of the interval's
    length. An interval without messages has no line. `timeline` exits with 1 if the log is damaged.
    """
    from rmqctl.spark.question.log_records import ask
    from rmqctl.spark.question.timeline import COLUMNS as NEEDED
    from rmqctl.spark.question.timeline import timeline

    by_topic = by == "topic"
    with job_run("timeline", stores) as run:
        rows, read = ask(
            [run.groups(NEEDED, by, interval_ms)],
            lambda groups: rows_of(timeline(groups, interval_ms, by_topic=by_topic)),
        )
    found = [shown(row, KEYS) for row in rows]
    found.sort(key=lambda row: (row["timestamp"], row["broker"], row["store"], row["topic"] or ""))
    document = scanned(read[0]) | {"intervalMs": interval_ms, "intervals": found}
    print_result(run, document, "intervals", output, KEYS, COLUMNS)
    return finish(run, read)
