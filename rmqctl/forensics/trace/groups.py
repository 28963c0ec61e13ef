"""The consumer groups that have consumed a message, according to their offsets.

A group has if its offset is greater than the message's queue offset. A broker does not store whether a consumer
received a message, or skipped it because of its tag. If config/subscriptionGroup.json has the group's filter expression
(5.x), `filtered` says whether it excludes the tag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.properties import TAGS
from rmqctl.store.config.config_file import GROUP_TABLE, GROUPS_CONFIG, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.forensics.trace.stage import Stage
    from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups
    from rmqctl.store.read.consumers.pop_checkpoints import Popped
    from rmqctl.store.read.read_only_store import ReadOnlyStore

CONSUMED, WAITING, UNKNOWN = "consumed", "waiting", "unknown"
_ALL_TAGS, _TAG_SEPARATOR = "*", "||"


class GroupState(NamedTuple):
    """The state of one group at one queue offset of a message."""

    group: str
    stage: Stage
    offset: int | None  # queue offset up to which the group has consumed; None: not stored
    state: str
    # messages that the group will consume before this one; None: it has consumed it, or has no offset
    behind: int | None
    filtered: bool | None  # the group's expression in config/ excludes the message's tag; None: it has no expression
    # when the message that the group popped is visible again, in ms since 1970; None: not popped, or acknowledged
    visible_ms: int | None = None


def group_states(
    stages: Iterable[Stage], store: ReadOnlyStore, groups: ConsumerGroups, popped: Popped
) -> list[GroupState]:
    """Return the state of each group at each queue offset of a message in a store.

    `groups` and `popped` are the store's.
    """
    places = {(stage.topic, stage.queue_id, stage.queue_offset): stage for stage in stages}
    found = []
    for (topic, queue_id, queue_offset), stage in places.items():
        of_groups = popped.get((topic, queue_id), {})
        here = {group: offsets[queue_offset] for group, offsets in of_groups.items() if queue_offset in offsets}
        for known in groups.progress((topic, queue_id), here):
            state = _state(known.group, stage, known.offset, _is_filtered(store, known.group, stage))
            found.append(state._replace(visible_ms=here.get(known.group)))
    return found


def _state(group: str, stage: Stage, offset: int | None, filtered: bool | None) -> GroupState:
    if offset is None:
        return GroupState(group, stage, None, UNKNOWN, None, filtered)
    if offset > stage.queue_offset:
        return GroupState(group, stage, offset, CONSUMED, None, filtered)
    return GroupState(group, stage, offset, WAITING, stage.queue_offset - offset, filtered)


def _is_filtered(store: ReadOnlyStore, group: str, stage: Stage) -> bool | None:
    # None if unknown
    listed = table(store.config(GROUPS_CONFIG), GROUP_TABLE).get(group)
    found = listed.get("subscriptionDataSet") if isinstance(listed, dict) else None
    for subscription in found if isinstance(found, list) else ():
        if not isinstance(subscription, dict) or subscription.get("topic") != stage.topic:
            continue
        expression = subscription.get("expression")
        if isinstance(expression, str) and subscription.get("expressionType", "TAG") == "TAG":
            tags = {tag.strip() for tag in expression.split(_TAG_SEPARATOR)}
            return expression.strip() != _ALL_TAGS and stage.record.properties.get(TAGS) not in tags
    return None
