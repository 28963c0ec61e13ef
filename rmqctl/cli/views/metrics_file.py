"""Gauges for Prometheus in a text file.

rmqctl writes the gauges to a text file for node_exporter's textfile collector. rmqctl does not use the client library
of Prometheus, which is made for processes that run for a long time.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.complaint import exit_status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

# gauges of every verb that writes metrics
USUAL = {
    "last_run_timestamp_seconds": "When {verb} ran last.",
    "duration_seconds": "How long the last run took.",
    "exit_status": "Exit status of the last run; see `rmqctl {verb} --help`.",
}
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\\r"})


class MetricsFile:
    """The gauges of one run of a verb on `store`.

    `meanings` has the help text of each gauge of the verb, in the order of the file. A gauge without a value is not in
    the file.
    """

    def __init__(self, verb: str, store: Path, meanings: Mapping[str, str]) -> None:
        self._prefix = f"rmqctl_{verb}_"
        self._meanings = {name: text.format(verb=verb) for name, text in (USUAL | dict(meanings)).items()}
        self._store = str(store.absolute())
        self._began = time.time()
        self._descriptor: int | None = None
        self._values: dict[tuple[str, str], float] = {}
        self.set("last_run_timestamp_seconds", round(self._began, 3))

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set the gauge `name` with these labels, and with the label `store`."""
        text = "".join(f',{label}="{_escaped(of)}"' for label, of in labels.items())
        self._values[name, text] = value

    def hold(self, path: Path | None) -> None:
        """If root runs the verb, open the metrics file at `path`, and keep the file open.

        The process later changes its user to the owner of the store. The owner may have no right to replace the metrics
        file. Raises OSError.
        """
        from rmqctl.logfile.access.owner import is_root
        from rmqctl.logfile.system.storage import Kind
        from rmqctl.logfile.system.writable_storage import WritableStorage

        if path is not None and is_root():
            storage = WritableStorage(path.parent)
            is_there = storage.entry(path).kind is not Kind.MISSING
            self._descriptor = storage.open_for_writing(path) if is_there else storage.make_file(path)

    def text(self) -> str:
        """Return the gauges in Prometheus' text format, version 0.0.4."""
        lines = []
        for name, meaning in self._meanings.items():
            found = [self._line(name, labels, value) for (of, labels), value in self._values.items() if of == name]
            if found:
                lines += [f"# HELP {self._prefix}{name} {meaning}", f"# TYPE {self._prefix}{name} gauge", *found]
        return "".join(f"{line}\n" for line in lines)

    def encoded(self) -> bytes:
        """Return the gauges as bytes, with escapes for names that are not valid UTF-8."""
        return self.text().encode(errors="backslashreplace")

    def _line(self, name: str, labels: str, value: float) -> str:
        return f'{self._prefix}{name}{{store="{_escaped(self._store)}"{labels}}} {value}'

    def write(self, path: Path, exit_status: int) -> None:
        """Write the gauges of the finished run to the file at `path`. Raises OSError."""
        from rmqctl.logfile.system.writable_storage import WritableStorage

        self.set("exit_status", exit_status)
        self.set("duration_seconds", round(time.time() - self._began, 3))
        storage, data = WritableStorage(path.parent), self.encoded()
        try:
            storage.replace_file(path, data)
        except PermissionError:
            if self._descriptor is None:
                raise
            storage.write(self._descriptor, 0, data)
            storage.resize(self._descriptor, len(data))


def with_metrics(metrics: MetricsFile, path: Path | None, run: Callable[[], int]) -> int:
    """Run a verb, and write its gauges to the file at `path` (None: to no file).

    The file is written even if the verb ends with an error. After a usage error, no file is written, because `path` may
    be wrong. Raises OSError if the verb succeeds but the file cannot be written.
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
