"""Which keys may have been evicted while their use still counted: an approximate memory of bounded size."""

# Theory of operation.
#
# The problem. A node may forget a key whose counts the hub keeps (see `eviction.py`). When that key comes back, the
# node must not take it for a key that is new to all, because a policy lets a node admit a part of the limit on such a
# key before the first answer: with every eviction, that allowance could be had once more. To remember the evicted keys
# themselves would take the memory that evicting them was to save.
#
# The answer. Two Bloom filters, which can say "certainly not evicted" or "maybe". Keys are added to the younger one.
# After `fade_ns`, the time after which the use of an evicted key has faded, the younger becomes the older, and the
# older is dropped; so a key is remembered for at least `fade_ns` and at most twice as long. A newcomer that is mistaken
# for an evicted key begins without an allowance and waits for the hub's answer; no bound depends on how often that
# happens.
#
# The size is `BITS_PER_KEY` times the largest number of keys, for each of the two. With PROBES probes, fewer than 1 %
# of newcomers are mistaken when three times `max_keys` keys of a limit were evicted within `fade_ns`, and more beyond.
# The memory is taken when the first key is evicted.
#
# The hash is SipHash-2-4 with a key of the process, so a stranger cannot choose keys that fill the bits of another key.
# The kernel draws no randomness: the hash key is handed in. `native/evicted.c` sets the very same bits.

from __future__ import annotations

from typing import Final

BITS_PER_KEY: Final = 32
BITS_MIN: Final = 1 << 10
BITS_MAX: Final = 1 << 32
PROBES: Final = 6
HASH_KEY_BYTES: Final = 16
_WORD: Final = (1 << 64) - 1


class Evicted:
    """The keys of one limit that may have been evicted while their use counted."""

    __slots__ = ("_mask", "_older", "_turned_ns", "_words", "_younger", "fade_ns")

    def __init__(self, hash_key: bytes, label: str, keys_max: int, fade_ns: int) -> None:
        mixed = siphash(_words(hash_key), label.encode())
        first, second = _words(hash_key)
        self._words = (first ^ mixed, second)
        wanted = min(max(BITS_PER_KEY * keys_max, BITS_MIN), BITS_MAX)
        self._mask = (1 << (wanted - 1).bit_length()) - 1
        self.fade_ns = fade_ns
        """After which the use of a key has faded."""
        self.forget()

    def forget(self) -> None:
        """Remember no key."""
        self._younger: bytearray | None = None
        self._older: bytearray | None = None
        self._turned_ns = 0

    def remember(self, key: str, now_ns: int) -> None:
        """A key is evicted."""
        self._turn(now_ns)
        if self._younger is None:
            self._younger = bytearray((self._mask + 1) // 8)
            if self._older is None:
                self._turned_ns = now_ns
        for bit in self._bits(key):
            self._younger[bit >> 3] |= 1 << (bit & 7)

    def recall(self, key: str, now_ns: int) -> bool:
        """Whether a key may have been evicted; False is certain."""
        if self._younger is None and self._older is None:
            return False
        self._turn(now_ns)
        filters = [bits for bits in (self._younger, self._older) if bits is not None]
        if not filters:
            return False
        places = self._bits(key)
        return any(all(bits[bit >> 3] >> (bit & 7) & 1 for bit in places) for bits in filters)

    def _turn(self, now_ns: int) -> None:
        """Drop what has faded."""
        if now_ns - self._turned_ns < self.fade_ns:
            return
        self._older = self._younger if now_ns - self._turned_ns < 2 * self.fade_ns else None
        self._younger = None
        self._turned_ns = now_ns

    def _bits(self, key: str) -> tuple[int, ...]:
        hashed = siphash(self._words, key.encode())
        start, stride = hashed & 0xFFFFFFFF, hashed >> 32 | 1
        return tuple((start + number * stride) & self._mask for number in range(PROBES))


def siphash(words: tuple[int, int], data: bytes) -> int:
    """SipHash-2-4 of some bytes, with a key of two words."""
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
