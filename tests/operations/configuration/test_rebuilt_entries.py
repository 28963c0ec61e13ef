"""Entries of topics.json and subscriptionGroup.json, made from what a store shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.profile import PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.operations.configuration.names_in_store import NamesInStore, is_topic_name
from rmqctl.operations.configuration.rebuilt_entries import group_entries, topic_entries
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.read.consumers.consumer_groups import retry_owner
from rmqctl.store.read.read_only_store import ReadOnlyStore

NOTHING: frozenset[str] = frozenset()


def names(*queues: QueueKey, batch: frozenset[str] = NOTHING, compacted: frozenset[str] = NOTHING) -> NamesInStore:
    return NamesInStore(frozenset(queues), frozenset(queues), batch, compacted)


def nums(entries: dict[str, Any]) -> dict[str, int]:
    return {topic: entry["readQueueNums"] for topic, entry in entries.items()}


def test_a_topic_gets_the_queues_that_it_shows_and_a_brokers_own_at_least_the_brokers_number() -> None:
    shown = names(
        ("orders", 6), ("orders", 0), ("SCHEDULE_TOPIC_XXXX", 2), ("%RETRY%billing", 0), ("%LMQ%q", 0), ("far", 70_000)
    )
    assert nums(topic_entries({}, shown, PROFILE_5_3)) == {"orders": 7, "SCHEDULE_TOPIC_XXXX": 18, "%RETRY%billing": 1}


@pytest.mark.parametrize(("profile", "has_attributes"), [(PROFILE_4_9, False), (PROFILE_5_3, True)])
def test_attributes_are_those_of_5(profile: Profile, has_attributes: bool) -> None:
    entry = topic_entries({}, names(("orders", 0)), profile)["orders"]
    assert ("attributes" in entry) is has_attributes


def test_the_type_of_the_queues_is_that_of_their_folder() -> None:
    listed = {
        "batch": {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": "SimpleCQ", "x": "y"}},
        "plain": {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": "BatchCQ"}},
        "right": {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {}},
        "without-queues": {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": "BatchCQ"}},
    }
    found = topic_entries(
        listed, names(("batch", 0), ("plain", 0), ("right", 0), batch=frozenset({"batch"})), PROFILE_5_3
    )
    assert {topic: entry["attributes"] for topic, entry in found.items()} == {
        "batch": {"queue.type": "BatchCQ", "x": "y"},
        "plain": {"queue.type": "SimpleCQ"},
    }


def test_compaction_is_kept() -> None:
    found = topic_entries({}, names(("table", 1), compacted=frozenset({"table"})), PROFILE_5_3)
    assert found["table"]["attributes"] == {"cleanup.policy": "COMPACTION"}


def test_an_entry_is_never_lowered() -> None:
    listed = {"orders": {"readQueueNums": 2, "writeQueueNums": 16, "perm": 4, "order": True}}
    assert topic_entries(listed, names(("orders", 1)), PROFILE_4_9) == {}
    raised = topic_entries(listed, names(("orders", 7)), PROFILE_4_9)
    assert raised == {"orders": listed["orders"] | {"readQueueNums": 8}}


@pytest.mark.parametrize(
    ("rest", "owner"),
    [
        ("billing", "billing"),
        ("pop_group_orders", "pop_group"),  # a known group, though `group_orders` is a topic, too
        ("new_orders", "new"),
        ("new+orders", "new"),
        ("new_other", "new_other"),
        ("one_two_orders", "one_two"),
        ("a_orders_orders", "a"),
    ],
)
def test_a_retry_topic_has_one_owner(rest: str, owner: str) -> None:
    """A known group comes first, then the text before the name of a topic."""
    known, topics = {"billing", "pop_group"}, {"orders", "orders_orders", "group_orders"}
    assert retry_owner(rest, known, topics) == owner


def test_groups_are_those_of_retry_topics(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    shown = names(
        ("%RETRY%billing", 2), ("%DLQ%audit", 0), ("%RETRY%pop_group_orders", 0), ("%RETRY%pop+orders", 0),
        ("orders", 0), ("%RETRY%CID_RMQ_SYS_TRANS", 0),
    )  # fmt: skip
    found = group_entries(ReadOnlyStore(tmp_path), {"audit": {}}, shown, PROFILE_5_3)
    assert {group: entry["retryQueueNums"] for group, entry in found.items()} == {
        "billing": 3, "pop_group": 1, "pop": 1,
    }  # fmt: skip
    assert found["billing"]["groupName"] == "billing"
    assert list(found["billing"]) == sorted(found["billing"])


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../x", "a@b", 'a"b', "bröker", "a\x00"])
def test_a_damaged_name_is_no_topic(name: str) -> None:
    assert not is_topic_name(name)
