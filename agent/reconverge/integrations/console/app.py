"""The console as an ASGI application that can be mounted anywhere: console(agent, tokens=["ops: ..., read"])."""

# Theory of operation.
#
# One page, one style sheet and one script are served from the package, and all their links are relative. So the console
# works offline, and under any prefix that an application or a proxy adds. The script fetches JSON and follows a stream
# of server-sent events. The server renders nothing, and data of nodes is only shown as text. The content security
# policy lets no inline script or style run, so a name with a tag in it stays a name.
#
# Customers come with a signed link to a page of their own (`customer_page.py`), which is served before any operator is
# authenticated: a link opens no path of operators, and an operator's session opens no page of a customer.
#
# The fleet is read once a second for all viewers (`live.py`). While no page is open, nothing is read.

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple

from reconverge.agent import Agent
from reconverge.errors import HubUnavailable, InvalidKey, InvalidSetting, MissingExtra, shown
from reconverge.hub.usage import HOUR
from reconverge.limit.quotas import limit_of_quota
from reconverge.published.envelope import InvalidDocument, Secrets, UnverifiedDocument

try:
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import RedirectResponse, Response
except ModuleNotFoundError as error:
    raise MissingExtra("the console", error.name or "starlette", "console") from error

from reconverge.integrations.console.access import Access, Visitor, check_origin, sign_out
from reconverge.integrations.console.contract_requests import ContractRequests
from reconverge.integrations.console.contracts import RECORDED_MAX, ContractPages, Recording
from reconverge.integrations.console.customer_page import DATA, LINK, CustomerPage
from reconverge.integrations.console.every_path import EveryPath
from reconverge.integrations.console.fleet import limits_named
from reconverge.integrations.console.key_page import key_standing
from reconverge.integrations.console.live import Live
from reconverge.integrations.console.streams import Streams
from reconverge.integrations.console.switches import FleetSwitches, UnknownSwitch, word_of
from reconverge.integrations.console.usage import UsagePages
from reconverge.integrations.contracts.problems import RETRY_AFTER_S, Problem, response_of, wrong_field
from reconverge.integrations.contracts.reading import form_of, json_of, members_of, query_of, route_path
from reconverge.integrations.contracts.tokens import Tokens
from reconverge.integrations.customer_links import PAGE, CustomerLinks

logger = logging.getLogger("reconverge")

FIELDS: Final = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The header fields of every response."""
BODY_BYTES_MAX: Final = 4096
FORM_FIELDS_MAX: Final = 8
"""The most fields of the sign-in form. It has one; some browsers and their extensions add a few."""
SCRIPTS: Final = ("console.js", "contracts.js", "overview.js", "shedding.js", "switches.js", "usage.js")
STATIC: Final = {"console.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
PAGES: Final = ("console.html", "sign_in.html", "my_limits.html", "no_link.html")
UNKNOWN_TOKEN: Final = "This token is not known here."  # noqa: S105  # a sentence


def console(
    agent: Agent,
    *,
    tokens: Tokens | None = None,
    behind_authentication: bool = False,
    settings_secret: str | bytes | None = None,
    read_only: bool = False,
    recording: Recording | None = None,
    customer_secret: str | bytes | Sequence[str | bytes] | None = None,
) -> Starlette:
    """Makes the web application that shows the fleet of an agent; mount it under any prefix.

    If the hub keeps snapshots of nodes, as memory and Redis do, each worker shows all nodes of the agent's namespace.
    Otherwise each worker shows its own process only.

    Args:
        agent: an agent of the fleet, or one made for the console.
        tokens: the secrets by which persons and programs sign in: a mapping of tokens to "read" or "write", or a list
            of `Token` or of text as "name: token, role". A token has 16 bytes or more.
        behind_authentication: whether the application lets only operators reach the console, so no tokens are needed.
        settings_secret: the secret that signs published settings and contracts. With it the console has switches for
            the whole fleet, and shows the contracts at the hub.
        read_only: whether all changes are refused, even with a token that allows them.
        recording: recorded requests, which show the effect of a change to contracts; needs `settings_secret`.
        customer_secret: the secret that signs customers' links. With such a link a customer sees its own limits at
            `my-limits`, and nothing else; see `customer_token`. 16 bytes or more; links signed with any of several
            secrets are accepted. Needs `settings_secret`, because the page shows the contracts at the hub, and
            `tokens`, because customers cannot pass the authentication of operators.

    Raises:
        InvalidSetting: neither a token nor `behind_authentication` is given, or both are; a token or a secret is
            invalid; `agent` is not an Agent; `recording` or `customer_secret` is given without the settings it needs.
    """
    access = Access(tokens, behind_authentication=behind_authentication, read_only=read_only, clock=_own(agent).clock)
    switches = contracts = customers = None
    if settings_secret is not None:
        secrets = Secrets(settings_secret)
        switches = FleetSwitches(agent, secrets, agent.clock)
        kept = ContractPages(agent, secrets, agent.clock, _checked(recording))
        contracts = ContractRequests(kept)
        if customer_secret is not None:
            customers = CustomerPage(CustomerLinks(customer_secret, agent.clock), kept.own_limits, agent.clock)
    elif recording is not None:
        raise InvalidSetting(
            "recording",
            type(recording).__name__,
            "has an effect only with a settings_secret, with which contracts are read; give both",
        )
    _check_customers(customer_secret, contracts=contracts is not None, behind_authentication=behind_authentication)
    pages = _Console(agent, access, switches, contracts, customers)
    app = Starlette(routes=[EveryPath(pages.answer, FIELDS)], exception_handlers={Exception: _failed})
    app.state.pages = pages
    return app


def _own(agent: object) -> Agent:
    if not isinstance(agent, Agent):
        raise InvalidSetting("agent", agent, "is not an Agent; pass the agent that your limits are declared with")
    return agent


def _check_customers(secret: object, *, contracts: bool, behind_authentication: bool) -> None:
    """Raises InvalidSetting for a customer secret without contracts to show, or with `behind_authentication`."""
    if secret is not None and not contracts:
        raise InvalidSetting(
            "customer_secret",
            "***",
            "has an effect only with a settings_secret, with which contracts are read; give both",
        )
    if secret is not None and behind_authentication:
        problem = "opens a page for customers, which cannot pass the authentication of operators; use tokens instead"
        raise InvalidSetting("customer_secret", "***", problem)


def _checked(recording: Recording | None) -> Recording | None:
    if recording is not None and len(recording.requests) > RECORDED_MAX:
        problem = (
            f"has more than {RECORDED_MAX} requests, which would take too long to decide; give only the last of them"
        )
        raise InvalidSetting("recording", recording.name, problem)
    return recording


class _PathEntry(NamedTuple):
    """The method and the function that serve one path, and whether a request there changes something."""

    method: str
    serve: Callable[[Request, Visitor], Awaitable[Response]]
    changes: bool = False


class _Console:
    def __init__(
        self,
        agent: Agent,
        access: Access,
        switches: FleetSwitches | None,
        contracts: ContractRequests | None,
        customers: CustomerPage | None,
    ) -> None:
        self._agent = agent
        self._access = access
        self._switches = switches
        self._customers = customers
        if customers is not None:
            agent.on_forget(customers.forget)
        self._live = Live(agent)
        self._usage = UsagePages(agent, agent.clock)
        self._streams = Streams(self._live.view)
        self._files = {name: _file(name) for name in (*STATIC, *PAGES)}
        self._places = {
            "/session": _PathEntry("GET", self.session),
            "/state": _PathEntry("GET", self.state),
            "/stream": _PathEntry("GET", self.stream),
            "/key": _PathEntry("GET", self.key),
            "/usage": _PathEntry("GET", self.usage),
        }
        if switches is not None:
            self._places["/switches"] = _PathEntry("GET", self.read_switches)
            self._places["/switch"] = _PathEntry("POST", self.turn_switch, changes=True)
        if contracts is not None:
            self._places |= {
                "/contracts": _PathEntry("GET", contracts.overview),
                "/customer": _PathEntry("GET", contracts.customer),
                "/plan": _PathEntry("GET", contracts.plan),
                "/history": _PathEntry("GET", contracts.history),
                "/predict": _PathEntry("POST", contracts.predict),
                "/change": _PathEntry("POST", contracts.change, changes=True),
            }

    def go_on_while(self, going_on: Callable[[], bool]) -> None:
        """Makes event streams end once `going_on` returns False, as it does when the server shuts down."""
        self._streams.going_on = going_on

    async def answer(self, request: Request) -> Response:
        """Returns the response to any request; Problem and HubUnavailable become error responses."""
        try:
            return await self._served(request)
        except Problem as problem:
            return response_of(problem)
        except HubUnavailable as error:
            fields = {"Retry-After": str(RETRY_AFTER_S)}
            said = f"the hub does not answer ({error.kind})"
            return response_of(Problem(503, said, fields=fields, kind=error.kind, applied=error.applied))
        except ClientDisconnect:
            return Response(status_code=400)  # the client has disconnected

    async def _served(self, request: Request) -> Response:
        path = route_path(request.scope)
        reads = request.method in ("GET", "HEAD")
        if path == "" and reads:  # the page's links are relative to its path, which must end with a slash
            last = request.scope["path"].rstrip("/").rpartition("/")[2]
            return RedirectResponse(f"{last}/" if last else "./", 307)
        if path.lstrip("/") in STATIC and reads:
            name = path.lstrip("/")
            return Response(self._files[name], media_type=STATIC[name])
        if self._customers is not None and path in (PAGE, DATA):
            return await self._served_to_customer(self._customers, request, path)
        if self._access.has_sessions and path in ("/sign-in", "/sign-out") and request.method == "POST":
            return await self._sign_in(request) if path == "/sign-in" else self._sign_out(request)
        try:
            visitor = self._access.visitor(request)
        except Problem:
            if path == "/" and reads:
                return self._sign_in_page()
            raise
        if path == "/" and reads:
            return Response(self._files["console.html"], media_type="text/html")
        place = self._places.get(path)
        if place is None:
            raise Problem(404, f"the console has no page at the path {path[:100]!r}; begin with /")
        if request.method != place.method:
            raise Problem(
                405,
                f"the path {path} only accepts {place.method}, not {request.method[:20]!r}",
                fields={"Allow": place.method},
            )
        if place.changes:
            self._access.check_change(request, visitor)
        return await place.serve(request, visitor)

    async def _served_to_customer(self, customers: CustomerPage, request: Request, path: str) -> Response:
        """Serves a customer's page and its data: GET /my-limits?link=... and GET /my-limits.json?link=...

        The link selects the customer. The response shows the limits of this customer only.
        """
        if request.method not in ("GET", "HEAD"):
            raise Problem(
                405, f"the path {path} only accepts GET, not {request.method[:20]!r}", fields={"Allow": "GET"}
            )
        try:
            link = customers.opened(request.query_params.getlist(LINK))
        except Problem:
            if path == PAGE:
                return Response(self._files["no_link.html"], 403, media_type="text/html")
            raise
        if path == PAGE:
            return Response(self._files["my_limits.html"], media_type="text/html")
        return _json_response(await customers.standing(link))

    def _sign_in_page(self, problem: str = "") -> Response:
        page = self._files["sign_in.html"].replace(b"<!-- problem -->", problem.encode())
        return Response(page, 401 if problem else 200, media_type="text/html")

    async def _sign_in(self, request: Request) -> Response:
        fields = await form_of(request, bytes_max=BODY_BYTES_MAX, fields_max=FORM_FIELDS_MAX)
        cookie = self._access.sign_in(request, fields.get("token", "").strip())
        if cookie is None:
            return self._sign_in_page(UNKNOWN_TOKEN)
        return RedirectResponse("./", 303, {"Set-Cookie": cookie})

    def _sign_out(self, request: Request) -> Response:
        check_origin(request)
        return RedirectResponse("./", 303, {"Set-Cookie": sign_out(request)})

    async def session(self, request: Request, visitor: Visitor) -> Response:
        """GET /session: returns the visitor's name and permissions."""
        query_of(request, ())
        return _json_response(
            {
                "name": visitor.name,
                "namespace": self._agent.namespace,
                "word": visitor.word,
                "signs_out": self._access.has_sessions,
                "switches": self._switches is not None,
                "changes": visitor.role == "write",
            }
        )

    async def state(self, request: Request, _visitor: Visitor) -> Response:
        """GET /state: returns the present state of the fleet."""
        query_of(request, ())
        return _json_response(await self._live.view())

    async def stream(self, request: Request, _visitor: Visitor) -> Response:
        """GET /stream: sends the present state of the fleet, and again every second."""
        query_of(request, ())
        return self._streams.begin()

    async def key(self, request: Request, _visitor: Visitor) -> Response:
        """GET /key?limit=...&key=...: returns how much of a limit one key has used, and how much it has left."""
        query = query_of(request, ("limit", "key"))
        for name in ("limit", "key"):
            if not query.get(name):
                raise Problem(400, f"the parameter {name} is missing; add ?limit=...&key=...", parameter=name)
        named = limit_of_quota(query["limit"])
        limits = limits_named(await self._live.nodes(), named)
        if not limits:
            raise Problem(
                404, f"no node that reports now has a limit {named[:100]!r}; check its name", parameter="limit"
            )
        try:
            return _json_response(await key_standing(self._agent, limits, named, query["key"]))
        except InvalidKey as error:
            raise Problem(422, str(error), parameter="key") from None

    async def usage(self, request: Request, _visitor: Visitor) -> Response:
        """GET /usage?period=...&limit=...&identity=...: returns usage over time."""
        query = query_of(request, ("period", "limit", "identity"))
        identity, limit = query.get("identity", ""), query.get("limit", "")
        return _json_response(await self._usage.chart(query.get("period", HOUR), identity=identity, limit=limit))

    async def read_switches(self, request: Request, _visitor: Visitor) -> Response:
        """GET /switches: returns the published switches."""
        query_of(request, ())
        assert self._switches is not None  # the path is not served otherwise
        return _json_response(await self._switches.read())

    async def turn_switch(self, request: Request, visitor: Visitor) -> Response:
        """POST /switch: publishes a switch for all limits, or for one."""
        assert self._switches is not None  # the path is not served otherwise
        said = members_of(await json_of(request, bytes_max=BODY_BYTES_MAX), "to", "limit")
        try:
            to = word_of(said.get("to"))
        except ValueError as error:
            raise wrong_field(422, str(error), ("to",)) from None
        limit = said.get("limit")
        if limit is not None and not isinstance(limit, str):
            raise wrong_field(
                422, f"must be the name of a limit, or null for all of them, not {shown(limit)}", ("limit",)
            )
        try:
            limit = None if limit is None else limit_of_quota(limit)
            reported = (
                [] if limit is None else [each.name for node in await self._live.nodes() for each in node.newest.limits]
            )
            table = await self._switches.turn(to, limit, author=visitor.name, reported=reported)
        except UnknownSwitch as error:
            raise wrong_field(422, str(error), ("limit",)) from None
        except UnverifiedDocument as error:
            raise Problem(409, str(error)) from None
        except (InvalidDocument, InvalidSetting) as error:
            raise Problem(422, str(error)) from None
        logger.warning(
            "reconverge: %s has switched %s to %s by the console",
            visitor.name,
            "all limits" if limit is None else limit,
            to or "the setting of each node",
        )
        return _json_response(table)


def _json_response(said: dict[str, Any]) -> Response:
    return Response(json.dumps(said).encode("ascii"), media_type="application/json")


def _file(name: str) -> bytes:
    return files("reconverge.integrations.console").joinpath("static", name).read_bytes()


async def _failed(_request: Request, _error: Exception) -> Response:
    """Answers an unexpected error with status 500. Starlette then raises the error, and the server logs it."""
    response = response_of(Problem(500, "this is a bug of the console, which the server has logged"))
    response.headers.update(FIELDS)
    return response
