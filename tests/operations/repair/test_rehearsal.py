"""A start played on a plan comes to what the same start comes to once the plan was carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmqctl.format.profile import PROFILES
from rmqctl.operations.plan import RepairPlan
from rmqctl.operations.repair import recovery_plan
from rmqctl.operations.repair.analysis import RecoveryPolicy
from rmqctl.operations.repair.execute import build
from rmqctl.operations.repair.needed_rebuilds import NeededRebuilds, needed_rebuilds
from rmqctl.operations.repair.recovery_plan import plan_recovery
from rmqctl.operations.repair.rehearsal import Rehearsal, compared, rehearse
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.journal.transaction import make_change
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery.rules import Mode
from rmqctl.store.recovery.simulation import RestartOutcome, plan_restart
from tests.conftest import unpack
from tests.support.golden_store import CASES, damaged, profile_of


def said(outcome: RestartOutcome) -> tuple[object, ...]:
    queues = [queue[:4] for queue in outcome.queues if queue.max_offset]
    return outcome.refused, outcome.hangs, outcome.start_file, outcome.max_phy_offset, queues


@pytest.mark.parametrize("keep_going", [False, True])
@pytest.mark.parametrize("name", sorted(CASES)[::11])
def test_a_rehearsal_is_the_start(name: str, keep_going: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, profile = damaged(name, tmp_path), PROFILES[profile_of(CASES[name]["base"])]
    store = ReadOnlyStore(root)
    asked: list[RepairPlan] = []

    def noted(store: ReadOnlyStore, plan: RepairPlan, disordered: Collection[QueueKey], threads: int) -> NeededRebuilds:
        asked.append(plan)
        return needed_rebuilds(store, plan, disordered, threads)

    monkeypatch.setattr(recovery_plan, "needed_rebuilds", noted)
    plan = plan_recovery(store, RecoveryPolicy(profile, keep_going=keep_going)).repair
    if not plan.steps:
        return
    read, unread = (
        rehearse(store, plan, profile, needed_rebuilds(store, asked[-1], (), 1), whole_from, 1)[:2]
        for whole_from in (plan.max_phy_offset + 1, 0)
    )
    make_change(store, "recover", "", partial(build, store, plan, 1))
    after = ReadOnlyStore(root)
    wanted = [said(plan_restart(after, profile, mode=mode)) for mode in Mode]
    assert [said(outcome) for outcome in read] == wanted
    if "first-normal" not in name:  # elsewhere no damage remains
        assert [said(outcome) for outcome in unread] == wanted


@pytest.mark.parametrize("problem", ["refused", "hangs"])
def test_a_start_that_fails_after_another_crash_is_told(problem: str, tmp_path: Path) -> None:
    store, profile = ReadOnlyStore(unpack("497-crash", tmp_path)), PROFILES["4.9"]
    plan, now = plan_recovery(store, RecoveryPolicy(profile)).repair, plan_restart(store, profile)
    why = "no file has 7"
    then = replace(now, refused=why) if problem == "refused" else replace(now, hangs=why)
    notes = compared(store, plan, now, now, Rehearsal(now, then, Counter())).notes
    assert f"if the broker dies before its checkpoint moves on, it does not start again: {why}" in notes


def test_a_message_that_light_queues_share_is_lost_once(tmp_path: Path) -> None:
    """Of each queue the next start drops one message."""
    store, profile = ReadOnlyStore(unpack("533-lmq", tmp_path)), PROFILES["5.3"]
    plan, now = plan_recovery(store, RecoveryPolicy(profile, Mode.ABNORMAL)).repair, plan_restart(store, profile)
    less = tuple(queue._replace(max_offset=queue.max_offset - 1) for queue in now.queues if queue.max_offset)
    dropped = compared(store, plan, now, now, Rehearsal(replace(now, queues=less), now, Counter()))
    own = [queue for queue in less if not queue.topic.startswith("%LMQ%")]
    assert 0 < len(own) < len(less)
    assert dropped.lost.records == plan.lost.records + len(own)
