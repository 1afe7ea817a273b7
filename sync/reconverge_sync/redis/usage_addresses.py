"""From how many addresses identities come, as a Redis merges it; `merge/addresses.py` is the definition.

Keys begin with those of usage: `NAMESPACE:{SHARD}:u1:`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, Final, Protocol

import msgpack

from reconverge.errors import HubUnavailable
from reconverge.hub.usage import (
    HOUR,
    LENGTH_MS,
    REGISTERS,
    SECRET_KEPT_MS,
    SKETCHES_KEPT_HOURS,
    SKETCHES_MAX,
    AddressReport,
)
from reconverge_sync.merge.addresses import RANK_MAX
from reconverge_sync.redis.resp import Script, script_of

KEPT_MS: Final = SKETCHES_KEPT_HOURS * LENGTH_MS[HOUR]


NOTE: Final = script_of("usage_addresses")
SECRET: Final = script_of("usage_secret")


class Runs(Protocol):
    """Has a script run on the server of a shard. Raises HubUnavailable."""

    def __call__(self, what: Script, shard: int, keys: Sequence[bytes], *arguments: object) -> Awaitable[Any]:
        """The answer of the script."""
        ...


class RedisAddresses:
    """See `AddressLedger`. `ask` has a command answered, `run` a script, `name` says a key of a shard."""

    def __init__(
        self,
        ask: Callable[..., Awaitable[Any]],
        run: Runs,
        name: Callable[[int], Callable[[str], bytes]],
        *,
        sketches_max: int = SKETCHES_MAX,
    ) -> None:
        self._ask = ask
        self._run = run
        self._name = name
        self._sketches_max = sketches_max

    async def secret(self, proposed: bytes) -> bytes:
        """See `AddressLedger.address_secret`."""
        return bytes(await self._run(SECRET, 0, [self._name(0)("secret")], proposed, SECRET_KEPT_MS))

    async def note(self, report: AddressReport) -> int:
        """See `AddressLedger.note_addresses`."""
        # Identities as bytes: half of a pair of surrogates is no text to a server, and may stand in one.
        told = [(name.encode("utf-8", "surrogatepass"), risen) for name, risen in report.risen.items()]
        packed = msgpack.packb(list(chain.from_iterable(told)), use_bin_type=False)
        key = self._key(report.hour, report.shard, report.secret)
        left_out = await self._run(NOTE, report.shard, [key], packed, self._sketches_max, KEPT_MS, RANK_MAX)
        return int(left_out)

    async def sketches(self, hour: int, shard: int, secret: bytes) -> Mapping[str, bytes]:
        """See `AddressLedger.address_sketches`."""
        found = await self._ask("HGETALL", self._key(hour, shard, secret), shard=shard)
        pairs = found.items() if isinstance(found, Mapping) else zip(found[::2], found[1::2], strict=True)
        try:
            return {identity_of(name): checked(sketch) for name, sketch in pairs if name[:1] == b"i"}
        except ValueError as error:
            raise HubUnavailable("protocol", f"the hub's sketches of addresses cannot be read: {error}") from error

    def _key(self, hour: int, shard: int, secret: bytes) -> bytes:
        """The secret is told apart by a hash: names of keys are seen by whatever watches a server's commands."""
        return self._name(shard)(f"a:{hour}:{sha256(secret).hexdigest()[:16]}")


def identity_of(field: bytes) -> str:
    """The identity that a field of the sketches of an hour is about. Raises ValueError if it is no text."""
    return field[1:].decode("utf-8", "surrogatepass")


def checked(sketch: bytes) -> bytes:
    """The same. Raises ValueError if it is no sketch."""
    if len(sketch) != REGISTERS:
        raise ValueError(f"one has {len(sketch)} bytes instead of {REGISTERS}")
    return bytes(sketch)
