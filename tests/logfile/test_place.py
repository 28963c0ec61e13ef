"""Where a path lies, seen by its parts: the same as pathlib says."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from rmqctl.logfile.place import names_below

PATHS = [Path(text) for text in ("/", "/s", "/s/a", "/s/a/b", "/st", "/s/../s/a", ".", "", "..", "a", "a/b", "s", "/:s3:/bucket/store")]


@pytest.mark.parametrize(("path", "folder"), list(product(PATHS, PATHS)))
def test_names_below_a_folder(path: Path, folder: Path) -> None:
    expected = path.relative_to(folder).parts if path.is_relative_to(folder) else None
    assert names_below(path, folder) == expected
