"""Defaults from the environment: of four options, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from rmqctl.cli.main import rmqctl as group
from tests.conftest import Rmqctl

Golden = Callable[[str], Path]
OPTIONS = {
    "--output": "RMQCTL_OUTPUT",
    "--threads": "RMQCTL_THREADS",
    "--progress": "RMQCTL_PROGRESS",
    "--broker-conf": "RMQCTL_BROKER_CONF",
}


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below)


def test_nothing_else_is_read_from_the_environment() -> None:
    """Above all no STORE, no --yes, and nothing that says what is done to a store."""
    found = list(commands(group))
    assert len(found) > len(OPTIONS)
    assert all("auto_envvar_prefix" not in command.context_settings for command in found)
    for command in found:
        read = {name: option.envvar for option in command.params for name in option.opts if name.startswith("--")}
        assert {name: variable for name, variable in read.items() if variable} == {
            name: variable for name, variable in OPTIONS.items() if name in read
        }
        assert all(parameter.envvar is None for parameter in command.params if isinstance(parameter, click.Argument))


def test_the_command_line_has_the_last_word(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("497-basic")
    shown = rmqctl("verify", store).out
    monkeypatch.setenv("RMQCTL_OUTPUT", "json")
    assert rmqctl("verify", store).document()["findings"] == []
    assert rmqctl("verify", store, "-o", "table").out == shown
    monkeypatch.setenv("RMQCTL_OUTPUT", "csv")
    assert rmqctl("info", store).out.startswith("store"), "info has no csv"
    monkeypatch.setenv("RMQCTL_OUTPUT", "")
    assert rmqctl("verify", store).out == shown


@pytest.mark.parametrize(("variable", "value"), [("RMQCTL_OUTPUT", "xml"), ("RMQCTL_THREADS", "many")])
def test_a_wrong_value_is_reported_with_its_variable(
    variable: str, value: str, golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    result = rmqctl("verify", golden("497-basic"))
    assert (result.code, result.out) == (2, "")
    assert f"Error: Invalid value for {variable}: {value!r} is not" in result.err
