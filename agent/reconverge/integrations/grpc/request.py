"""A call of gRPC in the form that limits read, and the status details of a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from reconverge.integrations.web.request.addresses import Addresses, Located, single

Details: TypeAlias = Any
"""A `grpc.HandlerCallDetails`: the method and the metadata of a call."""
Context: TypeAlias = Any
"""A `grpc.ServicerContext`, the context of `grpc.aio`, or that of synchronous handlers on a `grpc.aio` server."""


class GrpcRequest(Located):
    """Adapts a gRPC call to the interface `Request`; `raw` is its context, `user` the peer's first TLS identity."""

    __slots__ = ("_metadata", "method", "raw")

    def __init__(self, details: Details, context: Context, addresses: Addresses) -> None:
        super().__init__(addresses)
        self.method: str = details.method
        """The method's full name, such as `/shop.Orders/Place`. The `path` and the `route` are the same."""
        self.raw = context
        self._metadata: Sequence[tuple[str, str | bytes]] = details.invocation_metadata or ()

    @property
    def path(self) -> str:
        return self.method

    @property
    def route(self) -> str:
        return self.method

    @property
    def peer(self) -> str | None:
        return address_of(self.raw.peer())

    @property
    def user(self) -> object:
        """Returns the first identity that TLS has authenticated; None without one."""
        for identity in self.raw.peer_identities() or ():
            return identity.decode("utf-8", "replace")
        return None

    @property
    def path_parameters(self) -> Mapping[str, object]:
        """Returns an empty mapping, because gRPC's methods have no parameters in their path."""
        return {}

    def header(self, name: str) -> str | None:
        """Returns the value of a key in the metadata, several joined by commas; None if the key is missing."""
        values = self._values(name)
        return ", ".join(values) if values else None

    def found_header(self, name: str) -> str | None:
        return single(self._values(name))

    def _values(self, name: str) -> list[str]:
        name = name.lower()
        return [text_of(value) for key, value in self._metadata if key == name]


def address_of(peer: str) -> str | None:
    """Returns the address and port in gRPC's text for a peer; None if it has none, as at a unix socket."""
    scheme, _, address = unquote(peer).partition(":")
    return address or None if scheme in {"ipv4", "ipv6"} else None


def text_of(value: str | bytes) -> str:
    """Returns a value of the metadata, which may be bytes, as text."""
    return value if isinstance(value, str) else value.decode("latin-1")


RETRY_INFO: Final = b"type.googleapis.com/google.rpc.RetryInfo"


def retry_info(code: int, message: str, after_s: int) -> bytes:
    """Returns an encoded `google.rpc.Status` with `code`, `message`, and a `RetryInfo` of `after_s` seconds."""
    duration = _number(1, after_s)
    detail = _bytes(1, RETRY_INFO) + _bytes(2, _bytes(1, duration))
    return _number(1, code) + _bytes(2, message.encode()) + _bytes(3, detail)


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3]) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
