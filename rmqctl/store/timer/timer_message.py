"""What decides when a message of rmq_sys_wheel_timer is delivered, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.properties import TIMER_DELETE_UNIQUE_KEY, TIMER_OUT_MS, UNIQ_KEY, real_queue

if TYPE_CHECKING:
    from rmqctl.format.message import Message

MS_MAX = 2**63 - 1
MS_DIGITS = len(str(MS_MAX))


class TimerMessage(NamedTuple):
    """A message of the timer's queue."""

    physical_offset: int
    size: int  # of the record, in bytes
    queue_offset: int  # in the timer's queue
    due_ms: int | None  # TIMER_OUT_MS, ms since 1970; None: not a number
    topic: str  # REAL_TOPIC; "": the properties name no queue, and no broker delivers the message
    queue_id: int  # REAL_QID
    unique_key: str | None
    deletes: str | None  # TIMER_DEL_UNIQKEY: another message is not to be delivered, nor is this one

    @property
    def is_deliverable(self) -> bool:
        """Whether a broker delivers it, if it is not deleted."""
        return self.due_ms is not None and bool(self.topic) and self.deletes is None

    @property
    def delete_keys(self) -> tuple[str, ...]:
        """Both forms of TIMER_DEL_UNIQKEY for this message.

        It is the UNIQ_KEY, with REAL_TOPIC before it in 5.3.1 to 5.3.4, and by appendTopicForTimerDeleteKey in 5.4.
        """
        return () if self.unique_key is None else (self.unique_key, f"{self.topic}+{self.unique_key}")


def timer_message(message: Message, queue_offset: int) -> TimerMessage:
    """Return what matters of a message of the timer's queue."""
    found = message.properties
    topic, queue_id = real_queue(found) or ("", 0)
    due = found.get(TIMER_OUT_MS, "")
    is_number = due.isascii() and due.isdecimal() and len(due) <= MS_DIGITS and int(due) <= MS_MAX
    return TimerMessage(
        message.physical_offset,
        message.size,
        queue_offset,
        int(due) if is_number else None,
        topic,
        queue_id,
        found.get(UNIQ_KEY),
        found.get(TIMER_DELETE_UNIQUE_KEY),
    )
