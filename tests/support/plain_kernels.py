"""Kernels as plain Python, as for a small store in a new process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqctl.kernels import (
    cq_unit_build,
    cq_unit_compare,
    dispatch_scan,
    index_build,
    index_match,
    queue_offset_range,
    queue_simulate,
    scan,
)
from rmqctl.kernels.warm_up import runs_plain, warm_up

# those of verify, recover, truncate and rebuild; others always run compiled
KERNELS = (
    scan, dispatch_scan, cq_unit_compare, index_match, queue_simulate, queue_offset_range, cq_unit_build, index_build,
)  # fmt: skip


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Run the kernels that a small store needs as plain Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmqctl.kernels.warm_up._READY", set())
        patch.setattr("rmqctl.kernels.warm_up.SMALL_INPUT", 1 << 40)
        warm_up(*KERNELS, size=0)
        assert all(runs_plain(module) for module in KERNELS)
        yield
        warm_up(*KERNELS)
