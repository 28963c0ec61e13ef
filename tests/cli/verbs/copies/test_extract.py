"""extract: the new store is whole, and has what dump shows of the old one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import READABLE_NAMES, Golden, Rmqctl, tree_hash

HALF = ("--body-match", '[0-4]$|[a-h1-4]"')  # about each second message: gaps in the queues
OF_PLACE = ("physicalOffset", "msgId", "path")


def rows_of(rmqctl: Rmqctl, store: Path, *words: str) -> list[dict[str, Any]]:
    found = rmqctl("dump", store, "--body", "base64", "-o", "jsonl", *words).rows()
    for row in found:
        row["properties"].pop("__CRC32#", None)  # covers the physical offset, too
    return [{key: value for key, value in row.items() if key not in OF_PLACE} for row in found]


def check(rmqctl: Rmqctl, source: Path, new: Path, *words: str) -> list[dict[str, Any]]:
    """Extract, check that NEW is whole and SOURCE unchanged, and return the rows of NEW."""
    before = tree_hash(source)
    made = rmqctl("extract", source, new, *words, "-o", "json")
    assert made.code == 0, made.err
    found = made.document()
    assert tree_hash(source) == before
    assert found["bytes"] == sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
    verified = rmqctl("verify", new, "--level", "3", "-o", "json").document()
    assert (verified["findings"], verified["messages"]) == ([], found["messages"])
    return rows_of(rmqctl, new)


SOME = ("471-tx", "497-lmq", "533-propcrc", "broker-533")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SOME else [pytest.mark.slow]) for name in READABLE_NAMES]
)
def test_it_has_what_dump_shows(name: str, golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    if "crash" in name or "kill" in name or "timer" in name:
        return
    source = golden(name)
    # a broker of 5.x would deliver old timers again, as doctor and the remark say
    topics = sorted({row["topic"] for row in rows_of(rmqctl, source)} - {"rmq_sys_wheel_timer"})
    only = (*(word for topic in topics for word in ("--topic", topic)), *HALF)
    wanted = rows_of(rmqctl, source, *only)
    assert check(rmqctl, source, tmp_path / "kept", *only, "--keep-offsets") == wanted
    new = check(rmqctl, source, tmp_path / "new", *only)
    changing = ("queueOffset", "size", "properties")
    assert [{k: v for k, v in row.items() if k not in changing} for row in new] == [
        {k: v for k, v in row.items() if k not in changing} for row in wanted
    ]
    for queue in rmqctl("queue", tmp_path / "new", "-o", "jsonl").rows():
        assert (queue["minOffset"], queue["maxOffset"]) == (0, queue["maxOffset"])
    for made in ("kept", "new"):
        assert rmqctl("doctor", tmp_path / made).code == 0


def test_nothing_redacted_is_left(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    source, new = golden("497-batch"), tmp_path / "new"
    check(rmqctl, source, new, "--redact", "body", "--redact", "properties")
    everything = b"".join(path.read_bytes() for path in new.rglob("*") if path.is_file())
    old = [json.loads(line) for line in rmqctl("dump", source, "--body", "utf8", "-o", "jsonl").out.splitlines()]
    rows = rows_of(rmqctl, new)
    values = {row["body"] for row in old} | {row["properties"].get("UNIQ_KEY", "") for row in old}
    values |= {word for row in old for word in row["properties"].get("KEYS", "").split(" ")}
    long = [value for value in values if len(value) >= 8]
    assert len(long) > 10
    assert not [value for value in long if value.encode() in everything]
    assert len({row["properties"].get("KEYS") for row in rows}) == len({row["properties"].get("KEYS") for row in old})
    key = next(row["properties"]["KEYS"] for row in rows if "KEYS" in row["properties"]).split(" ")[0]
    topic = next(row["topic"] for row in rows if key in row["properties"].get("KEYS", ""))
    assert rmqctl("query", new, "--topic", topic, "--key", key, "-o", "jsonl").rows()


def test_redacted_values_are_counted_and_a_path_in_no_body_is_an_error(
    golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    source, new = golden("broker-497"), tmp_path / "new"
    of_orders = ("extract", source, new, "--topic", "orders", "-o", "json")
    wrong = rmqctl(*of_orders, "--redact", "json:order", "--redact", "json:Order")
    assert wrong.code == 4
    assert "json:Order: in no body" in wrong.err
    assert not new.exists()
    found = rmqctl(*of_orders, "--redact", "json:order", "--redact", "properties").document()
    assert [(row["what"], row["values"] > 1000) for row in found["redacted"]] == [
        ("json:order", True),
        ("properties", True),
    ]


def test_groups_go_on_where_they_were(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    source = golden("broker-497")
    offsets = {"offsetTable": {"orders@billing": {"0": 20, "1": 0, "2": 7, "3": 1000}, "events@billing": {"0": 1}}}
    (source / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    left = ("--group", "billing", "--unconsumed", *HALF)
    wanted = rows_of(rmqctl, source, *left, "--topic", "orders")
    assert len(wanted) > 20
    for how in ((), ("--keep-offsets",)):
        new = tmp_path / f"new{len(how)}"
        check(rmqctl, source, new, "--topic", "orders", *HALF, *how)
        now = rows_of(rmqctl, new, *left)
        assert [row["properties"] for row in now] == [row["properties"] for row in wanted]
        assert "events" not in (new / "config" / "consumerOffset.json").read_text()


def test_nothing_is_written_to_a_folder_of_the_log(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    source, log, conf = golden("broker-497"), tmp_path / "log", tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={log}\n")
    (source / "commitlog").rename(log)
    to_cluster = ("send", source, "--broker", "127.0.0.1:1", "--dry-run", "--receipts")
    for words in (("extract", source, log / "new"), (*to_cluster, log / "receipts")):
        found = rmqctl(*words, "--broker-conf", conf)
        assert (found.code, "is inside the store" in found.err) == (2, True), found.err
    (loop := tmp_path / "loop").symlink_to(loop)
    assert rmqctl(*to_cluster, loop / "x", "--broker-conf", conf).code not in (0, 70)
    assert rmqctl("salvage", source, "--to", loop / "x").code not in (0, 70)


def test_what_is_refused_leaves_nothing(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    source, new = golden("497-basic"), tmp_path / "new"
    assert rmqctl("extract", source, new, "--key", "nobody").code == 4
    assert rmqctl("extract", source, new, "--redact", "heads").code == 2
    assert rmqctl("extract", source, source / "new").code == 2
    assert "note: topic 'ordres' has no queue" in rmqctl("extract", source, new, "--topic", "ordres").err
    assert not new.exists()
    new.mkdir()
    assert rmqctl("extract", source, new).code == 2
