"""Fetch the configuration of a master, as SlaveSynchronize does.

| request | file in config/ | |
|---|---|---|
| 21 | topics.json | replaces the mirror's file |
| 21 | topicQueueMapping.json | 5.x; the static topics, if the master has any; a real slave does not copy this file |
| 201 | subscriptionGroup.json | replaces the mirror's file |
| 43 | consumerOffset.json | replaces the mirror's file |
| 45 | delayOffset.json | replaces the mirror's file |
| 402 | messageRequestMode.json | 5.x |
| 61 | timermetrics | 5.x |
| 60 | timercheck | 5.x; binary |

The offset of a group must not be after the end of a queue in the mirror. Therefore `replicate` fetches the offsets of
groups before a pull of the log, and writes the offsets after the pull. Topics and groups are fetched after the log,
because a broker only serves messages of topics that are in topics.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import PeerError
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import (
    DATA_VERSION,
    DELAY_OFFSETS_CONFIG,
    GROUPS_CONFIG,
    OFFSETS_CONFIG,
    QUEUE_MAPPING_TABLE,
    QUEUE_MAPPINGS_CONFIG,
    REQUEST_MODES_CONFIG,
    TIMER_CHECK,
    TIMER_METRICS,
    TOPIC_TABLE,
    TOPICS_CONFIG,
)
from rmqctl.store.config.fastjson import fastjson_bytes, fastjson_dumps, fastjson_loads

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.remoting.address import Address
    from rmqctl.remoting.broker_requests import BrokerRequests

_MAPPINGS, _MAPPINGS_VERSION = "topicQueueMappingDetailMap", "mappingDataVersion"  # keys of the answer to request 21

ConfigTexts = dict[str, bytes]  # the content of files in config/, by name


def fetch_offsets(address: Address, requests: BrokerRequests) -> ConfigTexts:
    """Return the files with the offsets of groups, delay levels and timers.

    Raises PeerError.
    """
    texts: dict[str, str | None] = {
        OFFSETS_CONFIG: requests.consumer_offsets(),
        DELAY_OFFSETS_CONFIG: requests.delay_offsets(),
        TIMER_METRICS: requests.timer_metrics(),
    }
    found = _checked(address, texts)
    checkpoint = requests.timer_checkpoint()
    return found if checkpoint is None else found | {TIMER_CHECK: _without_timer_log(checkpoint)}


def _without_timer_log(checkpoint: bytes) -> bytes:
    """Return the content of timercheck for a store that lacks the master's timer log.

    lastTimerLogFlushPos and lastTimerQueueOffset become 0. Then a broker builds the timer log from the first message of
    the timer topic. The broker may deliver a timer message twice, but loses no timer message.
    """
    return checkpoint[:8] + bytes(16) + checkpoint[24:]


def fetch_names(address: Address, requests: BrokerRequests) -> ConfigTexts:
    """Return the files with topics and groups.

    Raises PeerError.
    """
    texts: dict[str, str | None] = {
        GROUPS_CONFIG: requests.subscription_groups(),
        REQUEST_MODES_CONFIG: requests.message_request_modes(),
    }
    topics = _object(address, TOPICS_CONFIG, requests.topics())
    wanted = {key: topics[key] for key in (DATA_VERSION, TOPIC_TABLE) if key in topics}
    found = _checked(address, texts) | {TOPICS_CONFIG: fastjson_bytes(fastjson_dumps(wanted))}
    if _MAPPINGS in topics and _MAPPINGS_VERSION in topics:
        table = {DATA_VERSION: topics[_MAPPINGS_VERSION], QUEUE_MAPPING_TABLE: topics[_MAPPINGS]}
        found[QUEUE_MAPPINGS_CONFIG] = fastjson_bytes(fastjson_dumps(table))
    return found


def write_texts(root: Path, texts: ConfigTexts) -> None:
    """Replace files of config/, each in one step.

    An empty table of static topics is written only if the file already exists. Raises OSError.
    """
    storage = WritableStorage(root)
    folder = root / store_path.CONFIG
    storage.make_folder(folder)
    for name, text in texts.items():
        is_empty = name == QUEUE_MAPPINGS_CONFIG and not fastjson_loads(text.decode())[QUEUE_MAPPING_TABLE]
        if not is_empty or storage.entry(folder / name).kind is Kind.FILE:
            storage.replace_file(folder / name, text)


def _checked(address: Address, texts: dict[str, str | None]) -> ConfigTexts:
    """Return the non-empty texts; raise an error if a text is not a JSON object."""
    known = {name: text for name, text in texts.items() if text}
    for name, text in known.items():
        _object(address, name, text)
    return {name: text.encode() for name, text in known.items()}


def _object(address: Address, name: str, text: str) -> dict[str, object]:
    try:
        found = fastjson_loads(text)
    except ValueError as error:
        raise PeerError(f"the broker's {name} is not JSON: {error}", path=str(address)) from error
    if not isinstance(found, dict):
        raise PeerError(f"the broker's {name} is not a JSON object", path=str(address))
    return found
