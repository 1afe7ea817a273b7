"""A `google.rpc.Status`, as protocol buffers write it; no library is needed for so little."""

from __future__ import annotations

from typing import Final

RETRY_INFO: Final = b"type.googleapis.com/google.rpc.RetryInfo"


def retry_info(code: int, message: str, after_s: int) -> bytes:
    """A `google.rpc.Status` whose only detail is a `google.rpc.RetryInfo`: try again in so many seconds."""
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
