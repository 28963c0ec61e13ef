"""Stores that are made as a broker.conf says."""

from __future__ import annotations

from pathlib import Path

from rmqctl.format.profile import PROFILE_5_3, Profile
from rmqctl.store.config.broker_conf import BrokerConf, read_broker_conf
from rmqctl.store.config.file_sizes import geometry_of_conf
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.write.commit_log_writer import put_settings
from tests.support.small_store import message

SIZES = "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=190\nmaxHashSlotNum=10\nmaxIndexNum=40\n"


def conf_of(tmp_path: Path, text: str = "") -> BrokerConf:
    path = tmp_path / "broker.conf"
    path.write_text(SIZES + text, encoding="utf-8")
    return read_broker_conf(path)


def created(tmp_path: Path, text: str = "", profile: Profile = PROFILE_5_3) -> MessageStore:
    conf = conf_of(tmp_path, text)
    return MessageStore.create(tmp_path / "s", put_settings(conf, profile), geometry_of_conf(conf), conf)


def put(store: MessageStore, count: int) -> None:
    for number in range(count):
        assert store.put_message(message(number)).is_ok
