"""`rmqctl attest`."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import click

from rmqctl.cli.output.render import print_document, print_fields, print_line_of_text, progress
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import LocalPath, output_option, scan_options
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.cli.shared.verb import EVERY_VERB, Verb
from rmqctl.errors import ChangedSince, ExitCode
from rmqctl.text import counted

DIFFERENCES = ("changed", "moved", "missing", "new")


def _head(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text.strip().lower()):
        raise ValueError("not the 64 hex digits that `acquire` printed")
    return text.strip().lower()


@click.command(
    cls=Verb,
    exit_codes=(*EVERY_VERB, ExitCode.FINDINGS, ExitCode.PARTIAL),
    examples="""
        # is it still what was acquired?
        rmqctl attest /evidence/broker-a
        # also by the head that `acquire` printed
        rmqctl attest /evidence/broker-a --head 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        # which ranges of which files have changed
        rmqctl attest /evidence/broker-a -o json | jq -c '.changed[] | [.path, .ranges]'
    """,
)
@click.argument("dest", type=LocalPath())
@click.option(
    "--head", type=Parsed("SHA256", _head), help="The head that `acquire` printed: then new lists are noticed, too."
)
@output_option("table", "json")
@scan_options
def command(dest: Path, head: str | None, output: str, threads: int) -> int:
    """Check a copy that `acquire` made, and say what is not as it was.

    All files of DEST are read, and compared with its lists. In the words of hashdeep, a file is `matched`, `changed`
    (with the ranges of 1 MiB that differ), `moved` (its content is now under another name), `missing` or `new`.
    `attest` exits with 1 if any file is not matched.

    The lists vouch for the files, and tagmanifest-sha256.txt for the lists. Whoever can write to DEST can write all of
    them anew. Then only the head differs, which `acquire` printed, or a signature.
    """
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.operations.acquire.attest import Attestation

    began, attestation = time.monotonic(), Attestation(Storage(dest.resolve()), threads)
    with progress(kept("progress_mode"), attestation.size, "attest") as attestation.advance:
        found = attestation.run()
    found |= {"store": str(dest), "seconds": round(time.monotonic() - began, 3)}
    is_other = head is not None and found["head"] != head
    if output == "json":
        print_document("attest", found)
    else:
        _print_text(found, is_other=is_other)
    if is_other:
        raise ChangedSince("the head is another one: the lists were written anew", path=str(dest))
    return int(ExitCode.FINDINGS if any(found[word] for word in DIFFERENCES) else ExitCode.CLEAN)


def _print_text(found: dict[str, Any], *, is_other: bool) -> None:
    said = ", ".join(f"{len(found[word])} {word}" for word in DIFFERENCES if found[word])
    matched = f"{counted(found['matched'], 'file')} matched"
    said = ", ".join(filter(None, ("the lists were written anew" if is_other else "", said)))
    print_line_of_text(f"not as acquired: {said}; {matched}" if said else f"as acquired: {matched}")
    for row in found["changed"]:
        for part in row["ranges"]:
            print_line_of_text(f"changed: {row['path']}, bytes {part['begin']} to {part['end']}")
    for row in found["moved"]:
        print_line_of_text(f"moved: {row['from']} is now {row['path']}")
    for word in ("missing", "new"):
        for path in found[word]:
            print_line_of_text(f"{word}: {path}")
    print_fields([("head", found["head"])])
