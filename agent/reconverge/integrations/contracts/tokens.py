"""Bearer tokens of the API, each with a name and a role, and the check whether a request has the right token."""

# Theory of operation.
#
# A token is a secret that a program sends with each request (RFC 6750). It has a role, `read` or `write`; `write`
# allows reading, too. It has a name, so that the history of the contracts records which program has made a change. The
# name may be shown, the secret never: not in an error, a log, a `repr` or a response. Two tokens with one name are
# refused, because the history could not distinguish them. Only the role of its token decides what a request may do,
# never the name.
#
# Tokens are compared by their digests, with all tokens each time, in a time that does not depend on how much of a token
# was guessed right. All digests have one length, so the time does not reveal a token's length, either.

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
"""The shortest token, in bytes: 16 random letters have about 90 bits, and a shorter token can be guessed."""
SECRET_BYTES_MAX: Final = 512
"""The longest token, in bytes. A longer one is a mistake, such as a whole file, and servers may not accept such a
field."""
NAME_LENGTH_MAX: Final = 100
TOKENS_MAX: Final = 100
"""The most tokens; each request is compared with all of them."""
ANONYMOUS: Final = "anonymous"
"""The author of changes in the history if the API is open to all."""
REALM: Final = "contracts"
UNKNOWN_ROLE: Final = "has a role that is neither 'read' nor 'write'; write {token: role}, or 'name: token, role'"
"""The error for an unknown role. It does not show the value, which is a token if token and role were swapped."""
_SECRET: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters that RFC 6750 allows in a bearer token."""
_CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Token:
    """A secret with a role, "read" or "write", and the name that the history shows.

    Raises:
        InvalidSetting: the secret has less than 16 bytes, or characters that no bearer token may have; the role is
            unknown; the name is not 1 to 100 printable characters. The error does not show the secret.
    """

    name: str
    secret: str = field(repr=False)
    role: Role

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or not 1 <= len(self.name) <= NAME_LENGTH_MAX:
            problem = f"is not a name for a token; a name has 1 to {NAME_LENGTH_MAX} printable characters"
            raise InvalidSetting("tokens", self.name, problem)
        if self.role not in ROLES:
            raise InvalidSetting("tokens", _Hidden(self.name), UNKNOWN_ROLE)
        _check_secret(self.name, self.secret)

    @classmethod
    def parse(cls, text: str) -> Token:
        """Reads a token from text like `name: token, role`. Raises InvalidSetting, which does not show the secret."""
        name, colon, rest = text.partition(":")
        secret, comma, role = rest.rpartition(",")
        if not colon or not comma:
            raise InvalidSetting("tokens", _Hidden("..."), "is not a token; write it as 'name: token, role'")
        return cls(name.strip(), secret.strip(), _role(role.strip()))


Tokens: TypeAlias = Mapping[str, str] | Iterable[Token | str]


class TokenTable:
    """The tokens of an API; empty if the API is open to all.

    Raises InvalidSetting if a token is invalid, a secret or a name occurs twice, or there is no token and the API is
    not open.
    """

    def __init__(self, tokens: Tokens | None, *, is_open: bool) -> None:
        self._tokens = _by_digest(_read(tokens)) if tokens else {}
        if is_open and self._tokens:
            raise InvalidSetting(
                "open", is_open, "lets all clients write, so it cannot be combined with tokens; leave out one of them"
            )
        if not is_open and not self._tokens:
            problem = "has no token, so no client could use the API; give some, such as tokens={'...': 'write'}"
            raise InvalidSetting("tokens", tokens, f"{problem}, or set open=True if all clients may write")

    def name_of(self, credentials: Sequence[str], role: Role | None) -> str:
        """Returns the name of the token in the `Authorization` fields of a request.

        If `role` is None or the API is open to all, no token is needed, and the name is ANONYMOUS.

        Raises Problem: 401 without a known token, 403 if the token may only read and `role` is "write".
        """
        if not self._tokens or role is None:
            return ANONYMOUS
        return self.token_of(credentials, role).name

    def token_of(self, credentials: Sequence[str], role: Role) -> Token:
        """Returns the token in the `Authorization` fields of a request. Raises Problem as `name_of` does."""
        if len(credentials) != 1:
            problem = "several Authorization fields" if credentials else "no token; send Authorization: Bearer <token>"
            raise Problem(401, f"the request has {problem}", fields=_challenge())
        found = _CREDENTIALS.fullmatch(credentials[0])
        token = None if found is None else self._find(found[1])
        if token is None:
            raise Problem(
                401,
                "the token in Authorization is unknown; send one of the tokens that the API accepts",
                fields=_challenge(error="invalid_token"),
            )
        if role == "write" and token.role != "write":
            problem = f"the token {token.name!r} may only read; this request needs one that may write"
            raise Problem(403, problem, fields=_challenge(error="insufficient_scope", scope="write"))
        return token

    def __iter__(self) -> Iterator[Token]:
        """Yields the tokens."""
        return iter(self._tokens.values())

    def find(self, secret: str) -> Token | None:
        """Returns the token with this secret; None if there is none.

        The time that the search takes does not show how much of `secret` is right.
        """
        return self._find(secret) if _SECRET.fullmatch(secret) else None

    def _find(self, secret: str) -> Token | None:
        digest = _digest(secret)
        found = None
        for each, token in self._tokens.items():
            if compare_digest(each, digest):
                found = token
        return found


class _Hidden:
    """Replaces a token in an error: its `repr` shows the token's name, and not its secret."""

    def __init__(self, name: object) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<token {self._name}>"


def _read(tokens: Tokens) -> list[Token]:
    if isinstance(tokens, str):
        raise InvalidSetting(
            "tokens", _Hidden("..."), "is a single text; give a list of 'name: token, role', or a mapping"
        )
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
    """Names the tokens that were given without names: "read", "read-2" and so on, in the given order."""
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
        raise InvalidSetting(
            "tokens", len(tokens), f"are more than {TOKENS_MAX} tokens; let programs of one kind share one"
        )
    by_digest: dict[bytes, Token] = {}
    names: set[str] = set()
    for token in tokens:
        other = by_digest.setdefault(_digest(token.secret), token)
        if other is not token:
            problem = f"has the same secret as {other.name!r}; give each token a secret of its own"
            raise InvalidSetting("tokens", _Hidden(token.name), problem)
        if token.name in names:
            problem = f"has the name of another token, {token.name!r}, and the history could not distinguish them"
            raise InvalidSetting("tokens", _Hidden(token.name), f"{problem}; give each a name of its own")
        names.add(token.name)
    return by_digest


def _check_secret(name: str, secret: object) -> None:
    if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
        problem = "has characters that a bearer token may not have; use letters, digits and -._~+/"
        raise InvalidSetting("tokens", _Hidden(name), problem)
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        problem = f"has {len(secret)} bytes, but must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
        advice = "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        raise InvalidSetting("tokens", _Hidden(name), f"{problem}; {advice}")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("ascii")).digest()


def _challenge(**parameters: str) -> dict[str, str]:
    said = ", ".join(f'{name}="{value}"' for name, value in {"realm": REALM, **parameters}.items())
    return {"WWW-Authenticate": f"Bearer {said}"}
