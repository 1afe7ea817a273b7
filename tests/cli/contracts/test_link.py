"""Goal: support staff make a customer's link to the page of its own limits by a command, and no secret is shown.

Method: the command as it is typed; what it prints is opened as a console opens it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from reconverge import Agent
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.integrations.console import console
from reconverge.integrations.customer_links import CustomerLink, CustomerLinks
from tests.support.commands.checked import said_by
from tests.support.console import HOME, TOKENS, Browser
from tests.support.published import SECRET

LINKS = "a-secret-for-links-alone"
URL = "https://shop.example/console"
DAY_S = 86_400


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the secret that the console has, too."""
    monkeypatch.setenv("RECONVERGE_CUSTOMER_SECRET", LINKS)


def now_s() -> int:
    """In seconds since 1970."""
    return SystemClock.wall_ns() // SECOND_NS


def opened(link: str, *secrets: str) -> CustomerLink | None:
    """Opens a link as a console with these secrets does."""
    (token,) = parse_qs(urlsplit(link).query)["link"]
    return CustomerLinks(secrets or LINKS, SystemClock()).opened(token)


def test_a_console_opens_the_link_that_the_command_prints() -> None:
    """It is alone on the output, so that it can be piped; when it ends stands on the error stream."""
    said = said_by("contracts", "link", "acme", "--url", HOME)
    link = said.stdout.strip()
    with (
        Agent("memory://") as agent,
        Browser(console(agent, tokens=TOKENS, settings_secret=SECRET, customer_secret=LINKS)) as browser,
    ):
        statuses = [browser.get(each).status_code for each in (link, link.replace("YWNtZQ", "Ym9i"))]

    assert (0, 1) == (said.status, said.stdout.count("\n"))
    assert "it opens until " in said.stderr
    assert [200, 403] == statuses


@pytest.mark.parametrize("identity", ["acme", "bob & sons/größe?", "x" * 512])
def test_a_link_is_for_the_customer_that_was_named(identity: str) -> None:
    """The customer may have any name."""
    told = json.loads(said_by("contracts", "link", identity, "--url", URL, "--json").stdout)
    found = opened(told["link"])

    assert found == CustomerLink(told["identity"], told["expires"])
    assert identity == told["identity"]


@pytest.mark.parametrize(
    ("lifetime", "seconds"),
    [
        ((), 7 * DAY_S),
        (("--lifetime", "1"), 1),
        (("--lifetime", "90m"), 5400),
        (("--lifetime", "12 Hours"), DAY_S // 2),
        (("--lifetime", "366d"), 366 * DAY_S),
    ],
)
def test_a_link_opens_for_as_long_as_was_said(lifetime: tuple[str, ...], seconds: int) -> None:
    """A week where nothing was said; units are those of limits, and none is seconds."""
    before = now_s()
    told = json.loads(said_by("contracts", "link", "acme", "--url", URL, *lifetime, "--json").stdout)

    assert before + seconds <= told["expires"] <= now_s() + seconds


@pytest.mark.parametrize(
    "url",
    [URL, f"{URL}/", f"{URL}/my-limits", f"{URL}/my-limits/", f"{URL}?", "https://shop.example/console#"],
)
def test_the_address_is_that_of_the_console_or_of_its_page(url: str) -> None:
    """With or without a slash at its end."""
    assert said_by("contracts", "link", "acme", "--url", url).stdout.startswith(f"{URL}/my-limits?link=")


def test_the_first_of_several_secrets_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a new one can take the place of an old one, whose links open meanwhile."""
    monkeypatch.setenv("RECONVERGE_CUSTOMER_SECRET", f"the-new-secret-of-links {LINKS}")
    link = said_by("contracts", "link", "acme", "--url", URL).stdout

    assert opened(link, "the-new-secret-of-links") is not None
    assert opened(link) is None


@pytest.mark.parametrize(
    ("words", "variables", "says"),
    [
        ((), {"RECONVERGE_CUSTOMER_SECRET": None}, "RECONVERGE_CUSTOMER_SECRET='': is not set"),
        ((), {"RECONVERGE_CUSTOMER_SECRET": ""}, "is not set"),
        ((), {"RECONVERGE_CUSTOMER_SECRET": "too-short"}, "RECONVERGE_CUSTOMER_SECRET='***': is shorter than 16"),
        (("--lifetime", "soon"), {}, "is not a time like 30m"),
        (("--lifetime", "-1"), {}, "is not a time like 30m"),
        (("--lifetime", "1.5h"), {}, "is not a time like 30m"),
        (("--lifetime", "3 dayz"), {}, "did you mean 'day'?"),
        (("--lifetime", "0"), {}, "from 1 second to 366 days"),
        (("--lifetime", "999ms"), {}, "from 1 second to 366 days"),
        (("--lifetime", "367d"), {}, "from 1 second to 366 days"),
        (("--url", "shop.example/console"), {}, "https://shop.example/console"),
        (("--url", "https://"), {}, "no address at which a customer"),
        (("--url", "ftp://shop.example"), {}, "no address at which a customer"),
        (("--url", "https://shop.example:http"), {}, "no address at which a customer"),
        (("--url", "https://[shop.example"), {}, "no address at which a customer"),
        (("--url", "https://shop.example/a b"), {}, "no address at which a customer"),
        (("--url", "https://ops:sesame@shop.example"), {}, "has a user"),
        (("--url", "https://shop.example/?key=sesame"), {}, "a query"),
        (("--url", "https://shop.example/#sesame"), {}, "a fragment"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_that_shows_no_secret(
    words: tuple[str, ...], variables: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is printed that could be taken for a link."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name)
    url = () if "--url" in words else ("--url", URL)
    said = said_by("contracts", "link", "acme", *url, *words)

    assert (2, "") == (said.status, said.stdout)
    assert says in said.stderr
    assert not any(secret in said.stderr for secret in (LINKS, "too-short", "sesame"))


@pytest.mark.parametrize(("identity", "says"), [("", "no name of a customer"), ("x" * 513, "at most 512 bytes")])
def test_a_link_is_for_no_customer_that_there_cannot_be(identity: str, says: str) -> None:
    """Contracts would not take such a name either."""
    said = said_by("contracts", "link", identity, "--url", URL)

    assert (2, "") == (said.status, said.stdout)
    assert says in said.stderr


def test_a_link_is_made_where_no_console_is_installed() -> None:
    """Applications and commands that make links import neither Starlette nor a server."""
    code = (
        "import sys\nimport reconverge.cli.contracts.link\nimport reconverge.integrations.customer_links\n"
        "print([name for name in ('starlette', 'uvicorn') if name in sys.modules])"
    )

    assert "[]\n" == subprocess.check_output([sys.executable, "-c", code], text=True)
