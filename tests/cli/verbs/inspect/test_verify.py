"""`rmqctl verify` of several stores."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rmqctl.errors import ExitCode
from tests.conftest import Rmqctl, unpack

Stores = tuple[Path, Path, Path]


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    """A whole store, a damaged one, and one that does not exist."""
    whole, damaged = unpack("497-basic", tmp_path / "whole"), unpack("533-basic", tmp_path / "damaged")
    log = next((damaged / "commitlog").iterdir())
    log.write_bytes(b"\0" * 4 + log.read_bytes()[4:])
    return whole, damaged, tmp_path / "nothing"


def test_the_reports_of_several_are_those_of_each(stores: Stores, rmqctl: Rmqctl) -> None:
    result = rmqctl("verify", *stores, "-o", "json")
    document = result.document()
    assert result.code == ExitCode.NOT_A_STORE
    assert document["stores"] == list(map(str, stores))
    for store, report, code in zip(stores[:2], document["reports"][:2], (0, 1), strict=True):
        alone = rmqctl("verify", store, "-o", "json").document() | {"exitCode": code, "seconds": report["seconds"]}
        assert {"schema": "rmqctl.verify/1"} | report == alone
    failed = document["reports"][2]
    assert (failed["store"], failed["exitCode"]) == (str(stores[2]), ExitCode.NOT_A_STORE)
    assert "no such folder" in failed["error"]


def test_the_exit_code_is_the_worst(stores: Stores, rmqctl: Rmqctl) -> None:
    whole, damaged, _ = stores
    assert rmqctl("verify", whole, whole).code == 0
    assert rmqctl("verify", damaged, whole).code == 1


def test_lines_name_their_store(stores: Stores, rmqctl: Rmqctl) -> None:
    rows = rmqctl("verify", *stores, "-o", "jsonl").rows()
    assert {row["store"] for row in rows} == {str(stores[1])}
    table = list(csv.DictReader(rmqctl("verify", *stores, "-o", "csv").out.splitlines()))
    assert [(row["store"], row["code"]) for row in table] == [(row["store"], row["code"]) for row in rows]
    assert "store" not in rmqctl("verify", stores[1], "-o", "jsonl").rows()[0]


def test_the_table_ends_with_a_row_for_each(stores: Stores, rmqctl: Rmqctl) -> None:
    result = rmqctl("verify", *stores)
    last = [line.split() for line in result.out.splitlines()[-3:]]
    assert [line[0] for line in last] == list(map(str, stores))
    assert [line[1:3] for line in last[:2]] != [line[1:3] for line in last[1:]]
    assert last[2][1:] == ["not", "verified", "10"]
    assert f"{stores[2]}: no such folder" in result.err


def test_no_store_is_wrong_usage(rmqctl: Rmqctl) -> None:
    assert rmqctl("verify").code == ExitCode.USAGE
