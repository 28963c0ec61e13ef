"""The real 5.5.0's query by tag, after each change that rmqctl makes of a store of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack
from tests.real_store.harness import Geometry, RealRocketMQ

pytestmark = pytest.mark.interop

SIZES = Geometry(65536, 50, 100, 400)
NEW = ("--commitlog-file-size", 65536, "--consumequeue-file-size", 1000, "--index-slots", 100, "--index-entries", 400)
ALL = ("query", "OrderPaid", "T#paid", 1000, 0, 2**62)  # MessageConst.INDEX_TAG_TYPE


def found(root: Path) -> list[int]:
    """What the real store finds by the tag, once it is loaded."""
    (answer,) = RealRocketMQ("5.5.0").ask(root, [ALL], geometry=SIZES)
    return sorted(set(answer))


@pytest.mark.parametrize("name", ["550-basic", "550-crash"])
def test_a_query_by_tag_finds_as_many_as_before_and_what_was_appended(
    name: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    before = found(unpack(name, tmp_path / "before"))
    root = unpack(name, tmp_path)
    assert rmqctl("recover", root, "--yes").code in (0, 3)
    assert rmqctl("rebuild", root, "all", "--yes").code in (0, 3)
    for number in range(2):
        assert rmqctl("append", root, "--topic", "OrderPaid", "--tags", "paid", "--body", f"{number}").code == 0
    after = found(root)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2


def test_a_store_that_we_made_is_one_of_its(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "s"
    assert (
        rmqctl(
            "append",
            root,
            "--create",
            "--profile",
            "5.4",
            *NEW,
            "--topic",
            "OrderPaid",
            "--tags",
            "paid",
            "--body",
            "x",
        ).code
        == 0
    )
    assert found(root) == [0]
