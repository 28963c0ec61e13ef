"""The result of a run of `clean` for Prometheus.

The result is a text file for node_exporter's textfile collector. The file has about a dozen gauges, one a line, so
rmqctl does not need Prometheus' client library. That library is made for processes that keep running.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.complaint import exit_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PREFIX = "rmqctl_clean_"
HELP = {
    "last_run_timestamp_seconds": "When clean ran last.",
    "duration_seconds": "How long the last run took.",
    "exit_status": "Exit status of the last run; 0: done, or nothing to do.",
    "expired_files": "Files that the plan of the last run deletes.",
    "expired_bytes": "Disk space of these files, and of files that an interrupted run left.",
    "waiting_messages": "Messages in these files: not consumed by a group, not delivered yet, or open half messages.",
    "deleted_files": "Files that the last run deleted.",
    "deleted_bytes": "Disk space of the deleted files, and of files that an interrupted run left.",
    "kept_files": "Files of the commit log that stay.",
    "log_min_offset_bytes": "The commit log's first physical offset.",
    "disk_used_percent": "How full the disk of a folder of the store was before; -1: unknown.",
}
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class CleanMetrics:
    """The gauges of a run of clean on `store`.

    A gauge without a measured value is left out.
    """

    def __init__(self, store: Path) -> None:
        self._store = str(store.absolute())
        self._began = time.time()
        self._descriptor: int | None = None
        self._values: dict[tuple[str, str], float] = {("last_run_timestamp_seconds", ""): round(self._began, 3)}

    def set(self, name: str, value: float) -> None:
        """Set a gauge; `name` is a key of HELP."""
        self._values[name, ""] = value

    def set_disks(self, disks: Sequence[tuple[Path, float]]) -> None:
        """Set how full the disks of the store's folders are, in percent."""
        self._values |= {("disk_used_percent", str(path)): percent for path, percent in disks}

    def hold(self, path: Path | None) -> None:
        """Keep the file at `path` open.

        The process of root will soon become another user, who may have no right to replace the file. Raises OSError.
        """
        from rmqctl.logfile.access.owner import is_root
        from rmqctl.logfile.system.storage import Kind
        from rmqctl.logfile.system.writable_storage import WritableStorage

        if path is not None and is_root():
            storage = WritableStorage(path.parent)
            is_there = storage.entry(path).kind is not Kind.MISSING
            self._descriptor = storage.open_for_writing(path) if is_there else storage.make_file(path)

    def text(self) -> str:
        """Return the metrics in Prometheus' text format, version 0.0.4."""
        lines = []
        for name, meaning in HELP.items():
            found = [self._line(name, path, value) for (of, path), value in self._values.items() if of == name]
            if found:
                lines += [f"# HELP {PREFIX}{name} {meaning}", f"# TYPE {PREFIX}{name} gauge", *found]
        return "".join(f"{line}\n" for line in lines)

    def _line(self, name: str, path: str, value: float) -> str:
        labels = f'store="{_escaped(self._store)}"' + (f',path="{_escaped(path)}"' if path else "")
        return f"{PREFIX}{name}{{{labels}}} {value}"

    def write(self, path: Path, exit_status: int) -> None:
        """Write the metrics of the finished run to the file at `path`. Raises OSError."""
        from rmqctl.logfile.system.writable_storage import WritableStorage

        self.set("exit_status", exit_status)
        self.set("duration_seconds", round(time.time() - self._began, 3))
        storage, data = WritableStorage(path.parent), self.text().encode()
        try:
            storage.replace_file(path, data)
        except PermissionError:
            if self._descriptor is None:
                raise
            storage.write(self._descriptor, 0, data)
            storage.resize(self._descriptor, len(data))


def with_metrics(metrics: CleanMetrics, path: Path | None, run: Callable[[], int]) -> int:
    """Run `clean`, and write its result to the file at `path`.

    The file is written even after an error, except after a wrong command line, because `path` itself may be wrong then.
    If `path` is None, no file is written. Raises OSError if only the writing fails.
    """
    if path is None:
        return run()
    try:
        status = run()
    except click.UsageError:
        raise
    except BaseException as error:
        with suppress(OSError):
            metrics.write(path, exit_status(error))
        raise
    metrics.write(path, status)
    return status


def _escaped(label: str) -> str:
    return label.translate(_ESCAPED)
