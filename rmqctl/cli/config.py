"""`rmqctl config show`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.options import open_store, output_option, store_argument
from rmqctl.cli.render import print_document, print_table, remark
from rmqctl.cli.verb import SCAN_VERB, Verb
from rmqctl.errors import ExitCode

if TYPE_CHECKING:
    from rmqctl.store.read_only_store import ReadOnlyStore

Row = dict[str, Any]


@click.group(name="config", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """The broker's configuration kept in the store (config/*.json)."""


@command.command(
    "show",
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples=(
        ("rmqctl config show store", "topics, groups, and how far each group is behind"),
        ("rmqctl config show store -o json | jq '.offsets[] | select(.behind > 0)'", "groups that have messages to consume"),
    ),
)
@store_argument
@output_option("table", "json")
def show(store: Path, broker_conf: Path | None, follow_links: bool, output: str) -> int:
    """Topics, consumer groups, and the offsets of groups and delay levels.

    `behind` is how many messages a group has still to consume. A file that is not valid JSON is read from its .bak, as a
    broker does; that is said on stderr (exit 1).
    """
    opened = open_store(store, broker_conf, follow_links)
    document, problems = _document(opened)
    if output == "json":
        print_document("config", document)
    else:
        _print_part("Topics", document["topics"], ("topic", "readQueueNums", "writeQueueNums", "perm", "order"))
        _print_part("Groups", document["groups"], ("group", "consumeEnable", "retryMaxTimes", "retryQueueNums"))
        _print_part("Offsets of groups", document["offsets"], ("group", "topic", "queueId", "offset", "maxOffset", "behind"))
        _print_part("Offsets of delay levels", document["delayOffsets"], ("level", "offset", "maxOffset", "behind"))
    if not any(document.values()):
        remark("there is no configuration in this store")
    for problem in problems:
        remark(problem)
    return int(ExitCode.FINDINGS if problems else ExitCode.CLEAN)


def _print_part(what: str, rows: list[Row], keys: tuple[str, ...]) -> None:
    if rows:
        print(what)
        print_table([key.upper() for key in keys], [[row.get(key) for key in keys] for row in rows])
        print()


def _document(store: ReadOnlyStore) -> tuple[Row, list[str]]:
    from rmqctl.forensics.state_audit import config_files
    from rmqctl.store.config import table
    from rmqctl.store.stored_offsets import consumer_offsets, delay_offsets

    configs = {config.name: config for config in config_files(store)}
    problems = [f"config/{config.name}: {config.problem}" for config in configs.values() if config.problem]

    def part(name: str, key: str, row: Callable[[str, Row], Row]) -> list[Row]:
        found = table(configs[name], key) if name in configs else {}
        return [row(item, value) for item, value in sorted(found.items()) if isinstance(value, dict)]

    document = {
        "topics": part("topics.json", "topicConfigTable", lambda name, value: {"topic": name} | value),
        "groups": part("subscriptionGroup.json", "subscriptionGroupTable", lambda name, value: {"group": name} | value),
        "offsets": [
            {"group": found.owner, "topic": found.topic, "queueId": found.queue_id}
            | _progress(store, found.topic, found.queue_id, found.offset)
            for found in consumer_offsets(store)
        ],
        "delayOffsets": [
            {"level": found.queue_id + 1} | _progress(store, found.topic, found.queue_id, found.offset) for found in delay_offsets(store)
        ],
    }
    return document, problems


def _progress(store: ReadOnlyStore, topic: str, queue_id: int, offset: int) -> Row:
    from rmqctl.forensics.state_audit import queue_end

    end = queue_end(store, topic, queue_id) if (topic, queue_id) in store.queues else None
    return {"offset": offset, "maxOffset": end, "behind": None if end is None else end - offset}
