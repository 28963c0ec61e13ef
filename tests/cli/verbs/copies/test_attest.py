"""`rmqctl attest`: each byte that has changed is named."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rmqctl.operations.acquire import bag
from tests.conftest import Rmqctl, tree_hash, unpack

MIB = 1 << 20


@pytest.fixture
def dest(tmp_path: Path, rmqctl: Rmqctl) -> Path:
    """A bag with a file of several MiB."""
    store = unpack("broker-497", tmp_path)
    (store / "large").write_bytes(random.Random(2).randbytes(3 * MIB + 77))
    assert rmqctl("acquire", store, tmp_path / "bag").code == 0
    return tmp_path / "bag"


@contextmanager
def flipped(path: Path, at: int, bit: int = 0) -> Iterator[None]:
    with path.open("r+b") as file:
        for _ in range(2):
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))
            file.flush()
            if _ == 0:
                yield


def attested(rmqctl: Rmqctl, dest: Path, code: int = 1) -> dict[str, Any]:
    result = rmqctl("attest", dest, "-o", "json")
    assert result.code == code, result.err
    return result.document()


def test_each_flipped_byte_is_named(dest: Path, rmqctl: Rmqctl) -> None:
    chance = random.Random(3)
    files = [path for path in sorted(dest.rglob("*")) if path.is_file()]
    before = tree_hash(dest)
    for number in range(60):
        path = dest / "data/store/large" if number % 4 == 0 else chance.choice(files)
        size = path.stat().st_size
        if not size:
            continue
        at = chance.randrange(size)
        with flipped(path, at, chance.randrange(8)):
            document = attested(rmqctl, dest)
        (changed,) = document["changed"]
        (found,) = changed["ranges"]
        assert changed["path"] == str(path.relative_to(dest))
        assert found["begin"] <= at < found["end"] <= size
        assert found["end"] - found["begin"] <= MIB
        assert (document["missing"], document["new"], document["moved"]) == ([], [], [])
    assert tree_hash(dest) == before
    attested(rmqctl, dest, 0)


def test_each_byte_of_the_last_list(dest: Path, rmqctl: Rmqctl) -> None:
    """Nothing vouches for it, but the head; it can still be told from what it lists."""
    path = dest / bag.TAG_MANIFEST
    for at in range(path.stat().st_size):
        with flipped(path, at, at % 8):
            document = attested(rmqctl, dest)
        assert [row["path"] for row in document["changed"]] == [bag.TAG_MANIFEST], at
        assert (document["missing"], document["new"]) == ([], [])


def edits(dest: Path) -> dict[str, tuple[Callable[[], object], dict[str, Any]]]:
    store, large = dest / "data/store", dest / "data/store/large"
    ranges = [{"begin": 3 * MIB, "end": 3 * MIB + 77}]
    longer, shorter = [{"begin": 3 * MIB, "end": 3 * MIB + 78}], [{"begin": 2 * MIB, "end": 3 * MIB - 1}]
    path = "data/store/large"
    return {
        "removed": (large.unlink, {"missing": [path]}),
        "moved": (lambda: large.rename(store / "other"), {"moved": [{"path": "data/store/other", "from": path}]}),
        "added": (lambda: (store / "x").write_bytes(b"x"), {"new": ["data/store/x"]}),
        "beside": (lambda: (dest / "notes").write_bytes(b"x"), {"new": ["notes"]}),
        "longer": (lambda: large.open("ab").write(b"x"), {"changed": [{"path": path, "ranges": longer}]}),
        "shorter": (
            lambda: large.write_bytes(large.read_bytes()[: 3 * MIB - 1]),
            {"changed": [{"path": path, "ranges": [*shorter, {"begin": 3 * MIB, "end": 4 * MIB}]}]},
        ),
        "end": (
            lambda: large.write_bytes(large.read_bytes()[: 3 * MIB] + bytes(77)),
            {"changed": [{"path": path, "ranges": ranges}]},
        ),
        "link": (
            lambda: Path(large).symlink_to(large.rename(dest.parent / "large")),
            {"missing": [path]},
        ),
        "no list": ((dest / bag.MANIFEST).unlink, {"missing": [bag.MANIFEST]}),
        "no last list": ((dest / bag.TAG_MANIFEST).unlink, {"missing": [bag.TAG_MANIFEST]}),
        "no lines": ((dest / bag.FILES).unlink, {"missing": [bag.FILES]}),
    }


@pytest.mark.parametrize("name", edits(Path()))
def test_in_the_words_of_hashdeep(name: str, dest: Path, rmqctl: Rmqctl) -> None:
    change, wanted = edits(dest)[name]
    change()
    document = attested(rmqctl, dest)
    nothing: dict[str, Any] = {"changed": [], "moved": [], "missing": [], "new": []}
    assert {key: document[key] for key in nothing} == nothing | wanted
    assert rmqctl("attest", dest).out.startswith("not as acquired: 1 ")


def test_without_its_lines_a_file_is_changed_as_a_whole(dest: Path, rmqctl: Rmqctl) -> None:
    (dest / bag.FILES).write_bytes(b"{}\n" * 50)
    with flipped(dest / "data/store/large", 5):
        changed = attested(rmqctl, dest)["changed"]
    assert [row["path"] for row in changed] == [bag.FILES, "data/store/large"]
    assert changed[1]["ranges"] == [{"begin": 0, "end": 3 * MIB + 77}]


def test_the_head_tells_new_lists(dest: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    head = attested(rmqctl, dest, 0)["head"]
    assert rmqctl("attest", dest, "--head", head.upper()).code == 0
    (dest / "data/store/large").write_bytes(b"forged")
    shutil.move(dest / "data/store", tmp_path / "forged")
    shutil.rmtree(dest)
    (tmp_path / "store").rename(tmp_path / "original")
    (tmp_path / "forged").rename(tmp_path / "store")
    assert rmqctl("acquire", tmp_path / "store", dest).code == 0
    assert rmqctl("attest", dest).code == 0
    result = rmqctl("attest", dest, "--head", head)
    assert (result.code, "the head is another one" in result.err) == (1, True)


def test_what_is_no_bag(dest: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    for path in (tmp_path / "store", tmp_path / "none", dest / bag.FILES):
        result = rmqctl("attest", path)
        assert (result.code, "not a copy of" in result.err) == (2, True)
    for name in (bag.TAG_MANIFEST, bag.MANIFEST, bag.INFO, bag.BAGIT):
        (dest / name).unlink()
    unfinished = rmqctl("attest", dest)
    assert (unfinished.code, "--resume` goes on" in unfinished.err) == (2, True)


def test_a_hostile_bag(dest: Path, rmqctl: Rmqctl) -> None:
    """Paths that climb are not opened, and strange lines are no bug."""
    for text in (
        '{"path":"data/../../../etc/passwd","sha256":"x","chunks":["x"]}\n', "[]\n{}\n", '{"path":[],"sha256":1}\n',
        '{"path":"data/store/large","sha256":"","chunks":[1,null]}\n', "\xff\n", '{"path":' * 2000,
    ):  # fmt: skip
        (dest / bag.FILES).write_text(text)
        lists = {name: sha256((dest / name).read_bytes()).hexdigest() for name in bag.REQUIRED_TAGS}
        (dest / bag.TAG_MANIFEST).write_bytes(bag.list_lines(lists))
        found = attested(rmqctl, dest)
        assert not [row for row in found["changed"] if "etc" in row["path"]]
