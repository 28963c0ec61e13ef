"""Stores with placeholders: every real version loads them, keeps all, and serves all but the damaged messages."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.message import BLANK_SIZE, PLACEHOLDER_SIGN, Blank, Message
from rmqctl.format.profile import PROFILES
from rmqctl.format.sys_flag import TransactionType
from rmqctl.operations.placeholder.pieces import Span, placeholder_records
from rmqctl.operations.placeholder.record import Surroundings
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.commit_log_writer import PutSettings
from tests.conftest import LIKE_OTHERS, apply_damage, damage_cases, expected, unpack
from tests.interop.compared_answers import Place, assert_all_but_placeholders, by_place, place_of
from tests.interop.readings import Stored, about, read_copies
from tests.interop.written_stores import PROFILE_OF
from tests.support.file_edits import overwrite
from tests.support.golden_store import ranges
from tests.support.mended_stores import mend
from tests.support.small_store import message

pytestmark = pytest.mark.interop

CASES = {
    name: case for name, case in damage_cases().items() if "--body-flip-" in name and not name.startswith(LIKE_OTHERS)
}
# the oldest profile that reads all of it
STORES = {
    "471-basic": "4.7", "497-batch": "4.7", "471-ipv6": "4.7", "497-tx": "4.7", "497-delay": "4.7", "broker-497": "4.7",
    "497-lmq": "4.9", "533-lmq": "4.9", "533-longtopic": "5.3", "533-propcrc": "4.7", "broker-533": "5.3",
}  # fmt: skip
FILE_SIZE = 65536
ZEROS = range(FILE_SIZE, 3 * FILE_SIZE)
golden_of = cache(expected)
SMALL_LOG = {"mappedFileSizeCommitLog": str(16 * 1024)}


def assert_found_by_key(answer: dict[str, Any], golden: dict[str, Any]) -> None:
    """Keys lead to what they led to before."""
    found = {(asked["topic"], asked["key"]): asked["physicalOffsets"] for asked in answer["keyQueries"]}
    assert found
    for asked in golden["keyQueries"]:
        assert found[asked["topic"], asked["key"]] == asked["physicalOffsets"]


def test_there_are_all_the_cases() -> None:
    assert len(CASES) == 24


@pytest.mark.parametrize("version", PROFILE_OF)
def test_a_flipped_body_costs_one_message(version: str, tmp_path: Path) -> None:
    stores, mended_at = {}, {}
    for name, case in CASES.items():
        stores[name] = Stored(case["base"], unpack(case["base"], tmp_path / name))
        apply_damage(stores[name].root, case["ops"])
        (written,) = mend(stores[name].root).records
        mended_at[name] = written.physical_offset
    for abort in (False, True):
        for name, answer in read_copies(version, stores, abort=abort, start=abort).items():
            with about(name, abort):
                assert_one_body_is_gone(answer, golden_of(stores[name].golden), mended_at[name])


def assert_one_body_is_gone(answer: dict[str, Any], golden: dict[str, Any], physical_offset: int) -> None:
    before = next(row for row in golden["messages"] if row["physicalOffset"] == physical_offset)
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
        name: value for name, value in placeholder["properties"].items() if name not in ("RMQCTL_DAMAGED", "__CRC32#")
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


def without(golden: dict[str, Any], places: Callable[[int], bool]) -> set[Place]:
    return {place for place, row in by_place(golden).items() if places(row["physicalOffset"])}


@pytest.mark.parametrize("version", PROFILE_OF)
def test_ruined_records_cost_no_other_message(version: str, tmp_path: Path) -> None:
    """Of every kind of store, also under forceVerifyPropCRC; and where two files are zeros."""
    stores, lost = {}, {}
    for base in (base for base in STORES if PROFILE_OF[version] >= STORES[base]):
        stores[base] = Stored(base, unpack(base, tmp_path / base))
        lost[base] = without(golden_of(base), set(ruin(stores[base].root)).__contains__)
        assert mend(stores[base].root).dropped == []
    if version == "5.3.3":
        stores["checked"] = stores["533-propcrc"]._replace(settings={"forceVerifyPropCRC": "true"})
        lost["checked"] = lost["533-propcrc"]
    stores["zeros"] = Stored("471-basic", unpack("471-basic", tmp_path / "zeros"))
    for file in ZEROS[::FILE_SIZE]:
        overwrite(stores["zeros"].root, file, bytes(FILE_SIZE))
    mended = mend(stores["zeros"].root)
    assert (mended.dropped, mended.records[0].physical_offset) == ([], ZEROS.start)
    lost["zeros"] = without(golden_of("471-basic"), ZEROS.__contains__)
    assert all(lost.values())
    for abort in (False, True):
        for name, answer in read_copies(version, stores, abort=abort, start=abort).items():
            with about(name, abort):
                placeholders = assert_all_but_placeholders(answer, golden_of(stores[name].golden))
                assert set(map(place_of, placeholders)) == lost[name]
                # small ones have no room for the property
                causes = {row["properties"].get("RMQCTL_DAMAGED", "bad-magic") for row in placeholders}
                assert name == "zeros" or causes <= {"bad-magic", "1"}


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
    root, whole = tmp_path / "made", tmp_path / "whole"
    prepared = with_half_messages(root, PROFILE_OF[version])
    shutil.copytree(root, whole)
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
    log_alone = tmp_path / "log alone"
    shutil.copytree(root, log_alone, ignore=shutil.ignore_patterns("consumequeue", "index"))
    stored = {path.name: Stored("471-basic", path, SMALL_LOG) for path in (whole, root, log_alone)}
    wanted, *answers = (
        read_copies(version, {"whole": stored["whole"], "made": stored["made"]})
        | read_copies(version, {"log alone": stored["log alone"]}, abort=True, start=True)
    ).values()
    for answer in answers:
        assert assert_all_but_placeholders(answer, wanted) == []
        assert answer["keyQueries"] == wanted["keyQueries"]


@pytest.mark.parametrize("version", PROFILE_OF)
def test_queue_offsets_that_the_log_owes(version: str, tmp_path: Path) -> None:
    """No queue says what the ruined records were, but the log's other records show which queue offsets are missing."""
    base = "471-basic"
    root = unpack(base, tmp_path)
    ruined = set(ruin(root))
    shutil.rmtree(root / "consumequeue")
    golden = golden_of(base)
    kept = {place for place, row in by_place(golden).items() if row["physicalOffset"] not in ruined}
    last = {(topic, queue_id): max(n for t, q, n in kept if (t, q) == (topic, queue_id)) for topic, queue_id, _ in kept}
    owed = {place for place in by_place(golden) if place not in kept and place[2] < last[place[:2]]}
    assert owed
    mended = mend(root)
    assert mended.dropped == []
    assert {claim[:3] for record in mended.records for claim in record.claims} == owed
    answer = read_copies(version, {base: Stored(base, root)}, abort=True, start=True)[base]
    got, wanted = by_place(answer), by_place(golden)
    assert answer["maxPhyOffset"] == golden["maxPhyOffset"]
    assert {place for place, row in got.items() if row["preparedTransactionOffset"] != PLACEHOLDER_SIGN} == kept
    assert {place: got[place] for place in kept} == {place: wanted[place] for place in kept}
    assert ranges(answer["queues"]) == {queue: (0, end + 1) for queue, end in last.items()}
    for row in answer["queues"]:
        assert [entry[0] for entry in row["entries"]] == list(range(row["maxOffset"]))
