"""The dataVersion of a config file (RocketMQ's DataVersion).

By it, name servers and slaves detect changes of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile

COUNTERS = 2**63  # Java's long


def next_version(before: object, profile: Profile, now_ms: int) -> dict[str, Any]:
    """Return the next dataVersion after `before` (DataVersion.nextVersion).

    If `before` is not one, it is the first. In 5.x, it has a stateVersion.
    """
    version: dict[str, Any] = {"stateVersion": 0} if profile.knows_topic_attributes else {}
    if isinstance(before, dict):
        version = before
    counter = version.get("counter")
    counter = (counter if isinstance(counter, int) else 0) + 1
    return dict(sorted({**version, "counter": counter % COUNTERS, "timestamp": now_ms}.items()))
