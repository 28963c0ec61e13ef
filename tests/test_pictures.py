import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
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


@pytest.mark.parametrize("name", ["verify.svg", "recover.svg"])
def test_a_picture_in_readme_shows_what_the_command_prints_today(drawn: Path, name: str) -> None:
    assert shown(EXAMPLES / name) == shown(drawn / name), "run `python examples/pictures.py`"


@pytest.mark.parametrize("name", ["verify.svg", "recover.svg"])
def test_a_picture_loads_nothing_from_elsewhere(name: str) -> None:
    assert "url(http" not in (EXAMPLES / name).read_text(encoding="utf-8")
