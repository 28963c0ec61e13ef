"""`rmqctl trace`: what its JSON says of real brokers' messages, and its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, tree_hash, unpack

Golden = Callable[[str], Path]


def kinds(rmqctl: Rmqctl, store: Path, *asked: str) -> list[tuple[str, int]]:
    found = rmqctl("trace", store, *asked, "-o", "json")
    assert found.code == 0
    return [(row["kind"], row["physicalOffset"]) for row in found.document()["stages"]]


@pytest.mark.parametrize("way", [(), ("--scan",)])
@pytest.mark.parametrize(
    ("key", "stages", "verdict"),
    [
        ("o1", ["stored"], "stored, consumed by billing"),
        ("o3", ["delayed", "delivered"], "delayed by level 1, delivered after 1.1 s, consumed by billing"),
        ("tx11", ["half", "commit", "op"], "committed after 16 ms"),
        ("tx61", ["half", "half", "commit", "op"], "committed after 3.6 s and 1 check"),
        (
            "poison-7",
            ["stored", "delayed", "retry", "dead-letter"],
            "stored, delivered twice, in %DLQ%billing, consumed by billing",
        ),
    ],
)
def test_lives(way: tuple[str, ...], key: str, stages: list[str], verdict: str, golden: Golden, rmqctl: Rmqctl) -> None:
    found = rmqctl("trace", golden("broker-497"), "--key", key, *way, "-o", "json")
    document = found.document()
    assert (found.code, document["found"], document["verdict"]) == (0, True, verdict)
    assert [row["kind"] for row in document["stages"]] == stages
    assert all(row["reachable"] and row["damage"] is None for row in document["stages"])


def test_pop(golden: Golden, rmqctl: Rmqctl) -> None:
    found = rmqctl("trace", golden("broker-550"), "--key", "pop19", "-o", "json").document()
    assert found["verdict"].startswith(
        "stored, retried once in %RETRY%popgroup_popt, popped and acknowledged by popgroup"
    )
    stages = [row["kind"] for row in found["stages"]]
    assert {kind: stages.count(kind) for kind in set(stages)} == {
        "stored": 1,
        "timer": 5,
        "pop-checkpoint": 3,
        "pop-ack": 2,
        "retry": 1,
    }
    states = {(row["group"], row["topic"], row["queueOffset"]): row["state"] for row in found["groups"]}
    assert states["popgroup", "popt", 5] == states["popgroup", "%RETRY%popgroup_popt", 0] == "consumed"


def test_every_way_leads_to_the_same_life(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    stages = kinds(rmqctl, store, "--key", "poison-7")
    row = rmqctl("trace", store, "--key", "poison-7", "-o", "json").document()["stages"][2]
    assert kinds(rmqctl, store, "--unique-key", row["uniqueKey"]) == stages
    assert kinds(rmqctl, store, "--msg-id", row["msgId"]) == stages
    assert kinds(rmqctl, store, "--offset", str(row["physicalOffset"])) == stages
    assert kinds(rmqctl, store, "--key", "poison-7", "--topic", "orders") == stages
    assert rmqctl("trace", store, "--key", "poison-7", "--topic", "payments").code == 1


def test_nothing_found(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    before = tree_hash(store)
    found = rmqctl("trace", store, "--unique-key", "nonsense", "-o", "json")
    document = found.document()
    assert (found.code, document["found"], document["stages"]) == (1, False, [])
    assert document["verdict"].startswith("no record of the message was found; all of the log [0, ")
    assert document["verdict"].endswith("nothing is damaged there")
    shown = rmqctl("trace", store, "--unique-key", "nonsense")
    assert (shown.code, shown.out.splitlines()[0]) == (1, document["verdict"])
    assert tree_hash(store) == before


def test_the_log_begins_later(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    key = rmqctl("trace", store, "--key", "o1", "-o", "json").document()["stages"][0]
    (store / "commitlog" / f"{0:020}").unlink()
    for asked in (("--unique-key", key["uniqueKey"]), ("--msg-id", key["msgId"])):
        found = rmqctl("trace", store, *asked, "-o", "json")
        assert found.code == 1
        verdict = found.document()["verdict"]
        assert verdict.startswith("not in this log: it begins at")
        assert "which is later" in verdict


def test_several_stores_are_one_cluster(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A copy of a store has the same records: each is shown once."""
    one, other = (unpack(name, tmp_path / name) for name in ("broker-497", "broker-533"))
    found = rmqctl("trace", one, other, one, "--key", "o3", "-o", "json").document()
    assert found["stores"] == [str(one), str(other), str(one)]
    assert [row["store"] for row in found["stages"]] == [str(one)] * 2 + [str(other)] * 2
    assert found["verdict"].startswith("2 messages: (1) delayed by level 1")


def test_tables_and_diagram(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    shown = rmqctl("trace", store, "--key", "poison-7").out.splitlines()
    assert shown[0] == "stored, delivered twice, in %DLQ%billing, consumed by billing"
    assert any(line.split()[:4] == ["dead-letter", "+4.2", "s", "2026-11-21T09:29:20.753Z"] for line in shown)
    assert any(line.split() == ["billing", "consumed", "orders", "2", "1", "376"] for line in shown)
    diagram = rmqctl("trace", store, "--key", "poison-7", "--mermaid").out.splitlines()
    assert diagram[0] == "sequenceDiagram"
    assert "    p1->>p2: stored (queue 2, offset 1)" in diagram


@pytest.mark.parametrize("asked", [(), ("--key", "a", "--offset", "1"), ("--msg-id", "x")])
def test_wrong_usage(asked: tuple[str, ...], golden: Golden, rmqctl: Rmqctl) -> None:
    assert rmqctl("trace", golden("broker-497"), *asked).code == 2
