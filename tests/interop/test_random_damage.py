"""After `recover`, a broker serves all that it served before random damage, or the plan counted it as lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.random_damage import verdicts
from tests.real_store.harness import VERSIONS

pytestmark = pytest.mark.interop

SEED = "interop"
CASES_A_VERSION = 22


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_serves_no_less_after_recover(version: str, tmp_path: Path) -> None:
    found = verdicts(SEED, version, range(CASES_A_VERSION), tmp_path)
    failures = [f"python -m tests.damage {case}: {what}" for case, _, untold in found for what in untold]
    assert not failures, "\n".join(failures)
    assert sum(verdict.has_plan for verdict in found) > CASES_A_VERSION * 2 // 3
