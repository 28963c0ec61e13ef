"""The output of `rmqctl clean`: the plan and the result."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.printable import printable
from rmqctl.cli.output.render import Row, print_columns, print_document, print_fields, print_rows, print_verdict
from rmqctl.cli.output.tone import Tone
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqctl.operations.clean.disk_use import DiskUse
    from rmqctl.operations.clean.execute import Cleaned, Leftover
    from rmqctl.operations.clean.plan_types import ExpiryPlan, FileDecision, UnreadTopic

KEYS = (
    "path",
    "kind",
    "bytes",
    "allocatedBytes",
    "goes",
    "why",
    "lastModifiedTimestamp",
    "lastModifiedTime",
    "lastStoreTimestamp",
    "lastStoreTime",
    "unconsumed",
    "scheduled",
    "half",
    "dead",
)
TOPICS_SHOWN = 20
COLUMNS: dict[str, Callable[[Row], Any]] = {
    "PLAN": lambda row: "goes" if row["goes"] else "stays",
    "BYTES": itemgetter("bytes"),
    "FILE": itemgetter("path"),
    "WAITING": lambda row: row["unconsumed"] + row["scheduled"] + row["half"] + row["dead"] or None,
    "WHY": itemgetter("why"),
}


def print_plan(
    root: Path, plan: ExpiryPlan, disks: Sequence[DiskUse], left: Sequence[Leftover], now_ms: int, output: str
) -> None:
    """Print the plan of a run of `rmqctl clean`.

    `left` has the files that an interrupted clean has moved to STORE/.rmqctl, but has not deleted.
    """
    if output == "json":
        print_document("clean", {"store": str(root)} | _document(plan, disks, left, now_ms))
    elif output == "table":
        print_verdict(words_of_plan(root, plan, left), Tone.ATTENTION if plan.going or left else Tone.GOOD)
        _print_tables(plan, disks, now_ms)
    else:
        print_rows("clean", "files", map(_row, plan.files), output, KEYS, {}, head={})


def words_of_plan(root: Path, plan: ExpiryPlan, left: Sequence[Leftover]) -> str:
    """Return a summary of the plan in one line of text."""
    if not (plan.going or plan.folders or left):
        return printable(f"{root}: nothing to delete: {_why_nothing(plan)}")
    freed = plan.allocated_bytes + sum(one.allocated_bytes for one in left)
    what = f"{_things(len(plan.going), len(plan.folders), len(left))} to delete, {counted(freed, 'byte')} on the disk"
    return printable(f"{root}: {what}; log from {plan.new_min_phy_offset}; {plan.reason}")


def words_of_deletion(root: Path, plan: ExpiryPlan, done: Cleaned) -> str:
    """Return the result of a deletion in one line of text."""
    log = f"log from {plan.new_min_phy_offset}" if done.files == len(plan.going) else "interrupted"
    what = (
        f"{_things(done.files, done.folders, done.left)} deleted, {counted(done.allocated_bytes, 'byte')} on the disk"
    )
    return printable(f"{root}: {what}; {log}; {plan.reason}")


def _things(files: int, folders: int, left: int) -> str:
    parts = [
        (files, counted(files, "file")),
        (folders, counted(folders, "empty folder")),
        (left, f"{counted(left, 'file')} that an interrupted clean left"),
    ]
    return " and ".join(words for count, words in parts if count) or "nothing"


def _why_nothing(plan: ExpiryPlan) -> str:
    """Return why `clean` deletes nothing, as text."""
    first = plan.first_left
    return (
        plan.reason
        if first is None or first.why == plan.reason
        else f"{plan.reason}, but {first.path} stays: {first.why}"
    )


def _document(plan: ExpiryPlan, disks: Sequence[DiskUse], left: Sequence[Leftover], now_ms: int) -> dict[str, Any]:
    from rmqctl.format.timestamp import rfc3339

    return {
        "now": now_ms,
        "nowTime": rfc3339(now_ms),
        "localHour": plan.hour,
        "timeZone": plan.time_zone,
        "trigger": plan.trigger,
        "reason": plan.reason,
        "disks": [{"path": str(disk.path), "usedPercent": disk.used_percent} for disk in disks],
        "minPhyOffset": plan.min_phy_offset,
        "newMinPhyOffset": plan.new_min_phy_offset,
        "bytes": plan.bytes,
        "allocatedBytes": plan.allocated_bytes,
        "waiting": plan.waiting._asdict(),
        "files": [_row(file) for file in plan.files if file.goes],
        "kept": [_row(file) for file in plan.files if not file.goes],
        "queues": [
            {
                "topic": rise.topic,
                "queueId": rise.queue_id,
                "minOffset": rise.min_offset,
                "newMinOffset": rise.new_min_offset,
            }
            for rise in plan.rises
        ],
        "topicsWithoutGroup": [one._asdict() for one in plan.unread],
        "folders": list(plan.folders),
        "leftBehind": {
            "fileCount": len(left),
            "bytes": sum(one.bytes for one in left),
            "allocatedBytes": sum(one.allocated_bytes for one in left),
        },
        "warnings": list(plan.warnings),
    }


def _row(file: FileDecision) -> dict[str, Any]:
    from rmqctl.format.timestamp import rfc3339

    last = file.last_store_timestamp
    return {
        "path": file.path,
        "kind": file.kind,
        "bytes": file.bytes,
        "allocatedBytes": file.allocated_bytes,
        "goes": file.goes,
        "why": file.why,
        "lastModifiedTimestamp": file.mtime_ms,
        "lastModifiedTime": rfc3339(file.mtime_ms),
        "lastStoreTimestamp": last,
        "lastStoreTime": rfc3339(last) if last is not None else None,
        **file.waiting._asdict(),
    }


def _print_tables(plan: ExpiryPlan, disks: Sequence[DiskUse], now_ms: int) -> None:
    from rmqctl.format.timestamp import rfc3339

    waiting = ", ".join(f"{count} {name}" for name, count in plan.waiting._asdict().items() if count)
    print_fields(
        (
            ("time", f"{rfc3339(now_ms)} ({now_ms}), hour {plan.hour} in {plan.time_zone}"),
            ("disks", ", ".join(f"{disk.path} {_percent(disk)}" for disk in disks)),
            ("reason", plan.reason),
            ("log from", " then ".join(map(str, dict.fromkeys((plan.min_phy_offset, plan.new_min_phy_offset))))),
            ("waiting messages", f"{waiting} in the files that go" if waiting else "none in the files that go"),
            *([("read by no group", _unread(plan.unread))] if plan.unread else []),
        )
    )
    print()
    shown = [file for file in plan.files if file.goes or file.kind == "commitlog"]
    print_columns(map(_row, shown), COLUMNS)
    if shown:
        print()
    if len(shown) < len(plan.files):
        print(
            f"and {counted(len(plan.files) - len(shown), 'file')} of queues and index, which stay (-o json shows each)"
        )


def _unread(topics: Sequence[UnreadTopic]) -> str:
    """Return names and message counts of topics that no group reads, as text."""
    more = (
        f", and {counted(len(topics) - TOPICS_SHOWN, 'more topic')} (-o json names each)"
        if len(topics) > TOPICS_SHOWN
        else ""
    )
    return ", ".join(f"{one.topic} {one.messages}" for one in topics[:TOPICS_SHOWN]) + more


def _percent(disk: DiskUse) -> str:
    return f"{disk.used_percent:g} %" if disk.used_percent >= 0 else "unknown"
