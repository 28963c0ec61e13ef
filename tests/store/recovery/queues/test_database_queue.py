"""Queues in RocksDB in a simulated start: the queue offsets that it dispatches, and those without a row."""

from __future__ import annotations

import random
import time

import numpy as np

from rmqctl.store.recovery.queues.database_queues import DatabaseQueue


def test_the_runs_are_those_of_all_messages_in_any_order() -> None:
    rng = random.Random(1)
    for _ in range(100):
        queue, put = DatabaseQueue(None, None, 0), set[int]()
        for _ in range(rng.randrange(1, 6)):
            offsets = [rng.randrange(30) for _ in range(rng.randrange(1, 9))]
            queue.put(np.array(offsets))
            put |= set(offsets)
            assert queue.max_offset == offsets[-1] + 1
        assert {at for start, end in queue.runs.tolist() for at in range(start, end)} == put
        assert all(end < start for (_, end), (start, _) in zip(queue.runs[1:], queue.runs[2:], strict=False))
        assert queue.missing == len(set(range(queue.max_offset)) - put)


def test_a_million_messages_of_a_queue_are_put_at_once() -> None:
    queue = DatabaseQueue(None, None, 0)
    began = time.process_time()
    queue.put(np.arange(1_000_000))
    assert (queue.missing, queue.runs.tolist()) == (0, [[0, 1_000_000]])
    assert time.process_time() - began < 0.1
