"""Each damage case: found, at its place, without a traceback, and whatever else is asked of such a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import Rmqctl, apply_damage, damage_cases, each_damage, tree_hash, unpack

CASES = damage_cases()
UNIT_SIZE = 20


def covers(finding: dict[str, Any], path: str, offset: int) -> bool:
    """Whether a finding names the byte at `offset` of the file `path`."""
    if finding["path"] != path or "fileOffset" not in finding:
        return False
    size = finding.get("size", UNIT_SIZE * finding.get("count", 1))
    return bool(finding["fileOffset"] <= offset < finding["fileOffset"] + size)


def test_there_are_all_the_cases() -> None:
    assert len(CASES) == 144


@each_damage()
def test_verify_finds_the_damage_at_its_place(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = CASES[name]
    store = unpack(case["base"], tmp_path)
    apply_damage(store, case["ops"])
    before = tree_hash(store)
    result = rmqctl("verify", store, "-o", "json")
    assert result.code == 1
    for operation in case["ops"]:
        if operation["op"] == "write" and operation["path"].startswith(("commitlog", "consumequeue")):
            assert any(
                covers(finding, operation["path"], operation["offset"]) for finding in result.document()["findings"]
            )
    for arguments in (("info", store), ("dump", store, "-o", "jsonl"), ("queue", store), ("config", "show", store)):
        assert rmqctl(*arguments).code in (0, 1)
    assert tree_hash(store) == before


def test_a_flipped_bit_is_named_to_the_bit(tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = CASES["497-basic--body-flip-last-abnormal"]
    store = unpack(case["base"], tmp_path)
    apply_damage(store, case["ops"])
    operation = next(operation for operation in case["ops"] if operation["op"] == "write")
    finding = rmqctl("verify", store, "--level", "1", "-o", "json").document()["findings"][0]
    assert f"byte {operation['offset']} of the file" in finding["detail"]
    assert finding["topic"] == "OrderPaid"
    assert finding["msgId"] == "C0A8070900002A9F000000000003061F"
