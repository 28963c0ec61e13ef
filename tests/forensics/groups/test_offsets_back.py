"""Offsets of consumer groups that went back, by the .bak and by the log."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from rmqctl.store.config.fastjson import fastjson_loads
from tests.conftest import Rmqctl, unpack


def set_back(store: Path, offset: int, names: tuple[str, ...]) -> None:
    """Write an offset of billing in queue 0 of orders into files."""
    for name in names:
        path = store / "config" / name
        content: dict[str, Any] = fastjson_loads(path.read_text())
        content["offsetTable"]["orders@billing"]["0"] = offset
        path.write_text(json.dumps(content))


def test_offsets_below_those_of_the_bak(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    set_back(store, 100, ("consumerOffset.json",))
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    assert (cause["code"], cause["confidence"]) == ("group-went-back", "possible")
    assert cause["summary"] == "The offset of a consumer group went back: orders/0 (275 messages)"
    said = "billing is at 100 in orders/0, and was at 375: consumerOffset.json.bak has it; it gets 275 messages again"
    assert cause["evidence"][0]["detail"] == said
    assert cause["next"] == f"rmqctl config set-offset {store} --to 375 --dry-run billing orders 0"
    assert rmqctl(*shlex.split(cause["next"].replace("--dry-run", "--yes"))[1:]).code == 0
    assert rmqctl("doctor", store, "-o", "json").document()["healthy"]


def test_of_many_groups_the_page_says_where_the_other_commands_are(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    for name, offset in (("consumerOffset.json", 100), ("consumerOffset.json.bak", 375)):
        path = store / "config" / name
        content: dict[str, Any] = fastjson_loads(path.read_text())
        content["offsetTable"] |= {f"orders@of{number}": {"0": offset} for number in range(25)}
        path.write_text(json.dumps(content))
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    assert cause["next"].count("config set-offset") == 25
    page = rmqctl("doctor", store).out.splitlines()
    assert page[1].endswith(f"; rmqctl doctor {store} -o json  # 5 more")
    assert sum(line.startswith("   next") for line in page) == 21


def test_offsets_below_what_the_groups_own_retries_name(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-497", tmp_path)
    set_back(store, 3, ("consumerOffset.json", "consumerOffset.json.bak"))
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    (finding,) = cause["evidence"]
    assert cause["code"] == "group-went-back"
    assert "has a message that it got there by 2026-11-21T" in finding["detail"]
    assert cause["next"] == f"rmqctl config set-offset {store} --to {3 + finding['count']} --dry-run billing orders 0"


def test_offsets_that_rmqctl_set_back_are_wanted(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    assert rmqctl("config", "set-offset", store, "billing", "orders", "--to", "earliest", "--yes").code == 0
    assert rmqctl("doctor", store, "-o", "json").document()["healthy"]


def test_a_few_messages_back_are_usual(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    set_back(store, 375 - 32, ("consumerOffset.json",))
    assert rmqctl("doctor", store, "-o", "json").document()["healthy"]
