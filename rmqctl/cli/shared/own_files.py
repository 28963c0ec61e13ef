"""A verb's output files outside the store, such as metrics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click


def check_places(folders: Sequence[Path], files: dict[str, Path | None]) -> None:
    """Check that no path in `files` is inside the folders of a broker.

    The folder of each file must exist. An existing file must be a regular file. `files` maps the name of an option to
    the path of a file. Raises click.BadParameter.
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
