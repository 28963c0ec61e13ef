"""`rmqctl config show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rmqctl.cli.output.render import print_document, print_table, remark
from rmqctl.cli.shared.options import open_store, output_option, store_argument
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import ExitCode
from rmqctl.forensics.group_progress import configuration

Row = dict[str, Any]
NO_OFFSET = "none"


@click.command(
    "show",
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # topics, groups, and how far each group is behind
        rmqctl config show store
        # groups that have messages to consume
        rmqctl config show store -o json | jq '.offsets[] | select(.behind > 0)'
    """,
)
@store_argument
@output_option("table", "json")
def command(store: Path, broker_conf: Path | None, follow_links: bool, output: str) -> int:
    """Show topics, consumer groups, and the offsets of groups and delay levels.

    `behind` counts the messages that a group has not consumed yet. Messages before the queue's minimum offset are
    deleted: they do not count. A group may read a queue for which it has no offset: then the offset is "none" (null in
    JSON), and all messages of the queue count. If a file is not valid JSON, or has a value of a wrong type, its .bak is
    read instead, as a broker does: stderr reports it, and the exit code is 1.
    """
    opened = open_store(store, broker_conf, follow_links)
    document, problems = configuration(opened)
    if output == "json":
        print_document("config", {"store": str(store)} | document)
    else:
        _print_part("Topics", document["topics"], ("topic", "readQueueNums", "writeQueueNums", "perm", "order"))
        _print_part("Groups", document["groups"], ("group", "consumeEnable", "retryMaxTimes", "retryQueueNums"))
        offsets, delays = _with_words(document["offsets"]), _with_words(document["delayOffsets"])
        _print_part(
            "Offsets of groups", offsets, ("group", "topic", "queueId", "offset", "minOffset", "maxOffset", "behind")
        )
        _print_part("Offsets of delay levels", delays, ("level", "offset", "minOffset", "maxOffset", "behind"))
    if not any(document.values()):
        remark("this store has no configuration: config/ is missing or empty")
    for problem in problems:
        remark(problem)
    for damage in opened.foreign:
        remark(f"{damage.path}: {damage.detail}")
    if opened.partly_read:
        return int(ExitCode.PARTIAL)
    return int(ExitCode.FINDINGS if problems else ExitCode.CLEAN)


def _with_words(rows: list[Row]) -> list[Row]:
    return [row | {"offset": NO_OFFSET if row["offset"] is None else row["offset"]} for row in rows]


def _print_part(what: str, rows: list[Row], keys: tuple[str, ...]) -> None:
    if rows:
        print(what)
        print_table([key.upper() for key in keys], [[row.get(key) for key in keys] for row in rows])
        print()
