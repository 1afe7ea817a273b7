"""Which address a request comes from, when only some of those that say so can be believed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from types import EllipsisType
from typing import Any, Final, TypeAlias, TypeVar

from reconverge.errors import InvalidSetting
from reconverge.integrations.web.request.read_path import ReadPath

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

UNIX: Final = "unix"
"""Stands among the trusted proxies for clients of a unix socket, which have no address."""
X_FORWARDED_FOR: Final = "x-forwarded-for"
FORWARDED: Final = "forwarded"
HOPS_MAX: Final = 32
"""So many proxies are believed, one behind the other; a client that pretends to more is not followed."""
FIELD_CHARACTERS_MAX: Final = 8192
"""A longer `Forwarded` is not read: its proxy is then taken for the client."""
ADDRESS_CHARACTERS_MAX: Final = 64
"""Longer than any address with its port."""
PEERS_MAX: Final = 4096
"""Of so many connections' addresses it is remembered what they are: most come again before long."""
IPV6_PREFIX: Final = 64
"""The smallest network that one subscriber is given: an attacker with one of its addresses has all of them."""

IPV4_MAPPED_BITS: Final = 96
"""Of an IPv6 address that is an IPv4 address, so many stand before that."""
Text = TypeVar("Text", str, bytes)

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  # of HTTP's grammar
_PAIR: Final = re.compile(rf'[ \t]*(?P<name>{_TOKEN})=(?:(?P<token>{_TOKEN})|"(?P<quoted>(?:[^"\\]|\\.)*)")[ \t]*')
_PORT: Final = re.compile(r"(?P<host>[^:]*|\[[^]]*\])(?::[0-9_A-Za-z.-]+)?")


class Addresses:
    """Reads the client's address from what trusted proxies say, from the last one to the first that is not trusted.

    Args:
        trusted: networks or addresses of the proxies that are believed, such as `10.0.0.0/8`; `unix` for clients
            of a unix socket. By default there are none, and forwarding headers are not looked at.
        header: which one the proxies write, `X-Forwarded-For` or `Forwarded`. The other is never read: a proxy that
            writes one passes the other on as the client made it up.

    Raises:
        InvalidSetting: a network cannot be read, or the header is another one.
    """

    def __init__(self, trusted: Iterable[str] = (), *, header: str = X_FORWARDED_FOR) -> None:
        if isinstance(trusted, str) or not isinstance(trusted, Iterable):
            raise InvalidSetting("trusted_proxies", trusted, "is no list of networks such as ['10.0.0.0/8']")
        trusted = list(trusted)
        self.header = str(header).lower()
        if self.header not in (X_FORWARDED_FOR, FORWARDED):
            raise InvalidSetting("forwarded_header", header, "is neither 'X-Forwarded-For' nor 'Forwarded'")
        self._trusts_unix = UNIX in trusted
        self._networks = [_network(text) for text in trusted if text != UNIX]

    @property
    def believes_nothing(self) -> bool:
        """Whether the address at the other end of a connection is the client's, and no header field can change that."""
        return not self._networks and not self._trusts_unix

    def client(self, peer: str | None, header: Callable[[str], str | None]) -> str | None:
        """The client's address; None when there is none, as behind a unix socket that is not trusted.

        `peer` is the address at the other end of the connection, `header` looks a field up by its name. Never fails.
        """
        # A longer text is none, and is not remembered: some servers take it from a field that a client writes.
        address, text = (None, None) if peer is None or len(peer) > ADDRESS_CHARACTERS_MAX else _read(peer)
        if address is None:
            if not self._trusts_unix:
                return peer or None
        elif not self._networks or not self._is_trusted(address):
            return text
        said = header(self.header)
        if said:
            for hop in _x_forwarded_for(said) if self.header == X_FORWARDED_FOR else _forwarded(said):
                found = _address(hop)
                if found is None:
                    break  # a proxy that hides its client, or does not know it, is all there is
                address = found
                if not self._is_trusted(found):
                    break
        return str(address) if address is not None else peer or None

    def _is_trusted(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._networks)


_NO_PROXIES: Final = Addresses()


class Client(str):  # noqa: SLOT000  # it has an attribute
    """An address with the attributes that Starlette's `request.client` has."""

    port: int | None = None
    """At the other end of the connection; None if that is not known."""

    @property
    def host(self) -> str:
        """The address as a plain text."""
        return str(self)


class Located(ABC):
    """The part of a `Request` that says where it comes from, and where it goes; worked out once, at the first use."""

    __slots__ = ("_addresses", "_client", "_read_path", "_said")

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._client: str | EllipsisType | None = ...
        self._read_path: ReadPath | None = None
        self._said: dict[str, str | None] | None = None

    @property
    @abstractmethod
    def path(self) -> str:
        """The path of the request."""

    @property
    def read_path(self) -> ReadPath:
        """The path and `inner_paths`, as rules read them."""
        if self._read_path is None:
            self._read_path = ReadPath(self.path, self.inner_paths)
        return self._read_path

    @property
    @abstractmethod
    def peer(self) -> str | None:
        """The address at the other end of the connection; None when there is none."""

    @property
    def is_at_port(self) -> bool:
        """Whether the server is known to listen at a port of TCP, where each connection has an address."""
        return False

    @property
    def has_gone(self) -> bool:
        """Whether the client has reset its connection before the server looked: its address is lost, and no other fact.

        Only where the server has named other addresses: some name none, wherever they listen.
        """
        return self.is_at_port and not self.peer and _read.cache_info().currsize > 0

    @abstractmethod
    def header(self, name: str) -> str | None:
        """Returns the value of a header; None without it."""

    @property
    def inner_paths(self) -> Sequence[str]:
        """Returns nothing, as nothing can be mounted here."""
        return ()

    @property
    def templates(self) -> Sequence[str]:
        """Returns nothing, as the rule is decided before the router has looked."""
        return ()

    def seek_templates(self) -> Sequence[str]:
        """Returns the templates that are known, as no router can be asked."""
        return self.templates

    def single_header(self, name: str) -> str | None:
        """Returns a header that occurs once.

        It is looked for once, by the first rule: there may be thousands of fields.
        """
        said = self._said
        if said is None:
            said = self._said = {}
        if name not in said:
            said[name] = self.found_header(name)
        return said[name]

    def found_header(self, name: str) -> str | None:
        """Reads the header for `single_header`, where servers join repeated headers before the application does."""
        return self.header(name)

    @property
    def client(self) -> str | None:
        if isinstance(self._client, EllipsisType):
            self._client = self._addresses.client(self.peer, self.header)
        return self._client


def grouped(client: str, prefix: int = IPV6_PREFIX) -> str:
    """Returns a client's IPv4 address as it is, and the network of `prefix` bits of its IPv6 address.

    Text that is no address, as some test clients have instead, is returned as it is.
    """
    return _grouped(client, prefix) if len(client) <= ADDRESS_CHARACTERS_MAX else client


@lru_cache(maxsize=4096)
def _grouped(client: str, prefix: int) -> str:
    address = _address(client)
    return client if address is None else _group_of(address, prefix)


def _group_of(address: Address, prefix: int) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((int(address), prefix), strict=False))


@cache
def group_of_peers(prefix: int) -> Callable[[str], str | None]:
    """Returns a function that groups a connection by the text of its other end, where nothing else is believed.

    It does as `Addresses.client` and `grouped` one after the other, and reads the address once. It is for texts
    of at most 64 characters, of which it keeps the last few thousand: each keeps a small piece of memory.
    """

    @lru_cache(maxsize=PEERS_MAX)
    def group(peer: str) -> str | None:
        address, _ = _read(peer)
        return peer or None if address is None else _group_of(address, prefix)

    return group


def group_of_odd_peer(peer: Any, prefix: int) -> str | None:
    """Groups as `group_of_peers` does, where the other end is no text or a long one, as some test clients have."""
    address = _NO_PROXIES.client(peer, lambda _name: None)
    return None if address is None else grouped(address, prefix)


def _x_forwarded_for(said: str) -> list[str]:
    """The addresses in the field, the last first."""
    return said.rsplit(",", HOPS_MAX)[: -HOPS_MAX - 1 : -1]


def _forwarded(said: str) -> list[str]:
    """The same of RFC 7239; empty if any of it cannot be read, as a quote left open may hide where another begins."""
    if len(said) > FIELD_CHARACTERS_MAX:
        return []
    hops: list[str] = []
    for element in _elements(said):
        pairs: dict[str, str] = {}
        for name, value in element:
            if name in pairs:
                return []
            pairs[name] = value
        hops.append(pairs.get("for", ""))
    return hops[: -HOPS_MAX - 1 : -1]


def _elements(said: str) -> list[list[tuple[str, str]]]:
    """The elements of a `Forwarded` field with their pairs, in order; nothing if it is malformed."""
    elements: list[list[tuple[str, str]]] = [[]]
    at = 0
    while True:
        pair = _PAIR.match(said, at)
        if pair is None:
            return []
        quoted = pair["quoted"]
        value = pair["token"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        elements[-1].append((pair["name"].lower(), value))
        at = pair.end()
        if at == len(said):
            return elements
        if said[at] == ",":
            elements.append([])
        elif said[at] != ";":
            return []
        at += 1


def _address(text: str) -> Address | None:
    """The address in a text such as `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`."""
    text = text.strip(" \t")
    if len(text) > ADDRESS_CHARACTERS_MAX:
        return None
    if text.startswith("[") or text.count(":") == 1:
        match = _PORT.fullmatch(text)
        if match is None:
            return None
        text = match["host"].strip("[]")
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=PEERS_MAX)
def _read(peer: str) -> tuple[Address | None, str | None]:
    """The address of a connection's other end, and that as a text; nothing if it is none."""
    address = _address(peer)
    return address, None if address is None else str(address)


def is_port(server: object) -> bool:
    """Whether a server is at an address with a port, as frameworks tell where it listens; not at a unix socket."""
    return isinstance(server, tuple | list) and len(server) >= 2 and isinstance(server[1], int)


def single(values: Sequence[Text]) -> Text | None:
    """Returns the value that all have in common; None when there is none, or they differ."""
    return values[0] if values and values.count(values[0]) == len(values) else None


def _network(text: object) -> Network:
    """A network, of IPv4 even if it is written as IPv6 has it, as addresses are. Raises InvalidSetting."""
    try:
        network = ip_network(str(text))
        mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
        return network if mapped is None else ip_network((int(mapped), network.prefixlen - IPV4_MAPPED_BITS))
    except ValueError as error:
        advice = f"is no network like '10.0.0.0/8', no address and not {UNIX!r}: {error}"
        raise InvalidSetting("trusted_proxies", text, advice) from None
