"""Random damage that a repair once made worse, or said something untrue of: what must hold, see `tests.damage.trial`,
holds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import DATA, Rmqctl, unpack
from tests.damage.case import Case
from tests.damage.pristine import Pristine, stores_of
from tests.damage.trial import Trial

CASES = (
    # a gap that --keep-going filled with a record of no queue explains the number of the message after it
    Case("ci/12", "452-basic", ("flip-magic", "all-queues-deleted", "abort-made")),
    # the queue's last message has the number after the gap, and the place in the gap leads to it, too
    Case("ci/27", "432-basic", ("all-queues-deleted", "zero-a-message")),
    # a record that says another topic or queueId: its place stays, and those after it do not move up
    Case("interop/15", "497-batch", ("flip-topic",)),
    Case("ci/134", "432-crash", ("flip-topic",)),
    Case("ci/171", "533-ipv6", ("log-file-cut", "flip-queue-id")),
    Case("ci/186", "471-delay", ("flip-queue-id", "all-queues-deleted")),
    # a queue that leads to its second message, whose record says another queue; one with a place that leads to the next
    # message
    Case("ci/194", "470-basic", ("queue-deleted", "flip-queue-id")),
    Case("ci/108", "471-cqext", ("records-of-another-place", "all-queues-deleted", "abort-made")),
    # what stays of a queue that is not rebuilt as it would be the same
    Case("ci/189", "432-basic", ("flip-size", "log-files-swapped")),
    # files that overlap: the first message of the second one had no unit, and no entry in the index
    Case("ci/35", "432-tx", ("torn-last-record", "log-file-renamed-off-its-grid")),
    Case("ci/36", "471-basic", ("log-file-deleted", "log-file-renamed-off-its-grid", "abort-made")),
    # a placeholder belongs to the queue of the units around its own, though their file lies in another queue's folder
    Case("ci/17", "550-tx", ("queue-files-swapped", "zeros-in-the-log", "index-zeroed", "abort-made")),
    # a file in a folder that is rebuilt goes with it
    Case("ci/257", "497-crash", ("stray-file-elsewhere",)),
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pristine]:
    wanted = {case.store for case in CASES}
    return stores_of(DATA, tmp_path_factory.mktemp("golden"), lambda name: name in wanted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_mended(case: Case, stores: dict[str, Pristine], tmp_path: Path) -> None:
    assert not Trial(case, stores, tmp_path).run()


def test_a_file_from_the_far_future_can_be_undone(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Some file systems keep times after 2262, whose nanoseconds have more than 64 bits."""
    root = unpack("471-crash", tmp_path)
    for path in (root / "abort", root / "checkpoint", *(root / "index").iterdir()):
        os.utime(path, (14_000_000_000, 14_000_000_000))
    assert rmqctl("recover", root, "--yes").code == 3
    assert rmqctl("undo", root, "--yes").code == 0
