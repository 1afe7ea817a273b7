"""What becomes of keys that no hub can store: a hash stands for them, the same on all nodes and in all commands."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

OURS: Final = "~"
"""The first character of keys that clients cannot send: a client's key that begins so is hashed."""
HASHED: Final = f"{OURS}hashed:"
"""How a key begins that stands for one which cannot be used as it is."""
DIGEST_BYTES: Final = 20


def fitting(key: str, bytes_max: int) -> str:
    """A key that any hub can store: as it is if possible, else its hash, which is the same on all nodes.

    So a key of megabytes costs the time to read it once, and no memory.
    """
    if key[:1] != "\x00":
        if key.isascii():
            if len(key) <= bytes_max:
                return key
        elif len(key) <= bytes_max and len(key.encode("utf-8", "surrogatepass")) <= bytes_max and _is_text(key):
            return key
    return hashed(key)[:bytes_max]


def hashed(key: str) -> str:
    """The hash that stands for a key."""
    # Without a secret: all nodes must make the same of a key, and they share none.
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()
    return f"{HASHED}{digest}"


def _is_text(text: str) -> bool:
    """Whether it has no lone surrogate, which no hub can store."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
