"""The situation of a store: its lagging groups and its expired files.

Neither is damage, and a broker deletes old files every day. But an operator wants to know which groups are behind, and
how many files have expired.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import RmqctlError
from rmqctl.forensics.groups.lag import Lag
from rmqctl.operations.clean.disk_use import disk_use
from rmqctl.operations.clean.plan import plan_expiry
from rmqctl.store.config.clean_config import known_to
from rmqctl.store.config.store_path import CONSUMEQUEUE, Layout
from rmqctl.store.read.consumers.consumer_groups import is_broker_group

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.clean.plan_types import PendingCounts
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class GroupBehind(NamedTuple):
    """The number of messages that a group has not consumed yet."""

    group: str
    behind: int  # including retries
    at_least: bool  # a queue could not be read


class ExpiredFiles(NamedTuple):
    """The files that a broker would delete if an hour of deleteWhen began now."""

    files: int
    bytes: int
    names: frozenset[str]  # as findings show them
    waiting: PendingCounts  # messages in them that consumers or brokers still need


class Situation(NamedTuple):
    """The groups that are behind, and the expired files if they can be found."""

    groups: tuple[GroupBehind, ...] = ()
    expired: ExpiredFiles | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the situation for a JSON document."""
        expired = self.expired
        return {
            "groups": [
                {"group": one.group, "behind": one.behind, "behindAtLeast": one.at_least} for one in self.groups
            ],
            "expiry": None
            if expired is None
            else {"fileCount": expired.files, "bytes": expired.bytes, "waiting": expired.waiting._asdict()},
        }


def situation_of(store: ReadOnlyStore, profile: Profile) -> Situation:
    """Return the situation of a store, without the parts that cannot be read."""
    try:
        totals = Lag(store, counts_delayed=False).totals
    except OSError:
        return Situation()
    behind = tuple(
        GroupBehind(total.group, total.behind, total.at_least)
        for total in totals
        if (total.behind or total.at_least) and not is_broker_group(total.group)
    )
    return Situation(tuple(sorted(behind, key=lambda group: -group.behind)), _expired_files(store, profile))


def _expired_files(store: ReadOnlyStore, profile: Profile) -> ExpiredFiles | None:
    if store.path.layout in (Layout.ROCKSDB, Layout.COMBINED):  # `clean` refuses
        return None
    storage, settings = store.storage, known_to(profile, store.conf.expiry)
    try:
        plan = plan_expiry(
            store,
            settings,
            profile,
            now_ms=time.time_ns() // 1_000_000,
            hour=next(iter(settings.hours_of_day), None),
            disks=[disk_use(storage, path, profile) for path in store.path.commitlogs],
            logics_disk=disk_use(storage, store.path.part(CONSUMEQUEUE), profile),
        )
    except (RmqctlError, OSError):
        return None
    return ExpiredFiles(len(plan.going), plan.bytes, frozenset(file.path for file in plan.going), plan.waiting)
