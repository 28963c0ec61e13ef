"""A part of a log against the queues: what a task confirms, and what it leaves to the driver."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.forensics.audit.part_audit import CheckedRun, Item, check_part
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
from rmqctl.store.read.file_scan import RecordRun, end_position
from rmqctl.store.read.parallel_scan import scan_part
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.verified_by_tasks import verified_by_tasks

if TYPE_CHECKING:
    import pytest

    from tests.conftest import Golden


def first_file_checked(root: Path, start: int = 0) -> tuple[list[Item], int]:
    """The items of the first log file from a position on, and the number of its messages."""
    with closing(ReadOnlyStore(root)) as store:
        builder = DispatchRequestBuilder(with_keys=False)
        file = store.commit_log.queue.files[0]
        part = scan_part(file, start, end_position(file), ColumnReader(), builder.take, exact=False)
        messages = sum(item.messages for item in part.items if isinstance(item, RecordRun))
        return check_part(store, builder.keys, part.items), messages


def checked(items: list[Item]) -> list[CheckedRun]:
    return [item.result for item in items if isinstance(item, RecordRun) and isinstance(item.result, CheckedRun)]


def test_a_task_leaves_few_messages(golden: Golden) -> None:
    """Here: the first of a queue that began in the part, and those of light queues."""
    items, messages = first_file_checked(golden("broker-533"))
    (run,) = checked(items)
    assert messages > 500
    assert len(run.rest) < messages / 10
    confirmed = int((run.confirmed["end"] - run.confirmed["start"]).sum())
    assert confirmed > messages * 0.9


def test_the_first_message_of_each_queue_is_named(golden: Golden) -> None:
    items, _ = first_file_checked(golden("broker-533"), 100_000)
    first = checked(items)[0].first
    assert len(first) == len(set(first["queue"].tolist())) > 3
    assert (first["queue_offset"] > 0).all()


def test_few_messages_of_a_queue_are_not_looked_up(golden: Golden) -> None:
    items, messages = first_file_checked(golden("497-basic"))
    assert not checked(items)
    assert sum(len(item.result.messages) for item in items if isinstance(item, RecordRun)) == messages


def test_a_queue_that_cannot_be_read_is_left_to_the_driver(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    root = golden("broker-533")
    monkeypatch.setattr("rmqctl.store.read.consume_queue.ConsumeQueue.blocks", fail)
    items, _ = first_file_checked(root)
    assert all(isinstance(item.result, DispatchColumns) for item in items if isinstance(item, RecordRun))


def test_a_lost_index_file_needs_no_second_reading(golden: Golden) -> None:
    root = golden("497-basic")
    (first, _) = sorted((root / "index").iterdir())
    first.unlink()
    found = verified_by_tasks(root)
    assert not found.read_again
    assert {finding.code for finding in found.report.findings} == {"index-missing"}


def test_index_files_out_of_order_need_a_second_reading(golden: Golden) -> None:
    root = golden("497-basic")
    (first, second) = sorted((root / "index").iterdir())
    second.rename(first.with_name("20000101000000000"))
    found = verified_by_tasks(root)
    assert found.read_again
    assert "index-order" in {finding.code for finding in found.report.findings}
