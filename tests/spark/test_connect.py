"""`rmqctl job` as a client of Spark Connect, which --remote names: as here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl, apply_damage, damage_cases, unpack
from tests.support.connect_server import ConnectServer
from tests.support.spark_process import ended

pytestmark = pytest.mark.spark

DAMAGED = "497-basic--body-flip-first-abnormal"


def test_verify(connect: ConnectServer, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Several stores, one of them damaged; the large one is read by splits, each other one by one task."""
    case = damage_cases()[DAMAGED]
    names = ["471-basic", "broker-533", "533-propcrc", case["base"]]
    roots = [unpack(name, tmp_path / name) for name in names]
    apply_damage(roots[-1], case["ops"])
    here = rmqctl("verify", *roots, "-o", "jsonl")
    there = ended(connect.start("job", "verify", *roots, "--remote", connect.url, "-o", "jsonl"))
    assert (there.code, there.out) == (here.code, here.out)
    assert here.code == 1
    assert there.err.count("scanned") == len(roots)
