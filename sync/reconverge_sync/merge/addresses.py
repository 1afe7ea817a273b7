"""The rule by which a shard of a hub merges sketches of client addresses; Lua scripts do the same in Redis."""

# Theory of operation.
#
# A sketch is one HyperLogLog of REGISTERS bytes (`reconverge/usage/addresses.py` says how it is filled and read). The
# sketch of a fleet is the highest rank of each register over all nodes: the same as if one node had met all addresses,
# so an address that comes to ten nodes counts once. To merge a report twice or late therefore changes nothing.
#
# Ranks can be compared only if addresses were hashed with the same secret, so each secret has sketches of its own. All
# nodes take the secret that shard 0 keeps. If that is lost, they take the next one, and fill new sketches.
#
# Hours are dated by nodes, and bounded by the hub's clock: one node whose clock is wrong can neither begin any number
# of hours nor make the hub forget those of others.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconverge.hub.usage import HOUR, REGISTERS, SKETCHES_MAX, SKETCHES_RETENTION, AddressReport, Period, counted_us

RANK_MAX: Final = 57
"""The highest rank of a register: of the eight bytes of a hash one is the number of the register, and 56 bits give
ranks up to this one."""


class AddressShard:
    """The sketches of client addresses that one shard keeps, by hour, secret and identity."""

    def __init__(self, *, sketches_max: int = SKETCHES_MAX) -> None:
        self._sketches_max = sketches_max
        self._sketches: dict[tuple[int, bytes], dict[str, bytearray]] = {}
        self.secret = b""
        """At shard 0, the secret with which all nodes hash addresses: the first that was proposed; empty before."""

    def note(self, report: AddressReport, *, hub_us: int) -> int:
        for key in [key for key in self._sketches if counted_us(Period(HOUR, key[0]), SKETCHES_RETENTION)[1] <= hub_us]:
            del self._sketches[key]
        from_us, until_us = counted_us(Period(HOUR, report.hour), SKETCHES_RETENTION)
        if not from_us <= hub_us < until_us:
            return len(report.risen)
        sketches = self._sketches.setdefault((report.hour, report.secret), {})
        left_out = 0
        for identity, risen in report.risen.items():
            sketch = sketches.get(identity)
            if sketch is None:
                if len(sketches) >= self._sketches_max:
                    left_out += 1
                    continue
                sketch = sketches[identity] = bytearray(REGISTERS)
            for number, rank in zip(risen[::2], risen[1::2], strict=True):
                sketch[number] = max(sketch[number], min(rank, RANK_MAX))
        return left_out

    def erase(self, identity: str) -> None:
        """Removes all sketches of an identity, of every hour and secret."""
        for sketches in self._sketches.values():
            sketches.pop(identity, None)

    def sketches(self, hour: int, secret: bytes) -> Mapping[str, bytes]:
        """Returns the registers of the sketches of one hour and secret, by identity."""
        return {identity: bytes(each) for identity, each in self._sketches.get((hour, secret), {}).items()}
