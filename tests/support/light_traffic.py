"""Messages for light message queues (LMQ), of every kind of topic: what brokers number, dispatch, and leave out."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.real_store.harness import Geometry

SIZES = Geometry(65536, 50, 100, 400)
LIGHT_SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}
ALL = "%LMQ%all"
BOTH = f"%LMQ%home%+%temp#,{ALL}"
PREPARED, COMMIT, ROLLBACK = 4, 8, 12


def light_traffic() -> list[dict[str, Any]]:
    """Lines of `append`: ordinary messages, and copies of stored ones, with the offsets that these had, in topics of
    brokers.
    """
    numbers = count()

    def message(
        topic: str,
        names: str = BOTH,
        copied: str = "",
        queue_id: int = 0,
        sys_flag: int = 0,
        more: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        offsets = {"INNER_MULTI_QUEUE_OFFSET": copied} if copied else {}
        light = {"INNER_MULTI_DISPATCH": names} if names else {}
        found = {"TAGS": "TagA", "UNIQ_KEY": f"0A0102{next(numbers):026X}", **light, **offsets, **(more or {})}
        return {
            "topic": topic,
            "queueId": queue_id,
            "sysFlag": sys_flag,
            "body": "body of a message",
            "properties": found,
        }

    real = {"REAL_TOPIC": "Orders", "REAL_QID": "0"}
    return [
        *(message("Orders", queue_id=number % 2) for number in range(5)),
        message("%RETRY%readers", copied="0,0"),
        message("Orders"),
        message("%RETRY%readers", copied="3,3"),
        message("%DLQ%readers", copied="0,0"),
        message("Orders"),
        message("Orders", ALL),
        message("SCHEDULE_TOPIC_XXXX", copied="1,1", queue_id=2, more={"DELAY": "3", **real}),
        message("Orders"),
        message("rmq_sys_wheel_timer", copied="2,2", more={"TIMER_OUT_MS": "4102444800000", **real}),
        message("Orders"),
        message("RMQ_SYS_TRANS_HALF_TOPIC", more=real),
        message("Orders", ALL, sys_flag=PREPARED),
        message("Orders", ALL),
        message("Orders", ALL, sys_flag=COMMIT),
        message("Orders", ALL, sys_flag=ROLLBACK),
        message("Orders"),
        message("Orders", ""),
    ]
