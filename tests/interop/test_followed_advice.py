"""Doctor's next commands, followed to their end, under the real stores: none serves fewer messages than it would have
served before the first command.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DATA, apply_damage, damage_cases
from tests.damage.case import Case, conf_of, draw
from tests.damage.chain import follow
from tests.damage.pristine import Pristine, copy_store, stores_of
from tests.damage.witness import Log, Place, names_of
from tests.interop.predict import SETTINGS
from tests.real_store.harness import broker_conf, geometry_of
from tests.real_store.restarts import Restarts

pytestmark = pytest.mark.interop

BASES = {"4.7.1": "471-", "4.9.7": "497-", "5.3.3": "533-"}
EACH, RANDOM = 4, 8  # one damage case in four; 1 and 60 were tried by hand
SECONDS, SHOWN = 20, 3


def made(version: str, folder: Path) -> Iterator[tuple[str, Pristine, Path]]:
    """Damaged stores of a version: damage cases, and random combinations."""
    stores = stores_of(DATA, folder, lambda name: name.startswith(BASES[version]))
    cases = [(name, known) for name, known in damage_cases().items() if known["base"] in stores]
    for name, known in cases[::EACH]:
        root = folder / name / "store"
        Case("", known["base"], ()).make(stores, root)
        apply_damage(root, known["ops"])
        yield name, stores[known["base"]], root
    for number in range(RANDOM):
        case = draw(f"advice/{version}", number, list(stores))
        root = folder / f"random-{number}" / "store"
        case.make(stores, root)
        yield str(case), stores[case.store], root


def real_conf(root: Path, pristine: Pristine) -> Path:
    """The broker.conf for a start of the real store at `root`."""
    path = root.with_name(f"{root.name}.real.conf")
    path.write_text(broker_conf(root, geometry_of(pristine.broker_conf()), SETTINGS | pristine.settings))
    return path


def served(answer: dict[str, Any], log: Log) -> dict[Place, bytes]:
    """The records of a log, intact in it, that consumers get; none of a store that does not load."""
    if "error" in answer or "hangs" in answer:
        return {}
    return {
        Place(queue["topic"], queue["queueId"], offset): record
        for queue in answer.get("queues", ())
        for offset, size in zip(queue.get("places", ())[1::3], queue.get("places", ())[2::3], strict=True)
        if (record := log.record(offset, size))
    }


def gone(before: dict[Place, bytes], after: dict[Place, bytes], undamaged: Log) -> list[Place]:
    """The places whose record consumers get neither there any more nor from the queue that it names.

    Where `heal` put a flipped bit right, they get the record as it was before the damage, from the queue that it names.
    """
    right = {place: undamaged.record(place.physical_offset, len(record)) for place, record in before.items()}
    return sorted(
        place
        for place, record in before.items()
        if record not in (after.get(place), after.get(_named(record, place)))
        and not (right[place] and after.get(_named(right[place], place)) == right[place])
    )


def _named(record: bytes, place: Place) -> Place:
    return Place(*names_of(record), place.physical_offset)


def losses(version: str, folder: Path, stores: Iterable[tuple[str, Pristine, Path]]) -> Iterator[str]:
    """Say of each store after its chain of commands which messages its real broker does not serve any more."""
    with Restarts(version, SECONDS) as real:
        for name, pristine, root in stores:
            copy = copy_store(root, folder / "before")
            log, answer = Log(root), real.ask(real_conf(copy, pristine))
            found = follow(root, conf_of(root), pristine.profile)
            before = served(answer.result(), log)
            log, answer = Log(root), real.ask(real_conf(root, pristine))
            lost = gone(before, served(answer.result(), log), Log(pristine.root))
            if lost or found.fault:
                yield f"{name}: {found.commands} {found.fault}: {len(lost)} not served any more: {lost[:SHOWN]}"
            for path in (copy, root):
                shutil.rmtree(path, ignore_errors=True)  # a store may be shutting down


@pytest.mark.parametrize("version", BASES)
def test_no_real_broker_serves_less_after_the_advice(version: str, tmp_path: Path) -> None:
    found = list(losses(version, tmp_path, made(version, tmp_path)))
    assert not found, "\n".join(found)
