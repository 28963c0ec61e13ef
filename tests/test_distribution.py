"""What is published: the sdist, the wheel built from it, the page on PyPI, the examples for containers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from readme_renderer import markdown

from rmqctl import __version__
from rmqctl.cli import main
from rmqctl.spark.source.data_source import formats
from tests.conftest import Rmqctl, unpack

ROOT = Path(__file__).parents[1]
SOURCE = "https://example.org/rmqctl"
RUN_SECONDS = 300
API_PROGRAM = """
import sys, rmqctl.api
with rmqctl.api.open(sys.argv[1]) as store:
    print(rmqctl.__file__, sum(1 for _ in store.messages()))
"""
SPARK_PROGRAM = """  # as Spark finds formats, and as a task reads; tests/spark has the JVM in between
import sys
from importlib import import_module
from pkgutil import iter_modules
from pyspark.sql.types import StringType, StructType
formats = {m.name: import_module(m.name).DefaultSource for m in iter_modules() if m.name.startswith("pyspark_")}
reader = formats["pyspark_rocketmq"]({"path": sys.argv[1]}).reader(StructType().add("kind", StringType()))
kinds = [kind for part in reader.partitions() for batch in reader.read(part) for kind in batch["kind"].to_pylist()]
print(sorted(source.name() for source in formats.values()), kinds.count("message"))
"""


@pytest.mark.parametrize("urls", [{}, {"Source": SOURCE}])
def test_the_page_on_pypi_has_no_link_that_leads_nowhere(urls: dict[str, str]) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    settings["project"]["urls"] = urls
    html = markdown.render(ProjectMetadata(str(ROOT), PluginManager(), settings).core.readme)
    assert html is not None
    links = set(re.findall(r'(?:href|src)="([^"]*)"', html))
    own = {link for link in links if link.startswith(SOURCE)}
    within = {link for link in links if link.startswith("#")}
    assert "#user-content-install" in within
    assert within <= {f"#{name}" for name in re.findall(r'id="([^"]*)"', html)}
    assert {urlsplit(link).scheme for link in links - within} == {"https"}
    assert html.count("<img") == (3 if urls else 0)
    places = set(re.findall(r"\]\(((?!https:|#)[^)]*)\)", (ROOT / "README.md").read_text()))
    assert len(own) == len(places) * len(urls)
    assert places >= {f"man/{page.parent.name}/{page.name}" for page in (ROOT / "man").rglob("*.[17]")}
    for link in own:
        kind, tag, path = link.removeprefix(f"{SOURCE}/").split("/", 2)
        assert (kind, tag) == ("raw" if path.endswith(("svg", "png")) else "blob", f"v{__version__}")
        assert (ROOT / path).exists()


def test_readme_names_no_verb_or_option_that_is_not_there() -> None:
    lines = re.findall(r"(?:`|^)rmqctl ((?:[a-z-]+ )+[^`\n|#]*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) >= 60
    for line in lines[1:]:  # the first is the sentence that says what rmqctl is
        command: click.Command = main.rmqctl
        words = line.split()
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        known = {"--help", *(name for parameter in command.params for name in parameter.opts)}
        assert {word for word in words if re.match("--?[a-z]", word)} <= known, line


def run(*command: object) -> str:
    """stdout of a program that starts in the folder above all, with nothing of this clone on its path."""
    cleared = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RMQCTL_"))}
    found = subprocess.run(
        [str(word) for word in command],
        cwd="/",
        env=cleared,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.slow
def test_the_wheel_of_the_sdist_works_in_a_new_environment(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    # the sdist, and the wheel from the sdist
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    package = {path for path in (ROOT / "rmqctl").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    places = {str(path.relative_to(ROOT)) for path in package}
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert places <= names
    assert not any(name.startswith(("tests/", ".ci/")) for name in names)
    assert sdist.stat().st_size < 2**21
    with zipfile.ZipFile(wheel) as archive:
        installed = {name for name in archive.namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert installed == {place.removeprefix("rmqctl/spark/source/formats/") for place in places}

    venv = tmp_path / "venv"
    python = venv / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", wheel)  # and its dependencies
    assert run(venv / "bin" / "rmqctl", "--version") == f"rmqctl, version {__version__}\n"
    pages = {path.name for path in (venv / "share" / "man").rglob("*.[17]")}
    assert pages == {path.name for path in (ROOT / "man").rglob("*.[17]")}
    store = unpack("broker-497", tmp_path)
    verified = json.loads(run(venv / "bin" / "rmqctl", "verify", store, "-o", "json"))
    assert verified["findings"] == []
    place, count = run(python, "-c", API_PROGRAM, store).split()
    assert Path(place).is_relative_to(venv)
    assert int(count) == verified["messages"]

    # PySpark, which is large, is the one here; what it finds beside it is this wheel
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "spark.pth").write_text(str(Path(spark.origin).parents[1]))
    shown = run(python, "-c", SPARK_PROGRAM, store)
    assert shown == f"{sorted(formats())} {verified['messages']}\n"


def test_the_examples_for_containers_work(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """What the image runs when it is built, and when the job starts it on a volume; what it copies is in a clone."""
    dockerfile = (ROOT / "examples" / "Dockerfile").read_text()
    job = (ROOT / "examples" / "kubernetes-doctor.yaml").read_text()
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)", dockerfile, re.MULTILINE)]
    assert all((ROOT / name).exists() for names in copied for name in names)
    (extras,) = re.findall(r"install .*'\.\[(.*)\]'", dockerfile)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    (user,) = re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)
    assert f"runAsUser: {user}\n" in job
    (started,) = re.findall(r"^RUN rmqctl (.*)", dockerfile, re.MULTILINE)
    assert rmqctl(*started.split(), "--help").code == 0  # tests/cli/verbs/test_warm_up.py compiles
    (arguments,) = re.findall(r"args: (\[.*\])", job)
    result = rmqctl(*(word.replace("/store", str(unpack("broker-497", tmp_path))) for word in json.loads(arguments)))
    assert (result.code, result.err) == (0, "")
