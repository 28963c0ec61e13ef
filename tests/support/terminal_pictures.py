"""Pictures of a terminal that a test compares: what commands show on 80, 100 and 160 columns.

Each is a text with the codes of its colours, so that `cat` shows it. Draw them again with
`python -m tests.support.terminal_pictures`, after a change of the output.
"""

from __future__ import annotations

import tempfile
from contextlib import chdir
from pathlib import Path

from examples.pictures import fixed_surroundings, recorded, screen_of, unpack_damaged_store

FOLDER = Path(__file__).parents[1] / "data" / "pictures"
WIDTHS = (80, 100, 160)
COMMANDS = {
    "verify": ("verify", "store"),
    "info": ("info", "store"),
    "queue": ("queue", "store", "orders"),
    "query": ("query", "store", "--topic", "orders", "--key", "o1478"),
    "dump-around": ("dump", "store", "--around", "763950"),
    "recover": ("recover", "store", "--dry-run"),
    "lag": ("lag", "store"),
    "config": ("config", "show", "store"),
    "explain": ("explain", "hole"),
    "trace": ("trace", "store", "--key", "o1478"),
    "doctor": ("doctor", "store"),
}


def draw(command: tuple[str, ...], columns: int) -> str:
    """Return the picture of a command on a terminal of `columns` columns; `store` is in the current folder."""
    with fixed_surroundings(columns):
        return recorded(screen_of(command), columns).export_text(styles=True)


def main() -> None:
    """Draw all pictures."""
    with tempfile.TemporaryDirectory() as work, chdir(work):
        unpack_damaged_store()
        for name, command in COMMANDS.items():
            draw(command, WIDTHS[0])  # the first run of a verb may compile, and reports it
            for columns in WIDTHS:
                (FOLDER / f"{name}.{columns}.txt").write_text(draw(command, columns), encoding="utf-8")


if __name__ == "__main__":
    main()
