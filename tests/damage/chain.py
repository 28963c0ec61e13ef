"""Doctor's next commands, followed to their end; and what a broker would serve after each of them."""

from __future__ import annotations

import shlex
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

from rmqctl.errors import ExitCode
from rmqctl.format.message import Message
from rmqctl.format.profile import PROFILES
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.config.store_path import Layout
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery.simulation import RestartOutcome, plan_restart
from tests.damage.command import call
from tests.damage.victim import UNIT, is_offset
from tests.damage.witness import Place, reachable

COMMANDS_MAX = 12
MADE = (ExitCode.CLEAN, ExitCode.REPAIRED)
IN_NO_QUEUE = (4, 12)  # prepared and rollback, of SYSFLAG & 12


class Followed(NamedTuple):
    """The commands that doctor named, and what is wrong with one of them; "" where nothing is."""

    commands: list[str]
    fault: str


def follow(root: Path, conf: Path, profile: str) -> Followed:
    """Follow doctor's next commands until the store is healthy, a command repeats, or one only shows what it would do.

    No command may make a broker serve fewer messages after a start than before the first one.
    """
    commands: list[str] = []
    before = served(root, conf, profile)
    while len(commands) < COMMANDS_MAX:
        result = call("doctor", root, "--broker-conf", conf, "--profile", profile, "-o", "json")
        if result.code not in (ExitCode.CLEAN, ExitCode.FINDINGS):
            return Followed(commands, f"doctor exits with {result.code}: {result.err[-300:]}")
        causes = result.document()["causes"]
        if not causes or (command := causes[0]["next"]) in commands:
            break
        commands.append(command)
        if "--dry-run" in command:
            break
        if fault := _run(command):
            return Followed(commands, fault)
        gone = before - served(root, conf, profile)
        if gone:
            return Followed(commands, f"{len(gone)} messages are not served any more, such as {sorted(gone)[:3]}")
    return Followed(commands, "")


def _run(command: str) -> str:
    """Run a command line; return what is wrong with it, or ""."""
    if "\n" in command:
        return f"more than one line: {command}"
    if command.startswith("mv "):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""
    for part in command.split("; "):
        program, *words = shlex.split(part)
        if program != "rmqctl":
            return f"not a command of rmqctl: {part}"
        result = call(*words)
        if "--yes" in words and result.code not in MADE:
            return f"{part}: exit {result.code}: {result.err[-300:]}"
    return ""


def served(root: Path, conf: Path, profile: str) -> set[Place]:
    """The intact messages that a broker serves after a start now.

    Of a store that no broker starts with: those that units lead to.
    """
    store = ReadOnlyStore(root, read_broker_conf(conf))
    try:
        if store.path.layout is not Layout.FILES:
            return set()
        restart = plan_restart(store, PROFILES[profile])
        if restart.refused is not None or restart.hangs is not None:
            return reachable(root)
        return _after(restart, store, root)
    finally:
        store.close()


def _after(restart: RestartOutcome, store: ReadOnlyStore, root: Path) -> set[Place]:
    ends = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in restart.queues}
    log = range(restart.min_phy_offset, restart.max_phy_offset)
    by_unit = {place for place in reachable(root, ends) if place.physical_offset in log}
    taken = {key: _places_of(root, *key) for key in ends}
    by_dispatch = {
        Place(item.topic, item.queue_id, item.physical_offset)
        for item in store.commit_log.scan(ScanSummary())
        if isinstance(item, Message) and item.physical_offset in log and item.sys_flag & 12 not in IN_NO_QUEUE
        for low, high in [ends.get((item.topic, item.queue_id), (0, 0))]
        if low <= item.queue_offset < high and item.queue_offset not in taken[item.topic, item.queue_id]
    }
    return by_unit | by_dispatch


def _places_of(root: Path, topic: str, queue_id: int) -> set[int]:
    """The queue offsets that have a unit on the disk."""
    return {
        int(path.name) // UNIT + number
        for path in (root / "consumequeue" / topic / str(queue_id)).glob("*")
        if path.is_file() and is_offset(path)
        for number, (_, size, _) in enumerate(struct.iter_unpack(">qiq", _whole(path.read_bytes())))
        if size > 0
    }


def _whole(data: bytes) -> bytes:
    return data[: len(data) // UNIT * UNIT]
