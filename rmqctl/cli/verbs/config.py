"""`rmqctl config show`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, print_table, remark
from rmqctl.cli.shared.options import open_store, output_option, store_argument
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import ExitCode

if TYPE_CHECKING:
    from rmqctl.store.read.consumer_groups import GroupProgress
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]
NO_OFFSET = "none"


class ConfigVerbs(click.Group):
    """`show`, which is the only one: also named where a store stands in its place."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail("the verb is `rmqctl config show STORE`")
        return super().resolve_command(ctx, args)


@click.group(name="config", cls=ConfigVerbs, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """The broker's configuration kept in the store (config/*.json)."""


@command.command(
    "show",
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples=(
        ("rmqctl config show store", "topics, groups, and how far each group is behind"),
        (
            "rmqctl config show store -o json | jq '.offsets[] | select(.behind > 0)'",
            "groups that have messages to consume",
        ),
    ),
)
@store_argument
@output_option("table", "json")
def show(store: Path, broker_conf: Path | None, follow_links: bool, output: str) -> int:
    """Topics, consumer groups, and the offsets of groups and delay levels.

    `behind` is how many messages a group has still to consume: from its offset on, or from the queue's MINOFFSET where the offset lies
    before it, because the messages in between were deleted. A queue of a topic that the group reads may have no offset of
    the group: then the offset is "none" (null in JSON), and all messages of the queue count as behind. If a broker rejects
    a file (not JSON, or a value of a wrong type), its .bak is read instead, as a broker does; stderr reports it (exit 1).
    """
    opened = open_store(store, broker_conf, follow_links)
    document, problems = _document(opened)
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
        remark("there is no configuration in this store")
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


def _document(store: ReadOnlyStore) -> tuple[Row, list[str]]:
    from rmqctl.forensics.audit.state_audit import config_files
    from rmqctl.store.config.config_file import table
    from rmqctl.store.config.topics import SCHEDULE_TOPIC

    configs = {config.name: config for config in config_files(store)}
    problems = [f"config/{config.name}: {config.problem}" for config in configs.values() if config.problem]

    def part(name: str, key: str, row: Callable[[str, Row], Row]) -> list[Row]:
        found = table(configs[name], key) if name in configs else {}
        return [row(item, value) for item, value in sorted(found.items()) if isinstance(value, dict)]

    document = {
        "topics": part("topics.json", "topicConfigTable", lambda name, value: {"topic": name} | value),
        "groups": part("subscriptionGroup.json", "subscriptionGroupTable", lambda name, value: {"group": name} | value),
        "offsets": [
            {"group": known.group, "topic": known.topic, "queueId": known.queue_id}
            | _progress(store, known.topic, known.queue_id, known.offset)
            for known in _all_progress(store)
        ],
        "delayOffsets": [
            {"level": queue_id + 1} | _progress(store, SCHEDULE_TOPIC, queue_id, offset)
            for queue_id, offset in _delays(store)
        ],
    }
    return document, problems


def _delays(store: ReadOnlyStore) -> list[tuple[int, int | None]]:
    """How far the delivery of each delay level is, by its queue; None: delayOffset.json says nothing of a level that has a queue."""
    from rmqctl.store.config.topics import SCHEDULE_TOPIC
    from rmqctl.store.read.consumer_offsets import delay_offsets

    stored = {found.queue_id: found.offset for found in delay_offsets(store)}
    queues = {queue_id for topic, queue_id in store.queues if topic == SCHEDULE_TOPIC}
    return [(queue_id, stored.get(queue_id)) for queue_id in sorted(stored.keys() | queues)]


def _all_progress(store: ReadOnlyStore) -> list[GroupProgress]:
    """How far each group is in each queue of its topics, and in queues that it has an offset for and the store has not."""
    from rmqctl.store.read.consumer_groups import ConsumerGroups, GroupProgress
    from rmqctl.store.read.consumer_offsets import consumer_offsets

    groups = ConsumerGroups(store)
    stored = [
        GroupProgress(known.owner, known.topic, known.queue_id, known.offset) for known in consumer_offsets(store)
    ]
    without = [known for key in store.queues for known in groups.progress(key) if known.offset is None]
    return sorted([*stored, *without], key=lambda known: known[:3])


def _progress(store: ReadOnlyStore, topic: str, queue_id: int, offset: int | None) -> Row:
    from rmqctl.forensics.audit.state_audit import queue_end

    queue = store.queues.get((topic, queue_id))
    end = queue_end(store, topic, queue_id) if queue is not None else None
    if queue is None or end is None:
        return {"offset": offset, "minOffset": None, "maxOffset": end, "behind": None}
    begin = queue.min_offset(store.commit_log.min_offset)
    return {"offset": offset, "minOffset": begin, "maxOffset": end, "behind": end - max(offset or 0, begin)}
