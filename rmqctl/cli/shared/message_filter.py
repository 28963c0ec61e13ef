"""The conditions that select messages, for verbs that read the log."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.option_class import together
from rmqctl.cli.shared.options import OFFSET, OFFSET_RANGE, one_word
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.cli.shared.times import TIME
from rmqctl.format.sys_flag import TransactionType

if TYPE_CHECKING:
    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.body.bodies import BodyMatch
    from rmqctl.store.read.read_only_store import ReadOnlyStore

TRANSACTIONS = {kind.name.lower(): kind for kind in TransactionType}


def _host(text: str) -> tuple[bytes, int | None]:
    """Return the address (4 or 16 bytes), and the port or None."""
    import ipaddress

    address, _, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "")
    try:
        return ipaddress.ip_address(address.strip("[]")).packed, int(port) if port else None
    except ValueError as error:
        raise ValueError(f"{text!r} is not an IP address, nor ADDRESS:PORT: BORNHOST has no host names") from error


filter_options = together(
    click.option(
        "--topic", "topics", multiple=True, help="Only records of this topic. The option may be given several times."
    ),
    click.option("--queue", "queue_id", type=int, help="Only records with this queueId."),
    click.option("--key", callback=one_word, help="Only messages with this word in their KEYS, or with this UNIQ_KEY."),
    click.option("--tag", help="Only messages with these TAGS."),
    click.option(
        "--host",
        type=Parsed("ADDRESS[:PORT]", _host),
        help="Only messages from this producer: the IP address of BORNHOST, or ADDRESS:PORT.",
    ),
    click.option(
        "--since",
        type=TIME,
        help="Only records stored at or after this time: RFC 3339 (without a zone: local time), epoch ms or s, -2h, "
        "14:03, yesterday 14:00, last monday, yyyy-MM-dd#HH:mm:ss:SSS.",
    ),
    click.option("--until", type=TIME, help="Only records stored at or before this time."),
    click.option(
        "--from-offset",
        type=OFFSET,
        help="Begin at this physical offset. If the offset is inside a record, begin at the next record.",
    ),
    click.option("--to-offset", type=OFFSET, help="Stop before this physical offset."),
    click.option(
        "--queue-offset",
        "queue_offsets",
        type=OFFSET_RANGE,
        help="Only messages with these queue offsets: A..B (both included), A.., ..B, or one offset.",
    ),
    click.option("--group", help="The consumer group for --unconsumed."),
    click.option(
        "--unconsumed",
        is_flag=True,
        help="Only messages that the consumer group in --group has not consumed.",
    ),
    click.option(
        "--transaction",
        type=click.Choice(list(TRANSACTIONS)),
        callback=lambda _, __, name: TRANSACTIONS.get(name),
        help="Only records of this transaction kind. The kind `prepared` selects the half messages of all broker "
        "versions.",
    ),
    click.option(
        "--body-match",
        metavar="REGEX",
        help="Only messages whose body matches REGEX, after decompression (zlib, lz4, zstd). With --charset, REGEX is "
        "matched with the text in this charset.",
    ),
)


@dataclass(frozen=True)
class FilterOptions:
    """The options that select messages: those of `filter_options`, and --charset."""

    topics: tuple[str, ...]
    queue_id: int | None
    key: str | None
    tag: str | None
    host: tuple[bytes, int | None] | None
    since: int | None
    until: int | None
    from_offset: int | None
    to_offset: int | None
    queue_offsets: tuple[int, int] | None
    group: str | None
    unconsumed: bool
    transaction: TransactionType | None
    body_match: str | None
    charset: str | None

    @property
    def are_given(self) -> bool:
        """Return whether a condition is given; --charset alone is none."""
        given = (getattr(self, field.name) for field in fields(self)[:-1])
        return any(value is not None and value is not False and value != () for value in given)

    def filter(self) -> Filter:
        """Return the filter, as far as it does not depend on the store.

        Raises click.UsageError.
        """
        from rmqctl.forensics.message_filter import Filter

        if self.unconsumed != (self.group is not None):
            raise click.UsageError("--group and --unconsumed belong together: give both")
        _check_order(self.since, self.until, "--since", "--until")
        _check_order(self.from_offset, self.to_offset, "--from-offset", "--to-offset")
        names = {field.name for field in fields(Filter)}
        same = {field.name: getattr(self, field.name) for field in fields(self) if field.name in names}
        wanted = Filter(**same | {"topics": frozenset(self.topics)})
        if self.body_match is None:
            return wanted
        try:
            return replace(wanted, body=_body_match(self.body_match, self.charset))
        except (re.error, OverflowError, RecursionError) as error:
            raise click.BadParameter(f"not a regular expression: {error}", param_hint="--body-match") from error

    def in_store(self, wanted: Filter, store: ReadOnlyStore) -> Filter:
        """Return `wanted`, with --unconsumed limited to what the group has not consumed."""
        return wanted if self.group is None else _only_unconsumed(wanted, store, self.group)


def _body_match(expression: str, charset: str | None) -> BodyMatch:
    from rmqctl.format.body.bodies import BodyMatch

    return BodyMatch(expression if charset else os.fsencode(expression), charset)


def _only_unconsumed(wanted: Filter, store: ReadOnlyStore, group: str) -> Filter:
    """Return the filter `wanted`, limited to messages that a group has not consumed.

    The filter also limits the scan to the part of the log from the first to the last unconsumed message.
    """
    from rmqctl.forensics.groups.unconsumed import unconsumed_places

    places = unconsumed_places(store, group)
    if not len(places):
        remark(f"note: {group} has no message left to consume; `rmqctl lag` shows its offsets")
    first, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    if wanted.from_offset is not None:
        first = max(first, wanted.from_offset)
    if wanted.to_offset is not None:
        end = min(end, wanted.to_offset)
    return replace(wanted, places=places, from_offset=first, to_offset=end)


def _check_order(low: int | None, high: int | None, low_option: str, high_option: str) -> None:
    if low is not None and high is not None and low > high:
        raise click.UsageError(f"no record can match: {low_option} is after {high_option}")
