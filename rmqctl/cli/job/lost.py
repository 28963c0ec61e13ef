"""`rmqctl job lost`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.job.job_run import (
    JobRun,
    columns_of,
    finish,
    job_run,
    path_of,
    print_result,
    scanned,
    shown,
)
from rmqctl.cli.job.spark_options import spark_options, stores_argument
from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.options import output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.text import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = (
    "broker", "store", "topic", "queueId", "why", "messages", "bytes", "firstPhysicalOffset", "lastPhysicalOffset",
    "firstStoreTimestamp", "firstStoreTime", "lastStoreTimestamp", "lastStoreTime",
)  # fmt: skip
COLUMNS = columns_of(
    "BROKER=broker TOPIC=topic QUEUE=queueId WHY=why MESSAGES=messages BYTES=bytes "
    "FROM=firstPhysicalOffset TO=lastPhysicalOffset FIRST=firstStoreTime LAST=lastStoreTime"
)


@click.command(
    cls=Verb,
    short_help="Messages that no queue reaches.",
    exit_codes=SCAN_VERB,
    examples="""
        # the topics with messages in the log that consumers miss
        rmqctl job lost /mnt/incident/*/store
        # which messages a rebuild of the queues would restore
        rmqctl rebuild store queues --dry-run
    """,
)
@stores_argument
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
def command(stores: tuple[Path, ...], output: str) -> int:
    """List messages of the log that no queue reaches, by queue.

    If no queue reaches a message, no consumer ever receives the message. The column WHY is `missing-unit` if consumers
    should receive the message. For a missing unit, `rmqctl verify` reports missing-unit or unit-mismatch, and `rmqctl
    rebuild` repairs the queue. WHY is `deleted-topic` if the topic has no queue, is not in config/topics.json, and has
    no offset of a group. WHY is `superseded` if the topic was deleted and created again after the message was stored.
    `lost` does not list prepared and rolled-back messages, because they belong to no queue. `lost` exits with 1 if WHY
    of a message is `missing-unit`, or if the log is damaged.
    """
    from rmqctl.spark.question.lost import COLUMNS as NEEDED
    from rmqctl.spark.question.lost import MISSING_UNIT, ask_lost

    with job_run("lost", stores, log_only=False) as run:
        rows, read = ask_lost(run.records(NEEDED), partial(_units_of, run), _known_topics(run))
    found = sorted(
        (shown(row.asDict(), KEYS) for row in rows),
        key=lambda row: (row["broker"], row["store"], row["topic"], row["queueId"], row["why"]),
    )
    print_result(run, scanned(read) | {"queues": found}, "queues", output, KEYS, COLUMNS)
    remark(f"{counted(sum(row['messages'] for row in found), 'message')} that no queue reaches")
    return finish(run, [read], found=any(row["why"] == MISSING_UNIT for row in found))


def _units_of(run: JobRun, queues: list[tuple[str, str, int]]) -> DataFrame:
    """Return the units of some queues (store, topic, queueId)."""
    return run.table("rocketmq-queues", queues=json.dumps(queues))


def _known_topics(run: JobRun) -> DataFrame:
    """Return the known topics of each store that has a topics.json.

    Known topics are in topics.json or in the offsets of a group, or have a queue.
    """
    from rmqctl.store.read.known_topics import KnownTopics

    rows = []
    for store in run.stores:
        listed = KnownTopics(store).names
        rows += [(path_of(store), topic) for topic in (listed | {topic for topic, _ in store.queues} if listed else ())]
    return run.spark.createDataFrame(rows, "store string, topic string")
