"""Goal: `make docs` builds a site whose links lead somewhere, that needs no network, and that shows the public API.

Method: the site is built once, as `make docs` builds it, and the pages that it consists of are read.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import sync_playwright

import reconverge
from docs.tools import site
from docs.tools.public import HIDDEN, members
from reconverge import Agent, Limiter, RateLimiter, SlotLimiter
from reconverge.integrations import Request

pytestmark = pytest.mark.slow  # the site is built

CHROMIUM = shutil.which("chromium")
ROOT = Path(__file__).parents[2]
BUILD_S_MAX = 500.0
API = "reference/api/index.html"
INDEX_BYTES_MAX = 1 << 20


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    place = tmp_path_factory.mktemp("site")
    # Not with --quiet, which silences warnings so well that --strict does not see them either.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)
    assert 0 == ran.returncode, ran.stderr
    assert [] == [line for line in ran.stderr.splitlines() if not line.startswith("INFO")]
    return place


class Parsed(HTMLParser):
    """One page: its anchors, links and loaded files."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.leads_to: list[str] = []
        self.loads: list[str] = []
        self.outside_notes: list[str] = []
        """The links that stand in no footnote."""
        self._in_note = 0

    def handle_endtag(self, tag: str) -> None:
        self._in_note -= tag == "div" and self._in_note > 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.ids |= {has[name] for name in ("id", "name") if name in has}
        self._in_note += tag == "div" and (self._in_note > 0 or has.get("class") == "footnote")
        if tag == "a" and "href" in has:
            self.leads_to.append(has["href"])
            self.outside_notes += [] if self._in_note else [has["href"]]
        elif tag in ("script", "img", "iframe") and "src" in has:
            self.loads.append(has["src"])
        elif tag == "link" and has.get("rel") != "canonical":
            self.loads.append(has["href"])


@cache
def parsed(path: Path) -> Parsed:
    """A page of the site."""
    page = Parsed()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def pages(built: Path) -> list[Path]:
    """All of them, but for the one about pages that are not there, whose links are absolute."""
    return [path for path in sorted(built.rglob("*.html")) if path.name != "404.html"]


def test_the_site_is_built_without_a_warning(built: Path) -> None:
    """Strictly: a dead link, a page outside of the navigation or an unknown name would have ended it."""
    assert (built / "index.html").is_file()
    assert len(pages(built)) > 100


def test_every_link_of_the_site_leads_somewhere(built: Path) -> None:
    """To a page or file that is there, and to a heading or name on it; also in what mkdocs itself does not check."""
    dead: list[str] = []
    for path in pages(built):
        for target in parsed(path).leads_to:
            if re.match(r"[a-z]+:", target):
                continue
            place, _, anchor = unquote(target).partition("#")
            there = (path.parent / place).resolve() if place else path
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file() or (anchor and there.suffix == ".html" and anchor not in parsed(there).ids):
                dead.append(f"{path.relative_to(built)}: {target}")

    assert [] == dead


def test_no_page_asks_another_site_for_anything(built: Path) -> None:
    """Scripts, styles, fonts and pictures are all its own, so it can be read without a network."""
    asked = {target for path in pages(built) for target in parsed(path).loads if re.match(r"(?:[a-z]+:)?//", target)}
    styled = [path.name for path in built.rglob("*.css") if re.search(r"url\(['\"]?(?:https?:)?//", path.read_text())]

    assert set() == asked
    assert [] == styled


def test_a_promise_leads_to_its_very_test(built: Path) -> None:
    """A link that is called after a test leads to that test, and not to the top of its file."""
    leads_to = parsed(built / "reference" / "promises" / "index.html").leads_to
    tests = [target for target in leads_to if "/repository/tests/" in target]

    assert len([target for target in tests if "#test_" in target]) > 20


def test_a_link_to_a_test_stands_in_a_footnote(built: Path) -> None:
    """On each page of the documents, those of the repository included that are documents."""
    read = [path for path in pages(built) if not site.is_code(path.parent.relative_to(built).as_posix())]
    aside = [target for path in read for target in parsed(path).outside_notes if "/tests/" in target]
    noted = [target for path in read for target in parsed(path).leads_to if "/tests/" in target]

    assert [] == aside
    assert len(noted) > 200


def test_a_search_finds_documents_and_no_code(built: Path) -> None:
    """The index has each text once, and is no larger than a megabyte; short names of frameworks are found."""
    text = (built / site.INDEX).read_text(encoding="utf-8")
    found = json.loads(text)["docs"]
    places = {each["location"].partition("#")[0] for each in found}

    assert len(text.encode()) <= INDEX_BYTES_MAX
    assert not [place for place in places if place.startswith("repository/tests/")]
    assert {"", "guide/web/", "reference/api/", "repository/bench/"} <= places
    assert ["recipes/#django-rest-framework"] == [each["location"] for each in found if "DRF" in each["text"]]


def test_the_first_page_shows_the_picture_and_the_shortest_program(built: Path) -> None:
    """Before the list of documents, in the words of the README."""
    text = (built / "index.html").read_text(encoding="utf-8")
    body = text[text.find('role="main"') :]
    places = [body.find(each) for each in ("partition.svg", "from memory: no waiting", 'id="get-started"')]

    assert -1 not in places
    assert sorted(places) == places


def test_the_site_is_dark_for_whoever_wants_it(built: Path) -> None:
    """By the browser's setting or a choice, code as well."""
    assert 'data-bs-theme-value="dark"' in (built / "index.html").read_text(encoding="utf-8")
    assert '[data-bs-theme="dark"] .highlight' in (built / "pictures" / "code.css").read_text(encoding="utf-8")


def test_the_navigation_has_one_row_on_a_laptop_and_words_on_a_telephone(built: Path) -> None:
    """Its rows are as many as tops of its entries; the button of a page's headings is more than an arrow."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
        page.goto((built / "guide" / "web" / "index.html").as_uri())
        page.set_viewport_size({"width": 1280, "height": 800})
        entries: Any = page.locator(".navbar.fixed-top .nav-link").all()
        boxes = [box for each in entries if (box := each.bounding_box())]
        page.set_viewport_size({"width": 390, "height": 844})
        button = page.locator(".bs-sidebar .navbar-toggler")
        words = button.evaluate("(each) => getComputedStyle(each, '::before').content")

    assert len(boxes) > 10
    assert 1 == len({round(box["y"]) for box in boxes})
    assert '"On this page "' == words


def test_long_names_of_tests_stay_in_their_column(built: Path) -> None:
    """Beside the code of a page of Python, and in the table of promises, whose sentences have room beside them."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto((built / parsed_test(built)).as_uri())
        wider = page.locator(".bs-sidebar .nav-link").evaluate_all(
            "(all) => all.filter((each) => each.scrollWidth > each.clientWidth).length"
        )
        page.goto((built / "reference" / "promises" / "index.html").as_uri())
        narrowest = (
            page.locator(".col-md-9 table")
            .first.locator("td:first-child")
            .evaluate_all("(all) => Math.min(...all.map((each) => each.clientWidth))")
        )

    assert 0 == wider
    assert narrowest >= 250


def parsed_test(built: Path) -> Path:
    """Returns the page of a file of tests with long names, in the site."""
    (found,) = built.rglob("test_asking.py/index.html")
    return found.relative_to(built)


def shown_of(built: Path, name: str) -> set[str]:
    """Which parts of a class the API reference shows."""
    return {found[1] for each in parsed(built / API).ids if (found := re.fullmatch(rf"{re.escape(name)}\.(\w+)", each))}


def test_all_that_is_imported_from_reconverge_is_in_the_api_reference(built: Path) -> None:
    """Each name of `reconverge.__all__`."""
    ids = parsed(built / API).ids

    assert [] == [name for name in reconverge.__all__ if f"reconverge.{name}" not in ids]


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("reconverge.Agent", Agent),
        ("reconverge.RateLimiter", RateLimiter),
        ("reconverge.SlotLimiter", SlotLimiter),
        ("reconverge.Limiter", Limiter),
        ("reconverge.integrations.Request", Request),
    ],
)
def test_the_api_reference_shows_what_is_public_and_nothing_else(built: Path, name: str, cls: type) -> None:
    """Of the classes that have more than applications may use, all of the public part, and none of the other."""
    shown = shown_of(built, name)

    assert set(members(cls)) == shown
    assert set() == shown & HIDDEN[cls.__name__]


def test_what_users_ask_for_is_in_the_api_reference(built: Path) -> None:
    """`reset`, `usage`, `test` and `ready` are found, and so is what a request has."""
    assert {"reset", "usage", "usages", "test"} <= shown_of(built, "reconverge.RateLimiter")
    assert "ready" in shown_of(built, "reconverge.Agent")
    assert {"method", "path", "client", "user", "header"} <= shown_of(built, "reconverge.integrations.Request")


def test_a_page_of_python_has_a_heading_at_each_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the decorators of the test below it, so that a link can lead there."""
    monkeypatch.setattr(site, "ROOT", tmp_path)
    path = tmp_path / "test_a.py"
    path.write_text("import x\n\n@mark\ndef test_one() -> None:\n    pass\n")

    assert "import x\n~~~~~~\n\n## `test_one` { #test_one }\n\n~~~~~~python\n@mark\n" in site.source(path)


def test_links_out_of_the_documents_stay_in_the_site() -> None:
    """A file beside docs/ is below `repository/`, a folder of documents is its README, a test a heading in a note."""
    page = ROOT / "docs" / "guide" / "web.md"
    test, file = "test_no_decision_opens_anything", "tests/agent/test_no_io.py"
    leads = {
        f"[`{test}`](../../{file})": f"`{test}`[^1]\n\n[^1]: [`{file}, {test}`](../repository/{file}.md#{test})",
        "[README](../../README.md#install)": "[README](../repository/README.md#install)",
        "[decisions](../decisions/)": "[decisions](../decisions/README.md)",
        "[here](#costs-by-kind)": "[here](web.md#costs-by-kind)",
        "[away](https://example.com)": "[away](https://example.com)",
    }

    assert leads == {link: site.relinked(link, page) for link in leads}


def test_code_is_left_as_it_is() -> None:
    """A link in a fenced block is none."""
    markdown = "```\n[a](../../README.md)\n```"

    assert markdown == site.relinked(markdown, ROOT / "docs" / "guide" / "web.md")


def test_what_belongs_to_an_item_of_a_list_is_indented_for_mkdocs() -> None:
    """By four, whatever the marker; what follows the list is not."""
    assert "- a\n\n    b\n\nc\n  d" == site.in_lists("- a\n\n  b\n\nc\n  d")
    assert "1. a\n    b" == site.in_lists("1. a\n   b")
