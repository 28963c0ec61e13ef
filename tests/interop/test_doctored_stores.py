"""Stores after the command that doctor names next, under the real stores: they load, and serve no less than a restart
would have left.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.conftest import apply_damage, unpack
from tests.interop.compared_answers import BASES, CASES, REPAIRED, assert_no_worse, conf_of, real_answers, rmqctl
from tests.support.golden_store import profile_of

pytestmark = pytest.mark.interop


def next_command(root: Path, name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words of the command that doctor names for the first cause, as someone who agrees to its plan."""
    conf = conf_of(name, root.parent)
    capsys.readouterr()
    assert rmqctl("doctor", root, "--broker-conf", conf, "--profile", profile_of(name), "-o", "json") == 1
    command = json.loads(capsys.readouterr().out)["causes"][0]["next"].replace("--dry-run", "--yes")
    program, *words = shlex.split(command)
    assert program == "rmqctl"
    return words


@pytest.mark.parametrize("base", BASES)
def test_the_next_command_leads_to_a_store_that_the_broker_serves(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [name for name in CASES if CASES[name]["base"] == base]
    doctored = {}
    for name in names:
        root = unpack(base, tmp_path / name)
        apply_damage(root, CASES[name]["ops"])
        assert rmqctl(*next_command(root, base, capsys)) in (0, REPAIRED)
        doctored[name] = root
    capsys.readouterr()
    for name, answer in zip(doctored, real_answers(doctored.values(), base), strict=True):
        assert answer.get("load") is True, name
        load, restart = CASES[name]["expected"]["load"], CASES[name]["expected"]["restart"]
        for row in answer["queues"]:
            assert len(row["entries"]) == row["maxOffset"] - row["minOffset"]
        if load.get("load") and "error" not in restart:
            assert_no_worse(answer, restart, with_times=False)
