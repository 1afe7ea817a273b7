"""A memory of bounded size for the use of evicted keys; it is approximate, and never returns less than the true use."""

# Theory of operation.
#
# The problem. A node may forget a key whose counts the hub keeps (see `eviction.py`). When that key comes back, the
# node must not take it for a key that is new to all, because a policy lets a node admit a part of the limit on such a
# key before the first answer: each eviction would make that part available once more. To remember the evicted keys
# themselves would take the memory that evicting them is meant to save.
#
# The answer. Two Bloom filters, which show that a key was certainly not evicted, or that it may have been. Keys are
# added to the younger filter. After `fade_ns`, the time in which the use of an evicted key fades, the younger filter
# becomes the older one, and the older one is dropped; so a key is remembered for at least `fade_ns` and at most twice
# as long. A new key that is mistaken for an evicted key begins without an allowance and waits for the hub's answer; no
# bound depends on how often that happens.
#
# Each filter has `BITS_PER_KEY` bits for each of the most keys that the node may have. With PROBES probes, fewer than
# 1 % of new keys are mistaken when three times `max_keys` keys of a limit were evicted within `fade_ns`; with more
# evicted keys, more are. The memory is allocated when the first key is evicted. It has BITS_MIN bits at least: with 128
# counters, one new key in 3,000 led to the very counters of one single key that had left.
#
# On a node without a hub nothing else counts the use of a key that has left, so there the memory holds amounts in place
# of bits. Each probe of a key leads to a counter, which keeps the largest amount of all keys whose probes lead to it. A
# key that comes back has used no more than the least of its counters. No counter exceeds the largest amount of a single
# key, so a new key that is mistaken for evicted keys loses no more than one key had used, however full the memory is;
# and `lookup.py` evicts a key only if it has used half of its quota at most. How amounts fade:
#
#     windows   the two memories are of one window and of the one before, by their numbers. A key that comes back begins
#               in the window of the memory, and goes on from there: its use counts for as long as it would have.
#     buckets   a counter keeps the level plus the drain from the beginning of the memory until then, so that the drain
#               up to a later moment can be subtracted. The drain is the slowest that any table of the limit has had.
#
# An amount is kept in 16 bits: exactly up to 4095, and beyond that rounded up by less than 1/2048. For a bucket it is
# in sixteenths of a request. A key whose amount does not fit is not evicted. There are BITS_PER_KEY / 8 counters for
# each key that the node may have, rounded up to a power of two: a memory has 8 to 16 bytes per key, so with the 100,000
# keys of the default it has 1 MB, and a limit has two of them at most. 1 % of new keys are mistaken when half as many
# keys have left as the node may have, 10 % when as many have.
#
# The hash is SipHash-2-4 with a key of the process, so a stranger cannot choose keys that fill the bits of another key.
# The kernel draws no randomness: the hash key is handed in. `native/evicted.c` sets the very same bits.

from __future__ import annotations

from typing import Final

BITS_PER_KEY: Final = 32
BITS_MIN: Final = 1 << 16
BITS_MAX: Final = 1 << 32
PROBES: Final = 6
LEVEL_PARTS: Final = 16
"""Into how many parts a request is divided in the stored levels of buckets."""
_EXACT: Final = 1 << 12
"""Amounts below this are stored exactly; a larger amount as its first twelve bits and the number of bits after them."""
_MANTISSAS: Final = _EXACT // 2
_SHIFT_MAX: Final = 30
AMOUNT_MAX: Final = (_EXACT - 1) << _SHIFT_MAX
"""The largest amount that can be stored."""
HASH_KEY_BYTES: Final = 16
_WORD: Final = (1 << 64) - 1


class Evicted:
    """A compact memory of the keys of one limit that were evicted while their use still counted.

    It may take a key for evicted that was not, or return a use that is too high. It never misses an evicted key, and
    never returns a use that is too low.
    """

    __slots__ = ("_epoch", "_mask", "_older", "_older_ns", "_turned_ns", "_words", "_younger", "fade_ns", "rate")

    def __init__(self, hash_key: bytes, label: str, keys_max: int, fade_ns: int) -> None:
        mixed = siphash(_words(hash_key), label.encode())
        first, second = _words(hash_key)
        self._words = (first ^ mixed, second)
        wanted = min(max(BITS_PER_KEY * keys_max, BITS_MIN), BITS_MAX)
        self._mask = (1 << (wanted - 1).bit_length()) - 1
        self.fade_ns = fade_ns
        """The nanoseconds after which the use of an evicted key no longer counts."""
        self.rate = 0
        """How much the stored levels of buckets drain in a nanosecond, in cost times nanoseconds of the window."""
        self.forget()

    def forget(self) -> None:
        """Forgets all evicted keys."""
        self._younger: bytearray | None = None
        self._older: bytearray | None = None
        self._turned_ns = self._older_ns = 0
        self._epoch = 0

    def slow_down(self, rate: int) -> None:
        """Lowers the rate at which stored levels drain to `rate`; does nothing if it is `rate` or lower already."""
        self.rate = min(self.rate or rate, rate)

    def keep_window(self, key: str, epoch: int, current: int, previous: int, now_ns: int) -> bool:
        if max(current, previous) > AMOUNT_MAX:
            return False
        self._enter(epoch)
        self._turned_ns = now_ns
        places = self._counters(key)
        self._younger = self._raised(self._younger, places, current)
        self._older = self._raised(self._older, places, previous)
        return True

    def window_of(self, key: str, now_ns: int) -> tuple[int, int, int] | None:
        """Returns the number of the stored window, and the most that `key` may have used in it and in the previous one.

        Returns None while nothing is stored. Otherwise every new cell begins in the stored window, even if the clock
        goes back or jumps, so that no cell is in an earlier window than the use that is stored for its key.
        """
        if now_ns - self._turned_ns >= 2 * self.fade_ns:
            self._younger = self._older = None
        if self._younger is None and self._older is None:
            return None
        places = self._counters(key)
        return self._epoch, _least(self._younger, places), _least(self._older, places)

    def keep_level(self, key: str, level: int, window_ns: int, now_ns: int) -> bool:
        self._turn(now_ns)
        began_ns = now_ns if self._younger is None and self._older is None else self._turned_ns
        amount = -(-LEVEL_PARTS * (level + self.rate * (now_ns - began_ns)) // window_ns)
        if amount > AMOUNT_MAX:
            return False
        self._turned_ns = began_ns
        self._younger = self._raised(self._younger, self._counters(key), amount)
        return True

    def level_of(self, key: str, window_ns: int, now_ns: int) -> int:
        if self._younger is None and self._older is None:
            return 0
        self._turn(now_ns)
        places = self._counters(key)
        level = 0
        for counters, began_ns in ((self._younger, self._turned_ns), (self._older, self._older_ns)):
            kept = -(-_least(counters, places) * window_ns // LEVEL_PARTS)
            level = max(level, kept - self.rate * (now_ns - began_ns))
        return level

    def _enter(self, epoch: int) -> None:
        """Makes `epoch` the memory's present window, and forgets earlier ones but the last. Ignores one step back."""
        steps = epoch - self._epoch
        if steps == -1:
            return
        if steps != 0:
            self._older = self._younger if steps == 1 else None
            self._younger = None
            self._epoch = epoch

    def _counters(self, key: str) -> list[int]:
        return [bit & self._mask >> 3 for bit in self._bits(key)]

    def _raised(self, counters: bytearray | None, places: list[int], amount: int) -> bytearray | None:
        """Raises the counters at `places` to at least `amount`.

        Returns all counters; makes them if `counters` is None and `amount` is not 0.
        """
        if amount == 0:
            return counters
        if counters is None:
            counters = bytearray((self._mask + 1) // 4)
        code = _code(amount)
        for place in places:
            if int.from_bytes(counters[2 * place : 2 * place + 2], "little") < code:
                counters[2 * place : 2 * place + 2] = code.to_bytes(2, "little")
        return counters

    def remember(self, key: str, now_ns: int) -> None:
        """Stores that a key was evicted."""
        self._turn(now_ns)
        if self._younger is None:
            self._younger = bytearray((self._mask + 1) // 8)
            if self._older is None:
                self._turned_ns = now_ns
        for bit in self._bits(key):
            self._younger[bit >> 3] |= 1 << (bit & 7)

    def recall(self, key: str, now_ns: int) -> bool:
        """Returns whether `key` may have been evicted; False means that it was not."""
        if self._younger is None and self._older is None:
            return False
        self._turn(now_ns)
        filters = [bits for bits in (self._younger, self._older) if bits is not None]
        if not filters:
            return False
        places = self._bits(key)
        return any(all(bits[bit >> 3] >> (bit & 7) & 1 for bit in places) for bits in filters)

    def _turn(self, now_ns: int) -> None:
        """Drops the stored keys whose use no longer counts."""
        if now_ns - self._turned_ns < self.fade_ns:
            return
        self._older = self._younger if now_ns - self._turned_ns < 2 * self.fade_ns else None
        self._older_ns = self._turned_ns
        self._younger = None
        self._turned_ns = now_ns

    def _bits(self, key: str) -> tuple[int, ...]:
        hashed = siphash(self._words, key.encode())
        start, stride = hashed & 0xFFFFFFFF, hashed >> 32 | 1
        return tuple((start + number * stride) & self._mask for number in range(PROBES))


def _code(amount: int) -> int:
    """Returns the 16-bit code of an amount, rounded up to the next amount that has a code."""
    if amount < _EXACT:
        return amount
    shift = amount.bit_length() - 12
    return _EXACT + (shift - 1) * _MANTISSAS + -(-amount >> shift) - _MANTISSAS


def _amount(code: int) -> int:
    """Returns the largest amount that has the given 16-bit code."""
    if code < _EXACT:
        return code
    shift, mantissa = divmod(code - _EXACT, _MANTISSAS)
    return mantissa + _MANTISSAS << shift + 1


def _least(counters: bytearray | None, places: list[int]) -> int:
    """Returns the smallest amount among the counters at `places`; 0 if `counters` is None."""
    if counters is None:
        return 0
    return _amount(min(int.from_bytes(counters[2 * place : 2 * place + 2], "little") for place in places))


def siphash(words: tuple[int, int], data: bytes) -> int:
    """Returns the SipHash-2-4 of `data`, keyed with two words."""
    first, second = words
    state = (
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    )
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        state = _take_in(state, int.from_bytes(data[at : at + 8], "little"))
    state = _take_in(state, int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    one, two, three, four = state
    state = (one, two, three ^ 0xFF, four)
    for _ in range(4):
        state = _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


_State = tuple[int, int, int, int]


def _take_in(state: _State, word: int) -> _State:
    one, two, three, four = state
    one, two, three, four = _round(_round((one, two, three, four ^ word)))
    return one ^ word, two, three, four


def _round(state: _State) -> _State:
    one, two, three, four = state
    one = one + two & _WORD
    three = three + four & _WORD
    two = (two << 13 | two >> 51) & _WORD ^ one
    four = (four << 16 | four >> 48) & _WORD ^ three
    one = one << 32 & _WORD | one >> 32
    three = three + two & _WORD
    one = one + four & _WORD
    two = (two << 17 | two >> 47) & _WORD ^ three
    four = (four << 21 | four >> 43) & _WORD ^ one
    three = three << 32 & _WORD | three >> 32
    return one, two, three, four


def _words(hash_key: bytes) -> tuple[int, int]:
    return int.from_bytes(hash_key[:8], "little"), int.from_bytes(hash_key[8:16], "little")
