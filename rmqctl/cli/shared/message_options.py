"""The message that the options of `append` describe."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import click

if TYPE_CHECKING:
    from rmqctl.format.encode import MessageExtBrokerInner

TRANSACTIONS = {"none": 0, "prepared": 4, "commit": 8, "rollback": 12}


@dataclass(frozen=True)
class MessageOptions:
    """The options of `rmqctl append` for a single message."""

    topic: str | None
    body: str | None
    body_file: BinaryIO | None
    tags: str | None
    keys: str | None
    pairs: tuple[str, ...]
    queue_id: int | None
    delay_level: int | None
    transaction: str | None

    @property
    def is_given(self) -> bool:
        """Return whether the command line has options for a single message."""
        return any(value not in (None, ()) for value in vars(self).values())


def message_of_options(asked: MessageOptions) -> MessageExtBrokerInner:
    """Return the message that the options describe."""
    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.operations.append.message_from_json import BORN_HOST, STORE_HOST, checked_properties
    from rmqctl.store.config.topics import TOPIC_LENGTH_MAX, is_topic
    from rmqctl.store.engine.message_store import now_ms

    topic = asked.topic or ""
    if not is_topic(topic):
        raise click.BadParameter(
            f"a topic name has 1 to {TOPIC_LENGTH_MAX} letters, digits and %|-_ only", param_hint="--topic"
        )
    given = _given_properties(asked)
    try:
        found = checked_properties(given, is_copy=False)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    body = asked.body_file.read() if asked.body_file is not None else os.fsencode(asked.body or "")
    kind = TRANSACTIONS[asked.transaction or "none"]
    return MessageExtBrokerInner(topic, body, found, BORN_HOST, STORE_HOST, now_ms(), asked.queue_id or 0, 0, kind)


def _given_properties(asked: MessageOptions) -> dict[str, str]:
    """Return the properties that --property, --tags, --keys and --delay-level set."""
    if any("=" not in pair for pair in asked.pairs):
        raise click.BadParameter("write NAME=VALUE", param_hint="--property")
    said = [pair.partition("=")[::2] for pair in asked.pairs]
    options = {"TAGS": asked.tags, "KEYS": asked.keys, "DELAY": asked.delay_level}
    said += [(name, str(value)) for name, value in options.items() if value is not None]
    given: dict[str, str] = {}
    for name, value in said:
        if name in given:
            raise click.UsageError(
                f"the property {name} is given twice (--tags, --keys and --delay-level set TAGS, KEYS and DELAY)"
            )
        given[name] = value
    return given
