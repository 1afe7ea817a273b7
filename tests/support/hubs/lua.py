"""The merge rule in Lua, changed so that it keeps all that is in force by a test's clock."""

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
    """Makes the script keep all data for an hour longer, and lets one scan read all entries of other nodes.

    The server forgets by its own clock, while a test's clock decides when something is over: on a machine that is held
    up for seconds the first would be ahead.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rule, "SCANNED_MAX", scanned_max)
        keeping, expiries = re.subn(rb"(call\('PEXPIRE', [^,\n]+, )", rb"\g<1>3600000 + ", script("exchange"))
        assert expiries
        sha = sha1(keeping, usedforsecurity=False).hexdigest()
        patched.setattr(redis_hub, "EXCHANGE", Script(keeping, sha))
        yield
