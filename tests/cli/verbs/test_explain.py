"""`rmqctl explain` names the next command for every code."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rmqctl.cli.shared.next_commands import (
    CAUSES_OF_COMMANDS,
    CODES_OF_COMMANDS,
    COMMANDS_OF_CAUSES,
    EXIT_CODE_ADVICE,
    LOOK_FURTHER,
    NEXT_COMMANDS,
)
from rmqctl.errors import ExitCode
from rmqctl.forensics.catalogue.catalogue import CATALOGUE, TERMS
from rmqctl.forensics.doctor.causes import CAUSES
from tests.conftest import Rmqctl, unpack

COMMANDS = sorted(
    {
        *NEXT_COMMANDS.values(),
        *CAUSES_OF_COMMANDS,
        LOOK_FURTHER,
        *(advice.command for advice in EXIT_CODE_ADVICE.values()),
    }
)


def test_every_finding_and_term_has_one_next_command() -> None:
    assert set(NEXT_COMMANDS) == {*CATALOGUE, *TERMS}
    codes = [code for codes in CODES_OF_COMMANDS.values() for code in codes]
    assert len(codes) == len(set(codes))


def test_every_exit_code_has_a_next_command() -> None:
    assert set(EXIT_CODE_ADVICE) == set(ExitCode)


@pytest.mark.parametrize("code", [*CATALOGUE, *TERMS, *map(int, ExitCode)])
def test_explain_names_it(code: str | int, rmqctl: Rmqctl) -> None:
    command = NEXT_COMMANDS[code] if isinstance(code, str) else EXIT_CODE_ADVICE[ExitCode(code)].command
    assert rmqctl("explain", code).out.splitlines()[-1].split(maxsplit=1) == ["next", command]


@pytest.mark.parametrize("cause", CAUSES)
def test_the_next_of_a_cause_is_no_circle(cause: str, rmqctl: Rmqctl) -> None:
    last = rmqctl("explain", cause).out.splitlines()[-1].split(maxsplit=1)
    assert last == ["next", COMMANDS_OF_CAUSES.get(cause, LOOK_FURTHER)]


def test_each_cause_has_at_most_one_next_command() -> None:
    codes = [code for codes in CAUSES_OF_COMMANDS.values() for code in codes]
    assert len(codes) == len(set(codes))
    assert set(codes) <= set(CAUSES)


def test_a_code_in_another_case_or_misspelt(rmqctl: Rmqctl) -> None:
    assert rmqctl("explain", "BAD-BODY-CRC").out == rmqctl("explain", "bad-body-crc").out
    result = rmqctl("explain", "bad-body-crk")
    assert result.code == ExitCode.USAGE
    assert "the nearest is 'bad-body-crc'" in result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_next_command_works(command: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    conf, store = tmp_path / "broker.conf", unpack("497-basic", tmp_path)
    conf.touch()
    (store / "config/topics.json.bak").write_text('{"topicConfigTable":{}}')
    file = "topics.json" if " config restore " in command else str(conf)
    words = {"STORE": str(store), "OFFSET": "0", "FILE": file, "VERB": "recover", "VERSION": "5.5.0"}
    words["NEW"] = str(tmp_path / "new")
    program, *line = [words.get(word, word) for word in shlex.split(command.partition(" > ")[0])]
    assert program == "rmqctl"
    result = rmqctl(*line)
    assert result.code in {ExitCode.CLEAN, ExitCode.FINDINGS, ExitCode.NOT_CONFIRMED}, result.err


def test_a_code_is_found_in_any_case_and_a_near_one_is_named(rmqctl: Rmqctl) -> None:
    assert "bad-body-crc" in rmqctl("explain", "BAD-BODY-CRC").out
    near = rmqctl("explain", "bad-bdy-crc")
    assert (near.code, "the nearest is 'bad-body-crc'" in near.err) == (2, True)
