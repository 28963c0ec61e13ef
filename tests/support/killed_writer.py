"""A process that puts messages, each acknowledged on stdout, until it is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

WRITER = """
import sys
from pathlib import Path
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.format.profile import PROFILES
from rmqctl.kernels.warm_up import cache_where
from rmqctl.store.engine.store_services import StoreServices
from tests.store.engine.test_message_store import SMALL, created, message

cache_where(find_cache)
root, sync, profile = Path(sys.argv[1]), sys.argv[2] == "sync", PROFILES[sys.argv[3]]
services = StoreServices(created(root, profile), sync_flush=sync)
services.__enter__()
print("ready", flush=True)
number = 0
while True:
    result = services.put_message(message(number))
    print(result.status.value, result.append.physical_offsets[0], flush=True)
    number += 1
"""


def killed_while_writing(root: Path, mode: str, seconds: float, profile: str = "4.9") -> list[int]:
    """The physical offsets that a writer acknowledged in `seconds`, before it was killed; `mode` is sync or async."""
    command = [sys.executable, "-c", WRITER, str(root), mode, profile]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(seconds)
        writer.kill()
        lines = writer.stdout.read().splitlines()
    whole = [line.split() for line in lines if len(line.split()) == 2]
    return [int(offset) for status, offset in whole[:-1] if status == "PUT_OK"]


def assert_no_gaps(places: Iterable[tuple[int, int]]) -> None:
    """Pairs of a queueId and a queue offset, in log order: each queue's go up from 0, one by one."""
    queues = defaultdict(list)
    for queue_id, queue_offset in places:
        queues[queue_id].append(queue_offset)
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())
