"""The man pages in man/ are what the commands say, and man can show them."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

from rmqctl.cli.manual import pages

MAN = Path(__file__).parents[2] / "man"


def test_verbs_that_change_a_store_say_which_user_to_run_as() -> None:
    made = {name: source for name, source in pages().items() if name.endswith(".1")}
    changing = {name for name, source in made.items() if "\\-\\-as\\-root" in source}
    verbs = (
        "append",
        "checkpoint",
        "clean",
        "config-restore",
        "config-set-offset",
        "erase",
        "heal",
        "job-rebuild",
        "rebuild",
        "recover",
        "replicate",
        "truncate",
        "undo",
    )
    assert changing == {f"rmqctl-{verb}.1" for verb in verbs}
    assert {name for name, source in made.items() if ".SH WHICH USER TO RUN AS" in source} == changing


def test_the_pages_in_man_are_up_to_date() -> None:
    stored = {path.name: path.read_text() for path in MAN.glob("man?/rmqctl*")}
    made = pages()
    assert sorted(stored) == sorted(made)
    for name, source in made.items():
        difference = "\n".join(
            unified_diff(stored[name].splitlines(), source.splitlines(), name, "now", lineterm="", n=0)
        )
        assert not difference, "run: python -m rmqctl.cli.manual man"


def test_every_page_has_its_parts() -> None:
    for name, source in pages().items():
        if name.endswith(".7"):
            assert ".SH NAME\n" in source
            assert ".SH DESCRIPTION\n" in source
            assert ".SH SEE ALSO\n" in source
            continue
        for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS"):
            assert f"\n.SH {part}\n" in source, name


def test_no_line_is_taken_for_a_command() -> None:
    known = (".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi", ".IP")
    for source in pages().values():
        assert not [line for line in source.splitlines() if line.startswith((".", "'")) and not line.startswith(known)]
