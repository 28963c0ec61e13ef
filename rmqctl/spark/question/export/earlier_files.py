"""Check that an export replaces only files that an export has written."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rmqctl.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

MANIFEST, SUCCESS = "_MANIFEST", "_SUCCESS"
MARKER = "rmqctl-export"  # a file that shows that the folder in which tasks write is rmqctl's
# also what earlier versions exported by Spark, and its checksums
_PART = re.compile(r"(topic=[^/]+/day=[^/]+/)?\.?part-[^/]+(?P<suffix>\.[a-z]+)(\.crc)?")
_OTHERS = frozenset((MANIFEST, SUCCESS, f".{SUCCESS}.crc"))


class Mode(StrEnum):
    """The modes of an export to a folder that already has files."""

    ERROR = "error"
    OVERWRITE = "overwrite"
    APPEND = "append"


class Leftovers(NamedTuple):
    """The hidden folders of earlier exports, as users write them."""

    removed: list[str]  # of killed exports
    unknown: list[str]  # that were not removed, because another program may have made them


def check_replaceable(place: str, names: Iterable[str], mode: Mode, suffix: str) -> None:
    """Raise BadRequest if an export must not replace or add files in `place`.

    `names` are the files, relative to `place`. Only files of exports are replaced, and files are added only to an
    export of files with `suffix`.
    """
    listed = sorted(names)
    if listed and mode is Mode.ERROR:
        raise BadRequest(
            "already exists and is not an empty folder",
            path=place,
            hint="give --to a new folder, or --mode overwrite or append",
        )
    for name in listed:
        found = _PART.fullmatch(name)
        if found is None and name not in _OTHERS:
            _refuse(place, name, "which no export has written")
        if found is not None and mode is not Mode.OVERWRITE and found["suffix"] != suffix and not name.endswith(".crc"):
            _refuse(place, name, f"and the new files end with {suffix}")


def _refuse(place: str, name: str, why: str) -> NoReturn:
    raise BadRequest(f"has the file {name!r}, {why}", path=place, hint="give --to another folder")
