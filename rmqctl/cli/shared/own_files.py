"""Files that a verb writes for the user, outside the store, such as metrics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click


def check_places(folders: Sequence[Path], files: dict[str, Path | None]) -> None:
    """Check that the files that rmqctl will write are not in the folders of a broker.

    The folder of each file must exist. A file that exists must be a regular file. `files` has the path of each file by
    the option that names the file. Raises click.BadParameter.
    """
    from rmqctl.logfile.access.owner import is_root

    for option, file in files.items():
        if file is None:
            continue
        place = Path(os.path.realpath(file))
        if any(place.is_relative_to(os.path.realpath(folder)) for folder in folders):
            raise click.BadParameter(
                f"{file} is inside the store, where a broker may mistake it for its own: choose another place",
                param_hint=option,
            )
        if not place.parent.is_dir():
            raise click.BadParameter(f"there is no folder {file.parent}", param_hint=option)
        if place.exists() and not place.is_file():
            raise click.BadParameter(f"{file} is not a regular file", param_hint=option)
        if is_root() and place.exists() and place.stat().st_nlink > 1:
            what = (
                f"{file} has several names (hard links): root does not write to what somebody else may have linked "
                "there"
            )
            raise click.BadParameter(what, param_hint=option)
