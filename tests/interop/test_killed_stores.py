"""kill -9 while messages are put, fifty times; the real store recovers: all that was acknowledged is served, nothing
torn, no gap.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.interop.readings import about, for_harness
from tests.real_store.harness import RealRocketMQ
from tests.support.killed_writer import assert_no_gaps, killed_while_writing
from tests.support.small_store import SMALL, stored

pytestmark = pytest.mark.interop

KILLS = 50
PROFILE_OF = {"4.9.7": "4.9", "5.3.3": "5.3"}
GEOMETRY = for_harness(SMALL)


@pytest.mark.parametrize("version", PROFILE_OF)
def test_the_real_store_recovers(version: str, tmp_path: Path) -> None:
    """Half of the kills for each version, and of these half for each mode."""
    kills = range(list(PROFILE_OF).index(version), KILLS, len(PROFILE_OF))
    roots = {kill: tmp_path / str(kill) for kill in kills}
    acknowledged = {}
    for kill, root in roots.items():
        mode = ("sync", "async")[kill // 2 % 2]
        acknowledged[kill] = killed_while_writing(root, mode, random.Random(kill).uniform(0, 0.15), PROFILE_OF[version])
    ours = {kill: {message.physical_offset for message in stored(root)} for kill, root in roots.items()}
    assert all((root / "abort").exists() for root in roots.values())
    answers = RealRocketMQ(version).read_all(list(roots.values()), start=True, geometry=GEOMETRY)
    for kill, answer in zip(roots, answers, strict=True):
        with about(f"kill {kill}"):
            assert answer["load"] is True
            served = sorted(answer["messages"], key=lambda row: int(row["physicalOffset"]))
            assert {row["physicalOffset"] for row in served} == ours[kill] >= set(acknowledged[kill])
            assert all(row["bodyCrc"] == row["crc32"] for row in served)
            assert_no_gaps((row["queueId"], row["queueOffset"]) for row in served)
