"""The situation of a store: its lagging groups and its next cleanup.

A group that is behind is not damage, and a broker deletes old files every day. But an operator wants to know which
groups are behind, and which files the next cleanup deletes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import RmqctlError
from rmqctl.forensics.groups.lag import Lag
from rmqctl.operations.clean.disk_use import disk_use
from rmqctl.operations.clean.plan import plan_expiry
from rmqctl.store.config.clean_config import known_to
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.read.consumers.consumer_groups import is_broker_group

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.clean.plan_types import PendingCounts
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class GroupBehind(NamedTuple):
    """The number of messages that a group has not consumed yet, including retries."""

    group: str
    behind: int


class NextCleanup(NamedTuple):
    """What a broker would delete now, and how many messages are still needed."""

    files: int
    bytes: int
    waiting: PendingCounts


class Situation(NamedTuple):
    """The groups that are behind, and the next cleanup if it can be planned."""

    groups: tuple[GroupBehind, ...] = ()
    cleanup: NextCleanup | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the situation for a JSON document."""
        cleanup = self.cleanup
        return {
            "groups": [group._asdict() for group in self.groups],
            "expiry": None
            if cleanup is None
            else {"fileCount": cleanup.files, "bytes": cleanup.bytes, "waiting": cleanup.waiting._asdict()},
        }


def situation_of(store: ReadOnlyStore, profile: Profile) -> Situation:
    """Return the situation of a store, without the parts that cannot be read."""
    try:
        totals = Lag(store, counts_delayed=False).totals
    except OSError:
        return Situation()
    behind = tuple(
        GroupBehind(total.group, total.behind) for total in totals if total.behind and not is_broker_group(total.group)
    )
    return Situation(tuple(sorted(behind, key=lambda group: -group.behind)), _next_cleanup(store, profile))


def _next_cleanup(store: ReadOnlyStore, profile: Profile) -> NextCleanup | None:
    storage = store.storage
    try:
        plan = plan_expiry(
            store,
            known_to(profile, store.conf.expiry),
            profile,
            now_ms=time.time_ns() // 1_000_000,
            disks=[disk_use(storage, path, profile) for path in store.path.commitlogs],
            logics_disk=disk_use(storage, store.path.part(CONSUMEQUEUE), profile),
        )
    except (RmqctlError, OSError):
        return None
    return NextCleanup(len(plan.going), plan.bytes, plan.waiting)
