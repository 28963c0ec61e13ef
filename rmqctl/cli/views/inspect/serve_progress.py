"""The progress of slaves, which `rmqctl serve` shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import remark, to_json

if TYPE_CHECKING:
    from rmqctl.operations.serve.store_server import ServedSlave, StoreServer

LINE_SECONDS = 5.0  # between two lines if only offsets differ


class ServeProgress:
    """Show each slave's offset on stderr.

    `mode` (auto, json, none) is the form of the lines. A line is written when a slave connects or disconnects, and when
    a slave has the whole log or the configuration. If only offsets change, a line is written at most once in 5 seconds.
    """

    def __init__(self, server: StoreServer, mode: str) -> None:
        self._server = server
        self._mode = mode
        self._shown: list[ServedSlave] = []
        self._shown_at = 0.0

    def show(self, slaves: list[ServedSlave]) -> None:
        """Show new remarks, and the slaves if their state has changed."""
        for text in self._server.notices.take():
            remark(text)
        is_due = time.monotonic() - self._shown_at >= LINE_SECONDS
        if self._mode == "none" or slaves == self._shown or not (is_due or _states(slaves) != _states(self._shown)):
            return
        self._shown, self._shown_at = slaves, time.monotonic()
        if self._mode == "json":
            remark(to_json({"progress": "serve", "slaves": [slave_row(slave) for slave in slaves]}))
        else:
            remark("; ".join(map(self._words, slaves)) or "no slave is connected")

    def _words(self, slave: ServedSlave) -> str:
        end = self._server.log.end
        log = "has the log" if slave.has_log else f"at {max(slave.max_offset, 0)} of {end}"
        has_configuration = "has the configuration" if slave.is_configured else "has not asked for the configuration"
        return f"{slave.address} {log}, {has_configuration}"


def slave_row(slave: ServedSlave) -> dict[str, Any]:
    """Return the JSON object that describes a slave."""
    return {
        "address": slave.address,
        "maxPhyOffset": slave.max_offset,
        "hasLog": slave.has_log,
        "hasConfiguration": slave.is_configured,
    }


def _states(slaves: list[ServedSlave]) -> list[tuple[str, bool, bool]]:
    return [(slave.address, slave.has_log, slave.is_configured) for slave in slaves]
