"""`rmqctl job` as a client of Spark Connect, which --remote names: as here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl, apply_damage, damage_cases, unpack
from tests.spark.conftest import without_seconds
from tests.support.connect_server import ConnectServer
from tests.support.spark_process import ended

pytestmark = pytest.mark.spark

DAMAGED = "497-basic--body-flip-first-abnormal"


def test_verify(connect: ConnectServer, tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = damage_cases()[DAMAGED]
    root = unpack(case["base"], tmp_path)
    apply_damage(root, case["ops"])
    here = rmqctl("verify", root, "-o", "json")
    there = ended(connect.start("job", "verify", root, "--remote", connect.url, "-o", "json"))
    assert there.code == here.code == 1
    assert without_seconds(there.document()) == without_seconds(here.document())


def test_verify_several_stores(connect: ConnectServer, tmp_path: Path, rmqctl: Rmqctl) -> None:
    names = ["471-basic", "497-lmq", "497-batch", "533-basic", "533-propcrc"]
    roots = [unpack(name, tmp_path / name) for name in names]
    here = rmqctl("verify", *roots, "-o", "jsonl")
    there = ended(connect.start("job", "verify", *roots, "--remote", connect.url, "-o", "jsonl"))
    assert (there.code, there.out) == (here.code, here.out)
    assert there.err.count("scanned") == len(roots)
