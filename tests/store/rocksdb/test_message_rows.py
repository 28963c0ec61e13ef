"""The rows of a real broker's rocksdbstore/, and rows that no broker writes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.rocksdb.message_rows import LAST_OFFSET, IndexRow, checkpoint_of, hours, index_rows
from tests.conftest import Golden
from tests.support.databases import write_database


def test_the_index_of_a_real_broker(golden: Golden) -> None:
    store = ReadOnlyStore(golden("broker-550-rdbidx"))
    database = store.path.message_database
    assert database is not None
    rows = list(index_rows(database))
    assert Counter(row.kind for row in rows) == {"K": 235, "T": 134, "U": 134}
    assert rows[0] == IndexRow("%RETRY%billing", "K", "poison-57", 57095, 1795361235676)
    assert [int.from_bytes(hour, "big") for hour in hours(database)] == [1795359600000]
    assert checkpoint_of(database, LAST_OFFSET) == 58894
    assert checkpoint_of(database, b"last") is None


def test_rows_that_no_broker_writes_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    hour, offset = bytes(8), bytes(8)
    rows = {
        hour + b"@t@U@id@" + offset: b"short",
        hour + b"@t@" + offset: bytes(8),
        hour + b"t@U@id@" + offset: bytes(8),
        hour + b"@t@K@@@" + b"@" * 1000 + offset: bytes(8),
        b"": b"",
    }
    write_database(tmp_path / "store" / "rocksdbstore", {"default": rows})
    database = ReadOnlyStore(tmp_path / "store").path.message_database
    assert database is not None
    assert [row.text for row in index_rows(database)] == ["@" * 1000]
    assert list(hours(database)) == []
