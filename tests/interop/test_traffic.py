"""What rmqctl says of a store that a real broker wrote under real clients, against the clients' own log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl
from tests.real_store.harness import Geometry, RealRocketMQ, TrafficReport
from tests.support.client_log import ClientLog, stored_progress

pytestmark = pytest.mark.interop

VERSIONS = ("4.7.1", "4.9.7", "5.3.3", "5.5.0")
SIZES = Geometry(commitlog_file_size=1 << 18, queue_file_units=300, index_slots=1000, index_entries=4000)
ORDERS = 600
MESSAGES_MIN = 500


@pytest.mark.parametrize("version", VERSIONS)
def test_rmqctl_says_what_the_clients_logged(version: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One test a version: a broker and its clients take half a minute."""
    root = tmp_path / "store"
    report = RealRocketMQ(version, timeout=300).traffic(root, ORDERS, geometry=SIZES)
    log = ClientLog(report.events, version)
    assert len(log.of_message) >= MESSAGES_MIN
    progress = stored_progress(root)
    assert {place: progress.get(place) for place in log.offsets()} == log.offsets()
    lag_is_as_reported(root, report, rmqctl)


def lag_is_as_reported(root: Path, report: TrafficReport, rmqctl: Rmqctl) -> None:
    """`lag` says of every group and queue what mqadmin's consumerProgress said of the running broker."""
    rows = rmqctl("lag", root, "-o", "json").document()["groups"]
    ours = {(row["group"], row["topic"], row["queueId"]): row for row in rows}
    groups = {row["group"] for row in report.progress}
    assert groups >= {"ledger", "billing", "audit"}
    for said in report.progress:
        found = ours.pop((said["group"], said["topic"], said["queueId"]))
        assert (found["maxOffset"], found["offset"] or 0) == (said["brokerOffset"], said["consumerOffset"]), said
        assert found["behind"] == said["brokerOffset"] - said["consumerOffset"], said
    assert [row for row in ours.values() if row["group"] in groups and row["offset"] is not None] == []
