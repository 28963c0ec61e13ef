"""Levels 2 and 3 by whole batches and by single messages say the same of mutated golden stores."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.forensics.audit import index_audit, index_entries
from rmqctl.forensics.audit.crosscheck import QueueCrosscheck
from rmqctl.forensics.audit.index_audit import IndexAudit
from rmqctl.forensics.audit.index_findings import IndexFindings
from rmqctl.forensics.audit.units import unit_audit
from rmqctl.forensics.finding import Finding
from rmqctl.format.message import Damage, Message
from rmqctl.kernels import cq_unit_compare, dispatch_scan, index_match, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack
from tests.support import one_record_index_audit
from tests.support.one_record_crosscheck import OneRecordCrosscheck
from tests.support.plain_kernels import plain_kernels

NAMES = [
    "471-batch",
    "471-delay",
    "497-basic",
    "497-crash",
    "497-lmq",
    "497-tx",
    "533-basic",
    "533-lmq",
    "broker-497",
    "326-tx-crash",
    "550-tx",
]
MUTATIONS_PER_STORE = [3, pytest.param(8, marks=pytest.mark.slow)]
KERNELS = (scan, dispatch_scan, cq_unit_compare, index_match)
Said = tuple[list[Any], list[str], int]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, blocks and lists of events so small that their borders lie everywhere."""
    warm_up(*KERNELS)
    monkeypatch.setattr(unit_audit, "WINDOW_MAX", 16)
    monkeypatch.setattr(index_entries, "ENTRIES_PER_BLOCK", 37)
    monkeypatch.setattr(index_audit, "EVENTS_AT_ONCE", 9)


def by_columns(root: Path, segment_size: int) -> Said:
    store = ReadOnlyStore(root)
    builder = DispatchRequestBuilder(with_keys=True, with_tags=True)
    queues, index = QueueCrosscheck(store, builder), IndexAudit(store, builder)
    summary = ScanSummary()
    for item in store.commit_log.scan_columns(summary, builder.take, threads=2, segment_size=segment_size):
        if isinstance(item, Damage):
            queues.damage(item)
            if (damaged := _whole(item)) is not None:
                index.on_messages(builder.of(damaged))
        elif isinstance(item, RecordRun | Message):
            described = item.result if isinstance(item, RecordRun) else builder.of(item)
            queues.on_messages(described.messages)
            index.on_messages(described)
    queues.finish(summary.end)
    findings = IndexFindings(store, [index.finish()]).findings
    store.close()
    return _said([*queues.findings, *findings]), sorted(queues.notes), queues.expired_units


def one_by_one(root: Path) -> Said:
    store = ReadOnlyStore(root)
    queues = OneRecordCrosscheck(store)
    index = one_record_index_audit.IndexAudit(store)
    summary = ScanSummary()
    for item in store.commit_log.scan(summary):
        message = item if isinstance(item, Message) else _whole(item) if isinstance(item, Damage) else None
        if message is not None:
            queues.see_message(message)
            index.on_messages(message)
        elif isinstance(item, Damage):
            queues.damage(item)
    queues.finish(summary.end)
    index.finish()
    store.close()
    return _said([*queues.findings, *index.findings]), sorted(queues.notes), queues.expired_units


def _whole(damage: Damage) -> Message | None:
    """A damaged record whose frame is whole and in its place."""
    message = damage.message
    return message if message is not None and message.stored_physical_offset == damage.physical_offset else None


def _said(findings: list[Finding]) -> list[Any]:
    return sorted((sorted(finding.to_json().items(), key=str) for finding in findings), key=str)


def mutate(root: Path, chance: random.Random) -> None:
    """A few bytes, units, files: whatever an accident may do to log, queues and index."""
    files = sorted(
        path for part in ("commitlog", "consumequeue", "index") for path in (root / part).rglob("*") if path.is_file()
    )
    for _ in range(chance.randint(1, 4)):
        path = chance.choice(files)
        if not path.exists():
            continue
        data = bytearray(path.read_bytes())
        used = max(len(data.rstrip(b"\0")), 1)
        kind = chance.random()
        if kind < 0.6:
            at = chance.randrange(used)
            stain = chance.choice(
                [bytes([data[at] ^ 1 << chance.randrange(8)]), chance.randbytes(8), bytes(20), b"\xff" * 12]
            )
            data[at : at + len(stain)] = stain
        elif kind < 0.75:
            size = chance.choice([20, 40, 200])
            low, high = chance.randrange(0, max(used - size, 1)), chance.randrange(0, max(used - size, 1))
            data[low : low + size], data[high : high + size] = data[high : high + size], data[low : low + size]
        elif kind < 0.85:
            del data[chance.randrange(len(data)) :]
        elif kind < 0.92:
            path.unlink()
            continue
        else:
            other = chance.choice(files)  # of the same size: where files overlap, which one counts is anybody's guess
            data = bytearray(other.read_bytes()) if other.exists() and other.stat().st_size == len(data) else data
        path.write_bytes(data)


@pytest.mark.parametrize("mutations", MUTATIONS_PER_STORE)
@pytest.mark.parametrize("name", NAMES)
def test_mutated_stores(name: str, mutations: int, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    chance = random.Random(name)
    for number in range(mutations):
        root = tmp_path / f"m{number}"
        shutil.copytree(golden, root)
        mutate(root, chance)
        said = one_by_one(root)
        assert by_columns(root, chance.choice([700, 9000, 100_000])) == said
        with plain_kernels():
            assert by_columns(root, 9000) == said
        shutil.rmtree(root)
