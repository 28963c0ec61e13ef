"""The page of `rmqctl report` in a browser: it asks for nothing, says nothing on the console, and fits.

It is Debian's chromium, which `.ci/run` installs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.cli.output.printable import printable
from tests.conftest import Golden, Rmqctl
from tests.support.hostile_store import HOSTILE, hostile_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")]
WIDTHS, THEMES = (390, 1440), ("light", "dark")
PAPER = ("text", "soft", "good", "bad"), ("card", "back")
MARKS = ["blank", "records", "damaged", "placeholders", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c8"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started, started.chromium.launch(executable_path=CHROMIUM) as running:
        yield running


def opened(browser: Browser, path: Path, width: int, theme: Any) -> Any:
    """The page with all its tables open, after everything is checked that holds for each page."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme).new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(path.as_uri())
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("[document.scripts.length, document.images.length]") == [0, 0]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (asked, said) == ([path.as_uri()], [])
    return page


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it, of two colours as #rgb or #rrggbb."""
    lights = []
    for colour in (one, other):
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


def test_marks_hover_and_colours(browser: Browser, golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store, to = golden("533-crash"), tmp_path / "report.html"
    assert rmqctl("report", store, "--trace", "order-2", "--to", to).code == 0
    files = sorted(path.name for path in (store / "commitlog").iterdir())
    for width, theme in product(WIDTHS, THEMES):
        page = opened(browser, to, width, theme)
        shown = page.locator("figure:has(svg.file) figcaption").all_inner_texts()
        assert [one.split(" ")[0] for one in shown] == files
        assert page.locator("svg.chart").count() == page.locator(".charts table").count() == 3
        assert page.locator("g.step").count() > 0
        assert page.locator("svg:not([role=img][aria-label]):not([aria-hidden])").count() == 0
        column = page.locator("svg.chart").first.locator("g.column").last
        assert re.match(r"2026-11-21 \S+: [\d,]+ · ", column.locator("title").text_content() or "")
        tint = column.locator(".hover")
        assert tint.evaluate("one => getComputedStyle(one).fillOpacity") == "1"  # of transparent
        column.hover(position={"x": 1, "y": 1})
        assert tint.evaluate("one => getComputedStyle(one).fillOpacity") == "0.15"
        root = "getComputedStyle(document.documentElement).getPropertyValue('--' + {!r}).trim()"
        colour = {name: page.evaluate(root.format(name)) for name in (*PAPER[0], *PAPER[1], *MARKS)}
        assert min(contrast(colour[one], colour[other]) for one, other in product(*PAPER)) >= 4.5
        assert min(contrast(colour[one], colour["back"]) for one in MARKS) >= 3
        back = "getComputedStyle(document.body).backgroundColor"
        assert (page.evaluate(back) == "rgb(255, 255, 255)") == (theme == "light")
        page.emulate_media(media="print")
        assert page.evaluate(back) == "rgb(255, 255, 255)"  # paper is white


def test_a_hostile_store_of_a_hundred_thousand_topics(browser: Browser, rmqctl: Rmqctl, tmp_path: Path) -> None:
    names = [*HOSTILE, *(f"<b onclick=alert(1)>{number}</b>".ljust(120, "x") for number in range(100_000))]
    store, to = hostile_store(tmp_path, names), tmp_path / "report.html"
    assert rmqctl("report", store, "--to", to).code == 0
    assert to.stat().st_size < 1 << 20
    for width, theme in zip(WIDTHS, THEMES, strict=True):
        page = opened(browser, to, width, theme)
        shown = page.locator("tr.topic td:first-child").all_inner_texts()
        assert {printable(name) for name in HOSTILE} <= set(shown)
        assert len(shown) == 30
        assert page.locator("b, [onclick], [onmouseover]").count() == 0
