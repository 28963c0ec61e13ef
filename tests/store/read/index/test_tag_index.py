"""Entries for TAGS in the index, which brokers write since 5.4.0: what shows them, and that every change keeps them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.errors import BadRequest
from rmqctl.format.index_entry import tag_key_hash
from rmqctl.format.profile import PROFILE_5_3, PROFILE_5_4
from rmqctl.store.read.index.tag_index import indexes_tags
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.version_guess import guess_profile
from tests.conftest import Rmqctl

Golden = Callable[[str], Path]
SIZES = ("--commitlog-file-size", 65536, "--consumequeue-file-size", 1000, "--index-slots", 100, "--index-entries", 400)


def entries(root: Path, topic: str, tags: str) -> int:
    """How many entries the index has for a tag."""
    return sum(len(file.phy_offsets(tag_key_hash(topic, tags))) for file in ReadOnlyStore(root).index.files)


@pytest.mark.parametrize(
    ("name", "profile"), [("540-basic", "5.4"), ("550-tx", "5.4"), ("533-basic", "5.3"), ("514-tx", "5.3")]
)
def test_the_version_shows_in_a_folder_and_in_the_index(name: str, profile: str, golden: Golden) -> None:
    root = golden(name)
    assert guess_profile(ReadOnlyStore(root)).name == profile
    shutil.rmtree(root / "rocksdbstore", ignore_errors=True)
    assert guess_profile(ReadOnlyStore(root)).name == profile


def test_a_change_asks_where_nothing_shows_the_version(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("550-basic")
    for folder in ("rocksdbstore", "index"):
        shutil.rmtree(root / folder)
    assert [indexes_tags(ReadOnlyStore(root), profile) for profile in (PROFILE_5_3, PROFILE_5_4)] == [False, True]
    with pytest.raises(BadRequest, match=r"5\.4 and later index TAGS"):
        indexes_tags(ReadOnlyStore(root))
    for verb in (["rebuild", root, "all"], ["recover", root]):
        assert rmqctl(*verb, "--dry-run").code == 2
        assert rmqctl(*verb, "--dry-run", "--profile", "5.4").code == 1
    assert rmqctl("rebuild", root, "queues", "--dry-run").code == 0


def test_a_change_asks_where_the_index_is_damaged(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("550-basic")
    shutil.rmtree(root / "rocksdbstore")
    for path in (root / "index").iterdir():
        path.write_bytes(bytes(40) + path.read_bytes()[40:])
    with pytest.raises(BadRequest, match=r"5\.4 and later index TAGS"):
        indexes_tags(ReadOnlyStore(root))
    assert rmqctl("recover", root, "--dry-run").code == 2


@pytest.mark.parametrize("zeroed", [1, 60_000], ids=["the first record", "nearly all of the first file"])
def test_a_change_asks_where_the_log_is_damaged_as_well(zeroed: int, golden: Golden) -> None:
    root = golden("550-basic")
    for name in ("rocksdbstore", "index"):
        shutil.rmtree(root / name)
    first = min((root / "commitlog").iterdir())
    first.write_bytes(bytes(zeroed + 7) + first.read_bytes()[zeroed + 7 :])
    with pytest.raises(BadRequest, match=r"5\.4 and later index TAGS"):
        indexes_tags(ReadOnlyStore(root))


def test_a_recovery_keeps_the_entries(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("550-crash")
    before = entries(root, "OrderPaid", "paid")
    assert rmqctl("recover", root, "--yes").code == 3
    assert entries(root, "OrderPaid", "paid") == before > 0
    assert rmqctl("verify", root).code == 0


def test_an_index_rebuilt_for_an_older_broker_and_back(golden: Golden, rmqctl: Rmqctl) -> None:
    """As after an upgrade: messages without are no damage, but there is a note, and a rebuild adds them."""
    root = golden("550-basic")
    before = entries(root, "OrderPaid", "paid")
    assert rmqctl("rebuild", root, "index", "--profile", "5.3", "--yes").code == 3
    assert entries(root, "OrderPaid", "paid") == 0
    verified = rmqctl("verify", root)
    assert verified.code == 0
    assert "the index has no entry for TAGS of the last" in verified.err
    assert rmqctl("append", root, "--topic", "OrderPaid", "--body", "x", "--tags", "paid").code == 0
    assert entries(root, "OrderPaid", "paid") == 1
    verified = rmqctl("verify", root)
    assert (verified.code, "of the first" in verified.err) == (0, True)
    assert rmqctl("rebuild", root, "index", "--yes").code == 3
    assert entries(root, "OrderPaid", "paid") == before + 1


def test_tags_that_are_missing_between_others_are_a_finding(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "s"
    for number, profile in enumerate(("5.4", "5.3", "5.4")):
        create = ("--create", *SIZES) if not number else ()
        options = ("--topic", "T", "--keys", f"k{number}", "--tags", "t", "--body", "x")
        assert rmqctl("append", root, *create, "--profile", profile, *options).code == 0
    (finding,) = rmqctl("verify", root, "-o", "json").document()["findings"]
    assert (finding["code"], finding.get("count", 1)) == ("index-missing", 1)
    assert (
        finding["physicalOffset"]
        == rmqctl("query", root, "--topic", "T", "--key", "k1", "-o", "jsonl").rows()[0]["physicalOffset"]
    )
    assert rmqctl("rebuild", root, "index", "--yes").code == 3
    assert (rmqctl("verify", root).code, entries(root, "T", "t")) == (0, 3)


def test_a_new_store_is_of_the_newest_version_and_shows_it(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "s"
    one = ("--topic", "T", "--body", "x", "--tags", "t")
    assert rmqctl("append", root, "--create", *SIZES, *one).code == 0
    assert rmqctl("append", root, *one).code == 0
    assert entries(root, "T", "t") == 2
    assert rmqctl("info", root, "-o", "json").document()["version"]["profile"] == "5.4"


def append(rmqctl: Rmqctl, root: Path, profile: str, *options: str, count: int = 1) -> None:
    create = () if root.exists() else ("--create", *SIZES)
    lines = root.parent / "lines"
    properties = dict(zip(options[::2], options[1::2], strict=True))
    lines.write_text(
        "".join(json.dumps({"topic": "T", "body": "x", "properties": properties}) + "\n" for _ in range(count))
    )
    assert rmqctl("append", root, *create, "--profile", profile, "--from", lines).code == 0


def test_a_key_that_looks_like_a_tag_shows_nothing(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Two such messages made all between them a finding, and one made the store one of 5.4."""
    root = tmp_path / "s"
    for options in (("TAGS", "t", "KEYS", "T#t"), ("TAGS", "t"), ("TAGS", "t", "KEYS", "T#t")):
        append(rmqctl, root, "5.3", *options)
    store = ReadOnlyStore(root)
    assert (store.tags_are_indexed, guess_profile(store).name) == (False, "5.3")
    verified = rmqctl("verify", root)
    assert (verified.out, "TAGS" in verified.err) == ("level 3: no findings\n", False)


@pytest.mark.parametrize("count", [1, 330, 700])
def test_a_hole_in_the_tag_entries_hides_none_of_the_others(count: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The newest file, or the newest entries, have messages without: the index is still one of 5.4, and a rebuild keeps
    its entries.
    """
    root = tmp_path / "s"
    append(rmqctl, root, "5.4", "TAGS", "t", "KEYS", "k", count=100)
    append(rmqctl, root, "5.3", "TAGS", "t", "KEYS", "k", count=count)
    shutil.rmtree(root / "rocksdbstore")
    store = ReadOnlyStore(root)
    assert (store.tags_are_indexed, guess_profile(store).name) == (True, "5.4")
    assert rmqctl("rebuild", root, "index", "--yes").code == 3
    assert entries(root, "T", "t") == 100 + count


def test_the_index_is_sampled_once_a_store(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden("550-tx")
    asked: list[ReadOnlyStore] = []

    def sampled(store: ReadOnlyStore) -> bool:
        asked.append(store)
        return True

    monkeypatch.setattr("rmqctl.store.read.read_only_store.tags_are_indexed", sampled)
    for verb in (["info"], ["recover", "--dry-run"], ["rebuild", "index", "--dry-run"]):
        asked.clear()
        assert rmqctl(verb[0], root, *verb[1:]).code == 0
        assert len({id(store) for store in asked}) == len(asked) > 0, verb
    asked.clear()
    assert (rmqctl("verify", root).code, asked) == (0, [])  # it compares all messages anyway
