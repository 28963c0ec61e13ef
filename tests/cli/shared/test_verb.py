"""Shell completion of topics, groups and codes: what is proposed, that it is fast, and that errors are silent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from rmqctl.cli.main import rmqctl as program
from rmqctl.cli.shared.verb import TYPES, complete_names
from rmqctl.errors import ExitCode
from rmqctl.forensics.catalogue.catalogue import CATALOGUE, TERMS
from rmqctl.forensics.doctor.causes import CAUSES

HEAVY = ("numba", "numpy", "rich", "pyarrow", "rmqctl.store.read.read_only_store")


@pytest.fixture
def store(golden: Callable[[str], Path]) -> Path:
    return golden("broker-497")


def proposed(*words: object, group: click.Command = program) -> list[str]:
    *before, incomplete = map(str, words)
    shell = ShellComplete(group, {}, "rmqctl", "_RMQCTL_COMPLETE")
    return [item.value for item in shell.get_completions(before, incomplete)]


@pytest.mark.parametrize(
    "line",
    [("dump", "--topic"), ("query", "--topic"), ("rebuild", "queues", "--topic"), ("queue",)],
    ids=itemgetter(0),
)
def test_topics_of_the_store(line: tuple[str, ...], store: Path) -> None:
    verb, *rest = line
    assert proposed(verb, store, *rest, "") == sorted(path.name for path in (store / "consumequeue").iterdir())
    assert proposed(verb, store, *rest, "pay") == ["payments"]


def test_topics_of_the_configuration_where_there_are_no_queues(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"orders":{"topicName":"orders"}}}')
    assert proposed("dump", tmp_path, "--topic", "o") == ["orders"]


def test_groups_of_the_store(store: Path) -> None:
    @click.command()
    @click.argument("store", type=click.Path(path_type=Path))
    @click.option("--group")
    def command() -> None:
        """A verb with --group."""

    complete_names(command.params)
    groups = proposed(store, "--group", "", group=command)
    assert {"billing", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER"} <= set(groups)
    assert proposed(store, "--group", "bil", group=command) == ["billing"]


def test_codes() -> None:
    codes = dict.fromkeys((*CATALOGUE, *TERMS, *CAUSES, *(str(int(code)) for code in ExitCode)))
    assert proposed("explain", "") == list(codes)
    assert proposed("explain", "index-h") == ["index-header"]


def test_names_that_a_terminal_cannot_show_or_that_look_like_an_option_are_left_out(tmp_path: Path) -> None:
    for name in (b"plain", b"a;b", b"--yes", b"-x", b"line\nbreak", b"\x1b]0;title\x07", b"\xff", "\u202e".encode()):
        (tmp_path / "consumequeue" / os.fsdecode(name)).mkdir(parents=True)
    assert proposed("queue", tmp_path, "") == ["a;b", "plain"]
    assert proposed("dump", tmp_path, "--topic", "") == ["--yes", "-x", "a;b", "plain"]  # the value of an option


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"topicConfigTable": 3}'])
def test_an_error_is_silent(content: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(content)
    (tmp_path / "consumequeue").write_text("no folder")
    assert proposed("dump", tmp_path, "--topic", "") == []
    assert proposed("dump", tmp_path / "missing", "--topic", "") == []
    assert proposed("dump", "--topic", "") == []
    assert capfd.readouterr() == ("", "")


def test_it_loads_nothing_heavy(store: Path) -> None:
    """A shell waits for it."""
    script = (
        "import sys; from rmqctl.cli.main import run; code = run([])\n"
        f"sys.exit(code or [name for name in {HEAVY} if name in sys.modules] or 0)"
    )
    line = {"COMP_WORDS": f"rmqctl dump {store} --topic ev", "COMP_CWORD": "4"}
    environment = os.environ | line | {"_RMQCTL_COMPLETE": "bash_complete"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("plain,events\n", "", 0)


def test_every_name_has_a_type() -> None:
    assert {"topic", "group", "code"} <= set(TYPES)
