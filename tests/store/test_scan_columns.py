"""Reading in columns and reading record by record say the same of every log: counts, places, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.damage import Damage
from rmqctl.format.message import Message
from rmqctl.logfile.column_reader import Columns, available
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.storage import Storage
from rmqctl.store.commit_log import CommitLog, ScanSummary
from tests.conftest import STORE_NAMES, apply_damage, damage_cases, unpack
from tests.format.property_settings import PROPERTY
from tests.log_maker import BORN_V6, STORE_V6, V2, log_bytes, sample_records

CASES = damage_cases()
FIELDS = ("size", "queue_id", "queue_offset", "sys_flag", "store_timestamp", "topic_length")
SMALL = [name for name in STORE_NAMES if name != "471-cqext"]


def log_of(folder: Path) -> CommitLog:
    return CommitLog(MappedFileQueue(Storage(folder.parent), [folder]))


def one_by_one(folder: Path) -> tuple[ScanSummary, list[Damage]]:
    summary = ScanSummary()
    return summary, [_without_message(item) for item in log_of(folder).scan(summary) if isinstance(item, Damage)]


def in_columns(folder: Path) -> tuple[ScanSummary, list[Damage]]:
    summary = ScanSummary()
    return summary, [_without_message(item) for item in log_of(folder).scan_columns(summary) if isinstance(item, Damage)]


def _without_message(damage: Damage) -> Damage:
    return damage._replace(message=None)


def test_the_extra_is_there_in_tests() -> None:
    assert available()


@pytest.mark.parametrize("name", SMALL)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path) / "commitlog"
    assert in_columns(folder) == one_by_one(folder)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_damage_case(name: str, tmp_path: Path) -> None:
    store = unpack(CASES[name]["base"], tmp_path)
    apply_damage(store, CASES[name]["ops"])
    assert in_columns(store / "commitlog") == one_by_one(store / "commitlog")


@pytest.mark.parametrize("name", ["broker-533", "533-longtopic", "533-propcrc", "471-ipv6", "326-basic"])
def test_the_columns_are_the_messages_fields(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path) / "commitlog"
    rows: list[Any] = []
    for part in log_of(folder).scan_columns(ScanSummary()):
        if isinstance(part, Columns):
            for row in part.rows:
                topic_length_at = int(row["body_start"]) + int(row["body_length"])
                body = bytes(part.buffer[int(row["body_start"]) : topic_length_at])
                fields = [row[field].item() for field in FIELDS]
                rows.append((part.physical_offset + int(row["position"]), *fields, row["properties_length"].item(), body))
    assert rows == [
        (
            item.physical_offset, item.size, item.queue_id, item.queue_offset, item.sys_flag, item.store_timestamp,
            len(item.topic_bytes), len(item.properties_bytes), bytes(item.body),
        )
        for item in log_of(folder).scan()
        if isinstance(item, Message)
    ]  # fmt: skip
    assert rows


stains = st.lists(st.tuples(st.integers(0, 9000), st.binary(min_size=1, max_size=9)), max_size=6)
kinds = st.sampled_from([{}, {"magic": V2}, {"sys_flag": BORN_V6 | STORE_V6}, {"property_crc": True}])


@PROPERTY
@given(kind=kinds, count=st.integers(0, 45), stains=stains, tail=st.integers(0, 200), cut=st.integers(0, 40))
def test_logs_with_any_damage(
    kind: dict[str, Any], count: int, stains: list[tuple[int, bytes]], tail: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "columns" / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    data = bytearray(log_bytes(sample_records(count, **kind)) + bytes(tail))
    for at, stain in stains:
        if at < len(data):
            data[at : at + len(stain)] = stain
    (folder / f"{0:020d}").write_bytes(data[: max(len(data) - cut, 0)])
    assert in_columns(folder) == one_by_one(folder)
