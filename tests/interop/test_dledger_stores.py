"""DLedger stores: where a real broker ends the log is where `recover --dry-run` says, and it serves the rest."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl
from tests.real_store.harness import TRAINING, RealRocketMQ, broker_conf
from tests.real_store.ports import held_port
from tests.support.file_edits import write_at

pytestmark = pytest.mark.interop
SIZE = TRAINING.commitlog_file_size
BEFORE, MESSAGES = 150, 1000
INDEX = Path("dledger-n0", "index", f"{0:020d}")


def settings() -> dict[str, str]:
    with held_port() as port:
        peers = f"n0-127.0.0.1:{port}"
    return {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerPeers": peers, "dLegerSelfId": "n0"}


def entries(store: Path) -> list[int]:
    """Where the entries begin."""
    found = []
    for file in sorted((store / "dledger-n0" / "data").iterdir()):
        raw, at = file.read_bytes(), 0
        while struct.unpack_from(">i", raw, at)[0] == 1:
            found.append(int(file.name) + at)
            at += struct.unpack_from(">i", raw, at + 4)[0]
    return found


def write(store: Path, at: int, data: bytes) -> None:
    write_at(store / "dledger-n0" / "data" / f"{at // SIZE * SIZE:020d}", at % SIZE, data)


def damages(store: Path) -> dict[str, Callable[[Path], None]]:
    """Damage to the last two files of the log, and what brokers do not care about."""
    starts = entries(store)
    in_file = {number: [at for at in starts if at // SIZE == number] for number in {at // SIZE for at in starts}}
    last = max(in_file)

    def ignored(root: Path) -> None:
        write(root, in_file[last - 3][5], bytes(48))
        write(root, in_file[last][2] + 48 + 88, b"\xff")
        (root / "dledger-n0" / "checkpoint").write_text("committedIndex=9\nendIndex=9\n")

    def term(root: Path) -> None:
        write(root, in_file[last][2] + 16, struct.pack(">q", 9))
        write_at(root / INDEX, 32 * starts.index(in_file[last][1]), b"\xff" * 32)

    return {
        "ignored": ignored,
        "index": lambda root: (root / INDEX).unlink(),
        "header": lambda root: write(root, in_file[last - 1][5], bytes(48)),
        "term": term,
    }


def copied(store: Path, to: Path) -> Path:
    """A copy of the store; the index stays a file with a hole."""
    shutil.copytree(store, to, ignore=shutil.ignore_patterns("dledger-n0"))
    shutil.copytree(store / "dledger-n0", to / "dledger-n0", ignore=shutil.ignore_patterns("index"))
    (to / INDEX).parent.mkdir()
    with (store / INDEX).open("rb") as source, (to / INDEX).open("wb") as copy:
        copy.write(source.read(32 * MESSAGES))
        copy.truncate((store / INDEX).stat().st_size)
    return to


def conf_of(store: Path) -> Path:
    """A broker.conf beside the store, with a port of its own: that of a start before is not free at once."""
    conf = store.with_suffix(".conf")
    conf.write_text(broker_conf(store, TRAINING, settings()))
    return conf


def units(store: Path) -> bytes:
    with (store / INDEX).open("rb") as index:
        return index.read(32 * MESSAGES)


def served(answer: dict[str, Any]) -> set[int]:
    return {message["physicalOffset"] for message in answer["messages"]}


def test_a_broker_serves_what_a_dry_run_says(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Of an upgraded store, whose log begins in commitlog/, damaged and rebuilt; what is rebuilt is served twice.

    With `abort`, 5.3.3 drops units.
    """
    real, store = RealRocketMQ("5.5.0", timeout=90), tmp_path / "store"
    real.put(store, BEFORE, geometry=TRAINING)
    real.put(store, MESSAGES, geometry=TRAINING, settings=settings())
    rows = rmqctl("dump", store, "-o", "jsonl").rows()
    assert len(rows) == BEFORE + MESSAGES
    assert rmqctl("verify", store).out.startswith("level 3: no findings")
    expected: dict[Path, set[int]] = {}
    for name, change in damages(store).items():
        copy = copied(store, tmp_path / name)
        change(copy)
        plan = rmqctl("recover", copy, "--dry-run", "-o", "json").document()
        expected[copy] = {row["physicalOffset"] for row in rows if row["physicalOffset"] < plan["maxPhyOffset"]}
        assert plan["lost"]["records"] == len(rows) - len(expected[copy]), name
        assert (plan["lost"]["records"] > 0) == (name in ("header", "term"))
    rebuilt = copied(store, tmp_path / "rebuilt")
    shutil.rmtree(rebuilt / "consumequeue")
    shutil.rmtree(rebuilt / "index")
    expected[rebuilt] = {row["physicalOffset"] for row in rows}
    confs = {copy: conf_of(copy) for copy in expected}
    assert rmqctl("rebuild", rebuilt, "all", "--broker-conf", confs[rebuilt], "--yes").code == 3
    answers = dict(zip(confs, real.read_confs([*confs.values()], start=True, key_messages=20), strict=True))
    for copy, answer in answers.items():
        assert "error" not in answer, (copy.name, answer)
        assert served(answer) == expected[copy], copy.name
        assert answer["keyQueries"], copy.name
    assert units(tmp_path / "index") == units(store)
    killed = copied(store, tmp_path / "killed")
    (killed / "abort").touch()
    lost = rmqctl("recover", killed, "--dry-run", "--profile", "5.3", "-o", "json").document()["lost"]["records"]
    older = RealRocketMQ("5.3.3", timeout=90)
    again, of_killed = older.read_confs([conf_of(rebuilt), conf_of(killed)], start=True, key_messages=20)
    assert served(again) == expected[rebuilt]
    assert len(rows) - len(served(of_killed)) == lost > 0
