"""The message that the options of `append` describe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rmqctl.format.encode import MessageExtBrokerInner

TRANSACTIONS = {"none": 0, "prepared": 4, "commit": 8, "rollback": 12}
OPTIONS_OF_PROPERTIES = {"TAGS": "tags", "KEYS": "keys", "DELAY": "delay_level"}
OF_ONE_MESSAGE = ("topic", "body", "body_file", "tags", "keys", "pairs", "queue_id", "delay_level", "transaction")


def message_of_options(asked: dict[str, Any]) -> MessageExtBrokerInner:
    """Return the message that the options describe."""
    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.operations.append.message_from_json import BORN_HOST, STORE_HOST, checked_properties
    from rmqctl.store.engine.message_store import now_ms
    from rmqctl.store.write.commit_log_writer import TOPIC_LENGTH_MAX, is_topic

    if not is_topic(asked["topic"]):
        raise click.BadParameter(
            f"a topic name has 1 to {TOPIC_LENGTH_MAX} letters, digits and %|-_ only", param_hint="--topic"
        )
    given = _given_properties(asked)
    try:
        found = checked_properties(given, is_copy=False)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    body = asked["body_file"].read() if asked["body"] is None else os.fsencode(asked["body"])
    kind = TRANSACTIONS[asked["transaction"] or "none"]
    return MessageExtBrokerInner(
        asked["topic"], body, found, BORN_HOST, STORE_HOST, now_ms(), asked["queue_id"] or 0, 0, kind
    )


def _given_properties(asked: dict[str, Any]) -> dict[str, str]:
    """Return what --property, --tags, --keys and --delay-level say."""
    if any("=" not in pair for pair in asked["pairs"]):
        raise click.BadParameter("write NAME=VALUE", param_hint="--property")
    said = [pair.partition("=")[::2] for pair in asked["pairs"]]
    said += [(name, str(asked[option])) for name, option in OPTIONS_OF_PROPERTIES.items() if asked[option] is not None]
    given: dict[str, str] = {}
    for name, value in said:
        if name in given:
            raise click.UsageError(
                f"the property {name} is given twice (--tags, --keys and --delay-level set TAGS, KEYS and DELAY)"
            )
        given[name] = value
    return given
