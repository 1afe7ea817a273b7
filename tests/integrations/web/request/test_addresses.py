"""Goal: a client is known by an address that it cannot choose.

Method: forwarding headers as proxies write them, and as clients forge them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge import InvalidSetting
from reconverge.integrations import Addresses
from reconverge.integrations.web.request import addresses as addresses_module
from reconverge.integrations.web.request.addresses import ADDRESS_CHARACTERS_MAX, HOPS_MAX, UNIX, grouped

PROXY = "10.0.0.1"
CLIENT = "203.0.113.7"
FORGED = "198.51.100.9"


def client(
    said: str | None, *, peer: str | None = PROXY, header: str = "X-Forwarded-For", trusted: str = "10.0.0.0/8"
) -> str | None:
    """Whom a request is taken to come from."""
    addresses = Addresses([trusted], header=header)
    return addresses.client(peer, lambda name: said if name == header.lower() else None)


def test_nobody_is_believed_by_default() -> None:
    """The address of the connection is the client's, whatever else is said."""
    assert PROXY == Addresses().client(PROXY, lambda _name: FORGED)


def test_what_is_too_long_for_an_address_is_not_remembered() -> None:
    """Servers that believe every proxy say as the other end what a client writes; thousands of these were kept."""
    addresses_module._read.cache_clear()  # other tests may have filled it
    before = addresses_module._read.cache_info().currsize
    longest = "x" * ADDRESS_CHARACTERS_MAX
    told = [Addresses().client(peer, lambda _name: None) for peer in (longest, f"{longest}x")]

    assert [longest, f"{longest}x"] == told
    assert before + 1 == addresses_module._read.cache_info().currsize


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (CLIENT, CLIENT),
        (f"{FORGED}, {CLIENT}", CLIENT),
        (f"{FORGED}, {CLIENT}, 10.1.2.3", CLIENT),
        (f"10.9.9.9, {CLIENT}", CLIENT),
        (f"{CLIENT}:4711", CLIENT),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("::ffff:203.0.113.7", CLIENT),
        ("fe80::1%eth0", "fe80::1"),
        ("10.1.1.1, 10.2.2.2", "10.1.1.1"),
        (None, PROXY),
        ("", PROXY),
        ("unknown", PROXY),
        (f"{CLIENT}, unknown", PROXY),
        (f"{CLIENT}, 10.1.2.3, _hidden", PROXY),
        (f"{CLIENT}, <script>", PROXY),
        ("9" * 100_000, PROXY),
    ],
)
def test_proxies_are_believed_from_the_last_to_the_first_that_is_not_trusted(said: str | None, expected: str) -> None:
    """The client has made up all that stands before that; an unreadable part is not guessed at."""
    assert expected == client(said)


def test_a_stranger_is_not_believed() -> None:
    """Who is no trusted proxy is the client."""
    assert CLIENT == client(FORGED, peer=CLIENT)


def test_a_header_of_many_hops_ends_somewhere() -> None:
    """A client cannot have a server walk through megabytes of proxies."""
    assert "10.0.0.3" == client(", ".join(["10.0.0.3"] * (HOPS_MAX + 5)))
    assert "10.0.0.3" == client(f"{FORGED}, " + ", ".join(["10.0.0.3"] * 100_000))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (f"for={CLIENT}", CLIENT),
        (f"For={CLIENT};proto=https;by=10.0.0.1", CLIENT),
        (f"for={FORGED}, for={CLIENT}, for=10.1.2.3", CLIENT),
        ('for="[2001:db8::1]:4711";proto=https', "2001:db8::1"),
        (f'for="{CLIENT}:4711"', CLIENT),
        (f'for="{FORGED}, for={FORGED}", for={CLIENT}', CLIENT),
        ("for=unknown", PROXY),
        ("for=_secret", PROXY),
        ("proto=https", PROXY),
        (f'for={FORGED}, for=", for={CLIENT}', PROXY),
        (f'for={FORGED};x=", for="[2001:db8::1]:80"', PROXY),
        (f'for={FORGED};", for={CLIENT}', PROXY),
        (f"for={FORGED};for={CLIENT}", PROXY),
        (f"for={FORGED},", PROXY),
        ("=", PROXY),
        (f"for={CLIENT}, " * 10_000 + f"for={CLIENT}", PROXY),
    ],
)
def test_forwarded_is_read_as_its_standard_says(said: str, expected: str) -> None:
    """With quotes, brackets and ports; nothing is believed of what is malformed: a quote may hide what was added."""
    assert expected == client(said, header="Forwarded")


def test_only_the_header_that_the_proxies_write_is_read() -> None:
    """The other one they pass on as the client made it up."""
    addresses = Addresses(["10.0.0.0/8"], header="Forwarded")

    assert PROXY == addresses.client(PROXY, lambda name: FORGED if name == "x-forwarded-for" else None)


@pytest.mark.parametrize("header", ["X-Real-IP", "CF-Connecting-IP", "True-Client-IP"])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (CLIENT, CLIENT),
        ("2001:db8::1", "2001:db8::1"),
        (f"{CLIENT}:4711", CLIENT),
        ("unknown", PROXY),
        (f"{FORGED}, {CLIENT}", PROXY),
        (None, PROXY),
    ],
)
def test_a_field_of_a_cdn_holds_one_address(header: str, said: str | None, expected: str) -> None:
    """The proxy replaces the client's field; two addresses show that it has not, so neither is believed."""
    assert expected == client(said, header=header)
    assert FORGED == client(said, header=header, peer=FORGED)


def test_a_unix_socket_has_no_address_unless_it_is_trusted() -> None:
    """A proxy on the same machine may be believed by that name."""
    assert None is client(CLIENT, peer=None)
    assert CLIENT == client(CLIENT, peer=None, trusted=UNIX)
    assert None is client(None, peer=None, trusted=UNIX)
    assert "testclient" == client(CLIENT, peer="testclient")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        (CLIENT, CLIENT),
        ("::ffff:203.0.113.7", CLIENT),
        ("testclient", "testclient"),
    ],
)
def test_ipv6_is_counted_by_network(address: str, expected: str) -> None:
    """Whoever has one address of 64 bits has them all."""
    assert expected == grouped(address)


@given(st.text(), st.sampled_from(["X-Forwarded-For", "Forwarded"]))
def test_nothing_that_is_said_breaks_it(said: str, header: str) -> None:
    """The answer is an address, or what the connection says."""
    answer = client(said, header=header)

    assert answer is not None
    assert len(answer) <= 45


@given(st.text(alphabet='abcfor=",;:[]. 123\\'))
def test_whoever_a_trusted_proxy_names_cannot_be_replaced(forged: str) -> None:
    """The request is taken for the address that the proxy adds, or the proxy, with anything written before it."""
    assert client(f"{forged}, for={CLIENT}", header="Forwarded") in {CLIENT, PROXY}
    assert CLIENT == client(f"{forged}, {CLIENT}")


@pytest.mark.parametrize("trusted", ["::ffff:10.0.0.0/104", "::ffff:10.0.0.1"])
def test_a_network_of_ipv4_may_be_written_as_ipv6_has_it(trusted: str) -> None:
    """A socket for both tells its peers so."""
    assert CLIENT == client(CLIENT, trusted=trusted)
    assert CLIENT == client(CLIENT, trusted=trusted, peer=f"::ffff:{PROXY}")


@pytest.mark.parametrize("trusted", ["10.0.0.0/99", "proxy.example", "10.0.0.1/8"])
def test_a_network_that_cannot_be_read_is_refused_at_once(trusted: str) -> None:
    """With its name, and what to write instead."""
    with pytest.raises(InvalidSetting, match="trusted_proxies="):
        Addresses([trusted])


def test_a_header_that_no_field_can_have_is_refused_at_once() -> None:
    """A list is wanted, and the name of a field."""
    with pytest.raises(InvalidSetting, match="forwarded_header="):
        Addresses(header="X-Real-IP: 192.0.2.1")
    with pytest.raises(InvalidSetting, match="is not a list of networks"):
        Addresses("10.0.0.0/8")
