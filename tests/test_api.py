"""`rmqctl.api`: what it returns is what the verbs print, and the examples of its man page run."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import rmqctl.api as rmq
from rmqctl.errors import BadRequest, NotAStore
from tests.conftest import Rmqctl, tree_hash, unpack

STORES = ["broker-497", "broker-550-dledger", "533-longtopic"]


@pytest.mark.parametrize("name", STORES)
def test_messages_and_arrow_are_the_rows_of_dump(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack(name, tmp_path)
    before = tree_hash(root)
    rows = rmqctl("dump", root, "-o", "jsonl", "--body", "hex").rows()
    with rmq.open(root) as store:
        found = list(store.messages())
        table = store.to_arrow().read_all().to_pylist()
        narrow = store.to_arrow(["topic", "physicalOffset"])
        assert narrow.schema.names == ["topic", "physicalOffset"]
        assert narrow.read_all().num_rows == len(rows)
    assert [(one.topic, one.queue_id, one.queue_offset, one.physical_offset, one.store_timestamp) for one in found] == [
        (row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"], row["storeTimestamp"]) for row in rows
    ]
    assert [one.properties for one in found] == [row["properties"] for row in rows]
    same = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "msgId", "bornHost", "size")
    assert [[row[key] for key in same] for row in table] == [[row[key] for key in same] for row in rows]
    assert [row["body"].hex() for row in table] == [row["body"] for row in rows]
    assert [dict(row["properties"]) for row in table] == [row["properties"] for row in rows]
    assert tree_hash(root) == before


def test_the_conditions_of_messages(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("broker-497", tmp_path)
    rows = rmqctl("dump", root, "-o", "jsonl", "--topic", "orders").rows()
    middle = rows[len(rows) // 2]["storeTimestamp"]
    key = rows[0]["properties"]["KEYS"].split()[0]
    with rmq.open(root) as store:
        late = [
            one.physical_offset for one in store.messages("orders", since=datetime.fromtimestamp(middle / 1000, UTC))
        ]
        assert late == [row["physicalOffset"] for row in rows if row["storeTimestamp"] >= middle]
        assert {one.topic for one in store.messages(until=middle)} > {"orders"}
        assert all(key in (one.keys or "").split() for one in store.messages("orders", key))
        assert rows[0]["physicalOffset"] in [one.physical_offset for one in store.messages("orders", key)]


def test_documents_are_those_of_the_verbs(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("broker-497", tmp_path)

    def printed(*words: object) -> dict[str, Any]:
        return rmqctl(*words, "-o", "json").document()

    with rmq.open(root) as store:
        key = next(one.keys for one in store.messages("orders") if one.keys)
        found = {"verify": store.verify(level=2), "lag": store.lag()}
        found |= {"query": store.query(topic="orders", key=key, body="utf8"), "trace": store.trace(key=key)}
        with pytest.raises(BadRequest, match="nothing is asked"):
            store.query(topic="orders")
        with pytest.raises(BadRequest, match="no condition 'kee'"):
            store.trace(kee="x")
        with pytest.raises(BadRequest, match="'2026-11-21' is no time"):
            store.messages(since="2026-11-21")  # type: ignore[arg-type]
        left = store.messages()
        assert next(left)
        assert store.problems == []
    for late in (lambda: next(left), store.lag, lambda: next(store.messages()), lambda: store.to_arrow().read_all()):
        with pytest.raises(BadRequest, match="the store is closed"):
            late()
    assert store.problems == []
    wanted = {"verify": printed("verify", root, "--level", "2"), "lag": printed("lag", root)}
    wanted["query"] = printed("query", root, "--topic", "orders", "--key", key, "--body", "utf8")
    wanted["trace"] = printed("trace", root, "--key", key)
    for document in (found["verify"], wanted["verify"]):
        document.pop("seconds")
    assert json.loads(json.dumps(found)) == wanted


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        rmq.open(tmp_path / "none")


def test_the_examples_of_the_man_page_and_of_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack("broker-497", tmp_path)
    monkeypatch.chdir(tmp_path)
    text = files("rmqctl.cli").joinpath("topics", "rmqctl-python.md").read_text()
    examples = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", text, re.MULTILINE)
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    examples += re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(examples) >= 5
    for lines in map(dedent, examples):
        exec(compile(lines, "rmqctl-python.md", "exec"), {})
