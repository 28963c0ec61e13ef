"""The page of `rmqctl report`: its marks, and that nothing in a store can act in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.output.printable import printable
from tests.conftest import Golden, Rmqctl, tree_hash
from tests.support.hostile_store import HOSTILE, hostile_store

ACTIVE = {"script", "iframe", "object", "embed", "img", "form", "base", "style-src", "audio", "video", "foreignobject"}


class Page(HTMLParser):
    """The marks of a page, by class, and its texts; it refuses what a browser would load or run."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.marks: list[str] = []
        self.texts: list[str] = []
        self.source = path.read_text()
        self.feed(self.source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in ACTIVE
        for name, value in attributes:
            assert not name.startswith("on"), name
            assert name not in ("src", "srcset", "data", "action", "xlink:href"), name
            if name == "href":
                assert str(value).startswith(("#", "data:,")), value
            if name == "class":
                self.marks += [f"{tag}.{one}" for one in str(value).split()]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page_of(rmqctl: Rmqctl, tmp_path: Path, *words: object) -> Page:
    to = tmp_path / "report.html"
    result = rmqctl("report", *words, "--to", to, "-o", "json")
    assert result.code == 0, result.err
    document = result.document()
    assert (document["destination"], document["bytes"]) == (str(to), to.stat().st_size)
    return Page(to)


def users(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if not row["group"].startswith(("CID_", "TOOLS_"))]


@pytest.mark.parametrize("name", ["326-basic", "533-crash", "550-basic"])
def test_a_mark_for_each_file_topic_group_and_cause(name: str, golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden(name)
    before = tree_hash(store)
    page = page_of(rmqctl, tmp_path, store)
    assert tree_hash(store) == before
    doctor, space, lag = (rmqctl(verb, store, "-o", "json").document() for verb in ("doctor", "du", "lag"))
    assert page.marks.count("svg.file") == len(list((store / "commitlog").iterdir()))
    assert page.marks.count("tr.topic") == len(space["topics"])
    assert page.marks.count("tr.group") == min(len(users(lag["groupTotals"])), 30)
    unread = [row for row in users(lag["groups"]) if row["behind"] != 0 or row["outside"]]
    assert page.marks.count("tr.queue") == min(len(unread), 30)
    assert page.source.count("<article>") == len(doctor["causes"])
    assert page.marks.count("p.bad") == (not doctor["healthy"])
    assert ("rect.damaged" in page.marks) == (space["commitLog"]["damagedBytes"] > 0)
    charts = re.split("<figcaption>(?:Messages|Bytes) by ", page.source)[1:]
    for chart in (charts[0], charts[2]):
        titles = re.findall(r'<g class="column"><title>[^:]*:\d\d:[\d.]+: ([\d,]+)[ <]', chart)
        assert sum(int(one.replace(",", "")) for one in titles) == space["messages"]
    table = charts[2].split("<details>")[1].split("</table>", 1)[0]
    assert (
        sum(int(one.replace(",", "")) for one in re.findall(r'<td class="number">([\d,]+)\b(?!-)', table))
        == space["messages"]
    )


def test_what_is_missing_damaged_or_a_placeholder(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden("497-basic")
    files = sorted((store / "commitlog").iterdir())
    whole = page_of(rmqctl, tmp_path, store).marks
    data = bytearray(files[0].read_bytes())
    data[4000:4100] = bytes(100)
    files[0].write_bytes(data)
    files[1].unlink()
    hurt = page_of(rmqctl, tmp_path, store).marks
    assert hurt.count("svg.file") == len(files)  # the gap has a bar
    assert (hurt.count("rect.missing"), whole.count("rect.missing")) == (2, 0)  # in the legend, too
    assert hurt.count("rect.damaged") > whole.count("rect.damaged") == 0
    assert rmqctl("recover", store, "--keep-going", "--yes").code == 3
    mended = page_of(rmqctl, tmp_path, store).marks
    assert mended.count("rect.missing") == mended.count("rect.damaged") == 0
    assert mended.count("rect.placeholders") > hurt.count("rect.placeholders")


def test_the_life_of_a_message_and_two_stores(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    stores = golden("326-basic"), golden("497-basic")
    found = (row["properties"].get("KEYS") for row in rmqctl("dump", stores[1], "-o", "jsonl").rows())
    key = next(filter(None, found)).split()[0]
    trace = rmqctl("trace", *stores, "--key", key, "-o", "json").document()
    page = page_of(rmqctl, tmp_path, *stores, "--trace", key)
    assert page.marks.count("g.step") == len(trace["stages"]) + len(trace["groups"]) > 0
    assert page.marks.count("p.verdict") == 2
    assert f"The life of message {key}" in page.texts


def test_names_of_a_hostile_store_are_text(rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = hostile_store(tmp_path, [*HOSTILE, *(f"t{number}" for number in range(500))])
    page = page_of(rmqctl, tmp_path, store)
    for name in HOSTILE:
        assert printable(name) in page.texts
    assert "\u202e" not in page.source
    assert page.marks.count("tr.topic") == 30
    assert "475 more topics" in page.texts


@pytest.mark.slow
def test_ten_thousand_topics_make_a_small_page(rmqctl: Rmqctl, tmp_path: Path) -> None:
    names = [f"<b>{number}</b>".ljust(120, "x") for number in range(10_000)]
    store = hostile_store(tmp_path, names, scattered=True)
    page = page_of(rmqctl, tmp_path, store)
    assert len(page.source) < 1 << 20
    assert page.marks.count("tr.topic") == 30


def test_the_page_is_never_in_a_store(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden("326-basic")
    before = tree_hash(store)
    log_file = next((store / "commitlog").iterdir())
    for to in (store / "report.html", log_file):
        result = rmqctl("report", store, "--to", to)
        assert (result.code, result.out) == (2, "")
        assert "inside the store" in result.err
    assert tree_hash(store) == before
