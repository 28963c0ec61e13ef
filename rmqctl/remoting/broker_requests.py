"""The requests that a slave, or an operator, sends to a broker.

JSON bodies are returned as text, in fastjson's dialect of JSON (`store/config/fastjson.py`).
"""

from __future__ import annotations

from rmqctl.errors import PeerError
from rmqctl.format.body import bounded_json
from rmqctl.remoting.client import RemotingClient, RequestRefused
from rmqctl.remoting.request_code import RequestCode, ResponseCode

RUNTIME_SIGNS_MAX = 100_000
TIMER_CHECKPOINT_SIZES = (56, 32)  # bytes, with and without a dataVersion


class BrokerRequests:
    """Requests to one broker, each with its number.

    All methods raise PeerError if the broker does not answer, or if the answer cannot be read.
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    def broker_config(self) -> dict[str, str]:
        """Return the broker's configuration, defaults included (request 26)."""
        lines = self._text(RequestCode.GET_BROKER_CONFIG).splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {key.strip(): value.strip() for key, _, value in pairs}

    def runtime_info(self) -> dict[str, str]:
        """Return the broker's state, for example commitLogMinOffset (request 28)."""
        text = self._text(RequestCode.GET_BROKER_RUNTIME_INFO)
        try:
            table = bounded_json.loads(text, RUNTIME_SIGNS_MAX)["table"]
            return {str(key): str(value) for key, value in table.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._unreadable(RequestCode.GET_BROKER_RUNTIME_INFO, "an object with a table") from None

    def topics(self) -> str:
        """Return topics.json with all topics (request 21)."""
        return self._text(RequestCode.GET_ALL_TOPIC_CONFIG)

    def consumer_offsets(self) -> str:
        """Return consumerOffset.json (request 43)."""
        return self._text(RequestCode.GET_ALL_CONSUMER_OFFSET)

    def delay_offsets(self) -> str:
        """Return delayOffset.json (request 45)."""
        return self._text(RequestCode.GET_ALL_DELAY_OFFSET)

    def subscription_groups(self) -> str:
        """Return subscriptionGroup.json (request 201)."""
        return self._text(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)

    def message_request_modes(self) -> str | None:
        """Return messageRequestMode.json (request 402); None from a broker of 4.x."""
        return self._text_or_none(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)

    def timer_metrics(self) -> str | None:
        """Return timermetrics (request 61); None from a broker without timer messages."""
        return self._text_or_none(RequestCode.GET_TIMER_METRICS)

    def timer_checkpoint(self) -> bytes | None:
        """Return timercheck (request 60); None from a broker without timer messages."""
        body = self._body_or_none(RequestCode.GET_TIMER_CHECK_POINT)
        if body is not None and len(body) not in TIMER_CHECKPOINT_SIZES:
            raise self._unreadable(RequestCode.GET_TIMER_CHECK_POINT, "56 bytes")
        return body

    def _text(self, code: RequestCode) -> str:
        return self._decoded(code, self._client.invoke(code).body)

    def _text_or_none(self, code: RequestCode) -> str | None:
        body = self._body_or_none(code)
        return None if body is None else self._decoded(code, body)

    def _body_or_none(self, code: RequestCode) -> bytes | None:
        """Return None if the broker does not know the request, or answers SYSTEM_ERROR."""
        try:
            return self._client.invoke(code).body
        except RequestRefused as refused:
            if refused.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR):
                return None
            raise

    def _decoded(self, code: RequestCode, body: bytes) -> str:
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise self._unreadable(code, "text in UTF-8") from None

    def _unreadable(self, code: RequestCode, expected: str) -> PeerError:
        what = f"the answer to request {int(code)} is not {expected}"
        return PeerError(what, path=str(self._client.address), hint="check that this is the port of a RocketMQ broker")
