"""The pages as HTML: well formed, whole in themselves, escaped, and with the figures of the model."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from include.lake.paths import Lake
from include.observe.stream_line import read_overview
from include.page.render import overview_html, stream_html
from include.page.stream_figures import read_stream
from tests.page.history import NOW, streams_like, write_history

STREAMS = streams_like(3)
VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """The parts of a page that tests look at."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] = " ".join(f"{self.rows[-1][-1]} {data}".split())

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.tags if name == tag)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    write_history(lake, STREAMS, 40)
    return lake


@pytest.fixture(scope="module")
def pages(filled: Lake) -> dict[str, str]:
    overview = read_overview(filled, STREAMS, NOW)
    figures = read_stream(filled, STREAMS[1], NOW, timedelta(days=2))
    return {"overview": overview_html(overview), "stream": stream_html(figures)}


@pytest.mark.parametrize("name", ["overview", "stream"])
def test_a_page_asks_for_nothing(pages, name):
    page = Page(pages[name])
    assert not [a for _, a in page.tags for n in ("src", "href", "action", "srcset") if a.get(n)]
    assert not re.search(r"url\(|@import|https?://|\bfetch\(", pages[name])


@pytest.mark.parametrize("name", ["overview", "stream"])
def test_what_comes_from_data_is_text(pages, name):
    page = Page(pages[name])
    assert "<b>it</b> & failed" in page.text or name == "overview"
    assert name == "overview" or "./stateful <b>do</b>" in page.text
    assert "b" not in {tag for tag, _ in page.tags}
    assert len(list(page.all("script"))) == (2 if name == "overview" else 1)


def test_a_stream_of_any_text_cannot_leave_its_attribute(filled):
    line = read_overview(filled, STREAMS, NOW).lines[0]
    evil = replace(line, stream='"><img src=x>', problem="<img src=y>")
    overview = replace(read_overview(filled, STREAMS, NOW), lines=(evil,), wrong=("<img>",))
    page = Page(overview_html(overview, lambda name: f"streams/{name}"))
    assert list(page.all("img")) == []
    assert [a["href"] for a in page.all("a")] == ['streams/"><img src=x>']


def test_rows_of_the_table_have_the_figures_of_the_lines(filled, pages):
    rows = {row[0].split()[0]: row for row in Page(pages["overview"]).rows if row}
    for line in read_overview(filled, STREAMS, NOW).lines:
        row = rows[line.stream]
        assert row[1].startswith(f"{line.until:%Y-%m-%d %H:%M}")
        assert [cell.split()[0] for cell in row[4:9]] == [
            f"{line.rows['in']:,}",
            f"{line.rows['late']:,}",
            f"{line.rows['quarantined']:,}",
            f"{line.rows_pending:,}",
            f"{line.state_keys:,}",
        ]


def test_lakes_without_anything_and_that_cannot_be_read_are_said(lake):
    empty = read_overview(lake, STREAMS, NOW)
    assert list(Page(overview_html(empty)).all("table"))
    broken = replace(empty, reason="<no> such table")
    page = Page(overview_html(broken))
    assert "<no> such table" in page.text
    assert list(page.all("table")) == []
    assert Page(stream_html(read_stream(lake, STREAMS[0], NOW, timedelta(1)))).text
