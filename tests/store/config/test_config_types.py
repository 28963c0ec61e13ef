"""Config files with values of other types: what the real 4.9.7 and 5.3.3 made of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqctl.store.config.config_types import as_broker_reads

TOPICS, OFFSETS, DELAYS, GROUPS = "topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            TOPICS,
            '{"topicConfigTable":{"T":{"readQueueNums":VALUE}}}',
            {'"4"': 4, "1.5": 1, "true": 1, "null": None, '""': None},
        ),
        (
            TOPICS,
            '{"topicConfigTable":{"T":{"readQueueNums":VALUE}}}',
            {
                '"1,000"': 1000,
                '",5"': 5,
                '"1,000.0"': 1000,
                '"1."': 1,
                '"+1,0,0"': 100,
                '"null"': None,
                '"NULL"': None,
                '"٣"': 3,
            },
        ),
        (TOPICS, '{"topicConfigTable":{"T":{"order":VALUE}}}', {'"true"': True, "5": False, '"null"': None}),
        (TOPICS, '{"dataVersion":{"counter":VALUE}}', {'"7"': 7}),
        (OFFSETS, '{"offsetTable":{"T@g":{"0":VALUE}}}', {'"12"': 12, "1.5": 1, "true": 1}),
        (
            OFFSETS,
            '{"offsetTable":{"T@g":{"0":VALUE}}}',
            {'"1,000"': 1000, '"-1,000"': -1000, '"9,223,372,036,854,775,807"': 2**63 - 1},
        ),
        (DELAYS, '{"offsetTable":{"3":VALUE}}', {'"12"': 12, "1.5": 1}),
        (GROUPS, '{"subscriptionGroupTable":{"g":{"retryMaxTimes":VALUE}}}', {'"7"': 7}),
        (GROUPS, '{"subscriptionGroupTable":{"g":{"consumeEnable":VALUE}}}', {"5": False}),
    ],
)
def test_values_that_a_broker_converts(name: str, text: str, found: dict[str, Any]) -> None:
    for value, wanted in found.items():
        content: Any = as_broker_reads(name, json.loads(text.replace("VALUE", value)))
        while isinstance(content, dict) and content:
            (content,) = content.values()
        assert (None if content == {} else content) == wanted, value
        assert type(content) is type(wanted) or wanted is None


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        (TOPICS, '{"topicConfigTable":{"T":{"readQueueNums":VALUE}}}', ('"x"', '"1.5"', "[1]", "{}", "99999999999")),
        (TOPICS, '{"topicConfigTable":{"T":VALUE}}', ('"x"', '""', "7", "null", "[]")),
        (TOPICS, '{"topicConfigTable":VALUE}', ("[]", '"x"', '""', "5")),
        (TOPICS, '{"topicConfigTable":{"T":{"attributes":VALUE}}}', ("[]", '"x"')),
        (TOPICS, '{"topicConfigTable":{"T":{"perm":VALUE}}}', ('"x"',)),
        (TOPICS, '{"topicConfigTable":{"T":{"order":VALUE}}}', ('"maybe"',)),
        (TOPICS, '{"dataVersion":VALUE}', ("5", '{"counter":"x"}')),
        (OFFSETS, '{"offsetTable":{"T@g":{"0":VALUE}}}', ('"x"', "null", "9999999999999999999999", "[1]", "{}")),
        (
            OFFSETS,
            '{"offsetTable":{"T@g":{"0":VALUE}}}',
            ('","', '"1.0"', '"1,000.0"', '"null"', '" 5"', '"5 "', '"1e3"', '"5L"'),
        ),
        (OFFSETS, '{"offsetTable":{"T@g":{VALUE:1}}}', ('"x"', '"4294967296"', '"null"', '","')),
        (OFFSETS, '{"offsetTable":{"T@g":VALUE}}', ("[]", '"x"', "5", "null")),
        (OFFSETS, '{"offsetTable":VALUE}', ("[]", '"x"', "5")),
        (DELAYS, '{"offsetTable":{"3":VALUE}}', ('"x"', "null")),
        (DELAYS, '{"offsetTable":VALUE}', ("[]", "5")),
        (GROUPS, '{"subscriptionGroupTable":{"g":{"retryMaxTimes":VALUE}}}', ('"x"',)),
        (GROUPS, '{"subscriptionGroupTable":{"g":VALUE}}', ("5", "[]", "null")),
    ],
)
def test_values_for_which_a_broker_reads_the_backup(name: str, text: str, values: tuple[str, ...]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=r"is|has more than"):
            as_broker_reads(name, json.loads(text.replace("VALUE", value)))


@pytest.mark.parametrize("text", ['{"topicConfigTable":null}', '{"dataVersion":[]}', "{}"])
def test_parts_that_a_broker_does_without(text: str) -> None:
    assert as_broker_reads(TOPICS, json.loads(text)) == {}


def test_queue_ids_are_numbers_however_they_are_written() -> None:
    text = '{"offsetTable":{"T@g":{"1,0":7,"+3":8,"01":9,"2.0":1}}}'
    assert as_broker_reads(OFFSETS, json.loads(text)) == {"offsetTable": {"T@g": {"10": 7, "3": 8, "1": 9, "2": 1}}}
