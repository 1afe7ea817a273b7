"""Goal: a node obeys what was signed for it, is newer than what it knows and has not expired; and nothing else, ever.

Method: what was sealed is read back, or else damaged, repeated, aged or meant for others in every way that is drawn.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge import InvalidSetting
from reconverge.limiter.enforcement.switches import SWITCHES
from reconverge.published.envelope import (
    AHEAD_MAX_S,
    PAYLOAD_BYTES_MAX,
    REASONS,
    VERSION_MAX,
    InvalidDocument,
    Rejection,
    Secrets,
    Verifier,
)
from reconverge.published.settings import (
    LIFETIME_MAX_S,
    LIMITS_MAX,
    MAGIC,
    SETTINGS,
    WORDS,
    FleetSettings,
    LimitOverride,
    seal,
)
from tests.support.published import HOUR_S, NOON, OTHER, SECRET, login, orders, sealed

HEADER_BYTES = len(MAGIC) + 64 + 1
NAMES = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789_-./", min_size=1, max_size=64)
SWITCH = st.none() | st.sampled_from(list(WORDS.values()))
LIMITS = st.none() | st.builds("{}/{}".format, st.integers(1, 10**12), st.sampled_from(["s", "minute", "day"]))
INTERVALS = st.none() | st.floats(0.001, 3600)
SHARES = st.none() | st.floats(0, 1000)
ORDERS = st.builds(
    FleetSettings,
    namespace=st.just("shop"),
    version=st.integers(1, VERSION_MAX),
    issued=st.just(NOON),
    expires=st.integers(NOON + 1, NOON + LIFETIME_MAX_S),
    sync_interval=INTERVALS,
    switch=SWITCH,
    limits=st.dictionaries(NAMES, st.builds(LimitOverride, LIMITS, SHARES, INTERVALS, SWITCH), max_size=5),
)


def verdict_on(payload: bytes, *, known: int = 0, now_s: float = NOON) -> FleetSettings | str:
    """The settings, or the reason for which a node that knows a version rejects them."""
    verdict = Verifier(SETTINGS, "shop", Secrets(SECRET)).verify(payload, now_s=now_s, known=known)
    return verdict.reason if isinstance(verdict, Rejection) else verdict


def signed(body: bytes) -> bytes:
    """Any body, signed as settings are."""
    return MAGIC + Secrets(SECRET).sign(body, magic=MAGIC) + b"\n" + body


def as_table(said: FleetSettings) -> dict[str, Any]:
    """The JSON that travels."""
    table = json.loads(sealed(said)[HEADER_BYTES:])
    assert isinstance(table, dict)
    return table


@given(ORDERS)
def test_what_was_sealed_is_read_as_it_was(said: FleetSettings) -> None:
    """By every node that knows the secret."""
    assert said == verdict_on(sealed(said))


@given(ORDERS, st.data())
def test_a_single_bit_makes_all_of_it_void(said: FleetSettings, data: st.DataObject) -> None:
    """Wherever it is: in the name of the format, in the signature, or in what is signed."""
    payload = sealed(said)
    place = data.draw(st.integers(0, 8 * len(payload) - 1))
    damaged = bytearray(payload)
    damaged[place // 8] ^= 1 << place % 8

    assert verdict_on(bytes(damaged)) in ("malformed", "forged")


def test_every_bit_counts() -> None:
    """Of one of them, all are tried, one after the other."""
    payload = sealed(orders(limits=login("50/minute")))
    verdicts = {
        verdict_on(payload[:place] + bytes([payload[place] ^ 1 << bit]) + payload[place + 1 :])
        for place in range(len(payload))
        for bit in range(8)
    }

    assert {"malformed", "forged"} == verdicts


@given(ORDERS, st.data())
def test_a_part_of_it_is_nothing(said: FleetSettings, data: st.DataObject) -> None:
    """However much is missing at the end, or has been put there."""
    payload = sealed(said)
    rest = payload[: data.draw(st.integers(0, len(payload) - 1))]
    more = payload + data.draw(st.binary(min_size=1, max_size=50))

    assert {"malformed", "forged"} >= {verdict_on(rest), verdict_on(more)}


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda body: MAGIC + b"0" * 64 + b"\n" + body))
def test_noise_is_nothing(noise: bytes) -> None:
    """Nor does it raise anything."""
    assert verdict_on(noise) in ("malformed", "forged")


@given(st.integers(1, 20), st.integers(0, 20))
def test_versions_only_rise(version: int, known: int) -> None:
    """A node believes what is newer than all that it knows; so nothing can be played back."""
    verdict = verdict_on(sealed(orders(version, switch="off")), known=known)

    assert (orders(version, switch="off") if version > known else "old") == verdict


def test_it_is_for_one_namespace() -> None:
    """Whoever has another one, and the same secret, does not obey."""
    assert "foreign" == verdict_on(sealed(orders(namespace="shop2")))


def test_it_expires_to_the_moment() -> None:
    """Valid until then, and not at it."""
    payload = sealed(orders(lifetime=HOUR_S))

    assert isinstance(verdict_on(payload, now_s=NOON + HOUR_S - 0.001), FleetSettings)
    assert "expired" == verdict_on(payload, now_s=NOON + HOUR_S)


def test_it_may_come_from_a_clock_that_is_a_little_ahead() -> None:
    """And from one that is more than that, not yet."""
    payload = sealed(orders())

    assert isinstance(verdict_on(payload, now_s=NOON - AHEAD_MAX_S), FleetSettings)
    assert "premature" == verdict_on(payload, now_s=NOON - AHEAD_MAX_S - 0.001)


def test_a_secret_can_be_changed_without_a_gap() -> None:
    """Nodes that know both believe either; who signs with the old one alone is believed no more by the new ones."""
    both, new = Secrets(f"{OTHER} {SECRET}"), Secrets([OTHER])

    assert orders() == SETTINGS.opened(sealed(orders()), both, "shop")
    assert orders() == SETTINGS.opened(seal(orders(), both), new, "shop")
    assert isinstance(SETTINGS.opened(sealed(orders()), new, "shop"), Rejection)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": True},
        {"version": 1.0},
        {"version": "1"},
        {"version": VERSION_MAX + 1},
        {"issued": -1},
        {"expires": NOON},
        {"expires": NOON + LIFETIME_MAX_S + 1},
        {"namespace": ""},
        {"namespace": "a b"},
        {"namespace": ["shop"]},
        {"sync_interval": 0},
        {"sync_interval": True},
        {"sync_interval": "1"},
        {"sync_interval": 3601},
        {"switch": "maybe"},
        {"switch": ["on"]},
        {"limits": []},
        {"limits": {"login": None}},
        {"limits": {"login": "50/minute"}},
        {"limits": {"a b": {}}},
        {"limits": {"login": {"limit": 50}}},
        {"limits": {"login": {"limit": "50/fortnight"}}},
        {"limits": {"login": {"switch": "OFF"}}},
        {"limits": {"login": {"max_overshoot": -0.1}}},
        {"limits": {"login": {"max_overshoot": True}}},
        {"limits": {"login": {"max_overshoot": "0.1"}}},
        {"limits": {"login": {"max_overshoot": 1001}}},
        {"limits": {"login": {"sync_interval": 0}}},
        {"limits": {"login": {"policy": "available"}}},
        {"limits": {f"limit-{number}": {} for number in range(LIMITS_MAX + 1)}},
        {"colour": "red"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_malformed_though_it_is_signed(changes: dict[str, Any]) -> None:
    """Nothing of it is obeyed, not even the rest."""
    payload = signed(json.dumps(as_table(orders(limits=login("50/minute"))) | changes).encode())

    assert "malformed" == verdict_on(payload)


@pytest.mark.parametrize("name", ["namespace", "version", "issued", "expires"])
def test_what_must_be_said_is_missed(name: str) -> None:
    """Each of the four."""
    table = as_table(orders())
    del table[name]

    assert "malformed" == verdict_on(signed(json.dumps(table).encode()))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b'{"version":1,"version":2}',
        b"[" * 60_000,
        b'{"version":' + b"9" * 10_000 + b"}",
        *(
            b'{"namespace":"shop","version":1,"issued":1,"expires":2,"sync_interval":%b}' % x
            for x in (b"NaN", b"1e999")
        ),
        b'{"namespace":"shop","version":1,"issued":1,"expires":2,"limits":{"a":{"switch":"on","switch":"off"}}}',
    ],
    ids=lambda body: body[:30],
)
def test_only_strict_json_is_read(body: bytes) -> None:
    """Also of those who know the secret: what two readers may take for different things is taken for nothing."""
    assert "malformed" == verdict_on(signed(body))


def test_a_long_one_is_not_looked_at() -> None:
    """One byte more than may be, though it is signed; and whoever seals one is told."""
    longest = signed(b" " * (PAYLOAD_BYTES_MAX - HEADER_BYTES))
    many = {f"limit-with-a-long-name-{number:040}": LimitOverride("1/day") for number in range(LIMITS_MAX)}

    assert "malformed" == verdict_on(longest)
    assert "too-large" == verdict_on(signed(b" " * (PAYLOAD_BYTES_MAX - HEADER_BYTES + 1)))
    with pytest.raises(InvalidDocument, match="publish fewer entries"):
        sealed(orders(limits=many))


def test_nobody_can_seal_what_nobody_would_obey() -> None:
    """The mistake is told with its field."""
    with pytest.raises(InvalidDocument, match=r"^limits\.login\.limit: ") as found:
        sealed(orders(limits=login("50/fortnight")))

    assert ("limits", "login", "limit") == found.value.path


@pytest.mark.parametrize("secret", ["", "short", "x" * 15, [], ["x" * 16, "short"], 16 * [7], " ".join(9 * ["x" * 16])])
def test_a_secret_that_is_none_is_refused_without_showing_it(secret: Any) -> None:
    """Too short, too many, or of no kind that can be a secret."""
    with pytest.raises(InvalidSetting) as found:
        Secrets(secret)

    assert "short" not in str(found.value).replace("is shorter", "")
    assert "xxx" not in f"{found.value} {found.value.args} {vars(found.value)}"


def test_secrets_do_not_show_themselves() -> None:
    """Nor does who keeps them."""
    verifier = Verifier(SETTINGS, "shop", Secrets(SECRET))

    assert "<1 secrets>" == repr(verifier._secrets)
    assert SECRET not in f"{verifier!r} {verifier._secrets!s} {Secrets(SECRET.encode())!r}"


def test_every_reason_is_one_of_those_that_are_listed() -> None:
    """The words that statistics use; and switches are the ones that limits have."""
    assert ("too-large", "malformed", "forged", "foreign", "premature", "expired", "old") == REASONS
    assert SWITCHES == WORDS
