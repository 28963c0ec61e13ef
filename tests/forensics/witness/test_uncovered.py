"""Tests of the fields without a checksum, on columns alone."""

from __future__ import annotations

import numpy as np

from rmqctl.forensics.witness.uncovered import CHUNK, UncoveredFields
from rmqctl.forensics.witness.usual import BORN_SPAN_MS, DISTINCT_MAX


def test_many_delayed_messages_need_little_memory() -> None:
    fields = UncoveredFields()
    for chunk in range(2 * DISTINCT_MAX // CHUNK):
        columns = np.zeros((8, CHUNK), np.int64)
        columns[0] = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK)
        columns[2, ::2] = BORN_SPAN_MS + 1 + columns[0, ::2]  # each with a delay of its own
        fields.hear(columns)
    assert len(fields._seen) < DISTINCT_MAX + CHUNK
    assert fields.suspects() == set()


def test_a_flag_that_one_record_has_is_rare_and_one_of_many_is_not() -> None:
    columns = np.zeros((8, CHUNK), np.int64)
    columns[0] = np.arange(CHUNK)
    columns[3, 100:200:2] = 1
    columns[3, 300] = 4
    fields = UncoveredFields()
    fields.hear(columns)
    assert 300 in fields.suspects()
    assert not fields.suspects() & set(range(100, 200))
