"""A new store has its name only when it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import BadRequest
from rmqctl.store.engine.new_store import named_when_complete, unfinished


def test_a_new_store_gets_its_name_at_the_end(tmp_path: Path) -> None:
    root = tmp_path / "above" / "new"
    with pytest.raises(FileNotFoundError), named_when_complete(root):
        (unfinished(root) / "no-folder" / "file").touch()
    assert not root.parent.exists()
    root.mkdir(parents=True)  # an empty folder may be there
    with named_when_complete(root):
        (unfinished(root) / "file").touch()
        assert not root.exists()
    assert [path.name for path in root.iterdir()] == ["file"]
    with pytest.raises(BadRequest, match="not empty"), named_when_complete(root):
        raise AssertionError
    unfinished(other := tmp_path / "other").mkdir()  # as after a kill
    with pytest.raises(BadRequest, match="interrupted"), named_when_complete(other):
        raise AssertionError
