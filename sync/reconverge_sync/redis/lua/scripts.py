"""Reads the scripts that run in a Redis from the files below this folder, and fills in numbers from Python."""

# A number that Python and Lua both use is defined in Python alone. A script declares it without a value, with its
# module:
#
#     local SCANNED_MAX, TURN -- from merge/rule.py
#
# The values are filled in when the script is read, so the text that a server gets, and hashes, has them as constants.

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha1
from importlib.resources import files
from types import ModuleType
from typing import Any, Final, NamedTuple

from redis.exceptions import NoScriptError

from reconverge.errors import HubUnavailable
from reconverge.hub import headroom, json_codec, report, usage
from reconverge.limit import limit
from reconverge_sync import codec
from reconverge_sync.merge import asking, bounds, granting, ledger, loans, recalling, rule, sealing
from reconverge_sync.merge import usage as merge_usage
from reconverge_sync.redis.lua import layout

SOURCES: Final[Mapping[str, ModuleType]] = {
    "codec.py": codec,
    "hub/headroom.py": headroom,
    "hub/json_codec.py": json_codec,
    "hub/report.py": report,
    "hub/usage.py": usage,
    "limit/limit.py": limit,
    "merge/asking.py": asking,
    "merge/bounds.py": bounds,
    "merge/granting.py": granting,
    "merge/ledger.py": ledger,
    "merge/loans.py": loans,
    "merge/recalling.py": recalling,
    "merge/sealing.py": sealing,
    "merge/rule.py": rule,
    "merge/usage.py": merge_usage,
    "redis/lua/layout.py": layout,
}
"""The modules of Python from which a script may name a number, by the name that scripts use."""
_DECLARED: Final = re.compile(r"^( *local )([A-Z_, ]+)( -- from (\S+\.py))$", re.MULTILINE)


def script(*names: str) -> bytes:
    """Returns the text of a script, joined from files such as "now" and "usage/record", with numbers filled in."""
    folder = files("reconverge_sync.redis.lua")
    text = "".join(folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in names)
    return filled(text).encode()


def filled(text: str) -> str:
    """Returns the text of a script in which each name of a number in Python is replaced by that number."""
    return _DECLARED.sub(_with_values, text)


def _with_values(declared: re.Match[str]) -> str:
    local, names, source, module = declared.groups()
    values = ", ".join(_literal(getattr(SOURCES[module], name)) for name in names.split(", "))
    return f"{local}{names} = {values}{source}"


def _literal(value: Any) -> str:
    """Returns a number or a short text as it is written in Lua."""
    if isinstance(value, bytes):
        value = value.decode()
    return repr(value)


Call = Callable[..., Awaitable[Any]]
"""A function that runs a command on a server and returns the reply, as in `call("GET", key)`. Raises HubUnavailable."""


class Script(NamedTuple):
    """A script, and the SHA-1 by which a server finds it after it has run once."""

    text: bytes
    sha: str


def script_of(*names: str) -> Script:
    """Returns the script that is joined from the files of these names, with its SHA-1."""
    text = script(*names)
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())


async def run(call: Call, what: Script, keys: int, *keys_and_arguments: object) -> Any:
    """Runs the script `what` and returns its reply; the first `keys` of the arguments are Redis keys."""
    try:
        return await call("EVALSHA", what.sha, keys, *keys_and_arguments)
    except HubUnavailable as error:
        if not isinstance(error.__cause__, NoScriptError):
            raise
    # The server does not have the script any more, or never had it; nothing was applied, and EVAL stores it again.
    return await call("EVAL", what.text, keys, *keys_and_arguments)


def run_blocking(call: Callable[..., Any], what: Script, keys: int, *keys_and_arguments: object) -> Any:
    """Runs a script as `run` does, but with a `call` that blocks until the reply comes."""
    try:
        return call("EVALSHA", what.sha, keys, *keys_and_arguments)
    except HubUnavailable as error:
        if not isinstance(error.__cause__, NoScriptError):
            raise
    return call("EVAL", what.text, keys, *keys_and_arguments)
