"""kill -9 while messages are put: what was acknowledged is there, nothing is torn, no queue has a gap."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from rmqctl.store.read_only_store import ReadOnlyStore
from tests.store.test_message_store import stored

KILLS = 25
WRITER = """
import sys
from pathlib import Path
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_services import StoreServices
from tests.store.test_message_store import SMALL, created, message

root, sync = Path(sys.argv[1]), sys.argv[2] == "sync"
services = StoreServices(created(root), sync_flush=sync)
services.__enter__()
print("ready", flush=True)
number = 0
while True:
    result = services.put_message(message(number))
    print(result.status.value, result.append.physical_offsets[0], flush=True)
    number += 1
"""


def killed_while_writing(root: Path, mode: str, seconds: float) -> list[int]:
    """The physical offsets that a writer acknowledged before it was killed."""
    command = [sys.executable, "-c", WRITER, str(root), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(seconds)
        writer.kill()
        lines = writer.stdout.read().splitlines()
    whole = [line.split() for line in lines if len(line.split()) == 2]
    return [int(offset) for status, offset in whole[:-1] if status == "PUT_OK"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_acknowledged_messages_are_there(mode: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged_in_all = 0
    for kill in range(KILLS):
        root = tmp_path / f"{mode}-{kill}"
        acknowledged = killed_while_writing(root, mode, chance.uniform(0, 0.15))
        messages = stored(root)
        assert {message.physical_offset for message in messages} >= set(acknowledged)
        queues = defaultdict(list)
        for message in messages:
            queues[message.queue_id].append(message.queue_offset)
        assert all(offsets == list(range(len(offsets))) for offsets in queues.values())
        assert not [item for item in ReadOnlyStore(root).commit_log.scan() if type(item).__name__ == "Damage"]
        assert (root / "abort").exists()
        acknowledged_in_all += len(acknowledged)
    assert acknowledged_in_all > KILLS
