"""Processes that put messages, each acknowledged in a file, until they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

# imports once what takes a second, and makes a process for each line
WRITERS = """
import os
import sys
from pathlib import Path
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.format.profile import PROFILES
from rmqctl.kernels.warm_up import cache_where
from rmqctl.store.engine.store_services import StoreServices
from tests.support.small_store import SMALL, created, message

cache_where(find_cache)


def write(root, mode, profile, acknowledged):
    services = StoreServices(created(Path(root), PROFILES[profile]), sync_flush=mode == "sync")
    services.__enter__()
    with open(acknowledged, "w") as out:
        print(os.getpid(), flush=True)
        for number in range(1_000_000):
            result = services.put_message(message(number))
            print(result.status.value, result.append.physical_offsets[0], file=out, flush=True)


for line in sys.stdin:
    pid = os.fork()
    if not pid:
        write(*line.rstrip().split("\\t"))
    os.waitpid(pid, 0)
    print("ended", flush=True)
"""


@cache
def _writers() -> subprocess.Popen[str]:
    """Ends when this process does."""
    return subprocess.Popen([sys.executable, "-c", WRITERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def killed_while_writing(root: Path, mode: str, seconds: float, profile: str = "4.9") -> list[int]:
    """The physical offsets that a writer acknowledged in `seconds`, before it was killed; `mode` is sync or async."""
    writers, acknowledged = _writers(), root.with_name(f"{root.name}.acknowledged")
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(f"{root}\t{mode}\t{profile}\t{acknowledged}\n")
    writers.stdin.flush()
    writer = int(writers.stdout.readline())
    time.sleep(seconds)
    os.kill(writer, signal.SIGKILL)
    assert writers.stdout.readline() == "ended\n"
    whole = [line.split() for line in acknowledged.read_text().splitlines() if len(line.split()) == 2]
    return [int(offset) for status, offset in whole[:-1] if status == "PUT_OK"]


def assert_no_gaps(places: Iterable[tuple[int, int]]) -> None:
    """Pairs of a queueId and a queue offset, in log order: each queue's go up from 0, one by one."""
    queues = defaultdict(list)
    for queue_id, queue_offset in places:
        queues[queue_id].append(queue_offset)
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())
