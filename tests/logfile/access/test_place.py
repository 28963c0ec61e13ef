"""Where a path lies, seen by its parts: the same as pathlib says."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from rmqctl.logfile.access.place import mode_of_new_file, names_below

PATHS = [
    Path(text)
    for text in ("/", "/s", "/s/a", "/s/a/b", "/st", "/s/../s/a", ".", "", "..", "a", "a/b", "s", "/:s3:/bucket/store")
]


@pytest.mark.parametrize(("path", "folder"), list(product(PATHS, PATHS)))
def test_names_below_a_folder(path: Path, folder: Path) -> None:
    expected = path.relative_to(folder).parts if path.is_relative_to(folder) else None
    assert names_below(path, folder) == expected


@pytest.mark.parametrize(
    ("modes", "mode"),
    [((), 0o640), ((0o640, 0o604), 0o600), ((0o660, 0o640), 0o640), ((0o400,), 0o400), ((0o777, 0o777), 0o644)],
)
def test_a_new_file_may_be_read_by_no_more_than_those_beside_it(
    modes: tuple[int, ...], mode: int, tmp_path: Path
) -> None:
    for number, of_file in enumerate(modes):
        (tmp_path / str(number)).touch()
        (tmp_path / str(number)).chmod(of_file)
    tmp_path.chmod(0o740)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert mode_of_new_file(folder) == mode
    finally:
        os.close(folder)
        tmp_path.chmod(0o700)
