"""Warns of a flood of keys: counts a namespace's keys on a Redis, the room for more, and keys that never expire.

Each key of a hub expires, so a flood of keys takes only the memory of its last minutes; a key without an expiry stays
for good. Only a sample of keys is read, because a server answers nothing else while it goes through its keys: at most
CALLS_MAX calls of SCAN, for about SCANNED_AT_ONCE keys each, and the time to live of the namespace's keys. No key of
another namespace is read.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconverge.hub.diagnosis import COMMAND, Finding, Level
from reconverge_sync.merge import bounds
from reconverge_sync.redis.diagnosis.durability import window_of
from reconverge_sync.redis.lua.layout import KEPT_MS

KEYS: Final = "keys"
SCANNED_AT_ONCE: Final = 1000
CALLS_MAX: Final = 20
BYTES_PER_KEY: Final = 300
"""The bytes that one key takes in a Redis if one node has asked for it once, as in a flood; measured as
`docs/operate/redis.md` describes."""
MANY: Final = 100_000
"""From this many keys on, as many as one node keeps by default, the server should have a bound on its memory."""
ENDLESS: Final = -1
"""The reply of PTTL for a key that never expires."""
LIFE_MS_MAX: Final = 3 * bounds.WINDOW_MAX_US // 1000
"""A time to live in milliseconds that is longer than that of any cell, with any window and any lease."""
NAMED_MAX: Final = 3
LATEST_END_S: Final = KEPT_MS // 1000
"""The seconds after which every key of a namespace has expired if unused, except cells of limits of over a month."""

Ask = Callable[..., Awaitable[Any]]
AskAll = Callable[[Sequence[Sequence[object]]], Awaitable[Sequence[Any]]]


@dataclass(slots=True)
class KeySample:
    """Counts of a sample of a namespace's keys."""

    seen: int = 0
    """How many keys of the namespace are in the sample."""
    scanned: int = 0
    """About how many keys of the server, of any namespace, were looked through for the sample."""
    whole: bool = False
    """Whether all keys of the server were looked through."""
    endless: int = 0
    """How many keys never expire, or live longer than a hub's keys ever do."""
    longest_us: int = 0
    """The longest window of the limits to which the keys belong, in microseconds."""
    named: list[str] = field(default_factory=list)
    """The names of some keys that never expire."""


async def sample_keys(ask: Ask, ask_all: AskAll, namespace: str) -> KeySample:
    """Returns a sample of the namespace's keys, with a bounded number of commands. Raises what `ask` raises."""
    sample, cursor = KeySample(), 0
    for _ in range(CALLS_MAX):
        cursor, names = await ask("SCAN", cursor, "MATCH", _pattern(namespace), "COUNT", SCANNED_AT_ONCE)
        cursor = int(cursor)
        sample.scanned += SCANNED_AT_ONCE
        lives = await ask_all([("PTTL", name) for name in names]) if names else ()
        for name, life_ms in zip(names, lives, strict=True):
            _note(sample, name, life_ms)
        if cursor == 0:
            sample.whole = True
            break
    return sample


def _pattern(namespace: str) -> str:
    """Returns the pattern of a namespace's keys in all shards. A namespace has no characters to be escaped in it."""
    return f"{namespace}:{{*}}:*"


def _note(sample: KeySample, name: bytes | str, life_ms: object) -> None:
    if not isinstance(life_ms, int) or life_ms < ENDLESS:
        return  # the key has expired meanwhile, or this user may not read it
    sample.seen += 1
    sample.longest_us = max(sample.longest_us, window_of(name))
    if life_ms == ENDLESS or life_ms > LIFE_MS_MAX:
        sample.endless += 1
        said = name.decode(errors="replace") if isinstance(name, bytes) else name
        if len(sample.named) < NAMED_MAX and said.isascii() and said.isprintable():
            sample.named.append(said)  # as a command can be copied


def judge_keys(sample: KeySample, namespace: str, info: Mapping[str, Any], database: int) -> Finding:
    """Returns the finding on whether keys stay for good, and whether the server has room for twice as many keys."""
    keys, among = sample.seen, _all_keys(info, database)
    shown = f"{keys:,} keys of {namespace}"
    if not sample.whole and among == 0:
        shown = f"at least {shown}"
    elif not sample.whole:
        keys = round(sample.seen / sample.scanned * max(sample.scanned, among))
        shown = f"about {keys:,} keys of {namespace}"
    if sample.endless:
        return _judge_endless(sample, shown)
    if sample.seen:
        shown += f", each of which expires by itself{'' if sample.whole else f' ({sample.seen:,} looked at)'}"
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if most:
        return _judge_room(keys, shown, max(0, most - used) // BYTES_PER_KEY, most + keys * BYTES_PER_KEY, namespace)
    if keys > MANY and "maxmemory" in info:
        fact = f"{shown}; there is no maxmemory, so a flood of keys may take all the memory of the machine"
        remedy = (
            "Set a bound, also in the configuration file; a hub that has reached it serves the keys that it has:\n"
            f"{COMMAND}redis-cli CONFIG SET maxmemory {max(2 * used, used + keys * BYTES_PER_KEY)}"
        )
        return Finding(KEYS, Level.WARNING, fact, remedy)
    return Finding(KEYS, Level.OK, shown)


def _judge_endless(sample: KeySample, shown: str) -> Finding:
    fact = (
        f"{sample.endless:,} of {sample.seen:,} keys that were looked at never expire ({shown}): "
        "their memory is never freed"
    )
    remedy = (
        "A tool has copied them without their time to live, or PERSIST has removed it. Give each an end (here "
        f"in {LATEST_END_S // 86_400} days; later, where a limit's window is longer):"
    )
    commands = [f"\n{COMMAND}redis-cli EXPIRE {shlex.quote(name)} {LATEST_END_S}" for name in sample.named]
    return Finding(KEYS, Level.WARNING, fact, remedy + "".join(commands))


def _judge_room(keys: int, shown: str, room: int, advised: int, namespace: str) -> Finding:
    fact = f"{shown}; room for about {room:,} more of {BYTES_PER_KEY} bytes"
    if room >= keys:
        return Finding(KEYS, Level.OK, fact)
    remedy = (
        "Twice as many would be too many: from then on the hub takes no keys that are new (hub_full). See which limit "
        "they belong to, and whether strangers can invent its keys; refuse their requests before they are limited, or "
        "raise the bound, also in the configuration file:\n"
        f"{COMMAND}redis-cli --scan --pattern '{_pattern(namespace)}'\n"
        f"{COMMAND}redis-cli CONFIG SET maxmemory {advised}"
    )
    return Finding(KEYS, Level.WARNING, fact, remedy)


def not_permitted() -> Finding:
    """Returns the finding that keys were not checked, because the user has no right to SCAN; agents do not need it."""
    fact = "could not check whether all keys expire, and for how many more there is room: SCAN is not permitted"
    remedy = "To have that checked, have the right granted (SCAN shows names of keys, also of others):\n"
    return Finding(KEYS, Level.WARNING, fact, f"{remedy}{COMMAND}ACL SETUSER USER +scan")


def _all_keys(info: Mapping[str, Any], database: int) -> int:
    """Returns the number of the database's keys by INFO; 0 if INFO is not permitted."""
    there = info.get(f"db{database}", {})
    return int(there.get("keys", 0)) if isinstance(there, Mapping) else 0
