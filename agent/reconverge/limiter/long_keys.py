"""Replaces a key that a hub cannot store, as it is too long or no text, by a hash that is the same everywhere."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

OURS: Final = "~"
"""The first character of keys that clients cannot send: if a client's key begins with it, a hash replaces that key."""
HASHED: Final = f"{OURS}hashed:"
"""The first characters of each hash that replaces a key."""
DIGEST_BYTES: Final = 20
REMEMBERED: Final = 8
"""The number of hashes that are kept in memory, because several rules count one request by the same key."""
REMEMBERED_CHARACTERS_MAX: Final = 1 << 16
"""The length, in characters, of the longest key whose hash is kept in memory; servers accept no longer header
fields."""


def fitting(key: str, bytes_max: int) -> str:
    """Returns a key that any hub can store: the key itself if possible, else its hash, which is the same on all nodes.

    The hash of a key of up to 65,536 characters is remembered, so that it is computed only once for all rules that
    count a request by this key.
    """
    if key[:1] != "\x00":
        if key.isascii():
            if len(key) <= bytes_max:
                return key
        elif len(key) <= bytes_max and len(key.encode("utf-8", "surrogatepass")) <= bytes_max and _is_text(key):
            return key
    return hashed(key)[:bytes_max]


def hashed(key: str) -> str:
    """Returns the hash that replaces `key`; it begins with HASHED."""
    return _remembered(key) if len(key) <= REMEMBERED_CHARACTERS_MAX else _hashed(key)


def _hashed(key: str) -> str:
    # Without a secret: all nodes must compute the same hash, and they share no secret.
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()
    return f"{HASHED}{digest}"


_remembered: Final = lru_cache(maxsize=REMEMBERED)(_hashed)


def _is_text(text: str) -> bool:
    """Returns whether UTF-8 can encode the string; a lone surrogate cannot be encoded, and no hub stores it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
