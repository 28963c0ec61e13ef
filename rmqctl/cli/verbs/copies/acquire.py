"""`rmqctl acquire`."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess  # noqa: TID251 -- the signer that the user names: see tests/test_safe_path.py
import sys
import time
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rmqctl
from rmqctl.cli.output.render import print_document, print_fields, print_line_of_text, progress, remark
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import LocalPath, conf_of, output_option, progress_option, store_argument
from rmqctl.cli.shared.sizes import rate_option
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.errors import ChangeFailed, ExitCode
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from rmqctl.store.config.store_path import StorePath


@click.command(
    cls=Verb,
    exit_codes=STORE_VERB,
    examples="""
        # before anybody repairs anything
        rmqctl acquire /data/rocketmq/store /evidence/broker-a
        # beside a running broker, at 100 MB a second
        rmqctl acquire store /evidence/broker-a --max-bytes-per-second 100MB
        # go on after a kill or a full disk
        rmqctl acquire store /evidence/broker-a --resume
        # with a signature
        rmqctl acquire store evidence --sign 'openssl dgst -sha256 -sign key.pem'
        # check the copy without rmqctl
        cd /evidence/broker-a && sha256sum -c manifest-sha256.txt tagmanifest-sha256.txt
    """,
)
@store_argument
@click.argument("dest", type=LocalPath())
@click.option("--resume", is_flag=True, help="Go on with a copy that was interrupted.")
@rate_option
@click.option(
    "--sign",
    metavar="CMD",
    help="A command that reads the bytes to sign from stdin (the PAE of DSSE), and prints the signature. It is run "
    "without a shell.",
)
@output_option("table", "json")
@progress_option
def command(store: Path, dest: Path, resume: bool, max_bytes_per_second: int, sign: str | None, output: str) -> int:
    """Copy a store as evidence, byte for byte.

    DEST becomes a BagIt folder (RFC 8493): the files of STORE in data/, and their SHA-256 in manifest-sha256.txt, which
    `sha256sum -c` and any BagIt validator check. rmqctl-files.jsonl has what BagIt lacks: when, where and with which
    rmqctl the copy was made, and for each file its times, owner, mode, holes, unreadable ranges, SHA-256 of each MiB,
    and its state before and after the read. Holes stay holes. `acquire` prints the head, the SHA-256 of
    tagmanifest-sha256.txt: write it down elsewhere, because whoever can write to DEST can also make new lists.

    A broker may run meanwhile. The checkpoint, the configuration and the queues are copied first, and the log last, so
    that the log has every message that the queues lead to. A file that changed while it was read may end in half a
    record; it is named, and the exit code is 4. RocksDB moves rows between files: a copy of its files beside a broker
    may not open. For a copy without such ends, stop the broker, or use `rmqctl replicate`.

    The exit code is also 4 if a file or a part of one cannot be read (in the copy, the part is zeros), or if a symbolic
    link leads out of STORE. Links, pipes and devices are recorded, and not followed or opened; with --follow-links,
    what a link leads to is copied in its place. With --broker-conf, log folders outside STORE are copied beside it.

    DEST must be empty or missing, unless --resume is given. After SIGKILL or a crash of the host, --resume copies what
    is not on the disk of DEST or has changed since; manifest-sha256.txt becomes the same as without the interruption.
    No verb changes a store in a bag: work on a copy of it.
    """
    from rmqctl.logfile.system.storage import Kind
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.operations.acquire.acquisition import Acquisition
    from rmqctl.operations.acquire.file_copy import FileCopier
    from rmqctl.store.config.store_path import StorePath

    path = StorePath(store, conf_of(store, kept("broker_conf")), follow_links=kept("follow_links"), log_only=True)
    roots, bag = _roots(path), Path(os.path.realpath(dest))
    for root in roots:
        if bag.is_relative_to(os.path.realpath(root)):
            raise click.BadParameter(f"{dest} is inside the store: choose another place", param_hint="DEST")
    signer = None if sign is None else partial(_signature, shlex.split(sign))
    storage, began = path.storage.of_disk, time.monotonic()
    sizes = [0]
    with suppress(OSError):
        sizes = [entry.size for folder in path.commitlogs for entry in storage.listing(folder)]
    with progress(kept("progress_mode"), sum(sizes), "acquire") as advance:
        copier = FileCopier(storage, WritableStorage(bag), max_bytes_per_second, advance)
        acquisition = Acquisition(copier, roots, _about_this_run(store))
        found = acquisition.run(resume=resume, sign=signer)
    if acquisition.was_whole:
        remark("DEST was whole already: nothing was copied, and nothing compared with the store")
    has_log = any(storage.entry(folder).kind is not Kind.MISSING for folder in path.commitlogs)
    if not has_log:
        remark(f"{store} has no commit log: storePathCommitLog of broker.conf says where it is, give --broker-conf")
    found |= {"store": str(store), "destination": str(dest), "seconds": round(time.monotonic() - began, 3)}
    if output == "json":
        print_document("acquire", found)
    else:
        _print_text(found)
    lacks = found["changed"] or found["unreadable"] or any(link["isOutside"] for link in found["links"])
    return int(ExitCode.PARTIAL if lacks or not has_log else ExitCode.CLEAN)


def _roots(path: StorePath) -> dict[Path, str]:
    """Return the folders to copy, each with its name in data/."""
    from rmqctl.operations.acquire.bag import payload_name

    roots = {path.root: payload_name(Path(os.path.realpath(path.root)).name or "store")}
    for log in path.commitlogs:
        if not log.is_relative_to(path.root):
            roots[log] = f"{payload_name(Path(os.path.realpath(log)).name)}-{len(roots)}"
    return roots


def _about_this_run(store: Path) -> dict[str, Any]:
    from rmqctl.format.timestamp import rfc3339

    now = time.time_ns() // 1_000_000
    tool = sha256()
    folder = Path(rmqctl.__file__).parent
    for source in sorted(folder.rglob("*.py")):
        tool.update(f"{source.relative_to(folder)}\0".encode() + source.read_bytes())
    return {
        "schema": "rmqctl-files/1",
        "store": os.fsencode(os.path.realpath(store)).decode(errors="backslashreplace"),
        "startedAt": rfc3339(now),
        "timestamp": now,
        "host": socket.gethostname(),
        "uid": os.geteuid(),
        "command": [os.fsencode(word).decode(errors="backslashreplace") for word in sys.argv],
        "version": rmqctl.__version__,
        "toolSha256": tool.hexdigest(),
        "python": sys.version,
    }


def _signature(command: list[str], encoded: bytes) -> bytes:
    then = "the copy is whole but has no signature: run it again with --resume and --sign"
    try:
        done = subprocess.run(command, input=encoded, stdout=subprocess.PIPE, check=False)  # noqa: S603 -- the user's
    except OSError as error:
        raise ChangeFailed(f"--sign: {error.strerror}; {then}", path=str(error.filename)) from error
    if done.returncode or not done.stdout:
        raise ChangeFailed(f"--sign: the command ended with {done.returncode}, {len(done.stdout)} bytes; {then}")
    return done.stdout


def _print_text(found: dict[str, Any]) -> None:
    lines = [f"changed while it was read: {row['path']}" for row in found["changed"]]
    lines += [f"not all can be read: {row['path']}: {row['detail']}" for row in found["unreadable"]]
    lines += [f"link, not followed: {row['path']} -> {row['target']}" for row in found["links"]]
    what = f"copied {counted(found['copied'], 'file')}, {found['bytes']} bytes"
    print_line_of_text(f"{what}; but look at {counted(len(lines), 'place')}:" if lines else f"{what}: all of the store")
    for line in lines:
        print_line_of_text(line)
    print_fields([("head", found["head"]), ("check it", f"rmqctl attest {quoted(found['destination'])}")])
