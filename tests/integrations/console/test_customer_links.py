"""Goal: a signed link opens one customer's own limits until it ends, and nothing else to any client.

Method: links that are made well and with one thing wrong, and the requests that a browser and a stranger send.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from reconverge import Agent, InvalidSetting
from reconverge.clock import SECOND_NS, ManualClock, SystemClock
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.store.hub_book import HubBook
from reconverge.integrations.console import console, customer_token
from reconverge.integrations.console.customer_page import NO_LINK, NOT_NOW, READ_AT_ONCE_MAX, CustomerPage
from reconverge.integrations.contracts.problems import Problem
from reconverge.integrations.customer_links import MAGIC, CustomerLinks
from reconverge.published.envelope import Secrets
from reconverge_sync.memory import MemoryHub
from tests.integrations.console.conftest import SECRET
from tests.integrations.console.test_access import PATHS
from tests.support.console import READER, READS, TOKENS, Browser, forged_link
from tests.support.kept_contracts import shop
from tests.support.waiting import eventually

LINKS = "a-secret-of-links-that-is-long"
NOW_S = 4_000_000_000
SECRETS: Any = {"customer_secret": LINKS, "settings_secret": SECRET}


def later_s(seconds: int = 3600) -> int:
    """A moment by the clock of the machine."""
    return SystemClock.wall_ns() // SECOND_NS + seconds


def forged(identity: str, expires: object, secret: str = LINKS, magic: bytes = MAGIC) -> str:
    return forged_link(identity, expires, secret, magic)


@pytest.fixture
def public(agent: Agent, hub: MemoryHub) -> Iterator[Browser]:
    """A client without a token, at a console with a page for customers; acme and bob have contracts."""
    document = shop(acme={"plan": "pro", "limits": {"calls": "3/day"}}, bob={"plan": "free"})
    asyncio.run(HubBook(hub, "shop", Secrets(SECRET)).replace(document, author="grace"))
    with Browser(console(agent, tokens=TOKENS, **SECRETS)) as client:
        yield client


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("identity", ["acme", "a", "Ünïcode €", "a b/c?d&e=.~", "x" * 512])
def test_a_link_opens_for_its_customer_until_its_last_second(identity: str) -> None:
    """And not from the next one on."""
    clock = ManualClock(float(NOW_S))
    link = customer_token(LINKS, identity, NOW_S + 60)

    assert re.fullmatch(r"[A-Za-z0-9_.-]+", link)
    clock.advance(59.999)
    assert (identity, NOW_S + 60) == CustomerLinks(LINKS, clock).opened(link)
    clock.advance(0.001)
    assert CustomerLinks(LINKS, clock).opened(link) is None


def test_the_end_may_be_a_moment_with_a_time_zone() -> None:
    """Which is the same as the number of its seconds."""
    moment = datetime.fromtimestamp(NOW_S, UTC)

    assert customer_token(LINKS, "acme", NOW_S) == customer_token(LINKS, "acme", moment)
    assert customer_token(LINKS, "acme", NOW_S) == customer_token(
        LINKS, "acme", moment.astimezone(timezone(timedelta(hours=5)))
    )


def test_secrets_can_be_changed_while_links_of_the_former_one_go_on() -> None:
    """The first one signs, and all are believed."""
    links = CustomerLinks(["another-secret-of-links", LINKS], ManualClock(float(NOW_S)))

    assert links.opened(customer_token(LINKS, "acme", NOW_S + 1)) is not None
    assert links.opened(customer_token(["another-secret-of-links", LINKS], "acme", NOW_S + 1)) is not None
    assert (
        CustomerLinks(LINKS, ManualClock(float(NOW_S))).opened(
            customer_token(["another-secret-of-links", LINKS], "acme", NOW_S + 1)
        )
        is None
    )


GOOD = forged("acme", NOW_S + 60)
IDENTITY, EXPIRES, SIGNATURE = GOOD.split(".")


@pytest.mark.parametrize(
    "link",
    [
        "",
        ".",
        "..",
        GOOD[:-1],
        GOOD + "0",
        GOOD + "\n",
        " " + GOOD,
        GOOD.upper(),
        f"{IDENTITY}.{int(EXPIRES) + 1}.{SIGNATURE}",
        f"{IDENTITY}.0{EXPIRES}.{SIGNATURE}",
        f"{IDENTITY}.+{EXPIRES}.{SIGNATURE}",
        f"{IDENTITY}=.{EXPIRES}.{SIGNATURE}",
        f"Ym9i.{EXPIRES}.{SIGNATURE}",
        f"{IDENTITY}.{EXPIRES}.{SIGNATURE[:-1]}{'0' if SIGNATURE[-1] != '0' else '1'}",
        f"{IDENTITY}.{EXPIRES}.{'0' * 64}",
        f"{IDENTITY}.{EXPIRES}.",
        f"{IDENTITY}.{EXPIRES}",
        f"{IDENTITY}.{EXPIRES}.{SIGNATURE}.{SIGNATURE}",
        forged("acme", NOW_S),
        forged("acme", NOW_S - 1),
        forged("acme", 10**12),
        forged("acme", "never"),
        forged("acme", NOW_S + 60, secret="another-secret-of-links"),  # noqa: S106  # a test's own
        forged("acme", NOW_S + 60, magic=b""),
        forged("acme", NOW_S + 60, magic=b"reconverge-settings-1 "),
        forged("x" * 2000, NOW_S + 60),
        "x" * 100_000,
        "ä" * 64,
    ],
)
def test_what_is_over_changed_or_signed_with_another_secret_opens_nothing(link: str) -> None:
    """Nor what was signed with this secret as something else."""
    links = CustomerLinks(LINKS, ManualClock(float(NOW_S)))

    assert ("acme", NOW_S + 60) == links.opened(GOOD)
    assert links.opened(link) is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"secret": "short"}, "16 bytes"),
        ({"secret": ""}, "holds 0 secrets"),
        ({"secret": 7}, "neither text nor bytes"),
        ({"identity": ""}, "identity"),
        ({"identity": 7}, "identity"),
        ({"identity": "x" * 513}, "identity"),
        ({"expires": 0}, "seconds since 1970"),
        ({"expires": NOW_S * 1000}, "seconds since 1970"),
        ({"expires": float("nan")}, "seconds since 1970"),
        ({"expires": 7 * 86_400}, "which is over; for a lifetime, write"),
        ({"expires": "tomorrow"}, "seconds since 1970"),
        ({"expires": True}, "seconds since 1970"),
        ({"expires": datetime(2026, 1, 1, tzinfo=UTC)}, "2026-01-01 00:00 UTC, which is over"),
        ({"expires": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001  # that is the mistake
    ],
)
def test_a_mistake_in_making_a_link_is_told_and_shows_no_secret(changed: Any, says: str) -> None:
    """When it is made, and not when its customer opens it."""
    with pytest.raises(InvalidSetting, match=says) as error:
        customer_token(**({"secret": LINKS, "identity": "acme", "expires": NOW_S} | changed))

    assert "short'" not in str(error.value)
    assert LINKS not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tokens": TOKENS, "settings_secret": SECRET, "customer_secret": "short"}, "customer_secret.*16 bytes"),
        ({"tokens": TOKENS, "settings_secret": SECRET, "customer_secret": ""}, "customer_secret"),
        ({"tokens": TOKENS, "customer_secret": LINKS}, "only with a settings_secret"),
        ({"behind_authentication": True, **SECRETS}, "which cannot pass the authentication of operators"),
    ],
)
def test_a_console_whose_links_could_open_nothing_does_not_start(agent: Agent, settings: Any, says: str) -> None:
    """Nor one with a secret that is too short."""
    with pytest.raises(InvalidSetting, match=says):
        console(agent, **settings)


# ---------------------------------------------------------------- the page


def test_a_customer_sees_what_it_has_used_and_nothing_of_others(public: Browser, agent: Agent) -> None:
    """By the use of all nodes; no plan, no node, no other customer, no field that is for operators."""
    contracts = Contracts(agent, shop(acme={"plan": "pro", "limits": {"calls": "3/day"}}), policy="strict")
    link = customer_token(LINKS, "acme", later_s())

    def told() -> Any:
        contracts.hit("acme")
        return public.get("/my-limits.json", params={"link": link}).json()

    eventually(lambda: 3 == told()["limits"][0]["used"], "the hub to know of three requests")
    page, said = public.get("/my-limits", params={"link": link}), told()
    calls, reports = said["limits"]
    assert ("calls", 3, 3, 0, False) == tuple(calls[each] for each in ("name", "quota", "used", "remaining", "allowed"))
    assert ("reports", 10, 3, True) == tuple(reports[each] for each in ("name", "quota", "used", "allowed"))
    assert 0 < calls["wait_s"] <= 2 * 86_400  # a sliding day that was used early frees something late in the next one
    assert said["sentence"].startswith("acme may send 3 requests a day and has sent 3")
    assert {"identity", "expires", "sentence", "limits", "left_out"} == set(said)
    assert {"plan", "by", "switch", "allowances", "in_force"}.isdisjoint(calls)
    assert 200 == page.status_code
    for text in (page.text, str(said)):
        assert not re.search(r"\b(bob|pro|shop|grace|login)\b", text)


def test_whatever_is_wrong_with_a_link_the_answer_is_the_same(public: Browser) -> None:
    """Of a customer that exists and of one that does not: a stranger learns nothing, and nothing is looked up."""
    expires = later_s()
    wrong = [
        {},
        {"link": ""},
        {"link": forged("acme", 1)},
        {"link": forged("no-such-customer", 1)},
        {"link": customer_token("another-secret-of-links", "acme", expires)},
        {"link": customer_token(LINKS, "acme", expires).replace("YWNtZQ", "Ym9i")},
        {"link": [customer_token(LINKS, "acme", expires)] * 2},
        {"token": customer_token(LINKS, "acme", expires)},
    ]

    pages = [public.get("/my-limits", params=each) for each in wrong]
    answers = [public.get("/my-limits.json", params=each) for each in wrong]

    assert {403} == {each.status_code for each in (*pages, *answers)}
    assert 1 == len({each.content for each in pages})
    assert 1 == len({each.content for each in answers})
    assert NO_LINK in pages[0].text
    assert NO_LINK == answers[0].json()["detail"]
    assert "script" not in pages[0].text


def test_a_link_of_a_customer_without_a_contract_says_what_holds_for_it(public: Browser) -> None:
    """It shows the terms of any customer that the contracts do not name."""
    said = public.get("/my-limits.json", params={"link": customer_token(LINKS, "eve", later_s())}).json()

    assert ["calls"] == [each["name"] for each in said["limits"]]


def test_what_others_use_too_and_what_is_switched_off_is_not_shown(public: Browser, hub: MemoryHub) -> None:
    """Of limits that count users, or customers together, only the number is told; an unnamed plan is not named."""
    limits = {
        "calls": "9/day",
        "each-user": {"limit": "5/day", "by": ["customer", "user"]},
        "all-of-a-region": {"limit": "100/day", "by": ["region"]},
        "off": {"limit": "5/day", "switch": "off"},
    }
    plans = {"gold": {"limits": limits}, "none": {"limits": {"off": limits["off"]}}}
    document = {"unknown": "none", "plans": plans, "customers": {"acme": {"plan": "gold"}}}
    asyncio.run(HubBook(hub, "shop", Secrets(SECRET)).replace(document, author="grace"))

    acme, eve = (
        public.get("/my-limits.json", params={"link": customer_token(LINKS, identity, later_s())})
        for identity in ("acme", "eve")
    )

    assert (["calls"], 2) == ([each["name"] for each in acme.json()["limits"]], acme.json()["left_out"])
    assert ([], "") == (eve.json()["limits"], eve.json()["sentence"])
    for each in (acme, eve):
        assert not re.search('gold|none|user|region|off"|switched', each.text)


@pytest.mark.parametrize("path", [*PATHS, "/contracts", "/customer?identity=acme", "/plan?name=pro", "/history"])
def test_a_link_opens_no_path_of_operators(public: Browser, path: str) -> None:
    """Sent as a parameter, as a token or as a cookie; and an operator's session opens no page of a customer."""
    link = customer_token(LINKS, "acme", later_s())
    separator = "&" if "?" in path else "?"

    for response in (
        public.get(f"{path}{separator}link={link}"),
        public.get(path, headers={"authorization": f"Bearer {link}"}),
        public.get(path, headers={"cookie": f"reconverge_console={link}"}),
        public.post(path.partition("?")[0], json={"to": "off"}, headers={"authorization": f"Bearer {link}"}),
    ):
        assert 401 == response.status_code
    assert 401 == public.post("/sign-in", data={"token": link}, headers={"origin": public.home}).status_code
    assert 403 == public.get("/my-limits.json", headers=READS).status_code


def test_a_link_changes_nothing(public: Browser) -> None:
    """The page is read, and that is all."""
    link = customer_token(LINKS, "acme", later_s())

    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in ("/my-limits", "/my-limits.json"):
            assert 405 == public.send(method, path, params={"link": link}).status_code


def test_it_works_under_a_prefix_with_the_policy_and_sends_its_address_nowhere(agent: Agent, public: Browser) -> None:
    """All that the page names is relative; its address holds the link, so no other site is told of it."""
    link = customer_token(LINKS, "acme", later_s())
    del public  # the contracts are at the hub
    mounted = Starlette(routes=[Mount("/admin/limits", console(agent, tokens=TOKENS, **SECRETS))])
    with Browser(mounted) as client:
        for query, status in (({"link": link}, 200), ({"link": "x"}, 403)):
            page = client.get("/admin/limits/my-limits", params=query)
            names = re.findall(r'(?:href|src)="([^"]+)"', page.text)
            assert status == page.status_code
            assert {"console.css", "console.js"} >= set(names)
            assert "no-referrer" == page.headers["referrer-policy"]
            assert "unsafe" not in page.headers["content-security-policy"]
            assert "private, no-cache" == page.headers["cache-control"]
            assert not re.search(r"<script(?! src=\"console\.js\" defer)|<style| style=| on[a-z]+=|https?:", page.text)
        assert 200 == client.get("/admin/limits/my-limits.json", params={"link": link}).status_code


def test_without_the_secret_there_is_no_such_page(client: Browser) -> None:
    """An operator is told so, a stranger not even that."""
    assert 401 == client.get("/my-limits").status_code
    assert 404 == client.get("/my-limits", headers={"authorization": f"Bearer {READER}"}).status_code


def test_what_cannot_be_told_names_no_host_and_no_reason(agent: Agent, public: Browser) -> None:
    """It is the operator's."""

    async def ask_hub(question: Callable[..., Any]) -> Any:
        raise InvalidSetting("hub", "redis://:secret@host", f"failed {question}")

    agent.ask_hub = ask_hub  # type: ignore[method-assign]  # a fault, planted

    response = public.get("/my-limits.json", params={"link": customer_token(LINKS, "acme", later_s())})

    assert (503, NOT_NOW) == (response.status_code, response.json()["detail"])
    assert not re.search("host|redis|secret", response.text)


async def test_a_page_that_asks_often_is_read_once_in_two_seconds_and_few_are_read_at_once() -> None:
    """However many customers ask, and however often; what is erased is read anew."""
    clock, read = ManualClock(float(NOW_S)), []
    going_on = asyncio.Event()

    async def standing(identity: str) -> dict[str, Any]:
        read.append(identity)
        await going_on.wait()
        return {"sentence": identity, "limits": [], "left_out": len(read)}

    page = CustomerPage(CustomerLinks(LINKS, clock), standing, clock)
    links = [page.opened([customer_token(LINKS, f"{number}", NOW_S + 60)]) for number in range(20)]
    asked = [asyncio.create_task(page.standing(link)) for link in links]
    await asyncio.sleep(0)
    going_on.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert READ_AT_ONCE_MAX == sum(isinstance(each, dict) for each in answers)
    assert {503} == {each.status for each in answers if isinstance(each, Problem)}
    for _ in range(5):
        assert {"0", ""} == {(told := await page.standing(links[0]))["identity"], told["sentence"]}
    assert 1 == read.count("0")
    clock.advance(1.999)
    await page.standing(links[0])
    assert 1 == read.count("0")
    clock.advance(0.001)
    await page.standing(links[0])
    assert 2 == read.count("0")
    page.forget(lambda name: name == "0")
    await page.standing(links[0])

    assert 3 == read.count("0")
