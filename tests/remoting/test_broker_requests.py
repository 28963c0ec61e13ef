"""The typed requests of a broker; `tests/interop/test_remoting.py` sends them to real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqctl.errors import PeerError
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.remoting.client import RemotingClient
from rmqctl.remoting.frame import RemotingCommand
from rmqctl.remoting.request_code import RequestCode
from rmqctl.remoting.server import RemotingServer


@contextmanager
def broker_with(answers: dict[RequestCode, bytes]) -> Iterator[BrokerRequests]:
    """The requests to a broker that has these bodies."""
    handlers = {int(code): lambda _, __, body=body: RemotingCommand(0, body=body) for code, body in answers.items()}
    server = RemotingServer("127.0.0.1", 0, handlers)
    server.start()
    try:
        with RemotingClient("127.0.0.1", server.port) as client:
            yield BrokerRequests(client)
    finally:
        server.close()


def test_the_answers_of_a_broker_of_4x() -> None:
    answers = {
        RequestCode.GET_BROKER_CONFIG: b"haListenPort=10912\nnamesrvAddr=\nmessageDelayLevel=1s 5s\nhome=/a=b\n",
        RequestCode.GET_BROKER_RUNTIME_INFO: b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"949188"}}',
        RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"t@g":{0:5}}}',
    }
    with broker_with(answers) as broker:
        config = broker.broker_config()
        assert config["haListenPort"] == "10912"
        assert (config["namesrvAddr"], config["messageDelayLevel"], config["home"]) == ("", "1s 5s", "/a=b")
        assert broker.runtime_info() == {"commitLogMinOffset": "0", "commitLogMaxOffset": "949188"}
        assert broker.consumer_offsets() == '{"offsetTable":{"t@g":{0:5}}}'
        assert broker.message_request_modes() is None
        assert broker.timer_checkpoint() is None
        assert broker.timer_metrics() is None
        for asked in (broker.topics, broker.delay_offsets, broker.subscription_groups):
            with pytest.raises(PeerError, match="not supported"):
                asked()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"table":5}', b"\xff", b"[" * 1000])
def test_an_answer_that_cannot_be_read_is_a_fault_of_the_broker(body: bytes) -> None:
    answers = {RequestCode.GET_BROKER_RUNTIME_INFO: body, RequestCode.GET_TIMER_CHECK_POINT: body}
    with broker_with(answers) as broker:
        with pytest.raises(PeerError, match="the answer to request 28 is not"):
            broker.runtime_info()
        with pytest.raises(PeerError, match="the answer to request 60 is not 56 bytes"):
            broker.timer_checkpoint()
