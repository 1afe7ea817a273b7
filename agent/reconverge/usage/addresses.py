"""From how many addresses each identity comes, about: a credential that leaks is used from many."""

# Theory of operation.
#
# A set of addresses for each identity has no bound. A HyperLogLog has one: an address is hashed; the first bits choose
# one of REGISTERS bytes, which keeps the most zeros that the rest of a hash began with. The number of distinct
# addresses follows from these bytes with a standard error of 1.04 / sqrt(REGISTERS), which is 6.5 % for 256; numbers
# below 2.5 * REGISTERS are counted by empty registers, which is more exact: 20 addresses are told to about one.
#
# Flajolet, Fusy, Gandouet, Meunier: HyperLogLog, 2007. Addresses are hashed with a secret of the process, so that a
# client cannot choose addresses that look like few.
#
# A book is about one hour, and about the requests that this node has served. Of IDENTITIES_MAX identities at most: the
# ones that came first. Those beyond are counted as `unwatched`.

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from math import log
from secrets import token_bytes
from typing import Final

REGISTERS: Final = 256
"""Bytes of an identity. Four times as many would halve the error."""
ERROR: Final = 1.04 / REGISTERS**0.5
"""The standard error of a large estimate, as a fraction of it."""
IDENTITIES_MAX: Final = 5000
"""Identities that are watched: 1.5 MB."""
MANY: Final = 100
"""From so many addresses in an hour comes no customer that has not said so."""
_ALPHA: Final = 0.7213 / (1 + 1.079 / REGISTERS)
_REST_BITS: Final = 56


class AddressBook:
    """Estimates the number of distinct addresses of each identity; see ERROR."""

    def __init__(self, *, identities_max: int = IDENTITIES_MAX) -> None:
        self._identities_max = identities_max
        self._secret = token_bytes(16)
        self._registers: dict[str, bytearray] = {}
        self.unwatched = 0
        """Requests of identities that there was no room for."""

    def note(self, identity: str, address: str) -> None:
        """The identity has come from that address."""
        registers = self._registers.get(identity)
        if registers is None:
            if len(self._registers) >= self._identities_max:
                self.unwatched += 1
                return
            registers = self._registers.setdefault(identity, bytearray(REGISTERS))
        digest = blake2b(address.encode("utf-8", "surrogatepass"), digest_size=8, key=self._secret).digest()
        rank = _REST_BITS + 1 - int.from_bytes(digest[1:], "big").bit_length()
        registers[digest[0]] = max(registers[digest[0]], rank)

    def estimate(self, identity: str) -> int:
        """From how many addresses it has come, about; 0 for an identity that is not watched."""
        registers = self._registers.get(identity)
        return 0 if registers is None else _estimate(bytes(registers))

    def unusual(self, *, least: int = MANY) -> dict[str, int]:
        """The identities that have come from at least so many addresses, about, the most first."""
        found = {identity: _estimate(bytes(each)) for identity, each in list(self._registers.items())}
        return dict(sorted((each for each in found.items() if each[1] >= least), key=lambda each: -each[1]))

    def erase(self, is_named: Callable[[str], bool]) -> None:
        """Forget the identities that are named."""
        for identity in [each for each in list(self._registers) if is_named(each)]:
            self._registers.pop(identity, None)

    def forget(self) -> None:
        """Begin anew, as with each hour."""
        self._registers = {}
        self.unwatched = 0


def _estimate(registers: bytes) -> int:
    empty = registers.count(0)
    estimate = _ALPHA * REGISTERS**2 / sum(2.0**-each for each in registers)
    if estimate <= 2.5 * REGISTERS and empty:
        estimate = REGISTERS * log(REGISTERS / empty)
    return round(estimate)
