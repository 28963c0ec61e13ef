"""All that is below a folder, however deep it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.logfile.access.owner import owners_in
from rmqctl.logfile.system.storage import Storage, tree_of

DEEPER_THAN_PYTHON_CALLS = 1100


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    folders = [tmp_path / "/".join(["d"] * depth) for depth in range(1, DEEPER_THAN_PYTHON_CALLS + 1)]
    for folder in folders:
        folder.mkdir()
    yield tmp_path
    for folder in reversed(folders):  # pytest's own removal recurses
        folder.rmdir()


def test_what_a_folder_holds_comes_before_it(tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b/1/file").touch()
    found = [str(path.relative_to(tmp_path)) for path, _ in tree_of(Storage(tmp_path), tmp_path)]
    assert found == ["a", "b/1/file", "b/1", "b/2", "b", "."]


def test_folders_may_be_nested_deeply(deep: Path) -> None:
    found = [path for path, _ in tree_of(Storage(deep), deep)]
    assert len(found) == DEEPER_THAN_PYTHON_CALLS + 1
    assert found[-1] == deep
    assert owners_in([deep]) == {os.getuid()}
