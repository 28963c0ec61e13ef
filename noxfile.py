"""The project's checks by name: `nox -s lint types test`. They run in the environment that nox is installed in."""

import os
import sys
from pathlib import Path

import nox

if "VIRTUAL_ENV" not in os.environ:  # no environment is activated: the tools are in that of nox
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "test"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, import contracts and dead code."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("vulture")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy --strict."""
    session.run("mypy")


@nox.session
def test(session: nox.Session) -> None:
    """Run the fast tests."""
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the exhaustive tests."""
    session.run("python", "-m", "pytest", "-m", "slow", *session.posargs)


@nox.session
def spark(session: nox.Session) -> None:
    """Run the tests of the Spark jobs."""
    session.run("python", "-m", "pytest", "-m", "spark", "-n", "1", *session.posargs)


@nox.session
def interop(session: nox.Session) -> None:
    """Run the tests against the real RocketMQ; needs a JDK and Maven."""
    session.run("python", "-m", "pytest", "-m", "interop", "-n", "4", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed and memory; the argument is a folder to work in: `nox -s bench -- WORK`."""
    session.run("python", "-m", "tests.bench", *session.posargs)
