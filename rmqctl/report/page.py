"""The page: sections as one HTML file, with charts as SVG and without scripts.

A browser loads nothing for it, which its Content-Security-Policy states. Names come from a store that anybody may have
written: Jinja2 escapes them, and `safe` replaces what is not shown as it is written.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import rmqctl
from rmqctl.format.timestamp import duration, rfc3339
from rmqctl.report.log_map import CELLS
from rmqctl.report.sequence import arrows
from rmqctl.report.timeline import OTHERS, moment
from rmqctl.text import counted, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqctl.format.columns import Numbers
    from rmqctl.report.section import Section
    from rmqctl.report.sequence import Arrow
    from rmqctl.report.timeline import Timeline

Row = dict[str, Any]
TEXT_MAX = 4000  # characters of a text
NAME_MAX = 127  # of a name in a table
LABEL_MAX = 46  # of a name or a step in a diagram
ROWS_MAX = 30
CAUSES_MAX = 20
EVIDENCE_MAX = 6  # findings of a cause
LINES_MAX = 20  # of a command
ARROWS_MAX = 100


class Column(NamedTuple):
    """A column of a chart."""

    at: int  # its place from the left
    lines: list[str]  # that hovering shows
    parts: list[tuple[float, float, int]]  # from where, how high, in percent, and the number of the colour


class Chart(NamedTuple):
    """A chart of stacked columns."""

    what: str
    columns: list[Column]
    most: str  # what a column of the full height has


class Diagram(NamedTuple):
    """A sequence diagram: its participants from left to right, and its arrows."""

    verdict: str
    names: list[str]
    arrows: list[Arrow]
    left_out: int

    def place(self, name: str) -> int:
        """Return the number of a participant."""
        return self.names.index(name)


def page(sections: Sequence[Section], trace: Row | None, safe: Callable[[str], str]) -> str:
    """Return the page as HTML. `trace` is the document of `rmqctl trace`.

    Raises ImportError if Jinja2 is not installed.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

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
    }
    return environment.get_template("page.html.j2").render(
        sections=sections,
        diagram=None if trace is None else _diagram(trace),
        charts=charts,
        verdict=verdict,
        counted=counted,
        CELLS=CELLS,
        OTHERS=OTHERS,
        ROWS_MAX=ROWS_MAX,
        CAUSES_MAX=CAUSES_MAX,
        EVIDENCE_MAX=EVIDENCE_MAX,
        LINES_MAX=LINES_MAX,
        made=rfc3339(time.time_ns() // 1_000_000),
        version=rmqctl.__version__,
    )


def verdict(section: Section) -> str:
    """Say in one line whether a store is healthy."""
    causes, cost = section.diagnosis.causes, section.diagnosis.cost
    if causes:
        return "; ".join(filter(None, (f"Not healthy: {causes[0].code}", cost)))
    whole = "Nothing wrong in what was looked at" if section.doctor["notLookedAt"] else "Healthy"
    newest = section.space["lastStoreTimestamp"]
    since = f", the newest of {moment(newest)}" if newest is not None else ""
    return (
        f"{whole}: {section.doctor['messages']:,} {'message' if section.doctor['messages'] == 1 else 'messages'}{since}"
    )


def charts(timeline: Timeline) -> Iterator[Chart]:
    """Yield the charts of messages and of bytes over time."""
    for what, counts, words in (("messages", timeline.messages, _number), ("bytes", timeline.bytes, size_text)):
        most = int(counts.sum(axis=1).max()) or 1
        yield Chart(what, [_column(timeline, at, row, most, words) for at, row in enumerate(counts)], words(most))


def _column(timeline: Timeline, at: int, row: Numbers, most: int, words: Callable[[int], str]) -> Column:
    parts, said, below = [], [], 0.0
    for number, (name, count) in enumerate(zip(timeline.names, row.tolist(), strict=True)):
        if count:
            height = 100 * count / most
            below += height
            parts.append((round(100 - below, 2), round(height, 2), 8 if name == OTHERS else number))
            said.append(f"{_cut(name, NAME_MAX)} {words(count)}")
    return Column(at, [f"{timeline.shown(at)}: {words(int(row.sum()))}", *said], parts)


def _diagram(trace: Row) -> Diagram:
    found = list(arrows(trace))
    names = dict.fromkeys(name for one in found[:ARROWS_MAX] for name in (one.begin, one.end))
    return Diagram(trace["verdict"], list(names), found[:ARROWS_MAX], max(len(found) - ARROWS_MAX, 0))


def _number(count: int) -> str:
    return f"{count:,}"


def _percent(part: int, whole: int) -> float:
    return round(100 * part / (whole or 1), 2)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
