"""Wait for what another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(check: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not check() and time.monotonic() < end:
        time.sleep(0.005)
    return check()
