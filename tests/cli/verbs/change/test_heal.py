"""heal: the plan, the exit codes, and that undo takes it back; `tests/operations/heal` has what is healed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.file_edits import flip_bits, overwrite

FLIPPED = 2856 + 144  # in the body of the record at 265000


def damaged(golden: Callable[[str], Path]) -> Path:
    store = golden("broker-497")
    flip_bits(store / "commitlog" / f"{262144:020d}", FLIPPED, 4)
    return store


def test_it_comes_back_and_undo_takes_it_back(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    whole = tree_hash(golden("broker-497"))
    store = damaged(golden)
    before = tree_hash(store)
    plan = rmqctl("heal", store, "--dry-run", "-o", "json")
    assert (plan.code, tree_hash(store)) == (1, before)
    (healed,) = plan.document()["healed"]
    assert (healed["physicalOffset"], healed["size"], healed["how"]) == (265000, 524, "bit-flip")
    assert "bit 2 of the byte at 265144" in healed["source"]
    assert {"unit", "index"} < set(healed["witnesses"])
    assert plan.document()["messages"] == 1
    assert "265000" in rmqctl("heal", store, "--dry-run").out
    assert (rmqctl("heal", store).code, tree_hash(store)) == (12, before)
    done = rmqctl("heal", store, "--yes")
    assert (done.code, "1 message healed" in done.err) == (3, True)
    assert rmqctl("verify", store).code == 0
    again = rmqctl("heal", store, "--yes")
    assert (again.code, "nothing to heal" in again.out) == (0, True)
    assert rmqctl("undo", store, "--yes").code in (0, 3)
    assert tree_hash(store) == before != whole


def test_what_does_not_come_back_is_told(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    store = damaged(golden)
    overwrite(store, 300_000, b"x" * 100)
    found = rmqctl("heal", store, "--yes", "-o", "json")
    assert (found.code, len(found.document()["healed"]), len(found.document()["lost"])) == (4, 1, 1)
    assert "--keep-going" in found.err
    left = rmqctl("heal", store, "--dry-run", "-o", "json")
    assert (left.code, left.document()["healed"], left.document()["actions"]) == (4, [], [])


def test_a_replica_makes_the_log_equal(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, replica = unpack("broker-497", tmp_path / "a"), unpack("broker-497", tmp_path / "b")
    whole = tree_hash(replica)
    overwrite(store, 300_000, b"x" * 5_000)
    found = rmqctl("heal", store, "--from", replica, "--yes", "-o", "json")
    assert (found.code, {one["how"] for one in found.document()["healed"]}) == (3, {"replica"})
    assert tree_hash(store / "commitlog") == tree_hash(replica / "commitlog")
    assert tree_hash(replica) == whole
    assert rmqctl("verify", store).code == 0


@pytest.mark.parametrize("damage", ["first", "middle", "last", "short", "short last"])
def test_files_come_back(damage: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, replica = unpack("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path / "b")
    whole = tree_hash(store / "commitlog")
    file = {"first": 0, "middle": 1, "last": 3, "short": 1, "short last": 3}[damage]
    path = store / "commitlog" / f"{file * 65536:020d}"
    os.truncate(path, 10_000) if damage.startswith("short") else path.unlink()
    before = tree_hash(store)
    found = rmqctl("heal", store, "--from", replica, "--yes", "-o", "json")
    assert (found.code, tree_hash(store / "commitlog")) == (3, whole)
    assert {one["action"] for one in found.document()["actions"]} <= {"add-file", "resize", "write"}
    assert rmqctl("verify", store).code == 0
    assert rmqctl("heal", store, "--from", replica, "--yes").code == 0
    assert (rmqctl("undo", store, "--yes").code, tree_hash(store)) == (0, before)


def test_what_a_broker_deleted_stays_deleted(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """With fileReservedTime=0, all is older than that."""
    store, replica = unpack("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path / "b")
    (store / "commitlog" / f"{0:020d}").unlink()
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=0")
    found = rmqctl("heal", store, "--from", replica, "--broker-conf", conf, "--yes")
    assert (found.code, "nothing to heal" in found.out) == (0, True)


def test_the_tail_comes_only_if_asked_for(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, replica = unpack("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path / "b")
    assert rmqctl("heal", store, "--tail").code == 2
    assert rmqctl("truncate", store, "--to", "146128", "--yes").code == 3
    left = rmqctl("heal", store, "--from", replica, "--yes")
    assert (left.code, "--tail takes that" in left.err) == (0, True)
    before = tree_hash(store / "commitlog")
    assert rmqctl("heal", replica, "--from", store, "--tail", "--yes").code == 0  # it ends earlier
    found = rmqctl("heal", store, "--from", replica, "--tail", "--yes")
    assert (found.code, "92 messages lay beyond" in found.err) == (3, True)
    assert tree_hash(store / "commitlog") == tree_hash(replica / "commitlog") != before
    assert rmqctl("rebuild", store, "all", "--yes").code == 3
    assert rmqctl("verify", store).code == 0


def test_another_log_is_refused(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, other = unpack("broker-497", tmp_path / "a"), unpack("497-basic", tmp_path / "b")
    overwrite(store, 300_000, b"x" * 5_000)
    before = tree_hash(store)
    found = rmqctl("heal", store, "--from", other, "--yes")
    assert (found.code, found.out, tree_hash(store)) == (4, "", before)
    assert "is another log" in found.err
    assert "at offset 0" in found.err


def test_other_verbs_say_what_would_come_back(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    store = damaged(golden)
    assert "repairable: exact: the damaged record (at 265000)" in rmqctl("verify", store, "-o", "json").err
    plan = rmqctl("recover", store, "--keep-going", "--dry-run", "-o", "json").document()
    assert any("brings back the damaged record that this drops" in note for note in plan["notes"])
    assert rmqctl("doctor", store, "-o", "json").document()["causes"][0]["next"] == f"rmqctl heal {store} --yes"
