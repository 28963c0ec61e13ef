"""Messages of compacted topics that the log no longer has are traced to compaction/."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Golden, Rmqctl
from tests.support.compacted_stores import inverted

FILE = "compaction/compactionLog/cmpt/0/00000000000000000000"


@pytest.fixture
def expired(golden: Golden) -> Path:
    root = golden("broker-550")
    min((root / "commitlog").iterdir()).unlink()
    return root


def test_it_says_where_a_message_is_kept(expired: Path, rmqctl: Rmqctl) -> None:
    kept = rmqctl("dump", expired, "--compaction", "--topic", "cmpt", "--queue", 0, "-o", "jsonl").rows()[0]
    unique_key = kept["properties"]["UNIQ_KEY"]
    for question in ("--unique-key", "--id", "--key"):
        result = rmqctl("trace", expired, question, unique_key, "-o", "json")
        found = result.document()
        assert (result.code, found["found"]) == (0, True)
        assert found["verdict"].startswith("stored, kept in compaction/ alone: the log no longer has it")
        stages = [(one["kind"], one["path"], one["queueOffset"], one["reachable"]) for one in found["stages"]]
        assert stages == [("stored", FILE, kept["queueOffset"], True)]
        assert not any("no message has the id" in remark for remark in found["remarks"])


def test_of_a_word_all_values_are_found(expired: Path, rmqctl: Rmqctl) -> None:
    dumped = rmqctl("dump", expired, "--compaction", "--key", "ck3", "-o", "jsonl").rows()
    found = rmqctl("trace", expired, "--key", "ck3", "-o", "json").document()
    places = [(one["queueId"], one["queueOffset"]) for one in found["stages"]]
    assert places == [(row["queueId"], row["queueOffset"]) for row in dumped]
    assert rmqctl("trace", expired, "--key", "ck3", "--topic", "OrderPaid").code == 1


def test_it_says_if_no_unit_leads_to_it(expired: Path, rmqctl: Rmqctl) -> None:
    kept = rmqctl("dump", expired, "--compaction", "--topic", "cmpt", "--queue", 0, "-o", "jsonl").rows()[0]
    inverted("compaction/compactionCq/cmpt/0/00000000000000000000", 0, 46)(expired)
    found = rmqctl("trace", expired, "--unique-key", kept["properties"]["UNIQ_KEY"], "-o", "json").document()
    assert [one["reachable"] for one in found["stages"]] == [False]


def test_a_broker_without_compaction_keeps_none(expired: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("enableCompaction=false\n")
    assert rmqctl("trace", expired, "--key", "ck3", "--broker-conf", conf).code == 1


def test_dump_says_what_to_do_without_compacted_topics(golden: Golden, rmqctl: Rmqctl) -> None:
    result = rmqctl("dump", golden("497-basic"), "--compaction")
    assert (result.code, result.out) == (0, "")
    assert "note: topics.json compacts no topic: leave out --compaction to print the log" in result.err
    result = rmqctl("dump", golden("broker-550"), "--compaction", "--topic", "orders")
    assert result.code == 0
    assert "note: compacted: cmpt; leave out --compaction to print others from the log" in result.err
