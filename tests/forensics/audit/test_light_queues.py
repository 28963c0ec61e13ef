"""Light message queues of stores that seven versions of the real store wrote (`tests/support/light_traffic.py`), with a
restart.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.format.cq_unit import CQ_UNIT
from tests.conftest import DATA, Rmqctl
from tests.support.golden_archive import write_archive

VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in (DATA / "light").iterdir())
UNITS = {"4.9.4": 37, "4.9.7": 70, "5.1.1": 62, "5.1.4": 54, "5.2.0": 54, "5.3.3": 54, "5.5.0": 50}


@pytest.fixture
def light_store(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The store of the version that the test is given."""
    write_archive(DATA / "light" / f"{request.getfixturevalue('version')}.tar.xz", tmp_path)
    return tmp_path / "store"


def queue_bytes(store: Path) -> dict[str, bytes]:
    """The bytes of all queues' files."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in (store / "consumequeue").rglob("0*")
        if path.is_file()
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_healthy_store_has_no_finding(version: str, light_store: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("verify", light_store, "--level", 2)
    assert result.code == 0, result.out
    left_out = {"4.9.4": 2, "5.5.0": 2}.get(version, 0)
    assert result.err.count("already had their queue offset") == left_out


@pytest.mark.parametrize("version", VERSIONS)
def test_rebuilt_queues_are_the_brokers_own(version: str, light_store: Path, rmqctl: Rmqctl) -> None:
    before = queue_bytes(light_store)
    light = b"".join(units for name, units in before.items() if "%LMQ%" in name)
    assert sum(size > 0 for _, size, _ in CQ_UNIT.struct.iter_unpack(light)) == UNITS[version]
    assert rmqctl("rebuild", light_store, "queues", "--yes").code == 0
    assert queue_bytes(light_store) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_so_are_those_of_a_store_that_lost_them(version: str, light_store: Path, rmqctl: Rmqctl) -> None:
    before = queue_bytes(light_store)
    for name in before:
        (light_store / name).unlink()
    conf = light_store.parent / "broker.conf"
    conf.write_text(
        "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
    )
    assert rmqctl("rebuild", light_store, "queues", "--broker-conf", conf, "--yes").code == 3
    assert queue_bytes(light_store) == before
