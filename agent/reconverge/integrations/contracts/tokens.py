"""Bearer tokens of the API, each with a name and a role, and whether a request may do what it asks for."""

# Theory of operation.
#
# A token is a secret that a program sends with each request (RFC 6750). It has a role, `read` or `write`, and `write`
# may read, too. It has a name, so that the history of the contracts says which program has made a change; the name may
# be shown, and the secret never is: not in an error, a log, a `repr` or a response. Two tokens of one name are refused,
# as the history could not tell them apart. What a request may do is the role of the token that it shows, and no name is
# looked up for that.
#
# Tokens are compared by their digests, with all tokens each time, in a time that does not depend on how much of a
# token was guessed right. A digest has one length, so the time tells nothing of a token's length, either.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from typing import Final, Literal, TypeAlias, cast

from reconverge.errors import InvalidSetting
from reconverge.integrations.contracts.problems import Problem

Role: TypeAlias = Literal["read", "write"]
ROLES: Final[dict[str, Role]] = {"read": "read", "write": "write"}
SECRET_BYTES_MIN: Final = 16
"""A shorter token can be guessed: this many random letters have about 90 bits."""
SECRET_BYTES_MAX: Final = 512
"""Servers take header fields of a few kilobytes; a longer token is a mistake, such as a whole file."""
NAME_LENGTH_MAX: Final = 100
TOKENS_MAX: Final = 100
"""Each request is compared with all of them."""
ANONYMOUS: Final = "anonymous"
"""The author of changes in the history, where the API is open to all."""
REALM: Final = "contracts"
UNKNOWN_ROLE: Final = "has a role that is neither 'read' nor 'write'; say {token: role}, or 'name: token, role'"
"""The value is not shown: it is the token, if token and role were exchanged."""
_SECRET: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters that RFC 6750 lets a bearer token consist of."""
_CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Token:
    """A secret with a role, "read" or "write", and the name under which history knows it.

    Raises:
        InvalidSetting: the secret has less than 16 bytes, or others than a bearer token may have; the role is unknown;
            the name is not 1 to 100 printable characters. The secret is not shown.
    """

    name: str
    secret: str = field(repr=False)
    role: Role

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or not 1 <= len(self.name) <= NAME_LENGTH_MAX:
            problem = f"a token's name has 1 to {NAME_LENGTH_MAX} printable characters"
            raise InvalidSetting("tokens", self.name, problem)
        if self.role not in ROLES:
            raise InvalidSetting("tokens", _Hidden(self.name), UNKNOWN_ROLE)
        _check_secret(self.name, self.secret)

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read `name: token, role`, as a file or the environment has it. Raises InvalidSetting; it shows no secret."""
        name, colon, rest = text.partition(":")
        secret, comma, role = rest.rpartition(",")
        if not colon or not comma:
            raise InvalidSetting("tokens", _Hidden("..."), "is no token; write it as 'name: token, role'")
        return cls(name.strip(), secret.strip(), _role(role.strip()))


Tokens: TypeAlias = Mapping[str, str] | Iterable[Token | str]


class TokenTable:
    """The tokens of an API; none if it is open to all.

    Raises InvalidSetting if a token is wrong, a secret or a name is there twice, or if there is no token.
    """

    def __init__(self, tokens: Tokens | None, *, is_open: bool) -> None:
        self._tokens = _by_digest(_read(tokens)) if tokens else {}
        if is_open and self._tokens:
            raise InvalidSetting(
                "open", is_open, "lets all clients write, so it cannot be combined with tokens; leave out one of them"
            )
        if not is_open and not self._tokens:
            problem = "has no token, so no client could use the API; name some, as tokens={'...': 'write'}"
            raise InvalidSetting("tokens", tokens, f"{problem}, or set open=True if all clients may write")

    def name_of(self, credentials: Sequence[str], role: Role | None) -> str:
        """The name of the token in the `Authorization` fields of a request, if its role suffices; None needs no token.

        Raises Problem: 401 without a token that is known, 403 for one that may only read.
        """
        if not self._tokens or role is None:
            return ANONYMOUS
        return self.token_of(credentials, role).name

    def token_of(self, credentials: Sequence[str], role: Role) -> Token:
        """The token itself, which has a role and a name. Raises Problem as `name_of` does."""
        if len(credentials) != 1:
            problem = "several Authorization fields" if credentials else "no token; send Authorization: Bearer <token>"
            raise Problem(401, f"the request has {problem}", fields=_challenge())
        found = _CREDENTIALS.fullmatch(credentials[0])
        token = None if found is None else self._find(found[1])
        if token is None:
            raise Problem(401, "the token is not known here", fields=_challenge(error="invalid_token"))
        if role == "write" and token.role != "write":
            problem = f"the token {token.name!r} may read, and this needs one that may write"
            raise Problem(403, problem, fields=_challenge(error="insufficient_scope", scope="write"))
        return token

    def __iter__(self) -> Iterator[Token]:
        """The tokens."""
        return iter(self._tokens.values())

    def find(self, secret: str) -> Token | None:
        """The token with that secret, in a time that does not depend on how much of it is right."""
        return self._find(secret) if _SECRET.fullmatch(secret) else None

    def _find(self, secret: str) -> Token | None:
        digest = _digest(secret)
        found = None
        for each, token in self._tokens.items():
            if compare_digest(each, digest):
                found = token
        return found


class _Hidden:
    """A value that an error shows without its secret."""

    def __init__(self, name: object) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<token {self._name}>"


def _read(tokens: Tokens) -> list[Token]:
    """The tokens in each of the forms in which they may be given."""
    if isinstance(tokens, str):
        raise InvalidSetting("tokens", _Hidden("..."), "is text; give a list of 'name: token, role', or a mapping")
    if isinstance(tokens, Mapping):
        by_secret = cast("Mapping[object, object]", tokens)
        return _named_by_role((secret, _role(role)) for secret, role in by_secret.items())
    read = []
    for each in tokens:
        if not isinstance(each, str | Token):
            raise InvalidSetting("tokens", _Hidden("..."), "is neither a Token nor text as 'name: token, role'")
        read.append(Token.parse(each) if isinstance(each, str) else each)
    return read


def _named_by_role(secrets: Iterable[tuple[object, Role]]) -> list[Token]:
    """Tokens that were given without names: "read", "read-2" and so on, in the order in which they stand."""
    seen: Counter[Role] = Counter()
    named = []
    for secret, role in secrets:
        seen[role] += 1
        name = role if seen[role] == 1 else f"{role}-{seen[role]}"
        named.append(Token(name, cast("str", secret), role))
    return named


def _role(said: object) -> Role:
    if not isinstance(said, str) or said not in ROLES:
        raise InvalidSetting("tokens", _Hidden("..."), UNKNOWN_ROLE)
    return ROLES[said]


def _by_digest(tokens: Sequence[Token]) -> dict[bytes, Token]:
    if len(tokens) > TOKENS_MAX:
        raise InvalidSetting("tokens", len(tokens), f"more than {TOKENS_MAX} tokens; give programs of one kind one")
    by_digest: dict[bytes, Token] = {}
    names: set[str] = set()
    for token in tokens:
        other = by_digest.setdefault(_digest(token.secret), token)
        if other is not token:
            problem = f"has the same secret as {other.name!r}; make one of its own for each"
            raise InvalidSetting("tokens", _Hidden(token.name), problem)
        if token.name in names:
            problem = f"has the name of another token, {token.name!r}, and the history would not tell them apart"
            raise InvalidSetting("tokens", _Hidden(token.name), f"{problem}; give each a name of its own")
        names.add(token.name)
    return by_digest


def _check_secret(name: str, secret: object) -> None:
    if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
        problem = "has characters that no bearer token has; use letters, digits and -._~+/"
        raise InvalidSetting("tokens", _Hidden(name), problem)
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        problem = f"has {len(secret)} bytes, and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} are needed"
        advice = "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        raise InvalidSetting("tokens", _Hidden(name), f"{problem}; {advice}")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("ascii")).digest()


def _challenge(**parameters: str) -> dict[str, str]:
    said = ", ".join(f'{name}="{value}"' for name, value in {"realm": REALM, **parameters}.items())
    return {"WWW-Authenticate": f"Bearer {said}"}
