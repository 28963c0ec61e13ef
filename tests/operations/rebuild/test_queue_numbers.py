"""A record's damaged QUEUEOFFSET, judged by the messages after it in its queue."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from rmqctl.operations.rebuild.queue_numbers import Following, first_number, is_misnumbered
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack


def after(*numbers: int) -> list[Following]:
    return [Following(number, 0) for number in numbers]


@pytest.mark.parametrize(
    ("found", "following", "in_queue", "wanted"),
    [
        (7, after(8, 9), None, 7),
        (256, after(1, 2, 3), None, 0),
        (-(2**63), after(1), None, 0),
        (0, after(257, 2, 3), None, 0),  # the second one is wrong
        (5, [Following(9, 3000), Following(10, 3000)], None, 5),  # three were lost
        (5, [Following(9, 0), Following(10, 0)], None, 8),
        (57, after(0, 1, 2), None, 57),  # its topic was deleted and made again
        (256, [], 0, 0),
        (0, after(2, 3, 4), 0, 0),  # the second one says another queue
        (2**62, [], None, 0),
    ],
)
def test_where_a_queue_begins(found: int, following: list[Following], in_queue: int | None, wanted: int) -> None:
    assert first_number(found, following, in_queue) == wanted


@pytest.mark.parametrize(
    ("found", "following", "in_queue", "wanted"),
    [
        (300, after(11, 12), None, True),
        (-5, after(11), None, True),
        (0, after(11, 12), None, True),
        (0, after(1, 2), None, False),  # its topic was deleted and made again
        (20, after(21, 22), None, False),  # what is between was lost
        (4, after(5, 6), None, False),  # a broker gave out numbers again
        (11, after(14, 15), None, False),
        (300, after(14, 15), None, True),  # three were lost after it
        (4, [], None, True),
        (4, [], 4, False),
        (300, [], 10, True),
    ],
)
def test_whose_number_is_wrong(found: int, following: list[Following], in_queue: int | None, wanted: bool) -> None:
    """The queue goes on at 10."""
    assert is_misnumbered(10, found, following, in_queue) is wanted


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize(
    ("number", "damaged"), [(0, 256), (0, 2**63), (17, 0), (100, 0x4117000000000003), (290, 1), (299, 2**20)]
)
def test_one_record_moves_no_queue(
    number: int, damaged: int, with_queues: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """No verb rebuilds the queue from that record; a queue that is missing is rebuilt as it was."""
    store = unpack("497-basic", tmp_path)
    wanted = rmqctl("queue", store, "-o", "jsonl").rows()
    at = [row["physicalOffset"] for row in rmqctl("dump", store, "-o", "jsonl").rows()][number]
    with (store / "commitlog" / f"{at // 65536 * 65536:020d}").open("r+b") as log:
        log.seek(at % 65536 + 20)
        log.write(damaged.to_bytes(8, "big"))
    before = tree_hash(store)
    if not with_queues:
        shutil.rmtree(store / "consumequeue")
    sizes = tmp_path / "broker.conf"
    sizes.write_text("mappedFileSizeConsumeQueue=1000\n")
    assert rmqctl("recover", store, "--broker-conf", sizes, "--yes").code == (0 if with_queues else 3)
    assert with_queues is (tree_hash(store) == before)
    assert rmqctl("rebuild", store, "queues", "--yes").code == 0
    assert rmqctl("queue", store, "-o", "jsonl").rows() == wanted
    [finding] = rmqctl("verify", store, "-o", "json").document()["findings"]
    assert (finding["code"], finding["physicalOffset"]) == ("bad-queue-offset", at)


def test_the_first_message_of_a_queue_is_judged_alike_where_its_record_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has enough room before the message, so only the next message of the queue shows the fault."""
    root = unpack("497-basic", tmp_path)
    with closing(ReadOnlyStore(root)) as store:
        first = store.unit("audit-log", 3, 0)
    assert first is not None
    file, position = divmod(first.physical_offset, 65536)
    with (root / "commitlog" / f"{file * 65536:020d}").open("r+b") as log:
        log.seek(position + 20)
        log.write((441).to_bytes(8, "big"))
    made = set()
    for size in (65536, position + first.size, position + 1, position, 1000):
        staging = tmp_path / f"runs-{size}"
        with closing(ReadOnlyStore(root)) as store:
            in_segments = partial(store.commit_log.scan_columns, segment_size=size)
            monkeypatch.setattr(store.commit_log, "scan_columns", in_segments)
            rebuild = Rebuild(store, Selection(), staging)
            rebuild.run()
            rebuild.check()
        made.add(tree_hash(staging))
    assert len(made) == 1
