"""Stores with damage made at random, restarted by the real store: it comes to what we say that it comes to."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.format.message import Message, head_of
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery.simulation import plan_restart
from tests.conftest import unpack
from tests.real_store.harness import Geometry, RealRocketMQ
from tests.store.recovery.test_simulation import assert_is_the_real_one

pytestmark = pytest.mark.interop

BROKERS = {
    "4.7.1": ("471-crash", PROFILE_4_7),
    "4.9.7": ("497-crash", PROFILE_4_9),
    "5.3.3": ("533-crash", PROFILE_5_3),
}
SIZES = Geometry(65536, 50, 100, 400)
UNIT = 20


def damage(root: Path, rng: random.Random) -> None:
    """One to three things wrong, with or without abort."""
    for harm in rng.sample([flip_body, lag, drop_queue, forget_checkpoint, drop_first_file], rng.randrange(1, 4)):
        harm(root, rng)
    if rng.randrange(2):
        (root / "abort").unlink(missing_ok=True)


def flip_body(root: Path, rng: random.Random) -> None:
    messages = [item for item in ReadOnlyStore(root).commit_log.scan() if isinstance(item, Message) and item.body]
    chosen = rng.choice(messages)
    base = chosen.physical_offset - chosen.physical_offset % SIZES.commitlog_file_size
    path = root / "commitlog" / f"{base:020d}"
    data = bytearray(path.read_bytes())
    at = chosen.physical_offset - base
    data[at + head_of(bytes(data), at).size] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def lag(root: Path, rng: random.Random) -> None:
    for path in sorted((root / "consumequeue").rglob("0*")):
        data = path.read_bytes() if path.is_file() else b""
        used = -(-len(data.rstrip(b"\0")) // UNIT) * UNIT
        kept = max(used - UNIT * rng.randrange(12), 0)
        if data:
            path.write_bytes(data[:kept].ljust(len(data), b"\0"))


def drop_queue(root: Path, rng: random.Random) -> None:
    files = [path for path in sorted((root / "consumequeue").rglob("0*")) if path.is_file()]
    rng.choice(files).unlink()


def forget_checkpoint(root: Path, _: random.Random) -> None:
    (root / "checkpoint").unlink()


def drop_first_file(root: Path, _: random.Random) -> None:
    min((root / "commitlog").iterdir()).unlink()


@pytest.mark.parametrize("version", BROKERS)
@pytest.mark.parametrize("seed", range(5))
def test_the_real_store_comes_to_the_same(version: str, seed: int, tmp_path: Path) -> None:
    base, profile = BROKERS[version]
    root = unpack(base, tmp_path)
    damage(root, random.Random(f"{version}-{seed}"))
    outcome = plan_restart(ReadOnlyStore(root), profile)
    real = RealRocketMQ(version).read(root, start=outcome.refused is None and outcome.hangs is None, geometry=SIZES)
    assert_is_the_real_one({"expected": {"load": real, "restart": {"error": ""} if outcome.hangs else real}}, outcome)
