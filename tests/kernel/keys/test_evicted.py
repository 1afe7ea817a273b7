"""Goal: a key that was evicted is remembered for as long as it matters, in bounded memory, and few others are.

Method: filters in Python and in C are told the same, and asked about keys that were and that never were evicted.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import SECOND_NS
from reconverge.kernel import HASH_KEY_BYTES
from reconverge.kernel.engine import Evicted
from reconverge.kernel.evicted import AMOUNT_MAX, BITS_PER_KEY, siphash
from reconverge.kernel.evicted import Evicted as PythonEvicted

FADE_NS = 120 * SECOND_NS
HASH_KEY = bytes(range(HASH_KEY_BYTES))
KEYS_MAX = 1000
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def remembering(*keys: str, kind: Any = Evicted, hash_key: bytes = HASH_KEY, label: str = "login") -> Any:
    """A filter to which these keys were added at moment 0."""
    evicted = kind(hash_key, label, KEYS_MAX, FADE_NS)
    for key in keys:
        evicted.remember(key, 0)
    return evicted


@pytest.mark.parametrize(
    ("length", "hashed"), [(0, 0x726FDB47DD0E0E31), (1, 0x74F839C593DC67FD), (15, 0xA129CA6149BE45E5)]
)
def test_the_hash_is_siphash(length: int, hashed: int) -> None:
    """The authors' reference vectors say so."""
    words = int.from_bytes(HASH_KEY[:8], "little"), int.from_bytes(HASH_KEY[8:], "little")

    assert hashed == siphash(words, bytes(range(length)))


def test_nothing_is_recalled_at_first() -> None:
    """Nobody was evicted, and no memory is taken."""
    assert not remembering().recall("ada", 0)


def test_an_evicted_key_is_recalled_until_its_use_has_faded() -> None:
    """At the last nanosecond of that time still; after twice as long certainly no more."""
    evicted = remembering("ada")

    assert evicted.recall("ada", FADE_NS - 1)
    assert evicted.recall("ada", FADE_NS)
    assert not evicted.recall("ada", 2 * FADE_NS)


def test_a_key_evicted_late_in_a_generation_is_recalled_for_as_long() -> None:
    """It is handed on with the others, and not dropped with those that came before."""
    evicted = remembering("ada")
    evicted.remember("bob", FADE_NS - 1)
    evicted.remember("cyd", FADE_NS + 1)

    assert [True, True] == [evicted.recall(key, 2 * FADE_NS - 2) for key in ("bob", "cyd")]
    assert [False, False, True] == [evicted.recall(key, 2 * FADE_NS + 1) for key in ("ada", "bob", "cyd")]


def test_forgetting_forgets_all() -> None:
    """A fork does it."""
    evicted = remembering("ada")

    evicted.forget()

    assert not evicted.recall("ada", 0)


def test_few_newcomers_are_mistaken_for_evicted_keys() -> None:
    """Fewer than 1 % when three times as many keys were evicted as are kept, and next to none with as many."""
    newcomers = [f"newcomer {number}" for number in range(4000)]
    shares = []
    for times in (1, 3):
        evicted = remembering(*(f"evicted {number}" for number in range(times * KEYS_MAX)))
        shares.append(sum(evicted.recall(key, 1) for key in newcomers) / len(newcomers))

    assert shares[0] <= 0.001
    assert shares[1] < 0.01


def test_who_is_mistaken_depends_on_a_secret() -> None:
    """A stranger who has found keys that fill the bits of another one cannot use them in another process."""
    evicted = [f"evicted {number}" for number in range(BITS_PER_KEY * KEYS_MAX // 6)]
    newcomers = [f"newcomer {number}" for number in range(300)]
    one, other = remembering(*evicted), remembering(*evicted, hash_key=bytes(HASH_KEY_BYTES))

    mistaken = [[key for key in newcomers if each.recall(key, 1)] for each in (one, other)]

    assert mistaken[0]
    assert mistaken[1]
    assert mistaken[0] != mistaken[1]


def test_limits_mistake_different_keys() -> None:
    """A key that one limit mistakes for an evicted one is not unlucky in all."""
    evicted = [f"evicted {number}" for number in range(BITS_PER_KEY * KEYS_MAX // 6)]
    newcomers = [f"newcomer {number}" for number in range(300)]
    one, other = remembering(*evicted), remembering(*evicted, label="search")

    assert [one.recall(key, 1) for key in newcomers] != [other.recall(key, 1) for key in newcomers]


@pytest.mark.usefixtures("compiled_kernel")
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["remember", "recall"]), TEXTS, st.sampled_from([0, 1, FADE_NS // 2, FADE_NS]))
    ),
    hash_key=st.binary(min_size=HASH_KEY_BYTES, max_size=HASH_KEY_BYTES),
    label=TEXTS,
)
def test_both_twins_remember_alike(steps: list[tuple[str, str, int]], hash_key: bytes, label: str) -> None:
    """They agree with any keys, and any time between them."""
    both = [kind(hash_key, label, 1, FADE_NS) for kind in (Evicted, PythonEvicted)]
    now_ns = 0
    for number, (step, key, passes_ns) in enumerate(steps):
        now_ns += passes_ns
        told: list[Any] = [getattr(each, step)(key, now_ns) for each in both]

        assert told[0] == told[1]

        asked = [[each.recall(f"other {probe}", now_ns) for probe in range(number % 7)] for each in both]

        assert asked[0] == asked[1]


AMOUNTS = st.one_of(st.integers(0, 5), st.integers(0, AMOUNT_MAX + 1))


@given(kept=st.lists(st.tuples(TEXTS, AMOUNTS, AMOUNTS), max_size=30))
def test_what_is_kept_of_a_window_is_never_too_little(kept: list[tuple[str, int, int]]) -> None:
    """However many keys share the counters; and of the largest amount of all keys it is too much by 1/2048 at most."""
    evicted = Evicted(HASH_KEY, "login", 1, FADE_NS)
    stays = [evicted.keep_window(key, 7, current, previous, 0) for key, current, previous in kept]

    for (key, *amounts), could in zip(kept, stays, strict=True):
        assert could == (max(amounts) <= AMOUNT_MAX)
        if could and (found := evicted.window_of(key, 0)) is not None:
            assert all(told >= amount for told, amount in zip(found[1:], amounts, strict=True))
    largest = max([max(amounts) for (_, *amounts), could in zip(kept, stays, strict=True) if could], default=0)
    others = evicted.window_of("\U0001f600" * 41, 0) or (7, 0, 0)
    assert max(others[1:]) <= largest + largest // 2048


@given(
    kept=st.lists(st.tuples(TEXTS, st.integers(0, 10**6), st.sampled_from([0, 1, FADE_NS // 3, FADE_NS])), max_size=20)
)
def test_what_is_kept_of_a_level_drains_and_is_never_too_little(kept: list[tuple[str, int, int]]) -> None:
    """At the slowest rate of all that it was told."""
    evicted = Evicted(HASH_KEY, "login", 1000, FADE_NS)
    for rate in (5, 3, 4):
        evicted.slow_down(rate)
    now_ns, levels = 0, dict[str, tuple[int, int]]()
    for key, requests, passes_ns in kept:
        now_ns += passes_ns
        level = requests * FADE_NS
        assert evicted.keep_level(key, level, FADE_NS, now_ns)
        levels[key] = level, now_ns
        for each, (before, then_ns) in levels.items():
            drained = 3 * (now_ns - then_ns)
            faded = now_ns - then_ns >= FADE_NS
            assert faded or evicted.level_of(each, FADE_NS, now_ns) >= before - drained


def test_a_window_that_has_passed_becomes_the_one_before() -> None:
    """A clock that goes back by one window is waited for, and one that goes back further is followed."""
    evicted = Evicted(HASH_KEY, "login", KEYS_MAX, FADE_NS)
    found = []
    for epoch, current in ((7, 3), (8, 2), (7, 1), (20, 1), (5, 1)):
        evicted.keep_window("ada", epoch, current, 0, 0)
        found.append(evicted.window_of("ada", 0))

    assert [(7, 3, 0), (8, 2, 3), (8, 2, 3), (20, 1, 0), (5, 1, 0)] == found
    assert evicted.window_of("ada", 2 * FADE_NS) is None


@pytest.mark.usefixtures("compiled_kernel")
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["keep_window", "keep_level", "window_of", "level_of", "slow_down"]),
            TEXTS,
            st.sampled_from([0, 0, 1, 1, 2, -1]),
            st.tuples(AMOUNTS, AMOUNTS),
            st.sampled_from([0, 1, FADE_NS // 2, FADE_NS, 3 * FADE_NS]),
        )
    ),
    by_level=st.booleans(),
)
def test_both_twins_keep_alike(steps: list[Any], *, by_level: bool) -> None:
    """Windows or levels, as one limit has either."""
    both = [kind(HASH_KEY, "login", 1, FADE_NS) for kind in (Evicted, PythonEvicted)]
    now_ns, epoch = 0, 5
    for step, key, windows, (one, other), passes_ns in steps:
        now_ns, epoch = now_ns + passes_ns, max(0, epoch + windows)
        arguments: dict[str, tuple[Any, ...]] = {
            "keep_window": (key, epoch, one, other, now_ns),
            "window_of": (key, now_ns),
            "keep_level": (key, one * other, FADE_NS, now_ns),
            "level_of": (key, FADE_NS, now_ns),
            "slow_down": (1 + one % 7,),
        }
        if by_level != ("window" in step):
            told = [getattr(each, step)(*arguments[step]) for each in both]

            assert told[0] == told[1]


@pytest.mark.usefixtures("compiled_kernel")
def test_both_twins_set_the_same_bits() -> None:
    """Filters so full that many are mistaken mistake the very same keys."""
    evicted = [f"evicted \u00e9\u65e5 {number}" for number in range(8 * KEYS_MAX)]
    newcomers = [f"newcomer {number}" for number in range(3000)]
    native, python = (remembering(*evicted, kind=kind) for kind in (Evicted, PythonEvicted))

    mistaken = [key for key in newcomers if native.recall(key, 1)]

    assert len(mistaken) > 10
    assert mistaken == [key for key in newcomers if python.recall(key, 1)]
