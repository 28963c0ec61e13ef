"""kill -9 while messages are put: what was acknowledged is there, nothing is torn, no queue has a gap.

tests/interop/test_killed_stores.py has more of these, and the real store recovers them.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.format.message import Damage
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.killed_writer import assert_no_gaps, killed_while_writing
from tests.support.small_store import stored

KILLS = 3


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_acknowledged_messages_are_there(mode: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged_in_all = 0
    for kill in range(KILLS):
        root = tmp_path / f"{mode}-{kill}"
        acknowledged = killed_while_writing(root, mode, chance.uniform(0.02, 0.15))
        messages = stored(root)
        assert {message.physical_offset for message in messages} >= set(acknowledged)
        assert_no_gaps((message.queue_id, message.queue_offset) for message in messages)
        assert not [item for item in ReadOnlyStore(root).commit_log.scan() if isinstance(item, Damage)]
        assert (root / "abort").exists()
        acknowledged_in_all += len(acknowledged)
    assert acknowledged_in_all > KILLS
