from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import BadRequest
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.config.broker_conf import BrokerConf, read_broker_conf
from rmqctl.store.config.clean_config import HOUR_MS
from rmqctl.store.config.config_file import ConfigFile, load_config, table
from tests.support.memory_storage import FailingStorage

TOPICS = "topics.json"


def conf(tmp_path: Path, text: str) -> BrokerConf:
    path = tmp_path / "broker.conf"
    path.write_text(text, encoding="utf-8")
    return read_broker_conf(path)


def test_an_empty_broker_conf_says_nothing(tmp_path: Path) -> None:
    found = conf(tmp_path, "# brokerName=a\n")._replace(path="")
    assert not found.start.multi_dispatch  # what no broker.conf says is left to what the store shows
    assert found._replace(start=BrokerConf().start) == BrokerConf()
    assert BrokerConf().expiry.reserved_ms == 72 * HOUR_MS


@pytest.mark.parametrize(
    ("text", "is_foreign"),
    [
        ("", False),
        ("# Storage\n", False),
        ("brokerName=a\nsendMessageThreadPoolNums=16", False),
        ("deleteWhen=04", False),
        ("mapedFileSizeCommitLog=1024", False),
        ("transientStorePoolEnable=true", False),
        ("# A readme\nrmqctl inspects stores", True),
        ("log4j.rootLogger=INFO", True),
    ],
)
def test_a_file_without_a_setting_of_a_broker_is_foreign(tmp_path: Path, text: str, is_foreign: bool) -> None:
    assert conf(tmp_path, text).foreign is is_foreign


@pytest.mark.parametrize("name", ["mappedFileSizeCommitLog", "mapedFileSizeCommitLog"])
def test_the_size_of_log_files_is_read_under_both_spellings(tmp_path: Path, name: str) -> None:
    assert conf(tmp_path, f"{name} = 1048576\n").commitlog_file_size == 1_048_576


@pytest.mark.parametrize("name", ["mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"])
def test_the_size_of_queue_files_is_read_under_both_spellings(tmp_path: Path, name: str) -> None:
    assert conf(tmp_path, f"{name}=1000").consumequeue_file_size == 1000


def test_of_both_spellings_the_right_one_wins(tmp_path: Path) -> None:
    assert conf(tmp_path, "mapedFileSizeCommitLog=1\nmappedFileSizeCommitLog=2").commitlog_file_size == 2


def test_several_log_folders_are_separated_by_commas(tmp_path: Path) -> None:
    said = conf(tmp_path, "storePathCommitLog=/a/log, /b/log,\nreadOnlyCommitLogStorePaths=/c/log")
    assert said.commitlog_paths == ("/a/log", "/b/log", "/c/log")


def test_slots_index_and_expiry_are_read(tmp_path: Path) -> None:
    said = conf(tmp_path, "maxHashSlotNum=100\nmessageIndexEnable=False\nfileReservedTime=48")
    assert (said.index_slots, said.index_enabled, said.expiry.reserved_ms) == (100, False, 48 * HOUR_MS)


def test_the_file_is_java_properties(tmp_path: Path) -> None:
    said = conf(tmp_path, "storePathCommitLog : /data\\\n   /log\\u0061\n! a comment\nmaxHashSlotNum 5\n")
    assert (said.commitlog_paths, said.index_slots) == (("/data/loga",), 5)


@pytest.mark.parametrize("value", ["", "1G", "1_000", "0x10", "1.5", "48 ", "2147483648", "9" * 5000])
def test_what_java_does_not_read_as_an_int_is_ignored(tmp_path: Path, value: str) -> None:
    """As real brokers do: 4.9.7 takes the default for `262144 ` and `256K`, and reads `+262144`."""
    names = ["mappedFileSizeCommitLog", "mapedFileSizeConsumeQueue", "maxHashSlotNum", "fileReservedTime"]
    said = conf(tmp_path, "".join(f"{name}={value}\n" for name in names))
    assert said.ignored == dict.fromkeys(names, value)
    assert said._replace(ignored={}, size_lines={}) == conf(tmp_path, "brokerName=a")
    assert {line.size for line in said.size_lines.values()} == {None}


def test_a_number_below_the_least_is_a_bad_request(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="fileReservedTime=-5 is not a valid number") as caught:
        conf(tmp_path, "fileReservedTime=-5")
    assert caught.value.path == str(tmp_path / "broker.conf")


def test_true_is_true_without_a_blank_behind_it(tmp_path: Path) -> None:
    said = conf(tmp_path, "enableLmq=TRUE\nmessageIndexEnable=true \nmaxIndexNum=+7")
    assert (said.enable_lmq, said.index_enabled, said.index_entries) == (True, False, 7)


def test_a_broken_escape_is_a_bad_request(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"not a broker\.conf"):
        conf(tmp_path, "storePathCommitLog=\\u00zz")


def test_a_broker_conf_that_is_not_there_is_a_bad_request(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"broker\.conf does not exist"):
        read_broker_conf(tmp_path / "broker.conf")


def test_a_folder_is_no_broker_conf(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"broker\.conf does not exist"):
        read_broker_conf(tmp_path)


def load(folder: Path, files: dict[str, str | bytes]) -> ConfigFile:
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_config(Storage(folder), folder, TOPICS)


def test_a_config_file_is_read_with_its_unquoted_keys(tmp_path: Path) -> None:
    found = load(tmp_path, {TOPICS: '{\n\t"offsetTable":{"OrderPaid@g":{0:375,1:375}}}'})
    assert found.content == {"offsetTable": {"OrderPaid@g": {"0": 375, "1": 375}}}
    assert (found.name, found.path, found.problem, found.source) == (TOPICS, tmp_path / TOPICS, "", tmp_path / TOPICS)


def test_the_main_file_goes_before_the_backup(tmp_path: Path) -> None:
    assert load(tmp_path, {TOPICS: '{"from":"main"}', f"{TOPICS}.bak": '{"from":"bak"}'}).content == {"from": "main"}


@pytest.mark.parametrize(
    "broken", ["", " \n", "{", "[1]", "3", "{" * 50_000, '{"a":' * 50_000, b"\xff\xfe", b"\0" * 100]
)
def test_a_broken_main_file_is_replaced_by_its_backup_and_told(tmp_path: Path, broken: str | bytes) -> None:
    found = load(tmp_path, {TOPICS: broken, f"{TOPICS}.bak": '{"from":"bak"}'})
    assert (found.content, found.source) == ({"from": "bak"}, tmp_path / f"{TOPICS}.bak")
    assert found.problem.startswith(TOPICS)


def test_a_missing_main_file_is_replaced_by_its_backup_in_silence(tmp_path: Path) -> None:
    found = load(tmp_path, {f"{TOPICS}.bak": '{"from":"bak"}'})
    assert (found.content, found.problem, found.source) == ({"from": "bak"}, "", tmp_path / f"{TOPICS}.bak")


def test_without_both_files_the_content_is_empty(tmp_path: Path) -> None:
    found = load(tmp_path, {})
    assert (found.content, found.problem, found.source) == ({}, "", None)


def test_two_broken_files_have_no_content(tmp_path: Path) -> None:
    found = load(tmp_path, {TOPICS: "{", f"{TOPICS}.bak": "["})
    assert (found.content, found.source) == (None, None)
    assert "topics.json is not JSON" in found.problem


def test_a_broken_backup_alone_has_no_content(tmp_path: Path) -> None:
    found = load(tmp_path, {f"{TOPICS}.bak": ""})
    assert (found.content, found.problem) == (None, "topics.json.bak is empty")


@pytest.mark.parametrize("text", ["{" * 50_000, '{"a":' * 50_000])
def test_deeply_nested_json_is_a_problem_and_no_crash(tmp_path: Path, text: str) -> None:
    assert "not JSON" in load(tmp_path, {TOPICS: text}).problem


def test_bytes_that_are_no_utf8_are_read_as_latin_1(tmp_path: Path) -> None:
    assert load(tmp_path, {TOPICS: '{"a":"é"}'.encode("latin-1")}).content == {"a": "é"}
    assert load(tmp_path, {TOPICS: '{"a":"é中"}'.encode()}).content == {"a": "é中"}


def test_a_fifo_in_place_of_the_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / TOPICS)
    assert "a FIFO, socket or device" in load(tmp_path, {}).problem


def test_a_link_out_of_the_store_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "secret").write_text('{"a":1}', encoding="utf-8")
    (tmp_path / "config" / TOPICS).symlink_to(tmp_path / "secret")
    found = load(tmp_path / "config", {})
    assert (found.content, found.problem) == (None, "topics.json is a link out of the store")


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / TOPICS).write_text('{"a":1}', encoding="utf-8")
    found = load_config(FailingStorage(tmp_path, TOPICS), tmp_path, TOPICS)
    assert (found.content, found.problem) == (None, "topics.json cannot be read: Input/output error")


@pytest.mark.parametrize(
    ("content", "rows"),
    [({"t": {"a": 1}}, {"a": 1}), ({"t": [1]}, {}), ({"t": None}, {}), ({}, {}), (None, {})],
)
def test_a_table_that_is_none_is_empty(content: dict[str, Any] | None, rows: dict[str, Any]) -> None:
    assert table(ConfigFile(TOPICS, Path(TOPICS), content), "t") == rows
