"""The codes of requests and answers, with RocketMQ's own names."""

from __future__ import annotations

from enum import IntEnum


class RequestCode(IntEnum):
    """The code of a request; brokers of 4.x do not know the codes marked `5.x`."""

    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    GET_TIMER_CHECK_POINT = 60  # 5.x
    GET_TIMER_METRICS = 61  # 5.x
    REGISTER_BROKER = 103  # this and the next two are requests to a name server
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105  # a request to a name server
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    QUERY_DATA_VERSION = 322
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_ALL_MESSAGE_REQUEST_MODE = 402  # 5.x


class ResponseCode(IntEnum):
    """The code of an answer."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10  # this and the next two: the master has the message, though not as safely as was asked
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    TOPIC_NOT_EXIST = 17
    GO_AWAY = 1500  # 5.x: connect again
