import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from examples.pictures import fixed_surroundings, screen_of, unpack_damaged_store
from tests.support.terminal_pictures import COMMANDS, FOLDER, WIDTHS, draw

EXAMPLES = Path(__file__).parents[1] / "examples"
COLOUR = re.compile(r"\x1b\[3\d")
CODE = re.compile(r"\x1b\[[\d;]*m")
TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    subprocess.run([sys.executable, EXAMPLES / "pictures.py", folder], check=True)
    return folder


def shown(picture: Path) -> list[str]:
    """The texts of a picture; its drawing differs between versions of rich."""
    texts = ("".join(element.itertext()).strip() for element in ET.parse(picture).iter(TEXT))
    return [text for text in texts if text]


@pytest.mark.parametrize("name", ["doctor.svg", "trace.svg"])
def test_a_picture_in_readme_shows_what_the_command_prints_today(drawn: Path, name: str) -> None:
    assert shown(EXAMPLES / name) == shown(drawn / name), "run `python examples/pictures.py`"


@pytest.mark.parametrize("name", ["doctor.svg", "trace.svg"])
def test_a_picture_loads_nothing_from_elsewhere(name: str) -> None:
    assert "url(http" not in (EXAMPLES / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def damaged_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A damaged store named `store`, in the current folder."""
    with chdir(tmp_path_factory.mktemp("screens")):
        unpack_damaged_store()
        screen_of(("verify", "store"))  # the first run may compile, and reports it
        yield


@pytest.mark.usefixtures("damaged_store")
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_shows_the_picture(name: str, columns: int) -> None:
    kept = (FOLDER / f"{name}.{columns}.txt").read_text(encoding="utf-8")
    assert draw(COMMANDS[name], columns) == kept, "run `python -m tests.support.terminal_pictures`"


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_offset_is_folded(columns: int) -> None:
    text = (FOLDER / f"dump-around.{columns}.txt").read_text(encoding="utf-8")
    assert [offset for offset in ("763035", "763281", "763929", "764175", "764436") if f" {offset}" not in text] == []


@pytest.mark.usefixtures("damaged_store")
@pytest.mark.parametrize("name", ["verify", "dump-around"])
def test_a_colour_never_stands_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without colours, by NO_COLOR, the words are the same; on a dumb terminal there is no code at all."""
    with fixed_surroundings(160):
        coloured = screen_of(COMMANDS[name])
        monkeypatch.setenv("NO_COLOR", "1")
        plain = screen_of(COMMANDS[name])
        monkeypatch.setenv("TERM", "dumb")
        dumb = screen_of(COMMANDS[name]).splitlines()[1:-2]  # without the prompts, which are bold
    assert COLOUR.search(coloured)
    assert not COLOUR.search(plain)
    assert CODE.sub("", plain) == CODE.sub("", coloured)
    assert "\x1b" not in "".join(dumb)
