"""Doctor's next commands, followed to their end: no command makes a broker serve fewer messages than before the first.

What a broker serves is rmqctl's own simulation of a start; tests/interop/test_doctored_stores.py asks the real one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import DATA, apply_damage, damage_cases, each_damage
from tests.damage.case import Case, conf_of, draw
from tests.damage.chain import follow, served
from tests.damage.pristine import Pristine, stores_of

CASES = damage_cases()
FEW, MANY = ("497-basic", "broker-533"), 24


def made(case: Case, stores: dict[str, Pristine], folder: Path) -> tuple[Path, Path, str]:
    """The damaged store, its broker.conf, and the profile of its broker."""
    case.make(stores, folder / "store")
    return folder / "store", conf_of(folder / "store"), stores[case.store].profile


@each_damage()
def test_the_advice_on_a_damage_loses_nothing(name: str, tmp_path: Path) -> None:
    base = CASES[name]["base"]
    root, conf, profile = made(Case("", base, ()), {base: Pristine(base, DATA, tmp_path)}, tmp_path)
    apply_damage(root, CASES[name]["ops"])
    found = follow(root, conf, profile)
    assert (found.fault, bool(found.commands)) == ("", True), found.commands


@pytest.mark.parametrize("number", [pytest.param(at, marks=[] if at < 3 else [pytest.mark.slow]) for at in range(MANY)])
def test_the_advice_on_several_damages_loses_nothing(number: int, tmp_path: Path) -> None:
    stores = stores_of(DATA, tmp_path, lambda name: number >= 3 or name in FEW)
    case = draw("advice", number, list(stores))
    found = follow(*made(case, stores, tmp_path))
    assert not found.fault, f"{case}: {found.commands}"


def test_an_unlisted_topic_keeps_its_queues(tmp_path: Path) -> None:
    """Its entry in topics.json is lost, and so is the first log file, whose cause has a rebuild for its cure."""
    stores = {"broker-533": Pristine("broker-533", DATA, tmp_path)}
    root, conf, profile = made(Case("", "broker-533", ()), stores, tmp_path)
    path = root / "config" / "topics.json"
    content = json.loads(path.read_text())
    del content["topicConfigTable"]["payments"]
    for name in (path, path.with_name("topics.json.bak")):
        name.write_text(json.dumps(content))
    min((root / "commitlog").iterdir()).unlink()
    before = served(root, conf, profile)
    found = follow(root, conf, profile)
    assert (found.fault, len(found.commands)) == ("", 2)
    assert "config restore" in found.commands[0]
    assert "payments" in {place.topic for place in before}
    assert served(root, conf, profile) == before
