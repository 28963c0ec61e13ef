"""How `clean` shows its plan, and what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.cli.printable import printable
from rmqctl.cli.render import print_document, print_fields, print_rows, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqctl.store.clean import Cleaned
    from rmqctl.store.disk_use import DiskUse
    from rmqctl.store.expiry_plan import ExpiryPlan, FileFate

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
)


def print_plan(plan: ExpiryPlan, disks: Sequence[DiskUse], left: Sequence[int], now_ms: int, output: str) -> None:
    """`left` are the lengths of the files that an interrupted clean left."""
    if output == "json":
        print_document("clean", _document(plan, disks, left, now_ms))
    elif output == "table":
        _print_tables(plan, disks, now_ms)
    else:
        print_rows("clean", "files", map(_row, plan.files), output, KEYS, {})


def summary(root: Path, plan: ExpiryPlan, left: int, done: Cleaned | None = None) -> str:
    """One line."""
    log = f"log from {plan.new_min_phy_offset}"
    if done is not None and done.files < len(plan.going):
        log = "interrupted"
    also = f", and {left} that an interrupted clean left" if left else ""
    if done is not None:
        text = f"{_count(done.files)} deleted{also}, {done.bytes} bytes on the disk; {log}; {plan.reason}"
    elif plan.going or left:
        text = f"{_count(len(plan.going))} to delete{also}, {plan.bytes} bytes on the disk; {log}; {plan.reason}"
    else:
        text = f"nothing to delete: {plan.reason}"
    return printable(f"{root}: {text}")


def _document(plan: ExpiryPlan, disks: Sequence[DiskUse], left: Sequence[int], now_ms: int) -> dict[str, Any]:
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
        "bytes": sum(file.size for file in plan.going),
        "allocatedBytes": plan.bytes,
        "waiting": plan.waiting._asdict(),
        "files": [_row(file) for file in plan.files if file.goes],
        "kept": [_row(file) for file in plan.files if not file.goes],
        "queues": [
            {"topic": rise.topic, "queueId": rise.queue_id, "minOffset": rise.min_offset, "newMinOffset": rise.new_min_offset}
            for rise in plan.rises
        ],
        "leftBehind": {"files": len(left), "bytes": sum(left)},
        "warnings": list(plan.warnings),
    }


def _row(file: FileFate) -> dict[str, Any]:
    from rmqctl.format.timestamp import rfc3339

    last = file.last_store_timestamp
    return {
        "path": file.path,
        "kind": file.kind,
        "bytes": file.size,
        "allocatedBytes": file.bytes,
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
            ("because", plan.reason),
            ("log from", f"{plan.min_phy_offset}, then {plan.new_min_phy_offset}"),
            ("waiting in what goes", waiting or "nothing"),
        )
    )
    print()
    shown = [file for file in plan.files if file.goes or file.kind == "commitlog"]
    rows = [
        [file.path, file.size, "goes" if file.goes else "stays", _row(file)["lastStoreTime"], file.waiting.total or None, file.why]
        for file in shown
    ]
    if rows:
        print_table(["PATH", "BYTES", "", "LAST STORED", "WAITING", "WHY"], rows)
        print()
    if len(shown) < len(plan.files):
        print(f"{len(plan.files) - len(shown)} files of queues and index stay (-o json shows each)")


def _count(files: int) -> str:
    return "1 file" if files == 1 else f"{files} files"


def _percent(disk: DiskUse) -> str:
    return f"{disk.used_percent:g} %" if disk.used_percent >= 0 else "unknown"
