"""The scripts that run in a Redis, read from the files of this folder."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple


def script(*names: str) -> bytes:
    """A script for a Redis, from the files in this folder with these names, in their order."""
    folder = files("reconverge_sync.redis")
    return b"".join(folder.joinpath(f"{name}.lua").read_bytes() for name in names)


class Script(NamedTuple):
    """A script, and the name that a server gives it once it has run."""

    text: bytes
    sha: str


def script_of(*names: str) -> Script:
    """Returns a script as `script` does, with its name."""
    text = script(*names)
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())
