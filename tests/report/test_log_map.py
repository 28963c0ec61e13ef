"""A bar of the map accounts for each byte, however many files there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.forensics.space.log_space import NO_GROUPS
from rmqctl.kernels.group_scan import GROUPS
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.storage import Storage
from rmqctl.report.log_map import BARS_MAX, CELLS, LogMap
from rmqctl.report.timeline import COLUMNS_MAX, step_of

if TYPE_CHECKING:
    from rmqctl.format.columns import Rows

SIZE = 64


@pytest.mark.parametrize(("count", "bars"), [(0, 0), (1, 1), (199, 200), (1000, BARS_MAX)])
def test_each_byte_is_in_one_bar(count: int, bars: int, tmp_path: Path) -> None:
    numbers = [number + (number >= 7) for number in range(count)]  # the eighth file is missing
    for number in numbers:
        (tmp_path / f"{number * SIZE:020d}").write_bytes(bytes(SIZE))
    queue = MappedFileQueue(Storage(tmp_path), [tmp_path])
    found = LogMap(queue, {file.name for file in queue.files[:3]})
    for number in numbers:
        found.put(number * SIZE, number * SIZE + 40, "records", _groups(1, number))
        found.put(number * SIZE + 8, number * SIZE + 16, "placeholders", NO_GROUPS)
        found.put(number * SIZE + 40, number * SIZE + 41, "damaged", NO_GROUPS)
    found.finish(np.arange(2))
    assert len(found.bars) == bars
    sizes = {
        kind: sum(bar.sizes[kind] for bar in found.bars) for kind in ("records", "placeholders", "damaged", "missing")
    }
    gap = SIZE if count > 7 else 0
    assert sizes == {"records": 32 * count, "placeholders": 8 * count, "damaged": count, "missing": gap}
    assert sum(sum(bar.sizes.values()) for bar in found.bars) == SIZE * count + gap
    for bar in found.bars:
        assert sum(run.cells for run in bar.runs) == CELLS
        assert "missing" in [run.kind for run in bar.runs] or "damaged" in [run.kind for run in bar.runs]
    assert sum(bar.of_topics[1] for bar in found.bars if bar.of_topics) == 32 * count
    assert sum(bar.expired for bar in found.bars) == min(count, 3)


def _groups(topic: int, interval: int) -> Rows:
    groups = np.zeros(1, GROUPS)
    groups["topic"], groups["timestamp"], groups["bytes"] = topic, interval, 32
    return groups


@given(st.integers(0, 10**12), st.integers(0, 10**13))
def test_a_timeline_has_few_columns(first: int, span: int) -> None:
    step = step_of(first, first + span)
    assert (first + span) // step - first // step + 1 <= COLUMNS_MAX
