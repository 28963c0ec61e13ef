"""The configuration of a master, as a copy gets it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import cast

import pytest

from rmqctl.errors import PeerError
from rmqctl.operations.replicate.configuration import fetch_names, fetch_offsets, write_texts
from rmqctl.remoting.address import Address
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.store.config.fastjson import fastjson_loads

MASTER = Address("master", 10911)
TIMES = (1700000000000, 5000, 77, 99, 1, 2, 3)


class Answers:
    """A broker of 5.x; `topics_text` is its answer to request 21."""

    def __init__(self, topics_text: str = '{"dataVersion":{"counter":1},"topicConfigTable":{"a":{"perm":6}}}') -> None:
        self._topics = topics_text

    def topics(self) -> str:
        return self._topics

    def consumer_offsets(self) -> str:
        return '{"offsetTable":{"a@g":{0:5}}}'

    def delay_offsets(self) -> str:
        return '{"offsetTable":{}}'

    def subscription_groups(self) -> str:
        return '{"subscriptionGroupTable":{}}'

    def message_request_modes(self) -> str:
        return '{"messageRequestModeMap":{}}'

    def timer_metrics(self) -> None:
        return None

    def timer_checkpoint(self) -> bytes:
        return struct.pack(">7q", *TIMES)


def broker(answers: Answers | None = None) -> BrokerRequests:
    return cast("BrokerRequests", answers or Answers())


def test_each_answer_is_a_file(tmp_path: Path) -> None:
    write_texts(tmp_path, fetch_offsets(MASTER, broker()) | fetch_names(MASTER, broker()))
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == [
        "consumerOffset.json", "delayOffset.json", "messageRequestMode.json", "subscriptionGroup.json", "timercheck",
        "topics.json",
    ]  # fmt: skip
    assert (tmp_path / "config/consumerOffset.json").read_text() == '{"offsetTable":{"a@g":{0:5}}}'


def test_static_topics_have_a_file_of_their_own(tmp_path: Path) -> None:
    """The file is not written without static topics, but overwrites the last static topic when it is gone."""
    file = tmp_path / "config" / "topicQueueMapping.json"
    for mappings, expected in (("{}", None), ('{"s":{"hostedQueues":{0:[{"gen":0}]}}}', ["s"]), ("{}", [])):
        version = '"mappingDataVersion":{"counter":7}'
        said = f'{{"topicConfigTable":{{}},"dataVersion":{{}},{version},"topicQueueMappingDetailMap":{mappings}}}'
        write_texts(tmp_path, fetch_names(MASTER, broker(Answers(said))))
        topics = fastjson_loads((tmp_path / "config" / "topics.json").read_text())
        assert set(topics) == {"topicConfigTable", "dataVersion"}
        assert file.exists() == (expected is not None)
        if expected is not None:
            found = fastjson_loads(file.read_text())
            assert (found["dataVersion"], list(found["topicQueueMappingInfoMap"])) == ({"counter": 7}, expected)


def test_a_copy_has_no_timer_log() -> None:
    found = struct.unpack(">7q", fetch_offsets(MASTER, broker())["timercheck"])
    assert found == (TIMES[0], 0, 0, *TIMES[3:])


@pytest.mark.parametrize("said", ["", "[1]", "{", "<html>"])
def test_what_is_not_a_json_object_is_no_configuration(said: str) -> None:
    with pytest.raises(PeerError, match=r"topics\.json is not"):
        fetch_names(MASTER, broker(Answers(said)))
