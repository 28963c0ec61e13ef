"""Runs command lines in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from rmqctl.cli.main import run
from tests.conftest import signals_given_back


@dataclass(frozen=True)
class Result:
    """What a command line left."""

    code: int
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        """stdout as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def document(self) -> dict[str, Any]:
        """stdout as one JSON document."""
        found: dict[str, Any] = json.loads(self.out)
        return found


Rmqctl = Callable[..., Result]


@pytest.fixture
def rmqctl(capsys: pytest.CaptureFixture[str]) -> Rmqctl:
    """Runs `rmqctl` with arguments; what it left."""

    def call(*arguments: object) -> Result:
        with signals_given_back():
            code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    return call
