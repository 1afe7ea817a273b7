"""Which requests a console answers: those with a token, or a session that began with one, and none from other sites."""

# Theory of operation.
#
# A person shows a token once, on the sign-in page, and goes on with a cookie. Any worker may answer the next request,
# and workers share nothing, so the session is in the cookie itself: when it ends, and a signature whose key is made of
# the token. It holds on all workers that know the token, and ends with the token. The cookie is for HTTP alone, and is
# sent by no page of another site (`SameSite=Strict`). It has no path of its own: the browser takes that of the page,
# whichever prefix a proxy has added or taken away.
#
# What changes something is asked for by the script of the page alone: as JSON, with a field that no form of another
# site can send, which holds a word made of the session; and the browser must say that the request comes from the
# same site. Behind the application's own authentication there is no session here, and the rest holds all the same.
#
# Programs send the token with each request, as to the API of contracts. No browser does that by itself, so no other
# site can have it done.

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import InvalidSetting
from reconverge.integrations.contracts.problems import Problem
from reconverge.integrations.contracts.tokens import ANONYMOUS, Role, Token, Tokens, TokenTable

COOKIE: Final = "reconverge_console"
FIELD: Final = "x-reconverge-console"
"""The field with which the script of the page asks for changes."""
NO_SESSION: Final = "behind-authentication"
"""The value of the cookie's word where there is no session."""
SESSION_S: Final = 12 * 3600
"""For so long a person stays signed in: a working day."""
COOKIES_CHARACTERS_MAX: Final = 65_536
"""Of one `Cookie` field, as much as servers let through: a long cookie of another application may stand before ours."""
COOKIES_MAX: Final = 8
"""So many cookies of that name are looked at: each is compared with all tokens, and another host may set some."""
_COOKIE: Final = re.compile(r"([0-9]{1,12})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person or a program that may look, and perhaps change something."""

    name: str
    role: Role
    word: str
    """A word that a request for a change has to hold, so that no other site can make it; empty for programs."""


class Access:
    """Says which requests come from a visitor.

    Args:
        tokens: as `contracts_api` takes them; a role of "read" may look, "write" may change something, too.
        behind_authentication: the application lets only operators through to the console.
        read_only: nothing is changed, whatever the role.

    Raises InvalidSetting if both or neither are given, or a token is wrong.
    """

    def __init__(self, tokens: Tokens | None, *, behind_authentication: bool, read_only: bool, clock: Clock) -> None:
        if not tokens and not behind_authentication:
            problem = "has no token, and the console would be open to all clients; name one, as tokens={'...': 'read'}"
            advice = "or set behind_authentication=True if your application lets only operators through to it"
            raise InvalidSetting("tokens", tokens, f"{problem}, {advice}")
        if tokens and behind_authentication:
            raise InvalidSetting(
                "behind_authentication", behind_authentication, "cannot be combined with tokens; leave out one of them"
            )
        self._tokens = TokenTable(tokens, is_open=behind_authentication)
        self._open = behind_authentication
        self._read_only = read_only
        self._clock = clock

    def visitor(self, request: Request) -> Visitor:
        """From which visitor a request comes. Raises Problem (401)."""
        if self._open:
            return Visitor(ANONYMOUS, self._role("write"), NO_SESSION)
        credentials = request.headers.getlist("authorization")
        if credentials:
            token = self._tokens.token_of(credentials, "read")
            return Visitor(token.name, self._role(token.role), "")
        for session in map(_COOKIE.fullmatch, _cookies_of(request)):
            if session is None or int(session[1]) <= self._now_s():
                continue
            for token in self._tokens:
                if compare_digest(_signature(token, session[1]), session[2]):
                    return Visitor(token.name, self._role(token.role), _word(token, session[2]))
        raise Problem(401, "sign in, or send Authorization: Bearer <token>")

    def check_change(self, request: Request, visitor: Visitor) -> None:
        """Raise Problem (403) unless a visitor may change something, and it is the visitor that asks for it."""
        if visitor.role != "write":
            problem = "this console is for reading" if self._read_only else f"the token {visitor.name!r} may read"
            raise Problem(403, f"{problem}, and this would change something")
        if not visitor.word:
            return
        check_origin(request)
        if not compare_digest(request.headers.get(FIELD, "").encode(), visitor.word.encode()):
            raise Problem(403, "the request does not come from a page of this console; load the page again")

    def sign_in(self, request: Request, secret: str) -> str | None:
        """The cookie of a session that begins with a token, as a field; None if the token is not known.

        Raises Problem (403) for the form of another site.
        """
        check_origin(request)
        token = self._tokens.find(secret)
        if token is None:
            return None
        until = str(self._now_s() + SESSION_S)
        return _cookie(request, f"{until}.{_signature(token, until)}", SESSION_S)

    @property
    def has_sessions(self) -> bool:
        """Whether there is a page to sign in on."""
        return not self._open

    def _role(self, role: Role) -> Role:
        return "read" if self._read_only else role

    def _now_s(self) -> int:
        return self._clock.wall_ns() // SECOND_NS


def sign_out(request: Request) -> str:
    """The field that ends a session."""
    return _cookie(request, "", 0)


def check_origin(request: Request) -> None:
    """Raise Problem (403) for a request that a page of another site has made, as far as the browser shows."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        same = site == "same-origin"
    else:
        same = origin is not None and urlsplit(origin).netloc == request.headers.get("host")
    if not same:
        raise Problem(403, "the request does not come from a page of this console, as far as the browser says")


def _cookie(request: Request, value: str, age_s: int) -> str:
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    return f"{COOKIE}={value}; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _cookies_of(request: Request) -> list[str]:
    """The sessions that a request shows, cookie by cookie.

    Cookies of other applications of the host come with them, and may be anything: none of them is read. There are
    several of ours where consoles are mounted below each other.
    """
    said = [each for field in request.headers.getlist("cookie") for each in field[:COOKIES_CHARACTERS_MAX].split(";")]
    pairs = (each.partition("=") for each in said)
    return [value.strip() for name, _, value in pairs if name.strip() == COOKIE][:COOKIES_MAX]


def _key(token: Token) -> bytes:
    return sha256(b"reconverge console session\0" + token.secret.encode("ascii")).digest()


def _signature(token: Token, until: str) -> str:
    return digest(_key(token), f"{token.role} until {until}".encode("ascii"), "sha256").hex()


def _word(token: Token, signature: str) -> str:
    return digest(_key(token), f"change {signature}".encode("ascii"), "sha256").hex()
