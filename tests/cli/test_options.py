"""Paths of this host that are typed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack

Golden = Callable[[str], Path]
ONE_MESSAGE = ("--create", "--topic", "T", "--body", "hi")


@pytest.mark.parametrize(
    "line",
    [("append", "URL", *ONE_MESSAGE), ("info", "URL"), ("recover", "URL", "--yes"), ("clean", "URL", "--yes"), ("undo", "URL", "--yes")],
    ids=lambda line: line[0],
)
def test_of_a_url_nothing_is_made(line: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = rmqctl(*("s3://bucket/store" if word == "URL" else word for word in line))
    assert found.code == 2
    assert "s3://bucket/store is a URL, this needs a path of this host" in found.err
    assert not list(tmp_path.iterdir())


def test_an_unset_variable_is_not_the_current_folder(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(golden("326-basic"))
    for verb in ("info", "recover"):
        found = rmqctl(verb, "")
        assert (found.code, found.out) == (2, "")
        assert "the path is empty" in found.err


def test_what_a_message_proposes_can_be_typed(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden("471-basic").rename(tmp_path / "a b $(x)")
    found = rmqctl("checkpoint", str(store), "set", "--index-msg-timestamp", "0", "--yes")
    assert found.code == 0
    assert f"`rmqctl undo '{store}'` takes it back" in found.err


@pytest.mark.parametrize("option", [("--tail", "3"), ("--limit", "1"), ("--from-offset", "2")], ids=lambda option: option[0])
def test_units_are_those_of_one_queue(option: tuple[str, str], golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("326-basic")
    assert rmqctl("queue", str(store), *option).code == 2
    assert "give TOPIC and QUEUEID" in rmqctl("queue", str(store), "OrderPaid", *option).err


def test_config_names_its_verb(golden: Golden, rmqctl: Rmqctl) -> None:
    found = rmqctl("config", str(golden("326-basic")))
    assert found.code == 2
    assert "`rmqctl config show STORE`" in found.err


def test_append_says_how_a_store_is_made(rmqctl: Rmqctl, tmp_path: Path) -> None:
    found = rmqctl("append", str(tmp_path / "none"), "--topic", "T", "--body", "hi")
    assert found.code == 10
    assert "--create makes a new store" in found.err


@pytest.mark.parametrize("name", ["FIFO", "folder"])
def test_a_checkpoint_that_is_no_file_is_told(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    (store / "checkpoint").unlink()
    os.mkfifo(store / "checkpoint") if name == "FIFO" else (store / "checkpoint").mkdir()
    found = rmqctl("recover", str(store), "--yes")
    assert found.code == 4
    assert "not a file of the store" in found.err


def conf_that_names(tmp_path: Path, **settings: Path) -> Path:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return conf


@pytest.mark.parametrize("verb", [("info",), ("append", "--topic", "OrderPaid", "--body", "x"), ("undo", "--list")])
def test_a_broker_conf_of_another_store_is_told(verb: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path / "copy")
    conf = conf_that_names(tmp_path, storePathRootDir=tmp_path / "other")
    result = rmqctl(verb[0], store, *verb[1:], "--broker-conf", conf)
    note = f"note: {conf}: storePathRootDir is {tmp_path / 'other'}, but STORE is used: {store}"
    assert (result.code, [line for line in result.err.splitlines() if line.startswith("note: ")]) == (0, [note])


def test_the_log_of_another_store_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, other = unpack("497-basic", tmp_path / "copy"), unpack("471-basic", tmp_path / "other")
    conf = conf_that_names(tmp_path, storePathCommitLog=other / "commitlog")
    said = f"the log is that of storePathCommitLog, {other / 'commitlog'}, not {store / 'commitlog'}"
    assert f"note: {conf}: {said}\n" in rmqctl("info", store, "--broker-conf", conf).err


def test_the_broker_conf_of_this_store_needs_no_word(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path / "copy")
    (tmp_path / "link").symlink_to(store)
    conf = conf_that_names(tmp_path, storePathRootDir=tmp_path / "link", storePathCommitLog=store / "commitlog")
    assert rmqctl("info", store, "--broker-conf", conf).err == ""
