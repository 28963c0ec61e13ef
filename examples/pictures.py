"""Draw README's pictures: what a terminal shows of two commands on a store with one flipped bit.

Usage: `python examples/pictures.py [FOLDER]`. The default FOLDER is that of this script. Run the script again after a
change of the output.

The store is `broker-497.tar.xz`, from a real broker. The commands really run, in this process, and their output is not
edited. Only clock and disk are not real, so that each run draws the same picture: the clock stands still, and the disk
is half full.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.text import Text

from rmqctl.cli.main import run
from rmqctl.logfile.system.storage import DiskSpace, Storage

HERE = Path(__file__).resolve().parent
PICTURES = {"doctor": ("doctor", "store"), "trace": ("trace", "store", "--key", "o1477")}
COLUMNS = 110
HALF_FULL = DiskSpace(total=2_000_000_000, free=1_000_000_000, usable=1_000_000_000, device=1)
FILE = "store/commitlog/00000000000000524288"
INTACT, FLIPPED = b'"order":1477,"amount":649', b'"order":1477,"amount":249'  # one bit: 6 is 0x36, 2 is 0x32


class Terminal(io.StringIO):
    """What takes the output of a command; says that it is a terminal."""

    def isatty(self) -> bool:
        """Return True: tables are drawn as on a terminal."""
        return True


class Remarks(io.TextIOBase):
    """The stderr beside a terminal: the same screen, but without progress bars, which leave no trace there."""

    def __init__(self, screen: Terminal) -> None:
        self._screen = screen

    def write(self, text: str) -> int:
        """Write to the screen, in the order of the output."""
        return self._screen.write(text)


def main(folder: Path) -> None:
    """Write each picture into `folder` as NAME.svg."""
    with tempfile.TemporaryDirectory() as work, chdir(work), fixed_surroundings(COLUMNS):
        unpack_damaged_store()
        for name, command in PICTURES.items():
            screen_of(command)  # the first run of a verb may compile, and reports it
            (folder / f"{name}.svg").write_text(_picture(name, command), encoding="utf-8")


@contextmanager
def fixed_surroundings(columns: int) -> Iterator[None]:
    """Give the commands a terminal of `columns` columns, a clock that stands still, and a disk that is half full."""
    terminal = patch.dict(os.environ, {"TERM": "xterm", "COLUMNS": str(columns)})
    disk = patch.object(Storage, "disk_space", return_value=HALF_FULL)
    with terminal, disk, patch("time.perf_counter", return_value=0.0):
        for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
            os.environ.pop(name, None)
        yield


def unpack_damaged_store() -> None:
    """Unpack the store into the current folder; flip one bit of the amount of the order 1477."""
    with tarfile.open(HERE / "broker-497.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11 has it since 3.11.4
        archive.extractall()  # noqa: S202 -- ours
    file = Path(FILE)
    file.write_bytes(file.read_bytes().replace(INTACT, FLIPPED))


def screen_of(command: tuple[str, ...]) -> str:
    """Return what the command shows on a terminal, and its exit status as a shell shows it."""
    screen = Terminal()
    with redirect_stdout(screen), redirect_stderr(Remarks(screen)):
        status = run(list(command))
    return f"\x1b[1m$ rmqctl {' '.join(command)}\x1b[0m\n{screen.getvalue()}\x1b[1m$ echo $?\x1b[0m\n{status}"


def _picture(name: str, command: tuple[str, ...]) -> str:
    """Return an SVG of the screen that loads no font from elsewhere."""
    svg = recorded(screen_of(command), COLUMNS).export_svg(title=f"rmqctl {' '.join(command)}", unique_id=name)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def recorded(screen: str, columns: int) -> Console:
    """Return rich's recording console with a screen of `columns` columns."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(screen))
    return console


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
