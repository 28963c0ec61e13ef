"""kill -9 while messages are put, fifty times; the real store recovers: all that was acknowledged is served, nothing
torn, no gap.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.real_store.harness import Geometry, RealRocketMQ
from tests.store.engine.test_message_store import SMALL, stored
from tests.support.killed_writer import assert_no_gaps, killed_while_writing

pytestmark = pytest.mark.interop

KILLS = 50
PROFILE_OF = {"4.9.7": "4.9", "5.3.3": "5.3"}
GEOMETRY = Geometry(
    SMALL.commitlog_file_size, SMALL.consumequeue_file_size // 20, SMALL.index_slots, SMALL.index_entries
)
# versions and modes in turn; each kill a test of its own, to run side by side
CASES = [(kill, list(PROFILE_OF)[kill % 2], ("sync", "async")[kill // 2 % 2]) for kill in range(KILLS)]


@pytest.mark.parametrize(("kill", "version", "mode"), CASES)
def test_the_real_store_recovers(kill: int, version: str, mode: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    acknowledged = killed_while_writing(root, mode, random.Random(kill).uniform(0, 0.15), PROFILE_OF[version])
    ours = {message.physical_offset for message in stored(root)}
    assert (root / "abort").exists()
    answer = RealRocketMQ(version).read(root, start=True, geometry=GEOMETRY)
    assert answer["load"] is True
    served = sorted(answer["messages"], key=lambda row: int(row["physicalOffset"]))
    assert {row["physicalOffset"] for row in served} == ours >= set(acknowledged)
    assert all(row["bodyCrc"] == row["crc32"] for row in served)
    assert_no_gaps((row["queueId"], row["queueOffset"]) for row in served)
