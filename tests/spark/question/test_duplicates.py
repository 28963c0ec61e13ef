"""`rmqctl job duplicates`: what a producer sent twice, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.logfile.column_reader import BUFFER_SIZE
from rmqctl.spark.question import duplicates
from tests.conftest import Rmqctl
from tests.support.log_maker import Record, write_log

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def keyed(key: str, **fields: Any) -> Record:
    return Record(properties=f"UNIQ_KEY\x01{key}\x02".encode(), **fields)


def store(root: Path, *records: Record) -> Path:
    write_log(root, list(records), file_size=65536)
    return root


def test_what_brokers_copy_is_no_duplicate(golden_stores: dict[str, Path], document: Callable[..., Row]) -> None:
    """Delays, half messages, retries, dead letters, batches of real brokers; but 533-kill committed three transactions
    twice.
    """
    clean = document("duplicates", golden_stores["broker-497"], golden_stores["broker-533"])
    assert (clean["code"], clean["copies"]) == (0, [])
    found = document("duplicates", golden_stores["broker-533-kill"])
    assert found["code"] == 1
    places = [[place["physicalOffset"] for place in row["places"]] for row in found["copies"]]
    assert places == [[6274, 638702], [54868, 622995], [99064, 624307]]
    assert {row["topic"] for row in found["copies"]} == {"payments"}


def test_the_brokers_own_topics_where_asked_for(golden_stores: dict[str, Path], document: Callable[..., Row]) -> None:
    found = document("duplicates", golden_stores["broker-497"], "--all-topics")
    assert {row["topic"] for row in found["copies"]} == {"RMQ_SYS_TRANS_HALF_TOPIC"}
    assert len(found["copies"]) == 20


def test_across_brokers(tmp_path: Path, document: Callable[..., Row]) -> None:
    a = store(tmp_path / "broker-a" / "store", keyed("K1"), keyed("K2", queue_offset=1), keyed("K3", queue_offset=2))
    b = store(
        tmp_path / "broker-b" / "store",
        keyed("K9"),
        keyed("K2", queue_id=7, queue_offset=1, store_timestamp=1_795_252_519_000),
    )
    found = document("duplicates", a, b)
    (row,) = found["copies"]
    assert (row["topic"], row["uniqKey"], row["count"]) == ("OrderPaid", "K2", 2)
    assert [(place["broker"], place["queueId"]) for place in row["places"]] == [("broker-a", 1), ("broker-b", 7)]


def test_the_same_key_alone_is_no_duplicate(tmp_path: Path, document: Callable[..., Row]) -> None:
    later = 1_795_252_517_000
    other_body = (keyed("K1"), keyed("K1", body=b"other", queue_offset=1, store_timestamp=later))
    other_topic = (keyed("K2", queue_offset=2), keyed("K2", topic="Other", store_timestamp=later))
    batch = [keyed("K3", queue_offset=3 + number) for number in range(3)]
    no_key = [Record(properties=b"", queue_offset=6 + number, store_timestamp=later + number) for number in range(2)]
    found = document("duplicates", store(tmp_path / "store", *other_body, *other_topic, *batch, *no_key))
    assert (found["code"], found["copies"]) == (0, [])


def test_keys_that_are_equal_only_as_text(tmp_path: Path, document: Callable[..., Row]) -> None:
    """Two keys that are not UTF-8 read alike; a large message is read in another way than a small one."""
    keys = [b"\xff", b"\xfe", "\u00fc".encode(), "\u00fc".encode()]
    records = [
        Record(
            properties=b"UNIQ_KEY\x01" + key + b"\x02", queue_offset=number, store_timestamp=1_795_252_516_000 + number
        )
        for number, key in enumerate(keys)
    ]
    large = [keyed("L", body=bytes(BUFFER_SIZE), queue_offset=number, store_timestamp=number + 1) for number in (4, 5)]
    write_log(tmp_path / "store", [*records, *large], file_size=3 * BUFFER_SIZE)
    found = document("duplicates", tmp_path / "store")
    assert [(row["uniqKey"], row["count"]) for row in found["copies"]] == [("L", 2), ("\ufffd", 2), ("\u00fc", 2)]


def test_too_many_to_read_one_by_one(
    golden_stores: dict[str, Path], document: Callable[..., Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_stores["broker-533-kill"]
    found = document("duplicates", root)
    monkeypatch.setattr(duplicates, "PLACES_MAX", 5)
    assert document("duplicates", root) == found


def test_the_first(golden_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    found = rmqctl("job", "duplicates", golden_stores["broker-533-kill"], "--limit", 2, "-o", "jsonl")
    assert [row["places"][0]["physicalOffset"] for row in found.rows()] == [6274, 54868]
    assert found.err.startswith("more than 2 messages stored more than once; a higher --limit prints more\n")


def test_the_table(golden_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    found = rmqctl("job", "duplicates", golden_stores["broker-533-kill"])
    lines = found.out.splitlines()
    assert lines[0].split() == ["TOPIC", "UNIQ_KEY", "COUNT", "BROKER/QUEUE@PHYSICALOFFSET"]
    assert lines[2].endswith("broker-533-kill/1@6274 broker-533-kill/1@638702")
    assert found.err.startswith(f"{len(lines) - 2} message")
