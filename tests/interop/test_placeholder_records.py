"""Stores with placeholders: every real version loads them, keeps all, and serves all but the damaged messages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.message import BLANK_SIZE, PLACEHOLDER_SIGN, Blank, Message
from rmqctl.format.profile import PROFILES
from rmqctl.format.sys_flag import TransactionType
from rmqctl.operations.placeholder.record import Span, Surroundings, placeholder_records
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.commit_log_writer import PutSettings
from tests.conftest import LIKE_OTHERS, apply_damage, damage_cases, expected, unpack
from tests.interop.test_written_stores import PROFILE_OF, sizes
from tests.real_store.harness import RealRocketMQ
from tests.store.engine.test_message_store import message
from tests.support.mended_stores import mend, overwrite

pytestmark = pytest.mark.interop

CASES = {
    name: case for name, case in damage_cases().items() if "--body-flip-" in name and not name.startswith(LIKE_OTHERS)
}
# the oldest profile that reads all of it
STORES = {
    "471-basic": "4.7", "497-batch": "4.7", "471-ipv6": "4.7", "497-tx": "4.7", "497-delay": "4.7", "broker-497": "4.7",
    "497-lmq": "4.9", "533-lmq": "4.9", "533-longtopic": "5.3", "533-propcrc": "4.7", "broker-533": "5.3",
}  # fmt: skip
SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}
Place = tuple[str, int, int]


def read(root: Path, version: str, base: str, *, abort: bool) -> dict[str, Any]:
    """What a version says of a copy; with abort it is started, too, so that all is dispatched again."""
    copy = root.with_name(f"copy-{version}-{abort}")
    shutil.copytree(root, copy)
    (copy / "abort").unlink(missing_ok=True)
    if abort:
        (copy / "abort").touch()
    return RealRocketMQ(version).read(
        copy, start=abort, geometry=sizes(base), settings=SETTINGS if "lmq" in base else {}
    )


def by_place(answer: dict[str, Any]) -> dict[Place, dict[str, Any]]:
    return {(row["cqTopic"], row["cqQueueId"], row["queueOffset"]): row for row in answer["messages"]}


def ranges(answer: dict[str, Any]) -> set[tuple[str, int, int, int]]:
    return {
        (row["topic"], row["queueId"], row["minOffset"], row["maxOffset"])
        for row in answer["queues"]
        if row["maxOffset"]
    }


def assert_all_but_placeholders(answer: dict[str, Any], golden: dict[str, Any]) -> list[dict[str, Any]]:
    """The store is as before, placeholders aside; returns these."""
    assert answer["load"] is True
    assert answer["maxPhyOffset"] == golden["maxPhyOffset"]
    assert ranges(answer) == ranges(golden)
    assert [row["entries"] for row in answer["queues"] if row["maxOffset"]] == [
        row["entries"] for row in golden["queues"] if row["maxOffset"]
    ]
    got, wanted = by_place(answer), by_place(golden)
    assert got.keys() == wanted.keys()
    placeholders = [place for place, row in got.items() if row["preparedTransactionOffset"] == PLACEHOLDER_SIGN]
    assert [place for place in got if got[place] != wanted[place] and place not in placeholders] == []
    return [got[place] for place in placeholders]


def assert_found_by_key(answer: dict[str, Any], golden: dict[str, Any]) -> None:
    """Keys lead to what they led to before."""
    found = {(asked["topic"], asked["key"]): asked["physicalOffsets"] for asked in answer["keyQueries"]}
    assert found
    for asked in golden["keyQueries"]:
        assert found[asked["topic"], asked["key"]] == asked["physicalOffsets"]


def test_there_are_all_the_cases() -> None:
    assert len(CASES) == 24


@pytest.mark.parametrize("version", PROFILE_OF)
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_flipped_body_costs_one_message(name: str, version: str, tmp_path: Path) -> None:
    base = CASES[name]["base"]
    root = unpack(base, tmp_path)
    apply_damage(root, CASES[name]["ops"])
    (written,) = mend(root).records
    golden = expected(base)
    before = next(row for row in golden["messages"] if row["physicalOffset"] == written.physical_offset)
    for abort in (False, True):
        answer = read(root, version, base, abort=abort)
        (placeholder,) = assert_all_but_placeholders(answer, golden)
        assert_found_by_key(answer, golden)
        assert {key for key in placeholder if placeholder[key] != before[key]} <= {
            "bodyCrc",
            "bodyLength",
            "crc32",
            "preparedTransactionOffset",
            "properties",
        }
        found = {
            name: value
            for name, value in placeholder["properties"].items()
            if name not in ("RMQCTL_DAMAGED", "__CRC32#")
        }
        assert found == {name: value for name, value in before["properties"].items() if name != "__CRC32#"}
        room = before["bodyLength"] - placeholder["bodyLength"]
        assert placeholder["properties"].get("RMQCTL_DAMAGED") == {0: None, 17: "1", 28: "bad-body-crc"}[room]


def ruin(root: Path) -> list[int]:
    """Overwrite every fifth to eighth record of each file, the last ones of files and their blanks; returns where."""
    store = ReadOnlyStore(root)
    ruined = []
    for file in store.commit_log.files_in_use():
        items = list(store.commit_log.scan(start=file.file_from_offset, stop=file.end))
        chosen: list[Message | Blank] = [
            item for number, item in enumerate(items) if isinstance(item, Message) and number % 20 in (5, 6, 7, 8)
        ]
        if isinstance(items[-1], Blank):
            chosen += [item for item in items[-3:] if isinstance(item, Message | Blank)]
        for item in chosen:
            size = item.size if isinstance(item, Message) else BLANK_SIZE
            overwrite(root, item.physical_offset, bytes([0xA5]) * size)
            ruined.append(item.physical_offset)
    return ruined


@pytest.mark.parametrize(
    ("base", "version"),
    [(base, version) for base in STORES for version in PROFILE_OF if PROFILE_OF[version] >= STORES[base]],
)
def test_ruined_records_cost_no_other_message(base: str, version: str, tmp_path: Path) -> None:
    root = unpack(base, tmp_path)
    ruined = ruin(
        root,
    )
    mended = mend(root)
    assert mended.dropped == []
    golden = expected(base)
    lost = {place for place, row in by_place(golden).items() if row["physicalOffset"] in ruined}
    assert lost
    for abort in (False, True):
        placeholders = assert_all_but_placeholders(read(root, version, base, abort=abort), golden)
        assert {(row["cqTopic"], row["cqQueueId"], row["queueOffset"]) for row in placeholders} == lost
        # small ones have no room for the property
        assert {row["properties"].get("RMQCTL_DAMAGED", "bad-magic") for row in placeholders} <= {"bad-magic", "1"}


@pytest.mark.parametrize("version", PROFILE_OF)
def test_whole_files_of_zeros(version: str, tmp_path: Path) -> None:
    base = "471-basic"
    root = unpack(base, tmp_path)
    begin, end = 65536, 3 * 65536
    overwrite(root, begin, bytes(65536))
    overwrite(root, 2 * 65536, bytes(65536))
    mended = mend(root)
    assert (mended.dropped, mended.records[0].physical_offset) == ([], begin)
    golden = expected(base)
    for abort in (False, True):
        placeholders = assert_all_but_placeholders(read(root, version, base, abort=abort), golden)
        assert len(placeholders) == len([row for row in golden["messages"] if begin <= row["physicalOffset"] < end])


def test_a_forced_check_of_the_property_crc_passes_marks(tmp_path: Path) -> None:
    root = unpack("533-propcrc", tmp_path)
    ruined = ruin(root)
    mend(root)
    settings = {"forceVerifyPropCRC": "true"}
    (root / "abort").touch()
    answer = RealRocketMQ("5.3.3").read(root, start=True, geometry=sizes("533-propcrc"), settings=settings)
    assert {row["physicalOffset"] for row in assert_all_but_placeholders(answer, expected("533-propcrc"))} <= set(
        ruined
    )


def with_half_messages(root: Path, profile: str) -> list[int]:
    """A store in which every third record is a prepared one, which has no unit, of 92 bytes and more; returns where
    these are.
    """
    store = MessageStore.create(root, PutSettings(PROFILES[profile]), Geometry(16 * 1024, 1000, 100, 400))
    prepared = []
    for number in range(300):
        made = message(number, topic="T")
        if number % 3 == 0:
            body = b"x" * (number // 3)
            made = made._replace(body=body, properties={}, sys_flag=int(TransactionType.PREPARED))
        result = store.put_message(made)
        assert result.append is not None
        if number % 3 == 0:
            prepared.append(result.append.wrote_offset)
    store.close()
    return prepared


@pytest.mark.parametrize("version", PROFILE_OF)
def test_fillers_are_in_no_queue(version: str, tmp_path: Path) -> None:
    """Of all sizes from the smallest that a record can have."""
    root = tmp_path / "made"
    prepared = with_half_messages(root, PROFILE_OF[version])
    geometry = sizes("471-basic")._replace(commitlog_file_size=16 * 1024)
    shutil.copytree(root, tmp_path / "whole")
    whole = RealRocketMQ(version).read(tmp_path / "whole", geometry=geometry)
    for at in prepared:
        overwrite(root, at, bytes(8))
    mended = mend(root)
    assert {record.physical_offset for record in mended.records} == set(prepared)
    assert {record.size for record in mended.records} == set(range(92, 192))
    # the smallest of all: without a topic
    (large,) = (record for record in mended.records if record.size == 2 * 91)
    for begin in (large.physical_offset, large.physical_offset + 91):
        around = Surroundings(bytes(8), 1, 1, property_crc=False, long_topics=False)
        (smallest,) = placeholder_records(Span(begin, begin + 91, 0, 2**40), [], "hole", around).records
        overwrite(root, begin, smallest.data)
    for abort in (False, True):
        copy = tmp_path / str(abort)
        shutil.copytree(root, copy)
        if abort:
            (copy / "abort").touch()
            shutil.rmtree(copy / "consumequeue")
            shutil.rmtree(copy / "index")
        answer = RealRocketMQ(version).read(copy, start=abort, geometry=geometry)
        assert assert_all_but_placeholders(answer, whole) == []
        assert answer["keyQueries"] == whole["keyQueries"]


@pytest.mark.parametrize("version", PROFILE_OF)
def test_queue_offsets_that_the_log_owes(version: str, tmp_path: Path) -> None:
    """No queue says what the ruined records were, but the log's other records show which queue offsets are missing."""
    base = "471-basic"
    root = unpack(base, tmp_path)
    ruined = set(ruin(root))
    shutil.rmtree(root / "consumequeue")
    golden = expected(base)
    kept = {place for place, row in by_place(golden).items() if row["physicalOffset"] not in ruined}
    last = {(topic, queue_id): max(n for t, q, n in kept if (t, q) == (topic, queue_id)) for topic, queue_id, _ in kept}
    owed = {place for place in by_place(golden) if place not in kept and place[2] < last[place[:2]]}
    assert owed
    mended = mend(root)
    assert mended.dropped == []
    assert {claim[:3] for record in mended.records for claim in record.claims} == owed
    answer = read(root, version, base, abort=True)
    got, wanted = by_place(answer), by_place(golden)
    assert answer["maxPhyOffset"] == golden["maxPhyOffset"]
    assert {place for place, row in got.items() if row["preparedTransactionOffset"] != PLACEHOLDER_SIGN} == kept
    assert {place: got[place] for place in kept} == {place: wanted[place] for place in kept}
    assert ranges(answer) == {(*queue, 0, end + 1) for queue, end in last.items()}
    for row in answer["queues"]:
        assert [entry[0] for entry in row["entries"]] == list(range(row["maxOffset"]))
