"""The page: sections as one HTML file, with charts as SVG and without scripts.

A browser loads nothing for it, which its Content-Security-Policy states. Names come from a store that anybody may have
written: Jinja2 escapes them, and `safe` replaces what is not shown as it is written.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import rmqctl
from rmqctl.format.timestamp import duration, rfc3339
from rmqctl.report.log_map import CELLS
from rmqctl.report.sequence import arrows
from rmqctl.report.timeline import DELAY_MARKS, moment
from rmqctl.text import counted, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqctl.format.columns import Numbers
    from rmqctl.report.section import Section
    from rmqctl.report.sequence import Arrow
    from rmqctl.report.timeline import Mark, Timeline

Row = dict[str, Any]
TEXT_MAX = 4000  # characters of a text
NAME_MAX = 127  # of a name in a table
LABEL_MAX = 30  # of a name or a step in a diagram, or at the head of a wide table
ROWS_MAX = 30
CAUSES_MAX = 20
EVIDENCE_MAX = 6  # findings of a cause
LINES_MAX = 20  # of a command
ARROWS_MAX = 100
_CODE = re.compile("`([^`<>]+)`")


class Column(NamedTuple):
    """A column of a chart."""

    at: int  # its place from the left
    lines: list[str]  # that hovering shows
    parts: list[tuple[float, float, str]]  # from where, how high, in percent, and the mark


class Chart(NamedTuple):
    """A chart of stacked columns."""

    what: str
    legend: list[Mark]  # of the parts of a column, from below
    columns: list[Column]
    most: str  # what a column of the full height has
    table: list[tuple[str, list[str]]]  # the same in words: when each column begins, and its counts by `legend`


class Diagram(NamedTuple):
    """A sequence diagram: its participants from left to right, and its arrows."""

    key: str
    verdict: str
    names: list[str]
    arrows: list[Arrow]
    left_out: int

    def place(self, name: str) -> int:
        """Return the number of a participant."""
        return self.names.index(name)


class Broker(NamedTuple):
    """A line of an overview."""

    store: str
    verdict: str
    link: str  # "" if it could not be examined
    messages: int = 0
    size: int = 0  # bytes on the disk


class Overview:
    """The sums over many stores, for the page that links to theirs."""

    def __init__(self) -> None:
        self.brokers: list[Broker] = []
        self.healthy = 0
        self.messages: Counter[str] = Counter()  # by topic
        self.bytes: Counter[str] = Counter()
        self.behind: Counter[str] = Counter()  # messages, by group

    def add(self, section: Section, link: str) -> None:
        """Add a store, whose section is at `link`."""
        space, doctor = section.space, section.doctor
        one = Broker(doctor["store"], verdict(section), link, doctor["messages"], space["allocatedBytes"])
        self.brokers.append(one)
        self.healthy += not section.diagnosis.causes
        for row in space["topics"]:
            self.messages[row["topic"]] += row["messages"]
            self.bytes[row["topic"]] += row["bytes"]
        for row in section.totals:
            self.behind[row["group"]] += row["behind"] or 0

    @property
    def verdict(self) -> str:
        """The number of healthy stores, in words."""
        return f"{self.healthy} of {counted(len(self.brokers), 'store')} healthy"


def page(
    sections: Sequence[Section], overview: Overview | None, trace: Row | None, safe: Callable[[str], str]
) -> bytes:
    """Return the page as HTML. `trace` is the document of `rmqctl trace`, and `key`.

    Raises ImportError if Jinja2 is not installed.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def shown(value: object) -> object:
        return safe(_cut(value, TEXT_MAX)) if type(value) is str else value

    environment = Environment(
        loader=PackageLoader("rmqctl.report", "."),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": size_text,
        "count": lambda number: f"{number:,}",
        "name": lambda text: _cut(text, NAME_MAX),
        "label": lambda text: _cut(text, LABEL_MAX),
        "moment": moment,
        "age": duration,
        "percent": _percent,
        "prose": lambda text: Markup(_CODE.sub(r"<code>\1</code>", str(escape(shown(text))))),  # noqa: S704 -- escaped
    }
    text = environment.get_template("page.html.j2").render(
        sections=sections,
        overview=overview,
        diagram=None if trace is None else _diagram(trace),
        charts=charts,
        verdict=verdict,
        counted=counted,
        CELLS=CELLS,
        ROWS_MAX=ROWS_MAX,
        CAUSES_MAX=CAUSES_MAX,
        EVIDENCE_MAX=EVIDENCE_MAX,
        LINES_MAX=LINES_MAX,
        made=rfc3339(time.time_ns() // 1_000_000),
        version=rmqctl.__version__,
    )
    return text.encode(errors="backslashreplace")


def verdict(section: Section) -> str:
    """Say in one line whether a store is healthy."""
    causes, cost = section.diagnosis.causes, section.diagnosis.cost
    if causes:
        said = causes[0].summary
        return "; ".join(filter(None, (f"Not healthy: {said[:1].lower()}{said[1:]}", cost)))
    whole = "Nothing wrong in what was looked at" if section.doctor["notLookedAt"] else "Healthy"
    newest = section.space["lastStoreTimestamp"]
    since = f", the newest of {moment(newest)}" if newest is not None else ""
    return (
        f"{whole}: {section.doctor['messages']:,} {'message' if section.doctor['messages'] == 1 else 'messages'}{since}"
    )


def charts(timeline: Timeline) -> Iterator[Chart]:
    """Yield the charts of messages and bytes, and of the time until storing."""
    for what, marks, table_of, words in (
        ("messages by topic", timeline.marks, timeline.messages, _number),
        ("bytes by topic", timeline.marks, timeline.bytes, size_text),
        ("messages by store time minus born time", DELAY_MARKS, timeline.delays, _number),
    ):
        used = np.flatnonzero(table_of.any(axis=0))
        counts, legend = table_of[:, used], [marks[number] for number in used.tolist()]
        most = int(counts.sum(axis=1).max()) or 1
        columns = [_column(timeline.shown(at), legend, at, row, most, words) for at, row in enumerate(counts)]
        table = [
            (timeline.shown(at), [words(count) if count else "" for count in row.tolist()])
            for at, row in enumerate(counts)
            if row.any()
        ]
        yield Chart(what, legend, columns, words(most), table)


def _column(when: str, legend: list[Mark], at: int, row: Numbers, most: int, words: Callable[[int], str]) -> Column:
    parts, said, below = [], [], 0.0
    for (kind, name), count in zip(legend, row.tolist(), strict=True):
        if count:
            height = 100 * count / most
            below += height
            parts.append((round(100 - below, 2), round(height, 2), kind))
            said.append(f"{_cut(name, NAME_MAX)} {words(count)}")
    return Column(at, [f"{when}: {words(int(row.sum()))}", *said], parts)


def _diagram(trace: Row) -> Diagram:
    found = list(arrows(trace))
    names = dict.fromkeys(name for one in found[:ARROWS_MAX] for name in (one.begin, one.end))
    return Diagram(trace["key"], trace["verdict"], list(names), found[:ARROWS_MAX], max(len(found) - ARROWS_MAX, 0))


def _number(count: int) -> str:
    return f"{count:,}"


def _percent(part: int, whole: int) -> float:
    return round(100 * part / (whole or 1), 2)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
