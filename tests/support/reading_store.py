"""A store for tests of reading: queues of all lengths, times that are known, and parts taken away."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.write.commit_log_writer import PutSettings
from tests.support.small_store import message

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile

SMALL = Geometry(16 * 1024, 200, 100, 400)
LARGE = Geometry(64 * 1024, 20_000, 100, 400)
BEGIN = 1_795_252_516_000
STEP_MS = 700


def write(root: Path, profile: Profile, geometry: Geometry) -> None:
    """Topics `Old` (in the log's first file alone), `OrderPaid` (three queues), `Few` and `Big` (3 KB each), 700 ms
    apart.
    """
    ticks = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "rmqctl.store.engine.message_store.now_ms", lambda: BEGIN + next(ticks) // 2 * STEP_MS
        )  # two at a time
        store = MessageStore.create(root, PutSettings(profile), geometry)
        for topic, queue_id, number, size in _plan():
            made = message(number, topic=topic, queue_id=queue_id, body=bytes([number % 256]) * size)
            assert store.put_message(made).is_ok
        store.close()
    (root / "consumequeue" / "Empty" / "0").mkdir(parents=True)


def _plan() -> Iterator[tuple[str, int, int, int]]:
    yield "Head", 0, 0, 10  # a broker whose log has lost offset 0 gives other bytes for it
    yield from (("Old", 0, number, 40) for number in range(15))
    for number in range(950):
        yield "OrderPaid", 0 if number % 10 else number // 10 % 2 + 1, number, number % 90
        if number % 8 == 0:
            yield "Big", 0, number, 3000
    yield from (("Few", 0, number, 10) for number in range(3))


def first_files_deleted(root: Path, part: str, number: int) -> None:
    """Delete the first files of a folder."""
    for path in sorted((root / part).iterdir())[:number]:
        path.unlink()


WHOLE, RAISED, NO_FIRST = "whole", "log min raised", "leading queue files deleted"
HALF_EXPIRED, NO_MIDDLE = "first queue file left has nothing", "middle queue file deleted"
DAMAGES = (WHOLE, RAISED, NO_FIRST, HALF_EXPIRED, NO_MIDDLE)


def damage(root: Path, how: str) -> None:
    """Take a part away."""
    if how == RAISED:
        first_files_deleted(root, "commitlog", 4)
    elif how == NO_FIRST:
        first_files_deleted(root, "commitlog", 1)
        first_files_deleted(root, "consumequeue/OrderPaid/0", 2)
    elif how == HALF_EXPIRED:
        first_files_deleted(root, "commitlog", 8)
        first_files_deleted(root, "consumequeue/OrderPaid/0", 1)
    elif how == NO_MIDDLE:
        files = sorted((root / "consumequeue" / "OrderPaid" / "0").iterdir())
        files[len(files) // 2].unlink()
