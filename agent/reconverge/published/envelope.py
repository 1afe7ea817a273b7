"""Signs documents and verifies them: the format, and the checks by which a node accepts a document.

A document is sent as one line with the name of the format and a signature, HMAC-SHA256 with a secret of the fleet,
followed by JSON. An unsigned payload is rejected before any of it is parsed. Nothing here does I/O or reads a clock.
"""

# Write access to the hub must not include the right to raise limits, because every node has the hub's password. So a
# node accepts a document only with a signature, made with a secret that is not the hub's password. The size is checked
# first, then the signature, and only then is anything parsed: unsigned data never reaches the JSON parser. A document
# contains its namespace, so that it cannot be replayed in another one; a version that must rise, so that an older
# document cannot be posted again; and the time when it expires, because a process that has just started knows no
# version to compare with.
#
# The name of the format is signed, too, so a signature of settings is not valid for contracts.

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
"""The longest payload in bytes, room for settings of about 800 limits. A longer payload is rejected unread."""
VERSION_MAX: Final = (1 << 53) - 1
"""The largest whole number that every JSON parser keeps exactly."""
AHEAD_MAX_S: Final = 300
"""The seconds by which the publisher's clock may be ahead of a node's."""
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
"""The reasons for which documents are rejected, in the order in which they are checked."""


class Signed(Protocol):
    """The fields that every signed document has."""

    @property
    def namespace(self) -> str:
        """Returns the namespace of the document; nodes of other namespaces reject it."""
        ...

    @property
    def version(self) -> int:
        """Returns the version, which is higher than that of any document before."""
        ...

    @property
    def issued(self) -> int:
        """Returns the time of signing, in seconds since 1970."""
        ...

    @property
    def expires(self) -> int:
        """Returns the time of expiry, in seconds since 1970."""
        ...


Doc = TypeVar("Doc", bound=Signed)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why a document is rejected: a word (from `REASONS`, or a reader's own), and a phrase for the log."""

    reason: str
    problem: str


class UnverifiedDocument(ReconvergeError):
    """Raised when the hub's document cannot be verified or read; nothing was changed.

    `reason` is one of REASONS, or `lost` for contracts a part of which (a page) the hub has lost.
    """

    def __init__(self, reason: str, problem: str) -> None:
        self.reason = reason
        super().__init__(
            f"the document at the hub cannot be verified, and was not changed: {problem}. It may be valid for nodes,"
            " which would lose it. Use the secret that it was signed with, beside the new one if secrets change, or"
            " replace it anyway with --force (force=True)"
        )


class InvalidDocument(ReconvergeError, ValueError):
    """Raised for an invalid document. `path` leads to the field, as in `("limits", "login", "switch")`."""

    def __init__(self, problem: str, *path: str) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{'.'.join(path)}: {problem}" if path else problem)


class Secrets:
    """Secrets that sign and verify documents; no message ever shows them. The first one signs, and all of them verify.

    `given` is a string of secrets separated by blanks, one secret in bytes, or a sequence of these. `name` is used in
    messages: the setting or the variable that the secrets come from. Raises InvalidSetting unless there are 1 to 8
    secrets of at least 16 bytes each.
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
        """Returns the signature of `body` with the first secret, in hexadecimal digits.

        It is valid only for the format with the header `magic`.
        """
        return _signature(self._secrets[0], body, magic)

    def have_signed(self, body: bytes, signature: bytes, *, magic: bytes) -> bool:
        """Returns whether any of the secrets has made `signature` for `body` in the format `magic`."""
        return any(compare_digest(_signature(secret, body, magic), signature) for secret in self._secrets)

    def __repr__(self) -> str:
        return f"<{len(self._secrets)} secrets>"


def seal_table(said: Mapping[str, Any], secrets: Secrets, *, magic: bytes) -> bytes:
    """Returns a dict of values as a signed payload of the format `magic`. Raises InvalidDocument if it is too long."""
    body = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    payload = magic + secrets.sign(body, magic=magic) + b"\n" + body
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise InvalidDocument(
            f"takes {len(payload)} bytes, and at most {PAYLOAD_BYTES_MAX} are read; publish fewer entries"
        )
    return payload


class Opened(NamedTuple):
    """The parsed JSON of a document whose signature was verified; its fields have not been checked yet."""

    table: object


def opened_table(payload: object, secrets: Secrets, *, magic: bytes) -> Opened | Rejection:
    """Verifies and parses a payload of the format `magic`. Returns its parsed JSON, or the reason for a rejection."""
    if not isinstance(payload, bytes):
        return Rejection(MALFORMED, f"is not a byte string, but {type(payload).__name__}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        return Rejection(TOO_LARGE, f"has {len(payload)} bytes, more than the {PAYLOAD_BYTES_MAX} that are read")
    header_bytes = len(magic) + 2 * sha256().digest_size + 1
    header, body = payload[:header_bytes], payload[header_bytes:]
    if len(header) < header_bytes or not header.startswith(magic) or not header.endswith(b"\n"):
        _, what, _ = magic.decode().split("-")  # the form of all magics
        return Rejection(MALFORMED, f"does not begin with the header of {what}")
    if not secrets.have_signed(body, header[len(magic) : -1], magic=magic):
        remedy = "give its publisher and all nodes the same secret"
        return Rejection(FORGED, f"is not signed with any of the secrets known here; {remedy}")
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
    """The format's name and number, and a blank."""
    checked: Callable[[object], Doc]
    """A function from parsed JSON to the document that it describes. Raises InvalidDocument if that is invalid."""

    def opened(self, payload: object, secrets: Secrets, namespace: str) -> Doc | Rejection:
        """Returns the document, even an expired one, if it is for `namespace` and signed with one of the secrets.

        Otherwise returns the reason for the rejection. A publisher also calls this, because it must change only
        documents that nodes of the namespace accept.
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
    """Decides which documents of one format a node accepts.

    `minimum` is the lowest version that the node accepts, even while it knows no version yet.

    Raises InvalidSetting if `minimum` is not a valid version.
    """

    def __init__(self, form: Format[Doc], namespace: str, secrets: Secrets, *, minimum: int = 0) -> None:
        if not 0 <= minimum <= VERSION_MAX:
            raise InvalidSetting("minimum", minimum, f"is not a version; give a whole number from 0 to {VERSION_MAX}")
        self._form = form
        self._namespace = namespace
        self._secrets = secrets
        self._minimum = minimum

    def verify(self, payload: object, *, now_s: float, known: int) -> Doc | Rejection:
        """Returns the document in `payload`, or the reason why the node must not accept it.

        `known` is the version that the node has already; `now_s` is the wall clock's time in seconds since 1970.
        """
        document = self._form.opened(payload, self._secrets, self._namespace)
        if isinstance(document, Rejection):
            return document
        if document.issued > now_s + AHEAD_MAX_S:
            return Rejection(PREMATURE, f"was issued {document.issued - now_s:.0f} s from now; compare the clocks")
        if document.expires <= now_s:
            return Rejection(EXPIRED, f"has expired {now_s - document.expires:.0f} s ago; publish it again")
        if document.version <= known:
            return Rejection(OLD, f"has version {document.version}, but {known} is known already")
        if document.version < self._minimum:
            problem = f"has version {document.version}, but this node accepts none below {self._minimum}"
            return Rejection(OLD, problem)
        return document


def check_stamp(table: Mapping[str, Any], *, lifetime_max_s: int) -> None:
    """Checks the fields that every document has: namespace, version, and when it was issued and expires.

    A document is valid for at most `lifetime_max_s` seconds. Raises InvalidDocument.
    """
    for name in STAMP:
        if name not in table:
            raise InvalidDocument(f"is missing; a signed document has {', '.join(STAMP)}", name)
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
        raise InvalidDocument(
            f"is {lifetime_s} s after `issued`; a document is valid for 1 s to {lifetime_max_s} s", "expires"
        )


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise InvalidDocument(f"has one of its fields twice ({', '.join(table)[:200]}); leave one out")
    return table


def _no_constant(name: str) -> None:
    raise InvalidDocument(f"{name} is not a number in JSON; write a finite number")


def _signature(secret: bytes, body: bytes, magic: bytes) -> bytes:
    return digest(secret, magic + body, "sha256").hex().encode()


def _words(part: str | bytes) -> list[bytes]:
    if not isinstance(part, str | bytes):
        raise InvalidSetting(
            "settings_secret",
            "***",
            f"is neither text nor bytes, but {type(part).__name__}; make one with: openssl rand -hex 32",
        )
    return [part] if isinstance(part, bytes) else [word.encode(errors="surrogatepass") for word in part.split()]
