"""Paths of this host that are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl

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
