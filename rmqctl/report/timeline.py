"""Messages and bytes over time by topic, and how long messages took into the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.forensics.space.log_space import DATED, DELAYS
from rmqctl.format.timestamp import rfc3339

if TYPE_CHECKING:
    from collections import Counter

    from rmqctl.format.columns import Numbers, Rows

COLUMNS_MAX = 96
TOPICS_SHOWN = 7
Mark = tuple[str, str]  # a class of the page's style, and what it stands for
OTHERS = "c8", "all other topics"
DELAY_MARKS: list[Mark] = [
    ("c8", "below 0: clocks differ"),
    ("c2", "under 10 ms"),
    ("c5", "under 100 ms"),
    ("c4", "under 1 s"),
    ("c1", "under 10 s"),
    ("c6", "10 s and more"),
]
_DAY_MS = 86_400_000
DATE_END, SECONDS_END = len("2026-11-21 "), len("2026-11-21T09:15:16")
SECONDS = 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200
STEPS = [int(1000 * seconds) for seconds in SECONDS]


class Timeline(NamedTuple):
    """Counts of messages and bytes in `COLUMNS_MAX` intervals at most.

    Each array has a row for each interval. The columns are the topics of `marks`, the largest first; the last one is
    OTHERS, if there are any.
    """

    begin_ms: int
    step_ms: int
    marks: list[Mark]
    messages: Numbers  # int64
    bytes: Numbers  # int64
    delays: Numbers  # int64, messages; the columns are DELAY_MARKS
    undated: int  # messages with a store time before 1970 or after 2100, which are left out

    def shown(self, at: int) -> str:
        """Return when the interval `at` begins, with ms if it is shorter than a second."""
        return moment(self.begin_ms + at * self.step_ms, SECONDS_END if self.step_ms % 1000 == 0 else None)

    @property
    def end(self) -> str:
        """When the last interval ends; without the date if that is the one of the first."""
        first, last = self.shown(0), self.shown(len(self.messages))
        return last[DATE_END:] if last[:DATE_END] == first[:DATE_END] else last


def moment(ms: int, end: int | None = SECONDS_END) -> str:
    """Return a time for people; the first `end` characters of one with ms."""
    return (rfc3339(ms) or "no date").removesuffix("Z")[:end].replace("T", " ")


def step_of(first_ms: int, last_ms: int) -> int:
    """Return the length of an interval in ms, for a log from `first_ms` to `last_ms`."""
    span = max(last_ms - first_ms, 0)
    for step in STEPS:
        if span // step + 2 <= COLUMNS_MAX:
            return step
    return -(-span // (COLUMNS_MAX - 2) // _DAY_MS) * _DAY_MS or _DAY_MS


def shown_topics(groups: Rows, count: int) -> Numbers:
    """Return the number of the column that shows each of `count` topics.

    The largest topics have a column of their own. `groups` are those of LogSpace.
    """
    of_topics = np.bincount(groups["topic"], groups["bytes"], count)
    largest = np.argsort(-of_topics, kind="stable")[:TOPICS_SHOWN]
    shown = np.full(count, len(largest))
    shown[largest] = np.arange(len(largest))
    return shown


def timeline_of(
    groups: Rows, topics: list[str], shown: Numbers, delays: Counter[int], least_ms: int
) -> Timeline | None:
    """Return the counts over time, from those of LogSpace.

    `groups` and `delays` are its own with `topics_interval_ms=least_ms`, `topics` its topics, and `shown` their
    columns. None if no message has a store time of DATED.
    """
    dated = groups[(groups["timestamp"] >= DATED.start) & (groups["timestamp"] < DATED.stop)]
    undated = int(groups["messages"].sum()) - int(dated["messages"].sum())
    if not len(dated):
        return None
    times = dated["timestamp"]
    step = max(step_of(int(times.min()), int(times.max())), least_ms)
    begin = int(times.min()) // step * step
    largest = np.argsort(shown, kind="stable")[:TOPICS_SHOWN].tolist()
    marks = [(f"c{at}", topics[number]) for at, number in enumerate(largest)]
    marks += [OTHERS] if len(topics) > len(marks) else []
    count = int(times.max() - begin) // step + 1
    messages, size = (
        _table((times - begin) // step, shown[dated["topic"]], dated[field], (count, len(marks)))
        for field in ("messages", "bytes")
    )
    keys = np.array(list(delays), np.int64)
    classes = len(DELAYS) + 1
    of_delay = _table((keys // classes - begin) // step, keys % classes, [*delays.values()], (count, classes))
    return Timeline(begin, step, marks, messages, size, of_delay, undated)


def _table(rows: Numbers, columns: Numbers, counts: Any, shape: tuple[int, int]) -> Numbers:
    return np.bincount(rows * shape[1] + columns, counts, shape[0] * shape[1]).astype(np.int64).reshape(shape)
