"""Signed links to customers' own limits: an application or a command makes them, and a console reads them."""

# Theory of operation.
#
# A customer has no token of the console and must never have one. It gets a link that an application, or `reconverge
# contracts link`, makes for it, with an end. The link contains the customer's name, the end, and a signature of both:
# HMAC-SHA256 with a secret that is shared with the console. Nothing is stored, so any worker can read the link.
#
#     identity in base64 . seconds since 1970 . signature
#
# A link is checked in this order: its form and length, the signature in constant time, the end. All failures have the
# same answer, and the identity is looked up only afterwards. So a stranger does not learn whether a customer exists,
# and the holder of one link learns nothing about another customer.
#
# A single link cannot be revoked: it ends, or the secret is changed. The first of several secrets signs, and links
# signed with any of them are accepted, so a secret can be changed while older links remain valid.

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.contracts.model import IDENTITY_BYTES_MAX, InvalidContracts, check_identity
from reconverge.errors import InvalidSetting
from reconverge.published.envelope import Secrets

SETTING: Final = "customer_secret"
VARIABLE: Final = "RECONVERGE_CUSTOMER_SECRET"
"""The environment variable from which commands read the secret."""
PAGE: Final = "/my-limits"
"""The path of the page, below the console's own prefix."""
MAGIC: Final = b"reconverge-customer-link-1 "
"""The beginning of every signed text, so that no signature of other data with the same secret is valid for a link."""
EXPIRES_MAX: Final = 99_999_999_999
"""The largest time of a link's end, in seconds since 1970: the year 5138. A larger number is probably in
milliseconds."""
ENCODED_MAX: Final = 4 * -(-IDENTITY_BYTES_MAX // 3)
LINK_MAX: Final = ENCODED_MAX + 11 + 64 + 2
_LINK: Final = re.compile(r"([A-Za-z0-9_-]+)\.([1-9][0-9]{0,10})\.([0-9a-f]{64})", re.ASCII)


class CustomerLink(NamedTuple):
    """The customer of a link, and the link's end in seconds since 1970."""

    identity: str
    expires: int


class CustomerLinks:
    """Checks and reads customers' links. Raises InvalidSetting unless there are 1 to 8 secrets of 16 bytes or more."""

    def __init__(self, secret: str | bytes | Sequence[str | bytes], clock: Clock) -> None:
        self._secrets = Secrets(secret, name=SETTING)
        self._clock = clock

    def opened(self, link: str) -> CustomerLink | None:
        """Returns the customer and the end of `link`; None if it is expired, changed, or signed with another secret."""
        found = _LINK.fullmatch(link) if len(link) <= LINK_MAX else None
        if found is None:
            return None
        encoded, expires, signature = found.groups()
        if not self._secrets.have_signed(_body(encoded, expires), signature.encode("ascii"), magic=MAGIC):
            return None
        if self._clock.wall_ns() >= int(expires) * SECOND_NS:
            return None
        padded = encoded + "=" * (-len(encoded) % 4)
        return CustomerLink(urlsafe_b64decode(padded).decode("utf-8", "surrogatepass"), int(expires))


def customer_token(secret: str | bytes | Sequence[str | bytes], identity: str, expires: float | datetime) -> str:
    """Returns a signed token for a link to a customer's own limits: `https://.../console/my-limits?link=TOKEN`.

    Args:
        secret: the `customer_secret` of the console; the first of several signs.
        identity: the customer's name in the contracts.
        expires: when the link ends, in seconds since 1970 or as a datetime with a time zone.

    Raises InvalidSetting if the secret is too short, the identity or the time is invalid, or the time is over.
    """
    secrets = Secrets(secret, name=SETTING)
    try:
        check_identity(identity)
    except InvalidContracts as error:
        raise InvalidSetting("identity", identity, error.problem) from None
    encoded = urlsafe_b64encode(identity.encode("utf-8", "surrogatepass")).rstrip(b"=").decode("ascii")
    until = str(_seconds(expires))
    return f"{encoded}.{until}.{secrets.sign(_body(encoded, until), magic=MAGIC).decode('ascii')}"


def _body(encoded: str, expires: str) -> bytes:
    return f"{encoded}.{expires}".encode("ascii")


def _seconds(expires: object) -> int:
    """Returns `expires`, a number or a datetime, in whole seconds since 1970. Raises InvalidSetting."""
    if isinstance(expires, datetime):
        if expires.tzinfo is None:
            raise InvalidSetting("expires", expires, "has no time zone; write datetime.now(UTC) + timedelta(...)")
        expires = expires.timestamp()
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not 1 <= expires <= EXPIRES_MAX:
        raise InvalidSetting("expires", expires, "must be a time: seconds since 1970, or a datetime with a time zone")
    if expires * SECOND_NS <= SystemClock.wall_ns():
        moment = f"{datetime.fromtimestamp(expires, UTC):%Y-%m-%d %H:%M} UTC"
        problem = f"is a moment, {moment}, which is over; for a lifetime, write datetime.now(UTC) + timedelta(days=7)"
        raise InvalidSetting("expires", expires, problem)
    return int(expires)
