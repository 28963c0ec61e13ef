"""Paths of this host that are typed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, tree_hash, unpack

Golden = Callable[[str], Path]
ONE_MESSAGE = ("--create", "--topic", "T", "--body", "hi")


@pytest.mark.parametrize(
    "line",
    [
        ("append", "URL", *ONE_MESSAGE),
        ("info", "URL"),
        ("recover", "URL", "--yes"),
        ("clean", "URL", "--yes"),
        ("undo", "URL", "--yes"),
    ],
    ids=lambda line: line[0],
)
def test_of_a_url_nothing_is_made(
    line: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = rmqctl(*("s3://bucket/store" if word == "URL" else word for word in line))
    assert found.code == 2
    assert "s3://bucket/store is a URL, this needs a path of this host" in found.err
    assert not list(tmp_path.iterdir())


def test_an_unset_variable_is_not_the_current_folder(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(
    "option", [("--tail", "3"), ("--limit", "1"), ("--from-offset", "2")], ids=lambda option: option[0]
)
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


def test_a_file_that_is_no_broker_conf_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, conf = unpack("497-basic", tmp_path / "copy"), tmp_path / "README.md"
    conf.write_text("# A store\nCopy the store first.\n")
    result = rmqctl("clean", store, "--dry-run", "--broker-conf", conf)
    assert f"note: {conf}: rmqctl uses none of its settings. Is it the file of a broker?\n" in result.err


def test_the_log_of_another_store_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, other = unpack("497-basic", tmp_path / "copy"), unpack("471-basic", tmp_path / "other")
    conf = conf_that_names(tmp_path, storePathCommitLog=other / "commitlog")
    said = f"the log is that of storePathCommitLog, {other / 'commitlog'}, not {store / 'commitlog'}"
    assert f"note: {conf}: {said}\n" in rmqctl("info", store, "--broker-conf", conf).err


def test_a_change_of_a_copy_does_not_reach_the_original(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The copy comes with the broker.conf of the original."""
    original, copy = unpack("497-basic", tmp_path / "original"), unpack("497-basic", tmp_path / "copy")
    conf = conf_that_names(tmp_path, storePathRootDir=original, storePathCommitLog=original / "commitlog")
    before = tree_hash(original)
    for verb in (("clean", "--manual"), ("recover", "--mode", "abnormal"), ("truncate", "--to", 65536)):
        result = rmqctl(verb[0], copy, *verb[1:], "--broker-conf", conf, "--yes")
        assert (result.code, "broker.conf names another store" in result.err) == (2, True)
    assert tree_hash(original) == before


def test_the_broker_conf_of_this_store_needs_no_word(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path / "copy")
    (tmp_path / "link").symlink_to(store)
    conf = conf_that_names(tmp_path, storePathRootDir=tmp_path / "link", storePathCommitLog=store / "commitlog")
    assert rmqctl("info", store, "--broker-conf", conf).err == ""


CHANGES = {
    "recover": ("--mode", "abnormal", "--yes"),
    "truncate": ("--to", "65536", "--yes"),
    "rebuild": ("all", "--yes"),
    "checkpoint": ("set", "--physic-msg-timestamp", "5", "--yes"),
}
NAMED_AS = {  # STORE as it is typed in the folder above it, the log in broker.conf, and the log's folder
    "relative and absolute": ("store", "{here}/store/commitlog", "commitlog"),
    "absolute and relative": ("{here}/store", "store/commitlog/", "commitlog"),
    "by a link": ("link", "{here}/store/commitlog", "commitlog"),
    "with two points": ("../here/store", "{here}/store/../store/commitlog", "commitlog"),
    "by another name": ("store", "{here}/store/log2", "log2"),
    "by another name, absolute": ("{here}/store", "{here}/store/log2", "log2"),
}


@pytest.mark.parametrize("verb", CHANGES)
@pytest.mark.parametrize("way", NAMED_AS)
def test_a_log_in_the_store_that_broker_conf_names(
    way: str, verb: str, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    store = unpack("497-basic", here)
    typed, named, folder = (text.format(here=here) for text in NAMED_AS[way])
    (store / "commitlog").rename(store / folder)
    (here / "link").symlink_to("store")
    if verb == "recover":  # one file of a wrong length: brokers do not load that
        os.truncate(max((store / folder).iterdir()), 60_000)
    conf = conf_that_names(tmp_path, storePathRootDir=store, storePathCommitLog=Path(named))
    monkeypatch.chdir(here)
    before = tree_hash(store)
    assert rmqctl(verb, typed, *CHANGES[verb], "--broker-conf", conf).code in (0, 3)
    assert tree_hash(store) != before
    undone = rmqctl("undo", typed, "--yes", "--broker-conf", conf)
    assert (undone.code, tree_hash(store)) == (0, before), undone.err


def test_clean_and_append_in_a_log_that_broker_conf_names(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unpack("497-basic", tmp_path)
    conf = conf_that_names(tmp_path, storePathRootDir=store, storePathCommitLog=store / "commitlog")
    monkeypatch.chdir(tmp_path)
    first = min((store / "commitlog").iterdir())
    cleaned = rmqctl("clean", "store", "--keep-files", "1", "--interval", "0", "--yes", "--broker-conf", conf)
    assert (cleaned.code, first.exists()) == (0, False), cleaned.err
    assert rmqctl("append", "store", "--topic", "OrderPaid", "--body", "x", "--broker-conf", conf).code == 0
    assert rmqctl("verify", "store", "--broker-conf", conf).code == 0
