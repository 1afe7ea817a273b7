"""Signed documents: how they are sealed and opened, and which of them a node believes.

What travels is one line that names the format and holds a signature, HMAC-SHA256 with a secret of the fleet's, and then
JSON. Whatever is not signed is thrown away before anything of it is read. Nothing here does I/O or reads a clock.
"""

# Write access to the hub is no right to raise limits: every node has the hub's password. So a document is believed for
# its signature alone, by a secret that is not the hub's. The size is looked at first, then the signature, and only then
# is anything parsed: what is not signed never reaches the JSON reader. It names its namespace, so that it cannot be
# replayed in another one, a version that must rise, so that an older one cannot be posted again, and its end, because a
# process that has just started knows no version.
#
# The name of the format is signed, too, so that a signature of settings is none of contracts.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from reconverge.errors import InvalidSetting, ReconvergeError, shown
from reconverge.settings import checked_namespace

VARIABLE: Final = "RECONVERGE_SETTINGS_SECRET"
PAYLOAD_BYTES_MAX: Final = 65_536
"""Published settings of about 800 limits. Whatever is longer is not even looked at."""
VERSION_MAX: Final = (1 << 53) - 1
"""Every reader of JSON has whole numbers up to this."""
AHEAD_MAX_S: Final = 300
"""By how much the publisher's clock may be ahead of a node's."""
SECRET_BYTES_MIN: Final = 16
SECRETS_MAX: Final = 8
STAMP: Final = ("namespace", "version", "issued", "expires")
"""The fields of every signed document."""

TOO_LARGE: Final = "too-large"
MALFORMED: Final = "malformed"
FORGED: Final = "forged"
FOREIGN: Final = "foreign"
PREMATURE: Final = "premature"
EXPIRED: Final = "expired"
OLD: Final = "old"
REASONS: Final = (TOO_LARGE, MALFORMED, FORGED, FOREIGN, PREMATURE, EXPIRED, OLD)
"""For which documents are rejected; in this order they are looked for."""


class Signed(Protocol):
    """The stamp of a signed document."""

    @property
    def namespace(self) -> str:
        """The namespace that it is for; nodes of others reject it."""
        ...

    @property
    def version(self) -> int:
        """Higher than that of any before it."""
        ...

    @property
    def issued(self) -> int:
        """When it was signed, in seconds since 1970."""
        ...

    @property
    def expires(self) -> int:
        """From when on it is not to be believed any more, likewise."""
        ...


Doc = TypeVar("Doc", bound=Signed)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A node does not believe a document: one of `REASONS`, or a reason of its reader's, and a sentence."""

    reason: str
    problem: str


class UnverifiedDocument(ReconvergeError):
    """Raised when what a hub has cannot be believed, or not be read; nothing was changed.

    `reason` is one of REASONS, or `lost` of contracts whose pages the hub has lost.
    """

    def __init__(self, reason: str, problem: str) -> None:
        self.reason = reason
        super().__init__(
            f"what is published at the hub cannot be used, and was not changed: {problem}. It may be valid for nodes,"
            " which would lose it. Use the secret that it was signed with, beside the new one when secrets change, or"
            " replace it all the same with --force (force=True)"
        )


class InvalidDocument(ReconvergeError, ValueError):
    """Raised when a document makes no sense. `path` leads to the field, as in `("limits", "login", "switch")`."""

    def __init__(self, problem: str, *path: str) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{'.'.join(path)}: {problem}" if path else problem)


class Secrets:
    """Secrets sign documents, and show themselves nowhere. The first one signs; nodes believe what any of them signed.

    Given as a string, in which several are separated by blanks, or as bytes, or as a sequence of these. `name` is what
    messages call it: the setting, or the variable that it comes from.

    Raises InvalidSetting unless there are 1 to 8 of them, of at least 16 bytes each.
    """

    __slots__ = ("_secrets",)

    def __init__(self, given: str | bytes | Sequence[str | bytes], *, name: str = "settings_secret") -> None:
        said: object = given
        if not isinstance(said, str | bytes | Iterable):
            problem = f"is neither text nor bytes, but {type(said).__name__}; make one with: openssl rand -hex 32"
            raise InvalidSetting(name, "***", problem)
        parts = [given] if isinstance(given, str | bytes) else list(given)
        secrets = [word for part in parts for word in _words(part)]
        if not 1 <= len(secrets) <= SECRETS_MAX:
            raise InvalidSetting(name, "***", f"holds {len(secrets)} secrets; give 1 to {SECRETS_MAX}")
        if min(map(len, secrets)) < SECRET_BYTES_MIN:
            problem = f"is shorter than {SECRET_BYTES_MIN} bytes; make one with: openssl rand -hex 32"
            raise InvalidSetting(name, "***", problem)
        self._secrets = tuple(secrets)

    def sign(self, body: bytes, *, magic: bytes) -> bytes:
        """The signature of the first secret, in hexadecimal digits; of one format it is none of another."""
        return _signature(self._secrets[0], body, magic)

    def have_signed(self, body: bytes, signature: bytes, *, magic: bytes) -> bool:
        """Compare a signature with those of all secrets; returns whether it is one of them."""
        return any(compare_digest(_signature(secret, body, magic), signature) for secret in self._secrets)

    def __repr__(self) -> str:
        return f"<{len(self._secrets)} secrets>"


def seal_table(said: Mapping[str, Any], secrets: Secrets, *, magic: bytes) -> bytes:
    """A table of the format that `magic` names, as it travels. Raises InvalidDocument if it is too long."""
    body = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    payload = magic + secrets.sign(body, magic=magic) + b"\n" + body
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise InvalidDocument(
            f"takes {len(payload)} bytes, and at most {PAYLOAD_BYTES_MAX} are read; publish fewer settings"
        )
    return payload


class Opened(NamedTuple):
    """A table that one of the secrets has signed; nothing else of it is checked."""

    table: object


def opened_table(payload: object, secrets: Secrets, *, magic: bytes) -> Opened | Rejection:
    """Verify a payload of the format that `magic` names, and parse it; returns why not."""
    if not isinstance(payload, bytes):
        return Rejection(MALFORMED, f"is no string of bytes, but {type(payload).__name__}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        return Rejection(TOO_LARGE, f"has {len(payload)} bytes, and at most {PAYLOAD_BYTES_MAX} are read")
    header_bytes = len(magic) + 2 * sha256().digest_size + 1
    header, body = payload[:header_bytes], payload[header_bytes:]
    if len(header) < header_bytes or not header.startswith(magic) or not header.endswith(b"\n"):
        _, what, _ = magic.decode().split("-")  # as all of them are made
        return Rejection(MALFORMED, f"does not begin as {what} do")
    if not secrets.have_signed(body, header[len(magic) : -1], magic=magic):
        return Rejection(FORGED, "is not signed with any of the secrets that this node knows")
    try:
        return Opened(json.loads(body, object_pairs_hook=_without_repetition, parse_constant=_no_constant))
    except InvalidDocument as error:
        return Rejection(MALFORMED, str(error))
    except (ValueError, RecursionError):
        return Rejection(MALFORMED, "is not JSON")


@dataclass(frozen=True, slots=True)
class Format(Generic[Doc]):
    """One kind of signed document."""

    magic: bytes
    """Its name and number, and a blank."""
    checked: Callable[[object], Doc]
    """Makes the document of a table. Raises InvalidDocument."""

    def opened(self, payload: object, secrets: Secrets, namespace: str) -> Doc | Rejection:
        """The document if one of the secrets signed it for that namespace, whether or not it is still valid.

        A publisher begins with this, so that it takes over nothing that no node of the namespace believes.
        """
        said = opened_table(payload, secrets, magic=self.magic)
        if isinstance(said, Rejection):
            return said
        try:
            document = self.checked(said.table)
        except InvalidDocument as error:
            return Rejection(MALFORMED, str(error))
        if document.namespace != namespace:
            return Rejection(FOREIGN, f"is for the namespace {document.namespace!r}")
        return document


class Verifier(Generic[Doc]):
    """Judges what one node reads. `minimum` is the lowest version that it believes, whatever it has known before.

    Raises InvalidSetting if `minimum` is no version.
    """

    def __init__(self, form: Format[Doc], namespace: str, secrets: Secrets, *, minimum: int = 0) -> None:
        if not 0 <= minimum <= VERSION_MAX:
            raise InvalidSetting("minimum", minimum, f"is no version; they go from 0 to {VERSION_MAX}")
        self._form = form
        self._namespace = namespace
        self._secrets = secrets
        self._minimum = minimum

    def verify(self, payload: object, *, now_s: float, known: int) -> Doc | Rejection:
        """The document, if a node that knows a version is to believe it; `now_s` is the wall clock's time."""
        document = self._form.opened(payload, self._secrets, self._namespace)
        if isinstance(document, Rejection):
            return document
        if document.issued > now_s + AHEAD_MAX_S:
            return Rejection(PREMATURE, f"was issued {document.issued - now_s:.0f} s from now; compare the clocks")
        if document.expires <= now_s:
            return Rejection(EXPIRED, f"has expired {now_s - document.expires:.0f} s ago")
        if document.version <= known:
            return Rejection(OLD, f"has version {document.version}, and {known} is known")
        if document.version < self._minimum:
            problem = f"has version {document.version}, and {self._minimum} is the least that this node believes"
            return Rejection(OLD, problem)
        return document


def check_stamp(table: Mapping[str, Any], *, lifetime_max_s: int) -> None:
    """Raise InvalidDocument unless a table names its namespace, its version, and a time for which it is valid."""
    for name in STAMP:
        if name not in table:
            raise InvalidDocument("is missing", name)
    try:
        checked_namespace(table["namespace"])
    except ReconvergeError as error:
        raise InvalidDocument(str(error), "namespace") from None
    for name in STAMP[1:]:
        value = table[name]
        if type(value) is not int or not 1 <= value <= VERSION_MAX:
            raise InvalidDocument(f"must be a whole number from 1 to {VERSION_MAX}, not {shown(value)}", name)
    lifetime_s = table["expires"] - table["issued"]
    if not 1 <= lifetime_s <= lifetime_max_s:
        raise InvalidDocument(f"is {lifetime_s} s after `issued`; 1 s to {lifetime_max_s} s are possible", "expires")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise InvalidDocument("has a name twice; leave one out")
    return table


def _no_constant(name: str) -> None:
    raise InvalidDocument(f"{name} is not JSON")


def _signature(secret: bytes, body: bytes, magic: bytes) -> bytes:
    return digest(secret, magic + body, "sha256").hex().encode()


def _words(part: str | bytes) -> list[bytes]:
    if not isinstance(part, str | bytes):
        raise InvalidSetting("settings_secret", "***", f"is neither text nor bytes, but {type(part).__name__}")
    return [part] if isinstance(part, bytes) else [word.encode(errors="surrogatepass") for word in part.split()]
