"""How every property test runs: the same examples on every machine, and no clock."""

from __future__ import annotations

from hypothesis import settings

PROPERTY = settings(deadline=None, derandomize=True, database=None)
