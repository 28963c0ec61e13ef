"""Damage to compaction/ is found."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.forensics.audit.compaction_audit import audit_compaction
from rmqctl.forensics.finding import Finding
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Golden, Rmqctl, tree_hash
from tests.support.compacted_stores import BEYOND, DAMAGES, L2, U2, L, R, gone, in_two_files, inverted


def found_in(root: Path, conf: BrokerConf | None = None) -> list[Finding]:
    store = ReadOnlyStore(root, conf)
    found = list(audit_compaction(store, {}))
    store.close()
    return found


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(name: str, golden: Golden) -> None:
    damage, expected = DAMAGES[name]
    root = in_two_files(golden("broker-550"))
    damage(root)
    before = tree_hash(root / "compaction")
    counts: Counter[str] = Counter()
    for finding in found_in(root):
        counts[finding.code] += finding.count
    assert counts == expected
    assert tree_hash(root / "compaction") == before
    assert found_in(root, BrokerConf(compaction_enabled=False)) == []


def test_a_log_that_was_cut(golden: Golden) -> None:
    """The real 5.5.0 stores three new messages, and serves none of them."""
    root = golden("broker-550")
    for name in ("consumequeue/cmpt", "consumequeue_ext/cmpt"):
        shutil.rmtree(root / name, ignore_errors=True)
    assert {(one.code, one.count) for one in found_in(root)} == {(BEYOND, 33), (BEYOND, 34)}


def test_verify_and_doctor_name_it(golden: Golden, rmqctl: Rmqctl) -> None:
    root = in_two_files(golden("broker-550"))
    inverted(L, R + 4)(root)
    for verb in ("verify", "doctor"):
        result = rmqctl(verb, root)
        assert result.code == 1
        assert L in " ".join(result.out.split()).replace(" ", "")
    causes = rmqctl("doctor", root, "-o", "json").document()["causes"]
    assert [cause["code"] for cause in causes if cause["code"].startswith("compaction")] == ["compaction-damaged"]
    gone(L2)(root)
    said = rmqctl("doctor", root).out
    assert f"does not start: {U2}: compaction/compactionLog has no file of this name." in " ".join(said.split())
    assert said.startswith("not healthy: compaction-refused; ")
    assert "the next start fails" in said
    restart = rmqctl("doctor", root, "-o", "json").document()["causes"][0]["restart"]
    assert restart["refused"] == f"{U2}: compaction/compactionLog has no file of this name"


def test_doctor_says_of_which_queue_consumers_get_nothing(golden: Golden, rmqctl: Rmqctl) -> None:
    root = in_two_files(golden("broker-550"))
    gone("compaction/compactionCq/cmpt/1")(root)
    restart = rmqctl("doctor", root, "-o", "json").document()["causes"][0]["restart"]
    assert "Consumers get nothing of the queue of compaction/compactionCq/cmpt/1." in restart["detail"]
