"""Golden stores by their names: sizes, versions, damage, and what their brokers' answers say."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from rmqctl.store.config.file_sizes import Geometry
from tests.conftest import apply_damage, damage_cases, unpack

GOLDEN = Geometry(64 * 1024, 1000, 100, 400)  # the sizes of the golden stores
CASES = damage_cases()
PROFILES = {
    "326": "4.7", "410": "4.7", "432": "4.7", "452": "4.7", "470": "4.7", "471": "4.7", "494": "4.9", "497": "4.9",
    "514": "5.3", "533": "5.3", "540": "5.4", "550": "5.4",
}  # fmt: skip
SILENT = "body-flip-first-normal"  # a normal recovery does not look there
FLIPS = sorted(name for name in CASES if "--body-flip-" in name)
# their index was rebuilt by the broker that was asked: it had died
REBUILT = {"326-tx-crash", "broker-533-kill"}


def geometry(name: str) -> Geometry:
    """The sizes of the golden stores."""
    return Geometry(256 * 1024, 6000, 1000, 4000) if name.startswith("broker") else GOLDEN


def profile_of(base: str) -> str:
    return PROFILES[base.removeprefix("broker-")[:3]]


def damaged(name: str, into: Path) -> Path:
    case = CASES[name]
    store = unpack(case["base"], into)
    apply_damage(store, case["ops"])
    return store


def ranges(queues: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"])
        for queue in queues
        if queue["maxOffset"] > 0
    }


def died(name: str) -> bool:
    """Whether the store's broker was killed: its queues lag, and a load does more than read."""
    return "crash" in name or "kill" in name


def host(text: str) -> tuple[Any, int]:
    """Address and port in whatever notation."""
    address, _, port = text.rpartition(":")
    return ipaddress.ip_address(address.strip("[]")), int(port)
