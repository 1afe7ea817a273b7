"""Authenticates requests to a console, by a token or a session cookie, and rejects requests from other sites."""

# Theory of operation.
#
# A person enters a token once, on the sign-in page, and gets a cookie. Any worker may answer the next request, and
# workers share nothing, so the session is in the cookie itself: the time when it ends, and a signature whose key is
# derived from the token. The session is valid on all workers that know the token, until the token is removed. Scripts
# cannot read the cookie (`HttpOnly`), and requests of other sites do not carry it (`SameSite=Strict`). The cookie names
# no path, so the browser uses the path of the page, whichever prefix a proxy has added or removed.
#
# Changes are requested by the page's script alone: as JSON, with a header field that no form of another site can send.
# The field holds a word against forged requests (a CSRF token), which is derived from the session. The browser must
# also report that the request comes from the same site. Behind the application's own authentication there is no session
# here, and the other checks remain.
#
# Programs send the token with each request, as to the API of contracts. Browsers do not do that by themselves, so no
# other site can make them do it.

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
"""The header field in which the page's script sends the visitor's secret word (`Visitor.word`) with each request for a
change."""
NO_SESSION: Final = "behind-authentication"
"""The word that pages send in `FIELD` if the console has no sessions."""
SESSION_S: Final = 12 * 3600
"""The seconds for which a person stays signed in: 12 hours."""
COOKIES_CHARACTERS_MAX: Final = 65_536
"""The longest `Cookie` field that is read, the most that servers accept: long foreign cookies may come first."""
COOKIES_MAX: Final = 8
"""The most cookies named COOKIE that are checked in one request. Each check takes time, and other hosts of the domain
may set such cookies."""
_COOKIE: Final = re.compile(r"([0-9]{1,12})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person or a program that may read the console; with the role "write", also change something."""

    name: str
    role: Role
    word: str
    """The secret that a request for a change must contain, so that no other site can forge one; empty for programs."""


class Access:
    """Authenticates the requests to a console, and decides which may change something.

    Args:
        tokens: the tokens, as `contracts_api` takes them; the role "read" allows reading, and "write" also changes.
        behind_authentication: whether the application lets only operators reach the console, so no tokens are needed.
        read_only: whether changes are refused for all roles.
        clock: the clock by which sessions end.

    Raises InvalidSetting if both `tokens` and `behind_authentication` are given, or neither is, or a token is invalid.
    """

    def __init__(self, tokens: Tokens | None, *, behind_authentication: bool, read_only: bool, clock: Clock) -> None:
        if not tokens and not behind_authentication:
            problem = (
                "has no token, and the console would be open to all clients; give one, such as tokens={'...': 'read'}"
            )
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
        """Returns the visitor that sent a request. Raises Problem (401) if the request is not authenticated."""
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
        raise Problem(401, "the request has no valid token; sign in, or send Authorization: Bearer <token>")

    def check_change(self, request: Request, visitor: Visitor) -> None:
        """Raises Problem (403) unless the visitor may make changes and the request comes from a page of the console."""
        if visitor.role != "write":
            problem = "this console is read-only" if self._read_only else f"the token {visitor.name!r} may only read"
            raise Problem(403, f"{problem}; nothing can be changed with it")
        if not visitor.word:
            return
        check_origin(request)
        if not compare_digest(request.headers.get(FIELD, "").encode(), visitor.word.encode()):
            raise Problem(403, "the request does not come from a page of this console; load the page again")

    def sign_in(self, request: Request, secret: str) -> str | None:
        """Begins a session for the token `secret`. Returns the Set-Cookie value; None if no visitor has that token.

        Raises Problem (403) if the form was sent from another site.
        """
        check_origin(request)
        token = self._tokens.find(secret)
        if token is None:
            return None
        until = str(self._now_s() + SESSION_S)
        return _cookie(request, f"{until}.{_signature(token, until)}", SESSION_S)

    @property
    def has_sessions(self) -> bool:
        """Whether the console has a page on which visitors sign in."""
        return not self._open

    def _role(self, role: Role) -> Role:
        return "read" if self._read_only else role

    def _now_s(self) -> int:
        return self._clock.wall_ns() // SECOND_NS


def sign_out(request: Request) -> str:
    """Returns the Set-Cookie value that ends a session."""
    return _cookie(request, "", 0)


def check_origin(request: Request) -> None:
    """Raises Problem (403) for a request from a page of another site, as far as the browser reports that."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        same = site == "same-origin"
    else:
        same = origin is not None and urlsplit(origin).netloc == request.headers.get("host")
    if not same:
        raise Problem(
            403, "the browser reports that the request does not come from a page of this console; make it from there"
        )


def _cookie(request: Request, value: str, age_s: int) -> str:
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    return f"{COOKIE}={value}; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _cookies_of(request: Request) -> list[str]:
    """Returns the values of all cookies of a request that are named COOKIE, COOKIES_MAX at most.

    Cookies of other applications on the host are skipped. A request has several of this name if one console is mounted
    below another.
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
