"""The exit codes, and one exception for each error that ends a command.

Damage in a store is not an error, but a finding (`rmqctl.forensics.finding`). After a finding, the command continues.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of a command.

    Scripts rely on the numbers of the exit codes, so the numbers must not change.
    """

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    REPAIRED = 3
    PARTIAL = 4
    NOT_A_STORE = 10
    IN_USE = 11
    NOT_CONFIRMED = 12
    LAYOUT = 13
    BUG = 70
    INTERRUPTED = 130
    PIPE_CLOSED = 141


EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.CLEAN: "clean or done",
    ExitCode.FINDINGS: "findings: damage or differences",
    ExitCode.USAGE: "wrong usage",
    ExitCode.REPAIRED: "repaired: findings were fixed",
    ExitCode.PARTIAL: (
        "partial or failed: some input could not be read, or a change could not be made; stderr says what"
    ),
    ExitCode.NOT_A_STORE: "not a message store",
    ExitCode.IN_USE: "a broker, or another rmqctl, has the store open",
    ExitCode.NOT_CONFIRMED: "not confirmed, nothing changed",
    ExitCode.LAYOUT: "layout not supported (RocksDB, DLedger)",
    ExitCode.BUG: "a bug of rmqctl",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.PIPE_CLOSED: "the reader of the output went away (SIGPIPE)",
}


def outcome(*, incomplete: bool, findings: bool) -> ExitCode:
    """Return the exit code of a verb that only reads."""
    if incomplete:
        return ExitCode.PARTIAL
    return ExitCode.FINDINGS if findings else ExitCode.CLEAN


AS_OWNER_HINT = "run it as the owner of the files"
READ_ALL_HINT = f"--follow-links, --broker-conf, or {AS_OWNER_HINT}"


def read_hint(why: str) -> str:
    """Return what to do about a part that cannot be read, by the system's words."""
    denied = os.strerror(errno.EACCES) in why
    return AS_OWNER_HINT if denied else "copy the disk as far as it can be read, and recover the copy"


def may_open() -> int:
    """Return how many files the process may have open at a time (`ulimit -n`)."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def reason(error: OSError) -> str:
    """Return the system's words for an error, and what to do, if it does not say."""
    words = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        return f"{words}, the limit is {may_open()}: try again after `ulimit -n 1024`"
    return words


class RmqctlError(Exception):
    """An error that ends the command with one line on stderr.

    The line on stderr has the fault, the place and the hint. Each subclass has an `exit_code`. `path` and `offset`
    (bytes) give the place of the fault. `hint` says what the user can do next.
    """

    exit_code = ExitCode.BUG

    def __init__(self, what: str, *, path: str = "", offset: int | None = None, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.path = path
        self.offset = offset
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        at = f" at offset {self.offset}" if self.offset is not None else ""
        then = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.what}{at}{then}"


class BadRequest(RmqctlError):
    """The request cannot be answered, for example because a topic is unknown."""

    exit_code = ExitCode.USAGE


class Unreadable(RmqctlError):
    """A file that the command needs cannot be read."""

    exit_code = ExitCode.PARTIAL


class AnotherLog(RmqctlError):
    """A store is not a replica of the log that it was given for."""

    exit_code = ExitCode.PARTIAL


class PeerError(RmqctlError):
    """A broker cannot be reached, does not answer in time, or breaks the protocol.

    `path` is the address of the broker: `HOST:PORT`.
    """

    exit_code = ExitCode.PARTIAL


class NotAStore(RmqctlError):
    """The path is not the root of a message store."""

    exit_code = ExitCode.NOT_A_STORE


class LayoutNotSupported(RmqctlError):
    """The command does not support the layout of the store.

    For example, the queues of the store are in RocksDB, or the log belongs to DLedger.
    """

    exit_code = ExitCode.LAYOUT


class StoreInUse(RmqctlError):
    """A broker, or another rmqctl, has the store open."""

    exit_code = ExitCode.IN_USE


class NeedsRecovery(RmqctlError):
    """The store was not shut down cleanly, or is damaged.

    The user must recover the store before appending messages.
    """

    exit_code = ExitCode.FINDINGS


class NotConfirmed(RmqctlError):
    """A change was not confirmed, and nothing was changed."""

    exit_code = ExitCode.NOT_CONFIRMED


class ChangedSince(RmqctlError):
    """Another program changed the store after rmqctl read or changed it.

    For example, an undo would lose data that was written after the change.
    """

    exit_code = ExitCode.FINDINGS


class NoRoom(RmqctlError):
    """The disk has no room for the bytes that undo needs, and nothing was changed."""

    exit_code = ExitCode.PARTIAL


class ChangeFailed(RmqctlError):
    """A change of a store failed.

    The error says whether the store is in the same state as before the change.
    """

    exit_code = ExitCode.PARTIAL
