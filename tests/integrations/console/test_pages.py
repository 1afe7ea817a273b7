"""Goal: the pages work under any prefix, run no script but their own, and show what nodes say as what it is.

Method: the console alone and mounted, asked as a browser asks; with nodes that share a hub with it, and hostile ones.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urljoin

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hub.port import Hub
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.console import console
from reconverge.integrations.console.app import SCRIPTS
from reconverge_sync.memory import MemoryHub
from tests.support.console import READER, READS, TOKENS, Browser
from tests.support.fixtures.agents import MakeAgent
from tests.support.waiting import eventually

T = TypeVar("T")
LINKS = re.compile(r'(?:href|src|action)="([^"#]+)"')


def in_starlette(app: Any, prefix: str) -> Any:
    return Starlette(routes=[Mount(prefix, app)])


def in_fastapi(app: Any, prefix: str) -> Any:
    outer = FastAPI()
    outer.mount(prefix, app)
    return outer


def behind_a_proxy(app: Any, prefix: str) -> Any:
    """Served by a proxy that takes a prefix away and says nothing of it."""

    async def proxied(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(prefix)
            scope = scope | {"path": path, "raw_path": path.encode()}
        await app(scope, receive, send)

    return proxied


@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi, behind_a_proxy])
@pytest.mark.parametrize("prefix", ["/console", "/admin/limits/console"])
def test_all_that_a_page_names_is_there_under_any_prefix(
    agent: Agent, mounted: Callable[[Any, str], Any], prefix: str
) -> None:
    """It is relative, and signing in leads back to the page."""
    app = mounted(console(agent, tokens=TOKENS), prefix)
    with Browser(app) as client:
        home = f"{prefix}/"
        for page in (client.get(home).text, client.get(home, headers=READS).text):
            links = [link for link in LINKS.findall(page) if link not in ("sign-in", "sign-out")]
            assert links
            assert [200] * len(links) == [client.get(urljoin(home, link)).status_code for link in links]
        response = client.post(f"{prefix}/sign-in", data={"token": READER}, headers={"origin": "http://shop.example"})
        assert home == urljoin(f"{prefix}/sign-in", response.headers["location"])
        assert 200 == client.get(f"{prefix}/state").status_code


@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi])
def test_without_its_slash_a_page_leads_to_the_one_with_it(agent: Agent, mounted: Callable[[Any, str], Any]) -> None:
    """Or all that it names would be looked for one step too high."""
    app = mounted(console(agent, tokens=TOKENS), "/console")
    with Browser(app) as client:
        response = client.get("/console")

    assert 307 == response.status_code
    assert "http://shop.example/console/" == urljoin("http://shop.example/console", response.headers["location"])


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs_inline(client: Browser) -> None:
    """Scripts of its own, one style sheet; no attribute of a page or of a script carries code or style."""
    for page in (client.get("/").text, client.get("/", headers=READS).text):
        assert not re.search(r"<script(?! src=\"[a-z]+\.js\" defer)|<style| style=| on[a-z]+=|https?:", page)
    assert set(SCRIPTS) == set(re.findall(r"<script src=\"([a-z]+\.js)\" defer>", page))
    script = "".join(client.get(f"/{name}").text for name in SCRIPTS)
    style = client.get("/console.css").text
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|setAttribute\(\"style", script
    )
    assert not re.search(r"@import|url\(", style)
    assert {"http://www.w3.org/2000/svg"} == set(re.findall(r"https?://[^\"]+", script + style))


@pytest.mark.parametrize(
    "path", ["/", *(f"/{name}" for name in SCRIPTS), "/console.css", "/state", "/session", "/nothing"]
)
@pytest.mark.parametrize("headers", [{}, READS], ids=["outside", "inside"])
def test_every_response_has_the_policy(client: Browser, path: str, headers: dict[str, str]) -> None:
    """Errors and pages alike; no inline code, no frames, no guessing at types."""
    fields = client.get(path, headers=headers).headers

    policy = fields["content-security-policy"]
    assert "unsafe" not in policy
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(
        policy.split("; ")
    )
    assert "nosniff" == fields["x-content-type-options"]
    assert "private, no-cache" == fields["cache-control"]


def test_wrong_questions_are_answered_with_what_is_wrong(client: Browser) -> None:
    """The answer is problem details, and never an error of the server."""
    answers = {
        "/nothing": 404,
        "/key": 400,
        "/key?limit=login": 400,
        "/key?limit=nothing&key=ada": 404,
        "/state?more=1": 400,
        "/switch": 405,
        "/%ff": 400,
        "/customer": 400,
        "/customer?identity=%00": 422,
        "/plan?name=none": 404,
        "/plan": 400,
        "/history?a=1": 400,
        "/usage?period=week": 422,
        "/usage?more=1": 400,
    }

    assert answers == {path: client.get(path, headers=READS).status_code for path in answers}
    assert 405 == client.post("/state", headers=READS).status_code
    assert "application/problem+json" == client.get("/nothing", headers=READS).headers["content-type"]


def test_the_whole_fleet_is_shown(client: Browser, agent: Agent, hub: MemoryHub, make_agent: MakeAgent) -> None:
    """Whichever node the console is mounted beside; with the limit that refused, and what that key has used."""
    others = [make_agent(hub, namespace="shop") for _ in range(2)]
    for number, other in enumerate(others):
        other.limit("login", "2/hour", policy="strict").hit(f"ada-{number}")
    agent.limiter("login").hit("ada-2")

    def told() -> bool:
        for number, other in enumerate((*others, agent)):
            other.limiter("login").hit(f"ada-{number}")
        view = client.get("/state", headers=READS).json()
        return len(view["nodes"]) == 3 and {f"ada-{number}" for number in range(3)} <= {
            key for each in view["denials"] for key in each["keys"]
        }

    eventually(told, "all nodes to tell of denials")
    view = client.get("/state", headers=READS).json()
    (login,) = view["limits"]
    assert ("fleet", "") == (view["scope"], view["problem"])
    assert ("login", "strict", 3, 0.0, 0.0) == tuple(
        login[name] for name in ("name", "policy", "nodes", "exposure", "bound")
    )
    assert 6 == login["admitted"]
    assert {("ada-0", 2), ("ada-1", 2), ("ada-2", 2)} == {(each["key"], each["used"]) for each in view["keys"]}
    standing = client.get("/key", params={"limit": "login", "key": "ada-1"}, headers=READS).json()
    (quota,) = standing["quotas"]
    assert (2, 0, 2, True) == tuple(quota[name] for name in ("used", "left", "limit", "fleetwide"))
    assert quota["sentence"].startswith("Requests are refused: 2 of 2 are used; one fits in ")
    assert quota["next_free_s"] > 0


def test_a_key_stands_with_each_quota_of_its_limit(client: Browser, agent: Agent) -> None:
    """Of several that must all hold, whichever worker knows of them."""
    api = agent.limit("api", "5/minute; 100/hour as hourly")
    for _ in range(3):
        api.hit("ada")

    def told() -> list[tuple[str, int]]:
        response = client.get("/key", params={"limit": "api", "key": "ada"}, headers=READS)
        quotas = response.json().get("quotas", [])
        return [(each["name"], each["used"]) for each in quotas]

    eventually(lambda: told() == [("api", 3), ("api#hourly", 3)], "the hub to know of three requests")


def test_a_console_answers_while_its_own_limiter_limits_it(agent: Agent) -> None:
    """Requests within the limit are served, the rest is refused; the console shows it, and its denials."""
    pages = console(agent, tokens=TOKENS)
    app = RateLimitMiddleware(pages, "3/hour", agent=agent, key_func=lambda request: request.headers["x-operator"])
    with Browser(app) as client:
        asked = [client.get("/session", headers=READS | {"x-operator": "ada"}).status_code for _ in range(6)]

    with Browser(pages) as beside:

        def told() -> list[tuple[int, int]]:
            limits = beside.get("/state", headers=READS).json()["limits"]
            return [(each["admitted"], each["refused"]) for each in limits if each["capacity"] == 3]

        eventually(lambda: told() == [(3, 3)], "the console to show the limit that limits it")

    assert [200] * 3 + [429] * 3 == asked


def test_what_is_in_progress_is_shown_for_all_nodes(
    client: Browser, agent: Agent, hub: MemoryHub, make_agent: MakeAgent
) -> None:
    """Slots that are held on two nodes, as long as they are."""
    limits = [each.concurrency("render", 20, lease=30.0) for each in (agent, make_agent(hub, namespace="shop"))]

    def told() -> Any:
        view = client.get("/state", headers=READS).json()
        return [each["in_use"] for each in view["limits"] if each["name"] == "render"]

    with limits[0].slot("ada"), limits[1].slot("ada"):
        eventually(lambda: told() == [2], "the console to show two slots in use")
    eventually(lambda: told() == [0], "the console to show none")


def test_without_a_hub_this_process_is_shown_and_that_is_said() -> None:
    """A node that is alone has no fleet."""
    alone = Agent("memory://")
    alone.limit("login", "2/hour").hit("ada")

    with Browser(console(alone, tokens=TOKENS)) as client:
        view = client.get("/state", headers=READS).json()
        quotas = client.get("/key?limit=login&key=ada", headers=READS).json()["quotas"]

    assert "process" == view["scope"]
    assert "this process is shown" in view["problem"]
    assert [("login", "ada")] == [(each["limit"], each["key"]) for each in view["keys"]]
    assert [(1, False)] == [(each["used"], each["fleetwide"]) for each in quotas]


def test_a_hub_that_does_not_answer_is_told_and_names_no_host(agent: Agent) -> None:
    """The page stays, with the nodes that were known."""

    async def ask_hub(question: Callable[[Hub], Awaitable[T]]) -> T:  # as the agent has it
        raise HubUnavailable("timeout", f"redis://:secret@host did not answer {question}")

    agent.ask_hub = ask_hub  # type: ignore[method-assign]  # a fault, planted

    with Browser(console(agent, tokens=TOKENS)) as client:
        response = client.get("/state", headers=READS)

    assert "the hub does not answer (timeout)" == response.json()["problem"]
    assert "secret" not in response.text


def test_what_hostile_clients_of_the_hub_leave_is_text_or_nothing(
    client: Browser, agent: Agent, hub: MemoryHub
) -> None:
    """A payload that is no snapshot is not shown; a name with a tag in it travels as text."""
    agent.start()
    asyncio.run(hub.watch(keep_s=60.0))
    asyncio.run(hub.leave_snapshot("ff", b'{"version":1,"host":"<script>alert(1)</script>"}', keep_s=60.0))

    def told() -> Any:
        agent.limiter("login").hit("</script><b>")
        view = client.get("/state", headers=READS).json()
        return view["keys"] and view

    eventually(told, "a key")
    response = client.get("/state", headers=READS)
    assert 1 == len(response.json()["nodes"])
    assert ["</script><b>"] == [each["key"] for each in response.json()["keys"]]
    assert "application/json" == response.headers["content-type"]


def test_signing_in_opens_the_console_and_reading_it_marks_it_open(client: Browser, hub: MemoryHub) -> None:
    """Serving the page alone marks nothing: no node works for a page that is not followed."""
    client.sign_in(READER)
    client.get("/")
    client.get("/session")
    assert 0.0 == asyncio.run(hub.watched_s())

    client.get("/state")

    assert 0.0 < asyncio.run(hub.watched_s()) <= 15.0


def test_however_many_pages_are_open_the_hub_is_read_once_in_a_second(agent: Agent) -> None:
    """All viewers are shown the same."""
    asked: list[float] = []
    ask = agent.ask_hub

    async def counting(question: Callable[[Hub], Awaitable[T]]) -> T:
        asked.append(0.0)
        return await ask(question)

    agent.ask_hub = counting  # type: ignore[method-assign]  # it counts
    began_ns = agent.clock.monotonic_ns()

    with Browser(console(agent, tokens=TOKENS)) as client:
        for _ in range(30):
            client.get("/state", headers=READS)

    passed_s = (agent.clock.monotonic_ns() - began_ns) / 1e9
    assert 1 <= len(asked) <= 1 + passed_s
