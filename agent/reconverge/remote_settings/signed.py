"""Settings that are published for a whole fleet: how they are written, signed, and judged by the receiving nodes.

What travels is one line that names the format and holds a signature, HMAC-SHA256 with a secret of the fleet's, and then
JSON. Whatever is not signed is thrown away before anything of it is read. Nothing here does I/O or reads a clock.
"""

# Write access to the hub is no right to raise limits: every node has the hub's password. So a document is believed for
# its signature alone, by a secret that is not the hub's. The size is looked at first, then the signature, and only then
# is anything parsed: what is not signed never reaches the JSON reader. It names its namespace, so that it cannot be
# replayed in another one, a version that must rise, so that an older one cannot be posted again, and its end, because a
# process that has just started knows no version.

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from reconverge.errors import InvalidSetting, ReconvergeError, shown
from reconverge.limit.checks import check_name
from reconverge.limit.grammar import parse_quotas
from reconverge.settings import SYNC_INTERVAL_MAX, SYNC_INTERVAL_MIN, check_seconds, checked_namespace

VARIABLE: Final = "RECONVERGE_SETTINGS_SECRET"
MAGIC: Final = b"reconverge-settings-1 "
HEADER_BYTES: Final = len(MAGIC) + 2 * sha256().digest_size + 1
PAYLOAD_BYTES_MAX: Final = 65_536
"""About 800 limits. Whatever is longer is not even looked at."""
LIMITS_MAX: Final = 1000
VERSION_MAX: Final = (1 << 53) - 1
"""Every reader of JSON has whole numbers up to this."""
LIFETIME_MAX_S: Final = 31 * 86_400
"""Settings that were not published again for so long are forgotten."""
AHEAD_MAX_S: Final = 300
"""By how much the publisher's clock may be ahead of a node's."""
OVERSHOOT_MAX: Final = 1000
SECRET_BYTES_MIN: Final = 16
SECRETS_MAX: Final = 8

Word: TypeAlias = Literal["on", "shadow", "off"]
WORDS: Final[dict[str, Word]] = {"on": "on", "shadow": "shadow", "off": "off"}
"""Where something can be switched to."""

TOO_LARGE: Final = "too-large"
MALFORMED: Final = "malformed"
FORGED: Final = "forged"
FOREIGN: Final = "foreign"
PREMATURE: Final = "premature"
EXPIRED: Final = "expired"
OLD: Final = "old"
REASONS: Final = (TOO_LARGE, MALFORMED, FORGED, FOREIGN, PREMATURE, EXPIRED, OLD)
"""For which settings are rejected; in this order they are looked for."""


@dataclass(frozen=True, slots=True)
class LimitOverride:
    """Published settings of one limit. A field that is None is as each node says itself."""

    limit: str | None = None
    """How much it admits, as a limit string; of a node's own limit this changes quota and burst, and nothing else."""
    max_overshoot: float | None = None
    """The most by which it may be exceeded, as a share: 0 is strict. Never more than a node's own policy dares."""
    sync_interval: float | None = None
    switch: Word | None = None


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Settings for all nodes of a namespace. A field that is None is as each node says itself."""

    namespace: str
    """The namespace that they are for; nodes of others reject them."""
    version: int
    """Higher than any that was published before; a node never goes back to a lower one."""
    issued: int
    """When they were published, in seconds since 1970."""
    expires: int
    """From when on they are no longer in force, likewise."""
    sync_interval: float | None = None
    switch: Word | None = None
    """For all limits at once."""
    limits: Mapping[str, LimitOverride] = field(default_factory=dict[str, LimitOverride])
    """By name. A node that has no limit of that name may declare it later."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why something is not obeyed: one of `REASONS`, and a sentence."""

    reason: str
    problem: str


class InvalidFleetSettings(ReconvergeError, ValueError):
    """Raised when settings make no sense. `path` leads to the field, as in `("limits", "login", "switch")`."""

    def __init__(self, problem: str, *path: str) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{'.'.join(path)}: {problem}" if path else problem)


class Secrets:
    """What signs, and shows itself nowhere. The first one signs; whatever any of them has signed is believed.

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

    def sign(self, body: bytes, *, magic: bytes = MAGIC) -> bytes:
        """The signature of the first secret, in hexadecimal digits; of one format it is none of another."""
        return _signature(self._secrets[0], body, magic)

    def have_signed(self, body: bytes, signature: bytes, *, magic: bytes = MAGIC) -> bool:
        """Whether the signature is one of ours."""
        return any(compare_digest(_signature(secret, body, magic), signature) for secret in self._secrets)

    def __repr__(self) -> str:
        return f"<{len(self._secrets)} secrets>"


def seal(fleet_settings: FleetSettings, secrets: Secrets) -> bytes:
    """The settings as they travel. Raises InvalidFleetSettings if every node would reject them."""
    said = table_of(fleet_settings)
    checked(said)
    return seal_table(said, secrets)


def seal_table(said: Mapping[str, Any], secrets: Secrets, *, magic: bytes = MAGIC) -> bytes:
    """A table of the format that `magic` names, as it travels. Raises InvalidFleetSettings if it is too long."""
    body = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    payload = magic + secrets.sign(body, magic=magic) + b"\n" + body
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise InvalidFleetSettings(f"takes {len(payload)} bytes, and at most {PAYLOAD_BYTES_MAX} are read; say less")
    return payload


class Verifier:
    """Judges what one node receives, and remembers the newest version that it has accepted."""

    def __init__(self, namespace: str, secrets: Secrets) -> None:
        self._namespace = namespace
        self._secrets = secrets
        self.version = 0

    def verify(self, payload: bytes, *, now_s: float) -> FleetSettings | Rejection:
        """The settings, if they are to be obeyed; `now_s` is the wall clock's time. Raises nothing."""
        verdict = opened(payload, self._secrets)
        if isinstance(verdict, Rejection):
            return verdict
        rejection = why_rejected(verdict, self._namespace, now_s=now_s, known=self.version)
        if rejection is not None:
            return rejection
        self.version = verdict.version
        return verdict


class Signed(Protocol):
    """What every signed document says of itself."""

    @property
    def namespace(self) -> str:
        """The namespace that it is for."""
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


def why_rejected(document: Signed, namespace: str, *, now_s: float, known: int) -> Rejection | None:
    """Why a node of that namespace, which knows a version already, rejects what is rightly signed; None if it obeys."""
    if document.namespace != namespace:
        return Rejection(FOREIGN, f"is for the namespace {document.namespace!r}")
    if document.issued > now_s + AHEAD_MAX_S:
        return Rejection(PREMATURE, f"was issued {document.issued - now_s:.0f} s from now; compare the clocks")
    if document.expires <= now_s:
        return Rejection(EXPIRED, f"has expired {now_s - document.expires:.0f} s ago")
    if document.version <= known:
        return Rejection(OLD, f"has version {document.version}, and {known} is known")
    return None


def opened(payload: object, secrets: Secrets) -> FleetSettings | Rejection:
    """The settings if one of the secrets signed them, of any namespace, and whether or not they are still valid."""
    said = opened_table(payload, secrets)
    if isinstance(said, Rejection):
        return said
    try:
        return checked(said.table)
    except InvalidFleetSettings as error:
        return Rejection(MALFORMED, str(error))


class Opened(NamedTuple):
    """What one of the secrets has signed, not looked at any further."""

    table: object


def opened_table(payload: object, secrets: Secrets, *, magic: bytes = MAGIC) -> Opened | Rejection:
    """What is signed, in the format that `magic` names."""
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
    except InvalidFleetSettings as error:
        return Rejection(MALFORMED, str(error))
    except (ValueError, RecursionError):
        return Rejection(MALFORMED, "is not JSON")


def checked(said: object) -> FleetSettings:
    """The settings that a table of settings describes. Raises InvalidFleetSettings, and says which field is wrong."""
    table = _table(said, SETTINGS_FIELDS)
    for name in ("namespace", "version", "issued", "expires"):
        if name not in table:
            raise InvalidFleetSettings("is missing", name)
    with _field("namespace"):
        checked_namespace(table["namespace"])
    _check_whole("version", table["version"], VERSION_MAX)
    _check_whole("issued", table["issued"], VERSION_MAX)
    _check_whole("expires", table["expires"], VERSION_MAX)
    lifetime_s = table["expires"] - table["issued"]
    if not 1 <= lifetime_s <= LIFETIME_MAX_S:
        raise InvalidFleetSettings(
            f"is {lifetime_s} s after `issued`; 1 s to {LIFETIME_MAX_S} s are possible", "expires"
        )
    _check_interval(table)
    limits = _table(table.get("limits", {}), None, "limits")
    if len(limits) > LIMITS_MAX:
        raise InvalidFleetSettings(f"names {len(limits)} limits; at most {LIMITS_MAX} are possible", "limits")
    return FleetSettings(
        namespace=table["namespace"],
        version=table["version"],
        issued=table["issued"],
        expires=table["expires"],
        sync_interval=table.get("sync_interval"),
        switch=_word(table.get("switch"), "switch"),
        limits={name: _limit_override(name, limit) for name, limit in limits.items()},
    )


SETTINGS_FIELDS: Final = ("namespace", "version", "issued", "expires", "sync_interval", "switch", "limits")
LIMIT_FIELDS: Final = ("limit", "max_overshoot", "sync_interval", "switch")
"""What can be said of one limit: what else there should be belongs here, in `LimitOverride`, and in `Overrides`."""


def _limit_override(name: str, said: object) -> LimitOverride:
    path = ("limits", name)
    with _field(*path):
        check_name(name)
    table = _table(said, LIMIT_FIELDS, *path)
    text = table.get("limit")
    if text is not None:
        if not isinstance(text, str):
            raise InvalidFleetSettings(f"must be a string like '100/minute', not {shown(text)}", *path, "limit")
        with _field(*path, "limit"):
            parse_quotas(text)
    overshoot = table.get("max_overshoot")
    if overshoot is not None and not (type(overshoot) in (int, float) and 0 <= overshoot <= OVERSHOOT_MAX):
        problem = f"must be a share from 0 to {OVERSHOOT_MAX}, not {shown(overshoot)}"
        raise InvalidFleetSettings(problem, *path, "max_overshoot")
    _check_interval(table, *path)
    return LimitOverride(text, overshoot, table.get("sync_interval"), _word(table.get("switch"), *path, "switch"))


def _table(said: object, known: Sequence[str] | None, *path: str) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise InvalidFleetSettings(f"must be a table, not {shown(said)}", *path)
    table: dict[Any, Any] = said
    for name in table:
        if not isinstance(name, str):
            raise InvalidFleetSettings(f"has the key {shown(name)}, which is no string", *path)
        if known is not None and name not in known:
            raise InvalidFleetSettings(f"there is no such setting; known: {', '.join(known)}", *path, name)
    return table


def _word(said: object, *path: str) -> Word | None:
    if said is None:
        return None
    if not isinstance(said, str) or said not in WORDS:
        raise InvalidFleetSettings(f"must be {', '.join(map(repr, WORDS))}, not {shown(said)}", *path)
    return WORDS[said]


def _check_interval(table: Mapping[str, Any], *path: str) -> None:
    if table.get("sync_interval") is not None:
        with _field(*path, "sync_interval"):
            check_seconds("sync_interval", table["sync_interval"], SYNC_INTERVAL_MIN, SYNC_INTERVAL_MAX)


def _check_whole(name: str, value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidFleetSettings(f"must be a whole number from 1 to {most}, not {shown(value)}", name)


class _field:  # noqa: N801  # reads as a word where it is used
    """Has whatever is wrong within the block be told as of that field."""

    def __init__(self, *path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing is wrong yet."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ReconvergeError):
            raise InvalidFleetSettings(str(error), *self._path) from None


def table_of(fleet_settings: FleetSettings) -> dict[str, Any]:
    """What is said, without what is not."""
    said = {
        name: getattr(fleet_settings, name) for name in SETTINGS_FIELDS if getattr(fleet_settings, name) is not None
    }
    said["limits"] = {
        name: {each: getattr(limit, each) for each in LIMIT_FIELDS if getattr(limit, each) is not None}
        for name, limit in fleet_settings.limits.items()
    }
    return said


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise InvalidFleetSettings("says something twice")
    return table


def _no_constant(name: str) -> None:
    raise InvalidFleetSettings(f"{name} is not JSON")


def _signature(secret: bytes, body: bytes, magic: bytes) -> bytes:
    return digest(secret, magic + body, "sha256").hex().encode()


def _words(part: str | bytes) -> list[bytes]:
    if not isinstance(part, str | bytes):
        raise InvalidSetting("settings_secret", "***", f"is neither text nor bytes, but {type(part).__name__}")
    return [part] if isinstance(part, bytes) else [word.encode(errors="surrogatepass") for word in part.split()]
