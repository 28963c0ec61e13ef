"""Entries of index files as tasks read them: those that look-ups by key find. No Spark runs here."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.index_entry import IndexHeader, key_hash
from rmqctl.format.message import Message
from rmqctl.format.properties import keys
from rmqctl.spark.source.index_source import INDEX_COLUMNS, IndexSource
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack

pytestmark = pytest.mark.spark  # for pyarrow


def rows_of(root: Path) -> list[dict[str, Any]]:
    source = IndexSource({"path": str(root)}, list(INDEX_COLUMNS))
    return [row for task in source.tasks() for batch in source.read(task) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["326-basic", "471-basic", "497-basic", "533-basic", "broker-533"])
def test_every_entry(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    rows = rows_of(root)
    with closing(ReadOnlyStore(root)) as store:
        headers: dict[str, IndexHeader | None] = {found.file.name: found.header() for found in store.index.files}
        slots = {found.file.name: found.slots for found in store.index.files}
        for path, header in headers.items():
            assert header is not None
            of_file = [row for row in rows if row["path"] == path]
            assert [row["entry"] for row in of_file] == list(range(1, header.index_count))
            assert of_file[-1]["phyOffset"] == header.end_phy_offset
            assert of_file[-1]["storeTimestamp"] // 1000 <= header.end_timestamp // 1000
            assert all(
                row["slot"] == row["keyHash"] % slots[path] and row["prevIndex"] < row["entry"] for row in of_file
            )
        found: defaultdict[int, set[int]] = defaultdict(set)
        for row in rows:
            found[row["keyHash"]].add(row["phyOffset"])
        messages = [item for item in store.commit_log.scan() if isinstance(item, Message)]
        for topic, key in {(message.topic, key) for message in messages for key in keys(message.properties)}:
            assert found[key_hash(topic, key)] == set(store.index.phy_offsets(topic, key))
    assert {(row["broker"], row["store"]) for row in rows} == {(tmp_path.name, str(root))}
