"""Statistics of puts: RocketMQ's StoreStatsService.

To record puts, set `MessageStore.stats`. Times are rounded down to whole milliseconds. The buckets are RocketMQ's:
`[<=0ms]` has the times under 1 ms.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqctl.store.write.put_message import AppendMessageResult, PutMessageResult

BUCKETS = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
    "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
_BUCKET_STARTS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)


class StoreStats:
    """A counter of puts, which any thread may use; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._started: float | None = None
        self._ended = 0.0
        self._failed = 0
        self._time_max_ms = 0
        self._size_max = 0
        self._distribution = [0] * len(BUCKETS)
        self._times: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def now(self) -> float:
        """Return the time of the clock; call this before a put."""
        return self._clock()

    def record(self, begin: float, results: Sequence[PutMessageResult]) -> None:
        """Count puts that began at the time `begin` and end now."""
        end = self._clock()
        milliseconds = int((end - begin) * 1000)
        with self._lock:
            self._started = begin if self._started is None else min(self._started, begin)
            self._ended = max(self._ended, end)
            self._distribution[bisect_right(_BUCKET_STARTS_MS, milliseconds)] += len(results)
            self._time_max_ms = max(self._time_max_ms, milliseconds)
            for result in results:
                if result.append is None:
                    self._failed += 1
                else:
                    self._add(result.append)

    def _add(self, append: AppendMessageResult) -> None:
        self._times[append.topic] = self._times.get(append.topic, 0) + append.msg_num
        self._sizes[append.topic] = self._sizes.get(append.topic, 0) + append.wrote_bytes
        borders = (*append.physical_offsets, append.wrote_offset + append.wrote_bytes)
        self._size_max = max(self._size_max, *(end - start for start, end in pairwise(borders)))

    def document(self) -> dict[str, Any]:
        """Return the statistics under RocketMQ's names.

        `putMessageSizeMax` is rmqctl's own. Sizes of records are in bytes, times in ms. putTps is the number of
        messages per second, from the start of the first put to the end of the last.
        """
        with self._lock:
            times, sizes = sum(self._times.values()), sum(self._sizes.values())
            seconds = self._ended - self._started if self._started is not None else 0.0
            return {
                "putMessageTimesTotal": times,
                "putMessageFailedTimes": self._failed,
                "putTps": round(times / seconds, 1) if seconds > 0 else 0.0,
                "putMessageSizeTotal": sizes,
                "putMessageAverageSize": round(sizes / max(times, 1), 1),
                "putMessageSizeMax": self._size_max,
                "putMessageEntireTimeMax": self._time_max_ms,
                "putMessageDistributeTime": dict(zip(BUCKETS, self._distribution, strict=True)),
                "putMessageTopicTimesTotal": dict(self._times),
                "putMessageTopicSizeTotal": dict(self._sizes),
            }
