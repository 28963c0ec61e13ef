"""`rmqctl job report` by a real Spark: the page of `rmqctl report` for each store, and one over all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Rmqctl, tree_hash, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CLOCK = re.compile(r"made [\d: .-]+Z")


def test_pages_of_a_fleet(spark: SparkSession, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A store that does not exist has a line and no page, and ends no other."""
    roots = [unpack("533-basic", tmp_path / "b & c"), unpack("broker-533-rocksdb", tmp_path / "rocks")]
    (roots[0] / "abort").touch()
    before = [tree_hash(root) for root in roots]
    stores, to = [tmp_path / "none", *roots], tmp_path / "pages"
    found = rmqctl("job", "report", *stores, "--to", to, "-o", "json")
    assert found.code == 10
    reports = found.document()["reports"]
    assert [row.get("healthy") for row in reports] == [None, False, True]
    index = (to / "index.html").read_text()
    assert "1 of 3 stores healthy" in index
    assert "none: no such folder" in index
    assert re.findall('<a href="([^"]+)"', index) == [row["page"] for row in reports[1:]]
    for root, row in zip(roots, reports[1:], strict=True):
        alone = tmp_path / "alone.html"
        assert rmqctl("report", root, "--to", alone).code == row["exitCode"]
        pages = [re.sub(CLOCK, "", path.read_text()) for path in (alone, to / row["page"])]
        assert pages[0] == pages[1]
    assert rmqctl("job", "report", roots[0], "--to", roots[0] / "pages").code == 2
    assert [tree_hash(root) for root in roots] == before
