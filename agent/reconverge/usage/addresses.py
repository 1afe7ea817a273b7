"""Estimates how many addresses each identity comes from: a leaked credential is used from many addresses."""

# Theory of operation.
#
# A set of addresses for each identity would have no bound. A HyperLogLog has a fixed size: an address is hashed; the
# first bits of the hash choose one of REGISTERS bytes, and this byte keeps the highest number of zeros with which the
# rest of any such hash has begun. The number of distinct addresses follows from these bytes with a standard error of
# 1.04 / sqrt(REGISTERS), which is 6.5 % for 256; numbers below 2.5 * REGISTERS are estimated from the number of empty
# registers, which is more exact: the estimate for 20 addresses is off by about one.
#
# Flajolet, Fusy, Gandouet, Meunier: HyperLogLog, 2007. Addresses are hashed with a secret, so that a client cannot
# choose addresses that look like few. Each process begins with a secret of its own. If the hub merges the sketches of a
# fleet, all nodes must hash with the same secret, and the book begins anew with that one (`address_reports.py`).
#
# A book covers one hour, and the requests that this node has served. It has room for SKETCHES_MAX identities, those
# that came first; requests of further identities are counted as `unwatched`.
#
# Most requests come from an address that their identity has used before. A set holds these pairs, so that only new
# addresses are hashed. The set is emptied when it is full, which costs hashes and changes no estimate.

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from math import log
from secrets import token_bytes
from typing import Final

from reconverge.hub.usage import REGISTERS, SKETCHES_MAX
from reconverge.runtime.locks import new_lock
from reconverge.settings import check_count

ERROR: Final = 1.04 / REGISTERS**0.5
"""The standard error of a large estimate, as a fraction of the estimate."""
TEXT_MAX: Final = 512
"""The most characters of an identity, limit or route that is counted by its name; no customer has a longer name."""
MANY: Final = 100
"""The number of addresses in an hour that counts as unusual."""
SEEN_MAX: Final = 10_000
"""The most pairs of identity and address that are remembered, so as not to hash them again: about 1 MB."""
SECRET_BYTES: Final = 16
_ALPHA: Final = 0.7213 / (1 + 1.079 / REGISTERS)
_REST_BITS: Final = 56


class AddressBook:
    """Estimates from how many addresses the requests of each identity have come, with the standard error ERROR.

    It stores a sketch (REGISTERS small numbers) for each identity, in place of the addresses. Safe for threads.
    """

    def __init__(self, *, identities_max: int = SKETCHES_MAX) -> None:
        check_count("identities_max", identities_max)
        self._identities_max = identities_max
        self._lock = new_lock()
        self.secret = token_bytes(SECRET_BYTES)
        """The secret with which addresses are hashed."""
        self.forget()

    def forget(self) -> None:
        """Forgets all identities with their addresses, as at the beginning of each hour."""
        with self._lock:
            self._registers: dict[str, bytearray] = {}
            self._risen: dict[str, set[int]] = {}
            self._seen: set[tuple[str, str]] = set()
            self.unwatched = 0
            """The number of requests of identities for which there was no room."""

    def begin_with(self, secret: bytes) -> None:
        """Forgets all identities, and hashes addresses with `secret` from now on, as all nodes of the fleet do."""
        self.secret = secret
        self.forget()

    def note(self, identity: str, address: str) -> None:
        """Adds `address` to the sketch of `identity`, unless the pair was added before."""
        if len(identity) > TEXT_MAX:  # a client can send such a long name as its key; the book stores nothing of it
            self.unwatched += 1
            return
        pair = identity, address
        if pair in self._seen:
            return
        digest = blake2b(address.encode("utf-8", "surrogatepass"), digest_size=8, key=self.secret).digest()
        number, rank = digest[0], _REST_BITS + 1 - int.from_bytes(digest[1:], "big").bit_length()
        with self._lock:
            registers = self._registers.get(identity)
            if registers is None:
                if len(self._registers) >= self._identities_max:
                    self.unwatched += 1
                    return
                registers = self._registers[identity] = bytearray(REGISTERS)
            if rank > registers[number]:
                registers[number] = rank
                self._risen.setdefault(identity, set()).add(number)
            if len(self._seen) >= SEEN_MAX:
                self._seen = set()
            self._seen.add(pair)

    def take_risen(self) -> dict[str, bytes]:
        """Returns the registers of sketches that have risen since the last call, by identity, for an `AddressReport`.

        For each register there are two bytes: its number and its value.
        """
        with self._lock:
            risen, self._risen = self._risen, {}
            return {
                identity: bytes(
                    byte for number in sorted(numbers) for byte in (number, self._registers[identity][number])
                )
                for identity, numbers in risen.items()
            }

    def raise_all(self) -> None:
        """Marks all registers of all sketches as risen, so that they are reported again: the hub has lost its data."""
        with self._lock:
            for identity, registers in self._registers.items():
                self._risen[identity] = {number for number, rank in enumerate(registers) if rank}

    def give_back(self, risen: Mapping[str, bytes]) -> None:
        """Marks the registers in `risen` as risen again, because they could not be reported; see `take_risen`."""
        with self._lock:
            for identity, pairs in risen.items():
                if identity in self._registers:  # only if the identity is in the book of this hour
                    self._risen.setdefault(identity, set()).update(pairs[::2])

    def estimate(self, identity: str) -> int:
        """Returns about how many addresses an identity has come from; 0 for an identity without a sketch."""
        registers = self._registers.get(identity)
        return 0 if registers is None else estimate_of(bytes(registers))

    def unusual(self, *, least: int = MANY) -> dict[str, int]:
        """Returns the identities with estimates of at least `least` addresses, with the estimates, highest first."""
        check_count("least", least)
        with self._lock:
            sketches = {identity: bytes(each) for identity, each in self._registers.items()}
        return unusual_of(sketches, least=least)

    def erase(self, is_named: Callable[[str], bool]) -> None:
        """Forgets the identities for which `is_named` returns True."""
        with self._lock:
            for identity in [each for each in self._registers if is_named(each)]:
                del self._registers[identity]
                self._risen.pop(identity, None)
            self._seen = {pair for pair in self._seen if pair[0] in self._registers}


def unusual_of(sketches: Mapping[str, bytes], *, least: int) -> dict[str, int]:
    """Returns the identities with estimates of at least `least` addresses, and their estimates, the highest first."""
    found = {identity: estimate_of(each) for identity, each in sketches.items()}
    return dict(sorted((each for each in found.items() if each[1] >= least), key=lambda each: -each[1]))


def estimate_of(registers: bytes) -> int:
    """Returns about how many distinct addresses were added to the sketch that has these registers."""
    empty = registers.count(0)
    estimate = _ALPHA * REGISTERS**2 / sum(2.0**-each for each in registers)
    if estimate <= 2.5 * REGISTERS and empty:
        estimate = REGISTERS * log(REGISTERS / empty)
    return round(estimate)
