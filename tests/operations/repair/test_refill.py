"""Queues in RocksDB are repaired by a start without their database; tests/interop/test_rocksdb_stores.py proves it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import Golden, Rmqctl, tree_hash
from tests.support.file_edits import write_at

KILLED, WHOLE = "550-rocksdb-crash", "broker-550-rocksdb"


def damage_table(root: Path) -> None:
    (table, *_) = sorted((root / "consumequeue").glob("*.sst"))
    write_at(table, 67, b"\xff\x00\xff")


def parts(root: Path) -> set[str]:
    return {
        name for name in ("consumequeue/CURRENT", "consumequeue/LOCK", "checkpoint", "abort") if (root / name).exists()
    }


def test_a_start_after_a_kill_fills_the_queues_itself(golden: Golden, rmqctl: Rmqctl) -> None:
    """5.5.0 serves 150 of 150 then: there is nothing to repair."""
    root = golden(KILLED)
    result = rmqctl("recover", root, "--yes")
    assert (result.code, result.out.endswith("nothing to do\n")) == (0, True)
    told = rmqctl("doctor", root, "-o", "json").document()
    assert [(cause["code"], cause["missedMessages"]) for cause in told["causes"]] == [("broker-died", None)]
    restart = rmqctl("recover", root, "--dry-run", "-o", "json").document()["restart"]
    assert sum(one["maxOffset"] - one["minOffset"] for one in restart["queues"]) == 150


def test_a_start_without_abort_would_miss_the_first_message(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden(KILLED)
    (root / "abort").unlink()
    told = rmqctl("doctor", root)
    assert "miss 1 message afterwards" in " ".join(told.out.split())
    assert f"next: rmqctl recover {root} --yes" in told.out
    assert rmqctl("recover", root, "--yes").code == 3
    assert parts(root) == {"consumequeue/LOCK", "abort"}


def test_an_index_that_no_start_fills_is_rebuilt(golden: Golden, rmqctl: Rmqctl) -> None:
    """5.5.0 finds 280 keys of the whole store, none without the index, and 280 after this."""
    root = golden(WHOLE)
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()
    result = rmqctl("recover", root, "--yes", "-o", "json")
    assert (result.code, [step["action"] for step in result.document()["actions"]]) == (3, ["rebuild-index"])
    assert parts(root) == {"consumequeue/CURRENT", "consumequeue/LOCK"}


@pytest.mark.parametrize("verb", [("recover",), ("rebuild", "queues"), ("rebuild", "all"), ("truncate",)])
def test_the_database_is_removed_and_comes_back(verb: tuple[str, ...], golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden(WHOLE)
    if verb[0] != "truncate":
        damage_table(root)
    if verb == ("recover",):
        told = rmqctl("doctor", root, "-o", "json").document()
        cause = told["causes"][0]
        assert (cause["code"], cause["next"]) == ("database-damaged", f"rmqctl recover {root} --yes")
        assert "does not start: consumequeue: RocksDB: Corruption" in " ".join(rmqctl("doctor", root).out.split())
    if verb[0] == "truncate":
        rows = rmqctl("dump", root, "-o", "jsonl").rows()
        verb = ("truncate", "--to", str(rows[len(rows) // 2]["physicalOffset"]))
    before = tree_hash(root)
    name, *more = verb
    planned = rmqctl(name, root, *more, "--dry-run", "-o", "json")
    assert (planned.code, planned.document()["actions"][-1]["action"]) == (1, "refill-queues")
    assert tree_hash(root) == before
    assert rmqctl(name, root, *more, "--yes").code == 3
    assert parts(root) == {"consumequeue/LOCK", "abort"}
    assert rmqctl("info", root, "-o", "json").document()["layout"] == "RocksDB"
    assert rmqctl("recover", root, "--yes").code == 0
    assert rmqctl("undo", root, "--yes").code == 0
    assert tree_hash(root) == before


def test_a_start_that_reads_only_the_last_files_is_no_cure(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, conf = golden(KILLED), tmp_path / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\ncommitLogRecoverMaxNum=2\n")
    (root / "abort").unlink()
    before = tree_hash(root)
    for verb in (("rebuild", "queues"), ("recover",)):
        result = rmqctl(verb[0], root, *verb[1:], "--yes", "--broker-conf", conf)
        assert (result.code, "put commitLogRecoverMaxNum=3 into broker.conf" in result.err) == (2, True)
    assert rmqctl("rebuild", root, "queues", "--topic", "OrderPaid", "--yes").code == 2
    assert tree_hash(root) == before


def test_a_whole_database_stays(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden(WHOLE)
    before = tree_hash(root)
    for what in ("queues", "all"):
        assert rmqctl("rebuild", root, what, "--yes").code == 0
    assert tree_hash(root) == before
    assert rmqctl("append", root, "--topic", "orders", "--body", "x").code == 13


@pytest.mark.parametrize(
    ("name", "folder"), [("550-combined-samedir", "consumequeue"), ("550-combined-separate", "consumequeue_rocksdb")]
)
@pytest.mark.parametrize("damage", ["unit", "gone"])
def test_a_damaged_queue_file_leaves_the_whole_database(
    name: str, folder: str, damage: str, golden: Golden, rmqctl: Rmqctl
) -> None:
    root = golden(name)
    queues, database = tree_hash(root / "consumequeue"), tree_hash(root / folder)
    if damage == "unit":
        write_at(root / "consumequeue/OrderPaid/0/00000000000000000000", 11, b"\1")
    else:
        shutil.rmtree(root / "consumequeue/OrderPaid")
    assert rmqctl("recover", root, "--yes").code == 3
    assert (tree_hash(root / "consumequeue"), tree_hash(root / folder)) == (queues, database)
    assert rmqctl("doctor", root).code == 0


def test_what_is_left_of_a_database_is_no_store_with_queues_in_files(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden(KILLED)
    for file in (root / "consumequeue").iterdir():
        if file.name != "IDENTITY":
            file.unlink()
    assert rmqctl("info", root, "-o", "json").document()["layout"] == "RocksDB"
    assert rmqctl("recover", root, "--yes").code == 0
