"""Links from POP checkpoints and POP acknowledgements to messages (5.x).

A POP checkpoint or acknowledgement names the topic, the queue and the queue offset of a message
(format/body/pop_message.py). A broker stores POP checkpoints and acknowledgements first in rmq_sys_wheel_timer. When
they are due, the broker stores them in rmq_sys_REVIVE_LOG_CLUSTER.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import MsgspecError

from rmqctl.forensics.trace.links import is_pop_topic, own_stage
from rmqctl.forensics.trace.queue_records import by_queue
from rmqctl.forensics.trace.stage import POP_ACK, POP_CHECKPOINT, TIMER, Record, Stage
from rmqctl.format.body import pop_message
from rmqctl.format.message import tags_code
from rmqctl.format.properties import TAGS
from rmqctl.store.config.topics import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.forensics.trace.log_scan import LogScan

_POP_CODES = frozenset(tags_code({TAGS: tag}) for tag in pop_message.BODIES)


def pop_stages(stages: Sequence[Stage], scan: LogScan) -> Iterator[Stage]:
    """Yield the POP checkpoints and acknowledgements for a message in one store."""
    store = scan.store
    first = min((stage.record.message.physical_offset for stage in stages), default=0)
    texts = {(json.dumps(stage.topic, ensure_ascii=False).encode(), b'"q":%d' % stage.queue_id) for stage in stages}

    def may_be_meant(raw: bytes) -> bool:
        return any(topic in raw and queue in raw for topic, queue in texts)

    keys = (key for topic in sorted(filter(is_pop_topic, store.queue_topics)) for key in store.topic_queues(topic))
    for key in keys:
        for record in by_queue(scan, key, first, may_be_meant, codes=_POP_CODES):
            found = _pop_of(record, stages)
            if found is not None:
                kind, group = found
                yield own_stage(TIMER if key[0] == TIMER_TOPIC else kind, record, store)._replace(group=group)


def _pop_of(record: Record, stages: Iterable[Stage]) -> tuple[str, str] | None:
    """Return the kind and the group of a POP message if it names one of `stages`.

    The result is None for any other record.
    """
    tag = record.properties.get(TAGS, "")
    if tag not in pop_message.BODIES:
        return None
    try:
        found = pop_message.decode(tag, bytes(record.message.body))
    except MsgspecError:
        return None
    offsets = found.offsets()
    is_meant = any(
        (stage.topic, stage.queue_id) == (found.t, found.q) and stage.queue_offset in offsets for stage in stages
    )
    kind = POP_CHECKPOINT if tag == pop_message.CHECKPOINT_TAG else POP_ACK
    return (kind, found.c) if is_meant else None
