"""Damaged records come back exactly, or not at all: a wrong repair is worse than none."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.errors import AnotherLog
from rmqctl.format.message import HEADS, Message
from rmqctl.operations.heal.plan import Ambiguous, Healed, Healing, HealPlan, Lost
from rmqctl.operations.heal.replica import log_of_file
from rmqctl.store.config.topics import TRANS_HALF_TOPIC
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.file_edits import flip_bits, overwrite, write_at

HEAD = HEADS[0]
TIMES = ("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS")  # when the broker's timer took the message, and when it gave it back


def plan_of(store: Path, *others: Path) -> HealPlan:
    logs = {
        str(other): log_of_file(other) if other.is_file() else ReadOnlyStore(other, log_only=True).commit_log
        for other in others
    }
    return Healing(ReadOnlyStore(store), others=logs).plan()


def messages_of(store: Path) -> list[Message]:
    return [item for item in ReadOnlyStore(store).commit_log.scan() if isinstance(item, Message)]


def log_file(store: Path, physical_offset: int) -> tuple[Path, int]:
    """The file that holds an offset of the log, and the position in it."""
    path = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= physical_offset)
    return path, physical_offset - int(path.name)


def flip(store: Path, physical_offset: int, bit: int = 0) -> tuple[str, int, bytes]:
    """Flip a bit of the log; return the write that takes it back."""
    path, position = log_file(store, physical_offset)
    before = path.read_bytes()[position : position + 1]
    flip_bits(path, position, 1 << bit)
    return f"commitlog/{path.name}", position, before


def written(plan: HealPlan) -> list[tuple[str, int, bytes]]:
    assert not plan.files
    return [(change.path, change.offset, change.data) for one in plan.healed for change in one.changes]


@pytest.mark.parametrize("name", ["326-basic", "497-basic", "533-propcrc", "550-basic", "broker-497", "497-crash"])
def test_an_undamaged_log_has_nothing_to_heal(name: str, tmp_path: Path) -> None:
    assert plan_of(unpack(name, tmp_path)).outcomes == ()


@pytest.mark.parametrize(
    "field",
    [
        "TOTALSIZE", "MAGICCODE", "BODYCRC", "QUEUEID", "QUEUEOFFSET", "PHYSICALOFFSET", "SYSFLAG", "STOREHOST",
        "PREPAREDTRANSACTIONOFFSET", "BODYLENGTH",
    ],
)  # fmt: skip
@pytest.mark.parametrize("bit", [0, 4, 7])
def test_a_flipped_bit_of_the_head_comes_back(field: str, bit: int, golden: Callable[[str], Path]) -> None:
    store = golden("497-basic")
    message = messages_of(store)[40]
    right = flip(store, message.physical_offset + HEAD.offset(field), bit)
    assert written(plan_of(store)) == [right]


@pytest.mark.parametrize("name", ["497-basic", "533-propcrc", "550-basic"])
def test_random_flips_are_healed_right_or_left(name: str, golden: Callable[[str], Path]) -> None:
    store, chance = golden(name), random.Random(42)
    messages = messages_of(store)
    exact = 0
    for message in chance.sample(messages, 30):
        at = message.physical_offset + chance.randrange(message.size)
        bit = chance.randrange(8)
        right = flip(store, at, bit)
        found = written(plan_of(store))
        assert found in ([right], [])
        exact += found == [right]
        flip(store, at, bit)
    assert exact >= 25


@pytest.mark.parametrize("word", [b"TagA", b"UNIQ_KEY", b"order-"])
def test_a_flipped_bit_of_an_indexed_property_comes_back(word: bytes, golden: Callable[[str], Path]) -> None:
    store = golden("497-basic")
    message = next(one for one in messages_of(store)[30:] if word in one.properties_bytes)
    at = message.end - len(message.properties_bytes) + message.properties_bytes.index(word) + 1
    right = flip(store, at, 1)
    assert written(plan_of(store)) == [right]


def test_two_flipped_bits_of_a_text_come_back(golden: Callable[[str], Path]) -> None:
    store = golden("497-basic")
    message = next(one for one in messages_of(store)[30:] if 100 < len(one.body) < 371)
    body = message.physical_offset + HEAD.size
    right = [flip(store, body + 3, 2), flip(store, body + 70, 5)]
    plan = plan_of(store)
    assert written(plan) == right
    assert [one.how for one in plan.healed] == ["two-bits"]


def test_a_body_comes_back_from_another_record_of_the_message(golden: Callable[[str], Path]) -> None:
    """Of a transaction's commit from its half message, of a dead letter from its retry."""
    store = golden("broker-497")
    for topic in ("payments", "%DLQ%billing"):
        message = next(one for one in messages_of(store) if one.topic == topic)
        overwrite(store, message.physical_offset + HEAD.size, bytes(len(message.body)))
        plan = plan_of(store)
        assert [one.how for one in plan.healed] == ["copy"]
        assert [data for _, _, data in written(plan)] == [bytes(message.body)]
        overwrite(store, message.physical_offset + HEAD.size, bytes(message.body))


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("broker-497", ("payments", "SCHEDULE_TOPIC_XXXX", "%RETRY%billing", "%DLQ%billing", TRANS_HALF_TOPIC)),
        ("broker-550", ("payments", "timed", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster")),
    ],
)
@pytest.mark.parametrize("part", [slice(0, 120), slice(60, None)])
def test_a_record_is_made_from_another_one_of_its_message(
    name: str, topics: tuple[str, ...], part: slice, golden: Callable[[str], Path]
) -> None:
    """Without its head or its properties: the unit says where it was, other messages in what it differed."""
    store = golden(name)
    messages = messages_of(store)
    copied = Counter((one.properties.get("UNIQ_KEY"), one.body_crc) for one in messages)
    hit = []
    for topic in topics:
        with_copy = [
            one for one in messages if one.topic == topic and copied[one.properties.get("UNIQ_KEY"), one.body_crc] > 1
        ]
        hit.append(with_copy[len(with_copy) // 2])
    for one in hit:
        size = len(range(one.size)[part])
        overwrite(store, one.physical_offset + (part.start or 0), bytes(size))
    plan = plan_of(store)
    assert {one.how for one in plan.healed} == {"copy"}
    for file, position, data in written(plan):
        write_at(store / file, position, data)
    now = {one.physical_offset: one for one in messages_of(store)}
    for one in hit:
        found = now[one.physical_offset]
        assert _served(found) == _served(one)
        assert found._replace(store_timestamp=0, properties_bytes=b"") == one._replace(
            store_timestamp=0, properties_bytes=b""
        )


def _served(message: Message) -> dict[str, str]:
    return {name: value for name, value in message.properties.items() if name not in TIMES}


@pytest.mark.parametrize("size", [64, 300])
def test_random_bytes_are_never_taken_for_flipped_bits(size: int, golden: Callable[[str], Path]) -> None:
    store, chance = golden("497-basic"), random.Random(size)
    for message in chance.sample(messages_of(store), 10):
        path, position = log_file(store, message.physical_offset + chance.randrange(max(message.size - size, 1)))
        before = path.read_bytes()
        write_at(path, position, chance.randbytes(min(size, len(before) - position)))
        assert plan_of(store).changes == []
        path.write_bytes(before)


def test_the_last_bytes_before_damage_are_no_flipped_bit(golden: Callable[[str], Path]) -> None:
    """They are overwritten, too: one bit would make them readable, and wrong."""
    store = golden("broker-550")
    message = next(one for one in messages_of(store) if one.topic == "rmq_sys_REVIVE_LOG_DefaultCluster")
    assert message.properties_bytes.endswith(b"REAL_QID\x010\x02")
    overwrite(store, message.end - 2, b"7\x82" + b"x" * 300)
    plan = plan_of(store)
    assert [one for one in plan.healed if one.physical_offset == message.physical_offset and one.how != "copy"] == []


def test_a_damaged_unit_changes_no_record(golden: Callable[[str], Path]) -> None:
    """Its tagsCode has one flipped bit: what a flipped bit in the TAGS of the record would look like."""
    store = golden("497-basic")
    queue = next(path for path in sorted(store.glob("consumequeue/OrderPaid/0/*")))
    for number in (3, 4, 5):
        for bit in (0, 1, 30):
            flip_bits(queue, number * 20 + 12 + 7 - bit // 8, 1 << bit % 8)
            plan = plan_of(store)
            assert plan.changes == []
            assert {one.candidates[-1]["how"] for one in plan.ambiguous} <= {"as it is"}
            flip_bits(queue, number * 20 + 12 + 7 - bit // 8, 1 << bit % 8)


class TestReplica:
    def test_damaged_parts_come_from_it(self, tmp_path: Path) -> None:
        ours, theirs = unpack("broker-497", tmp_path / "a"), unpack("broker-497", tmp_path / "b")
        overwrite(ours, 20_000, bytes(3_000))
        overwrite(ours, 300_000, b"x" * 5_000)
        flip(ours, 600_000)
        plan = plan_of(ours, theirs)
        assert {one.how for one in plan.healed} == {"replica"}
        assert (plan.lost, plan.ambiguous) == ([], [])
        for name, position, data in written(plan):
            write_at(ours / name, position, data)
        for path in (theirs / "commitlog").iterdir():
            assert (ours / "commitlog" / path.name).read_bytes() == path.read_bytes()

    def test_placeholders_give_way_to_what_they_replaced(self, tmp_path: Path, rmqctl: Rmqctl) -> None:
        ours, theirs = unpack("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path / "b")
        overwrite(ours, 20_000, bytes(600))
        overwrite(ours, 70_000, b"x" * 3_000)
        assert rmqctl("recover", ours, "--keep-going", "--yes").code == 3
        found = rmqctl("heal", ours, "--from", theirs, "--yes", "-o", "json")
        assert {one["how"] for one in found.document()["healed"]} == {"placeholder"}
        assert (found.code, rmqctl("rebuild", ours, "all", "--yes").code) == (3, 3)
        for path in (*theirs.glob("commitlog/*"), *theirs.glob("consumequeue/*/*/*")):
            assert (ours / path.relative_to(theirs)).read_bytes() == path.read_bytes()
        other = rmqctl("diff", ours, theirs, "-o", "json").document()["other"]
        assert [one["path"] for one in other] == ["checkpoint"]

    def test_several_are_joined_record_by_record(self, tmp_path: Path) -> None:
        stores = [unpack("broker-497", tmp_path / name) for name in "abc"]
        overwrite(stores[0], 300_000, b"x" * 5_000)
        overwrite(stores[1], 302_000, b"y" * 500)
        overwrite(stores[2], 300_000, b"z" * 1_000)
        plan = plan_of(*stores)
        assert {type(one) for one in plan.outcomes} == {Healed}
        assert {one.source for one in plan.healed} == {str(store) for store in stores[1:]}

    def test_it_may_be_one_file_of_the_log(self, tmp_path: Path) -> None:
        ours = unpack("broker-497", tmp_path / "a")
        second = sorted((ours / "commitlog").iterdir())[1]
        file = tmp_path / "found.0007"
        file.write_bytes(second.read_bytes())
        overwrite(ours, 300_000, b"x" * 5_000)
        plan = plan_of(ours, file)
        assert {one.how for one in plan.healed} == {"replica"}
        for name, position, data in written(plan):
            write_at(ours / name, position, data)
        assert second.read_bytes() == file.read_bytes()
        file.write_bytes(bytes(100_000))
        with pytest.raises(AnotherLog, match="does not begin with a record"):
            plan_of(ours, file)

    def test_what_it_lacks_stays(self, tmp_path: Path) -> None:
        ours, theirs = unpack("broker-497", tmp_path / "a"), unpack("broker-497", tmp_path / "b")
        for path in sorted((theirs / "commitlog").iterdir())[2:]:
            path.unlink()
        assert plan_of(ours, theirs).outcomes == ()
        overwrite(ours, 600_000, b"x" * 3_000)  # no other record has one of these messages
        plan = plan_of(ours, theirs)
        assert plan.changes == []
        assert {type(one) for one in plan.outcomes} == {Lost}

    @pytest.mark.parametrize("seed", [1, 6, 155])  # of 300: damage that no checksum shows, and one behind a blank
    def test_three_with_damage_make_it_whole(self, seed: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
        """Each place is damaged in one of them at most, and the store lacks a file and has a short one."""
        chance = random.Random(seed)
        store, *replicas = [unpack("497-basic", tmp_path / name) for name in "abcd"]
        whole = tree_hash(store / "commitlog")
        for place in chance.sample(range(0, 210_000, 10_000), 12):
            size = chance.randrange(1, 5_000)
            file, at = log_file(replicas[0], place + chance.randrange(5_000))
            data = chance.choice([bytes(size), chance.randbytes(size)])
            at = min(at, 63_800 - size)  # what is behind a blank is in no record
            write_at(chance.choice(replicas) / "commitlog" / file.name, at, data)
        lost, cut, _, last = chance.sample(sorted((store / "commitlog").iterdir()), 4)
        lost.unlink()
        for path in (cut, last)[: chance.randrange(1, 3)]:
            os.truncate(path, chance.randrange(path.stat().st_size))
        sources = [word for replica in replicas for word in ("--from", str(replica))]
        found = rmqctl("heal", store, *sources, "--yes", "-o", "json")
        assert (found.code, tree_hash(store / "commitlog")) == (3, whole), found.err
        assert rmqctl("verify", store).code == 0

    def test_another_log_is_refused(self, tmp_path: Path) -> None:
        ours = unpack("497-basic", tmp_path / "a")
        for other in ("550-basic", "broker-497"):
            with pytest.raises(AnotherLog, match="at offset 0"):
                plan_of(ours, unpack(other, tmp_path / other))

    def test_a_log_that_went_another_way_is_refused(self, tmp_path: Path) -> None:
        ours, theirs = unpack("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path / "b")
        message = messages_of(theirs)[250]
        time = message.physical_offset + HEAD.offset("STORETIMESTAMP")
        overwrite(theirs, time, (message.store_timestamp ^ 0xFFF).to_bytes(8, "big"))
        with pytest.raises(AnotherLog, match=f"at offset {message.physical_offset}"):
            plan_of(ours, theirs)

    def test_a_flip_that_it_does_not_have_is_shown_and_left(self, tmp_path: Path) -> None:
        """Of two explanations without a checksum, none is taken."""
        ours = unpack("497-basic", tmp_path / "a")
        flip(ours, messages_of(ours)[40].physical_offset + HEAD.offset("QUEUEID"))
        assert {type(one) for one in plan_of(ours).outcomes} == {Healed}
        theirs = tmp_path / "b"
        shutil.copytree(ours, theirs)
        plan = plan_of(ours, theirs)
        assert [type(one) for one in plan.outcomes] == [Ambiguous]
        assert [one["how"] for one in plan.ambiguous[0].candidates] == ["bit-flip", "replica"]

    def test_a_bit_that_nothing_refutes_is_shown_and_left(self, tmp_path: Path) -> None:
        ours, theirs = unpack("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path / "b")
        flip(theirs, messages_of(ours)[100].physical_offset + HEAD.offset("FLAG"))
        plan = plan_of(ours, theirs)
        assert [type(one) for one in plan.outcomes] == [Ambiguous]
