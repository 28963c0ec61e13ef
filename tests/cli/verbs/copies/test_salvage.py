"""`salvage` makes a store of what is left, and leaves its sources alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.format.message import MAGIC_V1
from tests.conftest import Rmqctl, tree_hash

Golden = Callable[[str], Path]


def messages(rmqctl: Rmqctl, store: Path) -> dict[tuple[str, int, int], str]:
    rows = map(json.loads, rmqctl("dump", store, "--body", "base64", "-o", "jsonl").out.splitlines())
    return {(row["topic"], row["queueId"], row["queueOffset"]): row["body"] for row in rows}


@pytest.mark.parametrize("holes", ["placeholder", "compact"])
def test_what_is_whole_comes_back(holes: str, golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, new = golden("497-basic"), tmp_path / "new"
    before = messages(rmqctl, store)
    first, second, *others = sorted((store / "commitlog").iterdir())
    second.unlink()
    for number, file in enumerate((first, *others)):
        file.rename(file.with_name(f"FILE{number:04}.CHK"))
    broken = bytearray((store / "commitlog" / "FILE0000.CHK").read_bytes())
    broken[51200:51712] = bytes(512)
    (store / "commitlog" / "FILE0000.CHK").write_bytes(broken)
    state = tree_hash(store)
    result = rmqctl("salvage", store, "--to", new, "--holes", holes, "-o", "json")
    found = result.document()
    assert (result.code, tree_hash(store)) == (1, state)
    assert len(found["holes"]) == 2
    assert rmqctl("verify", new, "--level", "3").code == 0
    assert rmqctl("doctor", new).code == 0
    after = messages(rmqctl, new)
    assert after.keys() >= before.keys()  # no message moves in its queue
    assert sum(after[key] == body for key, body in before.items()) == found["messages"] < len(before)


def test_a_whole_store_comes_back_byte_for_byte(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, new = golden("497-basic"), tmp_path / "new"
    assert rmqctl("salvage", store, "--to", new, "--dry-run").code == 0
    assert not new.exists()
    assert rmqctl("salvage", store, "--to", new, "-o", "json").document()["grades"]["whole"] == 300
    assert rmqctl("diff", store, new, "-o", "json").document()["ranges"] == []
    assert rmqctl("salvage", store, "--to", new).code == 2


def test_a_dledger_log_becomes_an_ordinary_one(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, new = golden("broker-550-dledger"), tmp_path / "new"
    result = rmqctl("salvage", store, "--to", new, "-o", "json")
    assert (result.code, result.document()["holes"], len(result.document()["generations"])) == (0, [], 1)
    assert messages(rmqctl, new) == messages(rmqctl, store)


def test_nothing_found(tmp_path: Path, rmqctl: Rmqctl) -> None:
    (tmp_path / "file").write_bytes(b"x" * 5000)
    result = rmqctl("salvage", tmp_path / "file", "--to", tmp_path / "new", "-o", "json")
    assert (result.code, result.document()["records"], (tmp_path / "new").exists()) == (4, 0, False)


def moved(log: bytes) -> bytes:
    """The same records, of a broker with another address."""
    data, at = bytearray(log), 0
    while data[at + 4 : at + 8] == MAGIC_V1.to_bytes(4, "big"):
        data[at + 64 : at + 68] = bytes((192, 168, 7, 10))  # STOREHOST
        at += int.from_bytes(data[at : at + 4], "big")
    return bytes(data)


def test_a_log_whose_broker_got_another_address_is_one(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """That of another broker, with other records at the same offsets, is left out, and said."""
    store, other = golden("497-basic"), tmp_path / "other"
    first, _, *rest = sorted((store / "commitlog").iterdir())
    other.write_bytes(moved(first.read_bytes()))
    for file in rest:
        file.write_bytes(moved(file.read_bytes()))
    found = rmqctl("salvage", store, "--to", tmp_path / "new", "--dry-run", "-o", "json")
    assert (found.code, found.document()["messages"], len(found.document()["generations"])) == (0, 300, 1)

    config = tmp_path / "config"
    (store / "config").rename(config)
    (store / "config").symlink_to(config)
    both = rmqctl("salvage", store, other, "--to", tmp_path / "new")
    assert (both.code, "of other logs left out" in both.out) == (1, True)
    assert not (tmp_path / "new" / "config" / "consumerOffset.json").exists()
