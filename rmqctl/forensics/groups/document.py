"""The lag of a store's groups as the document of `rmqctl lag`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.format.timestamp import rfc3339

if TYPE_CHECKING:
    from rmqctl.forensics.groups.lag import GroupLag, Lag, Oldest, QueueLag

Row = dict[str, Any]


def document(lag: Lag, shown: str) -> Row:
    """Return the document of `lag -o json`. `shown` is the name of the store in it."""
    return {
        "store": shown,
        "lastStoreTimestamp": lag.end_ms,
        "lastStoreTime": None if lag.end_ms is None else rfc3339(lag.end_ms),
        "clockWentBack": [fall.to_json() for fall in lag.clock_falls],
        "unlisted": lag.unlisted,
        "groupTotals": [_total_row(lag, total) for total in lag.totals],
        "groups": [_queue_row(lag, row) for row in lag.queues],
        "timers": [
            {"topic": topic, "messages": len(due), "nextDueTimestamp": min(due), "nextDueTime": rfc3339(min(due))}
            for topic, due in sorted(lag.timers.items())
        ],
    }


def _queue_row(lag: Lag, row: QueueLag) -> Row:
    return {
        "group": row.group,
        "topic": row.topic,
        "queueId": row.queue_id,
        "minOffset": row.min_offset,
        "maxOffset": row.max_offset,
        "offset": row.offset,
        "behind": row.behind,
        **_oldest(lag, row.oldest),
        "outside": row.outside,
        "popped": row.popped,
    }


def _total_row(lag: Lag, total: GroupLag) -> Row:
    return {
        "group": total.group,
        "behind": total.behind,
        "behindAtLeast": total.at_least,
        **_oldest(lag, total.oldest),
        "retryDepth": total.retry_depth,
        "retriesDelayed": total.retries_delayed,
        "dlqDepth": total.dlq_depth,
        "popped": total.popped,
        "expiredUnread": total.expired_unread,
    }


def _oldest(lag: Lag, oldest: Oldest | None) -> Row:
    stored_ms = oldest and oldest.stored_ms
    return {
        "oldestStoreTimestamp": stored_ms,
        "oldestStoreTime": None if stored_ms is None else rfc3339(stored_ms),
        "oldestAgeMs": lag.age_ms(oldest),
    }
