"""The merge rule in Lua, made to keep what a test's clock has not let go of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1

import pytest

from reconverge_sync.merge import rule
from reconverge_sync.redis import hub as redis_hub
from reconverge_sync.redis.lua.scripts import Script, script


@contextmanager
def keeping_all(scanned_max: int = rule.SCANNED_MAX) -> Iterator[None]:
    """Lets scans of one batch read so many entries of other nodes, in both twins.

    The server forgets by its own clock, and the test's says when anything is over: on a machine that is held up for
    seconds the first would be ahead. So it keeps everything for an hour more.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rule, "SCANNED_MAX", scanned_max)
        keeping, expiries = re.subn(rb"(call\('PEXPIRE', [^,\n]+, )", rb"\g<1>3600000 + ", script("exchange"))
        assert expiries
        sha = sha1(keeping, usedforsecurity=False).hexdigest()
        patched.setattr(redis_hub, "EXCHANGE", Script(keeping, sha))
        yield
