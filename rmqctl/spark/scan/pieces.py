"""Pieces of a log that a job reads again, after it has read the whole log.

The first reading finds where the pieces begin and end, so that a task need not search for the first record.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.spark.scan.json_option import from_json
from rmqctl.spark.scan.split import Split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PLACES_PER_TASK = 10_000


class Pieces(NamedTuple):
    """Parts of a file, which one task reads."""

    split: Split  # has the same file, and contains all places
    # positions (start, stop) in the file: an item begins at `start`, and those that begin before `stop` are read
    places: tuple[tuple[int, int], ...]


def pieces_of(
    places: Mapping[tuple[str, int], Iterable[tuple[int, int]]], splits: Sequence[Split], task_size: int
) -> list[Pieces]:
    """Return pieces that have all `places`, each for one task.

    A task reads about `task_size` bytes. The keys of `places` are (root of the store, number of the file), the values
    pairs of physical offsets. Places that follow each other become one. `splits` are those that the first reading has
    read.
    """
    files = {(split.root, split.file): split for split in splits}
    found = []
    for key, of_file in places.items():
        file = files[key]
        joined: list[tuple[int, int]] = []
        base = file.file_from_offset
        for start, stop in sorted((start - base, stop - base) for start, stop in of_file):
            if joined and start <= joined[-1][1] and stop - joined[-1][0] <= task_size:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            else:
                joined.append((start, stop))
        found += [_piece(file, some) for some in _by_task(joined, task_size)]
    return found


def _by_task(places: Sequence[tuple[int, int]], task_size: int) -> list[list[tuple[int, int]]]:
    tasks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    size = 0
    for number, (start, stop) in enumerate(places):
        tasks[size // task_size + number // PLACES_PER_TASK].append((start, stop))
        size += stop - start
    return list(tasks.values())


def _piece(file: Split, places: Sequence[tuple[int, int]]) -> Pieces:
    return Pieces(file._replace(start=places[0][0], stop=places[-1][1]), tuple(places))


def pieces_to_json(pieces: Sequence[Pieces]) -> str:
    """Return pieces as JSON text for the option `pieces`."""
    return json.dumps(pieces)


def pieces_from_json(text: str) -> list[Pieces]:
    """Return the pieces from a text that `pieces_to_json` made.

    Raises BadRequest if the text is not a list of pieces.
    """

    def make(pieces: Any) -> list[Pieces]:
        return [Pieces(Split(*split), tuple(map(tuple, places))) for split, places in pieces]

    return from_json(text, "pieces", make, f"{__name__}.pieces_to_json makes one")
