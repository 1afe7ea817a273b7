"""Checks keys: strings that every hub can store."""

from __future__ import annotations

from typing import Final

from reconverge.errors import InvalidKey, shown

OF_OBJECT: Final = " object at 0x"
"""The part of a text that Python makes of an object whose class has no `__str__`, before the object's address."""


def is_of_object(key: str) -> bool:
    """Returns whether a key is the text of an object, which is another key for each object."""
    return key[-1] == ">" and key[0] == "<" and OF_OBJECT in key


def plain_key(key: object, bytes_max: int) -> str:
    """Returns `key` as a plain `str`.

    Raises InvalidKey if it is no string, empty, longer than `bytes_max` in UTF-8, or not storable at every hub.
    """
    if not isinstance(key, str):
        if key is None:
            raise InvalidKey("a key is a string, not None; name what is counted, such as a user or an address")
        remedy = f"turn {shown(key)} into a string first"
        if OF_OBJECT in remedy:
            remedy = "name what identifies it, such as its id or its address; its str() differs for each object"
        raise InvalidKey(f"a key is a string, not {type(key).__name__}; {remedy}")
    key = str.__str__(key)  # not str(key), which a subclass may override
    if not key or key[0] == "\x00":
        raise InvalidKey(f"a key has at least one character and does not start with NUL; got {shown(key)}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidKey(f"the key {shown(key)} has a lone surrogate, which no hub can store; remove it") from None
    if size > bytes_max:
        raise InvalidKey(
            f"the key {key[:40]!r}... has {size} bytes, more than {bytes_max}; hash it, or raise key_bytes_max"
        )
    return key
