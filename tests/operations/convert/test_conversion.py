"""A store in files of other sizes, and back, is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.file_edits import write_at

SMALL = "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
LARGE = "mappedFileSizeCommitLog=131072\nmappedFileSizeConsumeQueue=3000\nmaxHashSlotNum=200\nmaxIndexNum=900\n"
# records differ in what moves with them: transactions, checksums of properties, IPv6 hosts, batches, light queues
NAMES = ("497-tx", "533-propcrc", "533-ipv6", "533-batch", "497-lmq", "497-crash")


def converted(rmqctl: Rmqctl, root: Path, new: Path, conf: str, version: str, code: int = 0) -> str:
    (path := new.with_suffix(".conf")).write_text(conf)
    result = rmqctl("preflight", root, "--to", version, "--broker-conf", path, "--convert", new)
    assert result.code == code, result.err
    return result.out + result.err


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    version = ".".join(name[:3])
    root, large, back = unpack(name, tmp_path), tmp_path / "large", tmp_path / "back"
    before = tree_hash(root)
    assert "lie at another physical offset" in converted(rmqctl, root, large, LARGE, version)
    assert tree_hash(root) == before
    assert rmqctl("verify", large, "--broker-conf", large.with_suffix(".conf")).code == 0
    rows = [rmqctl("dump", path, "--body", "hex", "-o", "jsonl").rows() for path in (root, large)]
    moves = {"physicalOffset", "msgId", "offsetMsgId", "path", "preparedTransactionOffset", "properties"}
    kept = [[{key: row[key] for key in row.keys() - moves} for row in found if "topic" in row] for found in rows]
    assert kept[0] == kept[1]
    converted(rmqctl, large, back, SMALL, version)
    for part in ("commitlog", "consumequeue"):
        mine, theirs = files_below(back / part), files_below(root / part)
        assert all(mine[path] == theirs[path] for path in mine)
        assert not any(any(theirs[path]) for path in theirs.keys() - mine.keys())


def test_a_store_of_dledger_becomes_an_ordinary_one(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, new = unpack("broker-550-dledger", tmp_path), tmp_path / "new"
    assert rmqctl("preflight", root, "--to", "4.4.0", "--convert", new).code == 0
    assert rmqctl("verify", new).code == 0
    lags = [rmqctl("lag", path, "-o", "json").document()["groups"] for path in (root, new)]
    assert lags[0] == lags[1]
    assert not list(new.glob("dledger-*"))


def test_queues_behind_the_log_are_built_anew(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, new = unpack("432-crash", tmp_path), tmp_path / "new"
    assert rmqctl("verify", root).code == 1
    assert rmqctl("preflight", root, "--to", "5.5.0", "--convert", new).code == 0
    assert rmqctl("verify", new).code == 0


def test_what_is_not_read_of_the_source_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, elsewhere = unpack("broker-497", tmp_path), tmp_path / "elsewhere"
    (root / "consumequeue" / "orders").rename(elsewhere)
    (root / "consumequeue" / "orders").symlink_to(elsewhere)
    said = rmqctl("preflight", root, "--to", "4.9.7", "--convert", tmp_path / "new")
    assert (said.code, f"{root}: consumequeue/orders: " in said.err) == (4, True)


def test_queues_go_to_rocksdb_and_back(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, new, back = unpack("broker-497", tmp_path), tmp_path / "new", tmp_path / "back"
    in_rocksdb = f"{SMALL}storeType=defaultRocksDB\n"
    said = converted(rmqctl, root, new, f"{in_rocksdb}commitLogRecoverMaxNum=13\n", "5.5.0")
    assert "the first start of the broker fills the queues in RocksDB" in said
    assert "start the broker, and it fills the queues" in rmqctl("doctor", new, "--broker-conf", f"{new}.conf").out
    converted(rmqctl, new, back, SMALL, "4.9.7")  # the broker never ran
    assert rmqctl("verify", back, "--broker-conf", f"{back}.conf").code == 0
    said = converted(rmqctl, root, tmp_path / "short", in_rocksdb, "5.5.0", code=1)
    assert "queues-unread: 496 messages" in said


def test_what_is_refused_leaves_nothing(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, new = unpack("497-basic", tmp_path), tmp_path / "new"
    tiny = LARGE.replace("131072", "1000")
    assert "does not fit into a log file of 1000" in converted(rmqctl, root, new, tiny, "4.9.7", code=2)
    write_at(root / "commitlog" / f"{65536:020d}", 200, b"\xff" * 8)
    assert "a damaged log is not written anew" in converted(rmqctl, root, new, LARGE, "4.9.7", code=1)
    assert not new.exists()
    assert "is inside the store" in converted(rmqctl, root, root / "new", LARGE, "4.9.7", code=2)
    new.mkdir()
    (new / "file").write_bytes(b"x")
    assert "not empty" in converted(rmqctl, root, new, LARGE, "4.9.7", code=2)
    assert [path.name for path in new.iterdir()] == ["file"]
