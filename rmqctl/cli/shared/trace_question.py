"""The options that select the message of a trace, which several verbs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rmqctl.cli.shared.option_class import together
from rmqctl.cli.shared.options import OFFSET, POSITIVE, body_options, id_options

if TYPE_CHECKING:
    from rmqctl.forensics.trace.trace import Question

ASKED = ("--id ID[,ID...]", "--key K", "--unique-key U", "--msg-id ID", "--offset N")
LIMIT = 1000  # messages with a key


@dataclass(frozen=True)
class TraceOptions:
    """The options of `rmqctl trace` that select the message."""

    key: str | None
    unique_key: str | None
    ids: tuple[str, ...] | None
    msg_id: str | None
    offset: int | None
    topic: str | None


# the options that select the message, --limit and --scan
trace_options = together(
    id_options,
    click.option("--offset", type=OFFSET, help="The physical offset of any record of the message."),
    click.option("--topic", help="The topic to which the producer sent the message."),
    click.option(
        "--limit",
        type=POSITIVE,
        default=LIMIT,
        help="If a key has several messages, trace at most this many, the oldest first.",
    ),
    click.option("--scan", is_flag=True, help="Read the whole log instead of the index."),
    body_options,
)


def question_of(asked: TraceOptions) -> Question:
    """Return the question of the options.

    Raises UsageError if not exactly one of --id, --key, --unique-key, --msg-id and --offset is given.
    """
    from rmqctl.forensics.trace.trace import Question

    if "" in (asked.key, asked.unique_key):
        raise click.UsageError("--key and --unique-key need a text that is not empty")
    given = [
        value for value in (asked.ids, asked.key, asked.unique_key, asked.msg_id, asked.offset) if value is not None
    ]
    if len(given) != 1:
        raise click.UsageError("ask one of: " + " | ".join(ASKED))
    return Question(**vars(asked))
