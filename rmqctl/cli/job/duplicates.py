"""`rmqctl job duplicates`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.cli.job.job_run import Row, finish, job_run, print_result, rows_of, scanned, shown
from rmqctl.cli.job.spark_options import spark_options, stores_argument
from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.options import POSITIVE, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.text import counted

LIMIT = 100_000
KEYS = ("topic", "uniqKey", "count", "bodyCrc", "bodyLength", "places")
COLUMNS = {
    "TOPIC": lambda row: row["topic"],
    "UNIQ_KEY": lambda row: row["uniqKey"],
    "COUNT": lambda row: row["count"],
    "BROKER/QUEUE@PHYSICALOFFSET": lambda row: " ".join(map(_place_words, row["places"])),
}


@click.command(
    cls=Verb,
    short_help="Messages that were stored more than once.",
    exit_codes=SCAN_VERB,
    examples="""
        # messages that were stored twice, on one broker or on several
        rmqctl job duplicates /mnt/incident/*/store
        # their UNIQ_KEYs
        rmqctl job duplicates store -o jsonl | jq -r .uniqKey
    """,
)
@stores_argument
@click.option(
    "--all-topics",
    is_flag=True,
    help="Also search topics of the broker itself: delayed messages, half messages, retries, dead letters.",
)
@click.option(
    "--limit",
    type=POSITIVE,
    default=LIMIT,
    help="Print at most this many messages with their copies.",
)
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
def command(stores: tuple[Path, ...], all_topics: bool, limit: int, output: str) -> int:
    """List messages that were stored more than once.

    A producer that gets no answer sends the message again, even if a broker has already stored the message. All copies
    of one message have the same topic, the same UNIQ_KEY and the same body. Copies that a broker itself makes do not
    count: delivered delayed messages, committed half messages, retries and dead letters. If STORE... are a master and
    its slaves, name only one of these stores. Since 4.9, all messages of one batch have the same UNIQ_KEY. Therefore
    copies do not count if all copies were stored in one queue in the same millisecond. `duplicates` exits with 1 if
    there are duplicates, or if the log is damaged.
    """
    from rmqctl.spark.question.duplicates import COLUMNS as NEEDED
    from rmqctl.spark.question.duplicates import ask_duplicates, first

    with job_run("duplicates", stores) as run:
        rows, read = ask_duplicates(
            run.records(NEEDED), lambda found: rows_of(first(found, limit + 1)), all_topics=all_topics
        )
    found = [_row(row) for row in rows[:limit]]
    print_result(run, scanned(read) | {"copies": found}, "copies", output, KEYS, COLUMNS)
    more = "more than " if len(rows) > limit else ""
    hint = "; a higher --limit prints more" if more else ""
    remark(f"{more}{counted(len(found), 'message')} stored more than once{hint}")
    return finish(run, [read], found=bool(found))


def _row(row: Row) -> Row:
    places = [shown(place, (*place, "storeTime")) for place in row["places"]]
    return {key: row[key] for key in KEYS} | {"places": places}


def _place_words(place: Row) -> str:
    return f"{place['broker']}/{place['queueId']}@{place['physicalOffset']}"
