"""Finds the address of a request's client from the reports of trusted proxies."""

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
"""The entry in `Addresses.trusted` that stands for a proxy which connects by a unix socket, and has no address."""
X_FORWARDED_FOR: Final = "x-forwarded-for"
FORWARDED: Final = "forwarded"
HOPS_MAX: Final = 32
"""The most addresses that are read from a field, from the last one back; a longer chain of proxies is cut off."""
FIELD_CHARACTERS_MAX: Final = 8192
"""The longest `Forwarded` field that is read, in characters; with a longer one, the proxy counts as the client."""
ADDRESS_CHARACTERS_MAX: Final = 64
"""The most characters of a text that is read as an address; any address with its port is shorter."""
PEERS_MAX: Final = 4096
"""The most peer addresses whose parsed form is cached; most clients connect again soon."""
IPV6_PREFIX: Final = 64
"""The length of the prefix by which IPv6 clients are counted: providers assign no smaller network to a customer."""

IPV4_MAPPED_BITS: Final = 96
"""The number of bits before the IPv4 address in an IPv4-mapped IPv6 address."""
Text = TypeVar("Text", str, bytes)

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  # of HTTP's grammar
_PAIR: Final = re.compile(rf'[ \t]*(?P<name>{_TOKEN})=(?:(?P<token>{_TOKEN})|"(?P<quoted>(?:[^"\\]|\\.)*)")[ \t]*')
_PORT: Final = re.compile(r"(?P<host>[^:]*|\[[^]]*\])(?::[0-9_A-Za-z.-]+)?")


class Addresses:
    """Reads the client's address from the reports of trusted proxies, from the last one back to an untrusted address.

    Args:
        trusted: networks or addresses of the trusted proxies, such as `10.0.0.0/8`; `unix` for a proxy that connects by
            a unix socket. By default no proxy is trusted, and forwarding fields are ignored.
        header: the field that the proxies write: `X-Forwarded-For`, `Forwarded`, or one that holds a single address,
            such as `X-Real-IP` or `CF-Connecting-IP`. Only this field is read, because proxies pass on all other such
            fields as the client wrote them.

    Raises:
        InvalidSetting: a network is invalid, the header is no field name, or no proxy is trusted to write it.
    """

    def __init__(self, trusted: Iterable[str] = (), *, header: str = X_FORWARDED_FOR) -> None:
        if isinstance(trusted, str) or not isinstance(trusted, Iterable):
            raise InvalidSetting("trusted_proxies", trusted, "is not a list of networks such as ['10.0.0.0/8']")
        trusted = list(trusted)
        self.header = str(header).lower()
        if not isinstance(header, str) or re.fullmatch(_TOKEN, self.header) is None:
            problem = "is not the name of a header field, such as 'X-Forwarded-For', 'Forwarded' or 'X-Real-IP'"
            raise InvalidSetting("forwarded_header", header, problem)
        self._hops = _HOPS.get(self.header, _single_address)
        self._trusts_unix = UNIX in trusted
        self._networks = [_network(text) for text in trusted if text != UNIX]
        if self.believes_nothing and self.header != X_FORWARDED_FOR:
            problem = "has no effect, as no proxy is trusted to write it; name yours: trusted_proxies=['10.0.0.0/8']"
            raise InvalidSetting("forwarded_header", header, problem)

    @property
    def believes_nothing(self) -> bool:
        """Whether no proxy is trusted. Then the address at the other end of a connection is the client."""
        return not self._networks and not self._trusts_unix

    def client(self, peer: str | None, header: Callable[[str], str | None]) -> str | None:
        """Returns the client's address; None if there is none, as behind an untrusted unix socket.

        `peer` is the address at the other end of the connection; `header` returns a field by name. Never raises an
        error.
        """
        # A longer text is no address, and is not cached: some servers take the peer from a field that a client writes.
        address, text = (None, None) if peer is None or len(peer) > ADDRESS_CHARACTERS_MAX else _read(peer)
        if address is None:
            if not self._trusts_unix:
                return peer or None
        elif not self._networks or not self._is_trusted(address):
            return text
        said = header(self.header)
        if said:
            for hop in self._hops(said):
                found = _address(hop)
                if found is None:
                    break  # the proxy does not report its client, so the search ends here
                address = found
                if not self._is_trusted(found):
                    break
        return str(address) if address is not None else peer or None

    def _is_trusted(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._networks)


class Client(str):  # noqa: SLOT000  # it has an attribute
    """A client's address as text, with the attributes `host` and `port` of Starlette's `request.client`."""

    port: int | None = None
    """The port at the other end of the connection; None if it is unknown."""

    @property
    def host(self) -> str:
        """Returns the address as a plain string."""
        return str(self)


class Located(ABC):
    """The base class of requests: computes the client's address and the path when first read, and keeps them."""

    __slots__ = ("_addresses", "_client", "_read_path", "_said")

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._client: str | EllipsisType | None = ...
        self._read_path: ReadPath | None = None
        self._said: dict[str, str | None] | None = None

    @property
    @abstractmethod
    def path(self) -> str:
        """Returns the path of the request."""

    @property
    @abstractmethod
    def route(self) -> str:
        """Returns the pattern or name of the matched route; empty if none matched."""

    @property
    def operation(self) -> str:
        return self.route

    @property
    def read_path(self) -> ReadPath:
        """Returns the `ReadPath` of the request's path and `inner_paths`, which rules compare with their paths."""
        if self._read_path is None:
            self._read_path = ReadPath(self.path, self.inner_paths)
        return self._read_path

    @property
    @abstractmethod
    def peer(self) -> str | None:
        """Returns the address at the other end of the connection; None if there is none."""

    @property
    def is_at_port(self) -> bool:
        """Whether the server is known to listen at a TCP port, where each connection has an address."""
        return False

    @property
    def has_gone(self) -> bool:
        """Whether the address is lost because the client reset its connection before the server read the address.

        True only if the server has reported other addresses before: some servers never report any.
        """
        return self.is_at_port and not self.peer and _read.cache_info().currsize > 0

    @abstractmethod
    def header(self, name: str) -> str | None:
        """Returns the value of a header field; None without it."""

    @property
    def inner_paths(self) -> Sequence[str]:
        """Returns an empty sequence, for frameworks without mounted applications."""
        return ()

    @property
    def templates(self) -> Sequence[str]:
        """Returns an empty sequence: by default, the framework's router has not run when rules decide."""
        return ()

    def seek_templates(self) -> Sequence[str]:
        """Returns `templates`: by default, the framework's router cannot be asked."""
        return self.templates

    def single_header(self, name: str) -> str | None:
        """Returns the value of a header field as `found_header` does, and caches the value for further rules."""
        said = self._said
        if said is None:
            said = self._said = {}
        if name not in said:
            said[name] = self.found_header(name)
        return said[name]

    def found_header(self, name: str) -> str | None:
        """Returns the value of a header field; None if the field is missing or occurs with different values.

        A server may have joined repeated fields to one value already.
        """
        return self.header(name)

    @property
    def client(self) -> str | None:
        if isinstance(self._client, EllipsisType):
            self._client = self._addresses.client(self.peer, self.header)
        return self._client


def grouped(client: str, prefix: int = IPV6_PREFIX) -> str:
    """Returns the network of `prefix` bits for an IPv6 address; any other text, as of test clients, unchanged."""
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
    """Returns a function that makes the key of a connection's peer address, for guards that trust no proxy.

    It does the same as `Addresses.client` followed by `grouped`, but parses the address once. It accepts texts of at
    most 64 characters, and caches the last few thousand.
    """

    @lru_cache(maxsize=PEERS_MAX)
    def group(peer: str) -> str | None:
        address, _ = _read(peer)
        return peer or None if address is None else _group_of(address, prefix)

    return group


def group_of_odd_peer(peer: Any, prefix: int) -> str | None:
    """Returns the key for a peer address that is no text, or a very long text, as in some test clients.

    Returns None if the address cannot be used.
    """
    address = _NO_PROXIES.client(peer, lambda _name: None)
    return None if address is None else grouped(address, prefix)


def _x_forwarded_for(said: str) -> list[str]:
    """Returns the addresses in the text `said` of an X-Forwarded-For field, the last address first."""
    return said.rsplit(",", HOPS_MAX)[: -HOPS_MAX - 1 : -1]


def _forwarded(said: str) -> list[str]:
    """Returns the addresses in the text `said` of a `Forwarded` field (RFC 7239), the last address first.

    The list is empty if any part of the field is malformed: an open quote may hide the beginning of another element.
    """
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


def _single_address(said: str) -> list[str]:
    return [said]


def _elements(said: str) -> list[list[tuple[str, str]]]:
    """Returns the elements of a `Forwarded` field with their pairs, in order; empty if the field is malformed."""
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
    """Returns the address in a text such as `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`.

    The port is left out. None if the text holds no address.
    """
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
    """Returns a peer's address and its normalized text; None for both if the text is not an address."""
    address = _address(peer)
    return address, None if address is None else str(address)


def is_port(server: object) -> bool:
    """Whether a server's address, as frameworks report it, has a port; False for a unix socket."""
    return isinstance(server, tuple | list) and len(server) >= 2 and isinstance(server[1], int)


def single(values: Sequence[Text]) -> Text | None:
    """Returns the value that all `values` are equal to; None if they differ, or if there are no values."""
    return values[0] if values and values.count(values[0]) == len(values) else None


def _network(text: object) -> Network:
    """Returns the network that `text` names; an IPv4-mapped IPv6 network becomes one of IPv4. Raises InvalidSetting."""
    try:
        network = ip_network(str(text))
        mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
        if mapped is not None:
            network = ip_network((int(mapped), network.prefixlen - IPV4_MAPPED_BITS))
    except ValueError as error:
        advice = f"is neither a network such as '10.0.0.0/8', nor an address, nor {UNIX!r}: {error}"
        raise InvalidSetting("trusted_proxies", text, advice) from None
    if network.prefixlen == 0:
        problem = "trusts every address, so each client could write its own; name the networks of your proxies"
        raise InvalidSetting("trusted_proxies", text, problem)
    return network


_HOPS: Final[dict[str, Callable[[str], list[str]]]] = {X_FORWARDED_FOR: _x_forwarded_for, FORWARDED: _forwarded}
"""The functions that read a chain of addresses from a field, by the name of the field."""
_NO_PROXIES: Final = Addresses()
