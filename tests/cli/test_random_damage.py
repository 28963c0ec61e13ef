"""170 stores with random damage: what must hold for each of them, see `tests.damage.trial`; `python -m tests.damage`
runs more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import DATA
from tests.damage.case import draw
from tests.damage.pristine import Pristine, stores_of
from tests.damage.trial import Trial
from tests.damage.victim import KINDS

pytestmark = pytest.mark.slow

SEED = "ci"
CASES = 170


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pristine]:
    return stores_of(DATA, tmp_path_factory.mktemp("golden"))


def test_there_are_many_kinds_and_stores(stores: dict[str, Pristine]) -> None:
    cases = [draw(SEED, number, list(stores)) for number in range(CASES)]
    assert {kind for case in cases for kind in case.kinds} == KINDS.keys()
    assert {case.store for case in cases} == stores.keys()
    assert len(KINDS) >= 28


@pytest.mark.parametrize("number", range(CASES))
def test_what_must_hold_of_every_store(number: int, stores: dict[str, Pristine], tmp_path: Path) -> None:
    case = draw(SEED, number, list(stores))
    failures = Trial(case, stores, tmp_path).run()
    assert not failures, f"python -m tests.damage {case}"
