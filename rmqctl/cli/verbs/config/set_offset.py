"""`rmqctl config set-offset`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_fields, print_table_of, print_verdict
from rmqctl.cli.output.tone import Tone
from rmqctl.cli.shared.change import ChangeOptions, Words, check_may_change
from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import OFFSET, open_store, output_option, profile_option, store_argument
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.cli.shared.times import TIME
from rmqctl.cli.shared.verb import CHANGE_VERB, Verb
from rmqctl.cli.views.change.config_change_view import change_config
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.configuration.offset_plan import OffsetGoal, OffsetPlan
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NO_OFFSET = "none"


def _goal(text: str) -> OffsetGoal:
    """Return a position in queues: a word, a time or an offset."""
    from rmqctl.operations.configuration.offset_plan import OffsetGoal

    named = {one.kind: one for one in (OffsetGoal("earliest"), OffsetGoal("latest"), OffsetGoal("undelivered"))}
    if text in named:
        return named[text]
    return OffsetGoal("offset", OFFSET(text)) if text.isdecimal() else OffsetGoal("time", TIME(text))


@dataclass(frozen=True)
class OffsetOptions:
    """The options of `rmqctl config set-offset`."""

    group: str | None
    topic: str | None
    queue: int | None
    delay_level: int | None
    to: OffsetGoal
    new_group: bool
    profile: Profile | None


@click.command(
    "set-offset",
    cls=Verb,
    exit_codes=CHANGE_VERB,
    examples="""
        # let group billing read again all messages that topic orders still has
        rmqctl config set-offset store billing orders --to earliest --dry-run
        # let group billing continue with the messages of the last two hours
        rmqctl config set-offset store billing orders --to -2h --yes
        # skip the unread messages of queue 3
        rmqctl config set-offset store billing orders 3 --to latest --yes
        # continue at one message
        rmqctl config set-offset store billing orders 3 --to 1042 --yes
        # let the broker deliver what waits in delay level 3
        rmqctl config set-offset store --delay-level 3 --to undelivered --dry-run
    """,
)
@store_argument
@click.argument("group", required=False)
@click.argument("topic", required=False)
@click.argument("queue", type=OFFSET, required=False)
@click.option(
    "--to",
    type=Parsed("GOAL", _goal),
    required=True,
    metavar="earliest|latest|undelivered|TIME|OFFSET",
    help="The position at which the group continues to read. A number is a queue offset. A TIME is RFC 3339, -2h, "
    "yesterday, or mqadmin's yyyy-MM-dd#HH:mm:ss:SSS. `undelivered` is for a delay level: its first message that no "
    "delivered copy follows.",
)
@click.option(
    "--delay-level",
    type=click.IntRange(1),
    help="Set where the broker goes on in this level of delayed messages, instead of a group's offsets.",
)
@click.option("--new-group", is_flag=True, help="Set the offsets even if no file in config/ names the group.")
@profile_option("Find the offset for a TIME as brokers of this version do.")
@change_options
@output_option("table", "json")
@options_in(asked=OffsetOptions, how=ChangeOptions)
def command(store: Path, asked: OffsetOptions, how: ChangeOptions) -> int:
    """Set where a consumer group, or a delay level, goes on.

    `set-offset` sets the offsets where consumer group GROUP continues to read TOPIC.

    The broker uses the new offsets after its next start. Without QUEUE, `set-offset` sets the offsets of all queues of
    TOPIC. `earliest` is the first message that a queue still has. `latest` is the end of the queue. For a TIME,
    `set-offset` sets the same offset as the broker does for mqadmin resetOffsetByTime. 5.x finds the first message that
    was stored at this time or later. 4.x finds the message whose store time is nearest to TIME. 4.x also reads the
    modification times of the queue's files. An OFFSET outside the queue is an error.

    `set-offset` writes the offsets into config/consumerOffset.json, and into config/lmqConsumerOffset.json if this file
    exists. The .bak of a changed file gets the file's old content. The entries of other groups and topics stay the
    same, byte for byte. `set-offset` does not skip messages that wait in the topic %RETRY%GROUP. To skip the messages
    in %RETRY%GROUP, also set the offsets of %RETRY%GROUP. Start the broker before the consumers. A slave copies the
    offsets of its master, so change the master's store. Each broker of a cluster has its own queues of the topic, so
    change the store of each broker.

    With --delay-level and without GROUP and TOPIC, `set-offset` writes config/delayOffset.json. A level whose offset is
    after the end of its queue loses what waits in it at the next start of 4.9.2 or later: set it to `undelivered`
    first. The remarks count what an offset skips, and what it delivers again.

    While a broker has the store open, `set-offset` exits with 11, even with --dry-run.
    """
    from rmqctl.store.journal.journals import CONFIG_VERB
    from rmqctl.store.read.version_guess import guess_profile

    opened = open_store(store)
    check_may_change(opened, log_stays=True)
    profile = asked.profile or guess_profile(opened)
    plan = _plan(opened, profile, asked)
    document = {
        "group": plan.group,
        "topic": plan.topic,
        "profile": profile.name,
        "queues": _rows(plan),
        "notes": list(plan.notes),
    }
    nothing = "the level already has this offset" if asked.delay_level else "the group already has these offsets"
    words = Words(CONFIG_VERB + "set-offset", plan.summary, f"Set the offsets of {plan.group}?", "the offsets are set")
    return change_config(opened, plan.files, document, _print, words, nothing, how)


def _plan(store: ReadOnlyStore, profile: Profile, asked: OffsetOptions) -> OffsetPlan:
    from rmqctl.operations.configuration.offset_plan import plan_delay_offset, plan_offsets

    if asked.delay_level is not None:
        if asked.group is not None or asked.new_group:
            raise click.UsageError("--delay-level is instead of GROUP, TOPIC and --new-group")
        return plan_delay_offset(store, profile, asked.delay_level, asked.to)
    if asked.group is None or asked.topic is None:
        raise click.UsageError("GROUP and TOPIC are missing (or --delay-level)")
    if asked.to.kind == "undelivered":
        raise click.UsageError("--to undelivered is for a --delay-level")
    return plan_offsets(store, profile, asked.group, asked.topic, asked.queue, asked.to, new_group=asked.new_group)


def _rows(plan: OffsetPlan) -> list[dict[str, Any]]:
    return [
        {
            "queueId": queue.queue_id,
            "minOffset": queue.min_offset,
            "maxOffset": queue.max_offset,
            "offset": queue.before,
            "newOffset": queue.after,
            "behind": queue.max_offset - queue.after,
        }
        for queue in plan.queues
    ]


def _print(document: dict[str, Any]) -> None:
    moves = [row["newOffset"] - row["offset"] for row in document["queues"] if row["offset"] is not None]
    again, skipped = -sum(min(move, 0) for move in moves), sum(max(move, 0) for move in moves)
    what = f"consumes {counted(again, 'message')} again, and skips {skipped:,}"
    if any(moves):
        print_verdict(f"{document['group']} in {document['topic']}: {what}", Tone.ATTENTION)
    print_fields([("group", document["group"]), ("topic", document["topic"])])
    print()
    keys = ("queueId", "minOffset", "maxOffset", "offset", "newOffset", "behind")
    rows = [row | {"offset": NO_OFFSET if row["offset"] is None else row["offset"]} for row in document["queues"]]
    print_table_of(keys, rows)
