"""Sees a flood of keys coming: how many keys of a namespace a Redis has, for how many more it has room, and which stay.

Each key of a hub has an end, so a flood takes what a few minutes of it take; what has no end is there for good. The
keys are looked at in a sample, because a server answers nothing else while it goes through its keys: at most CALLS_MAX
times SCAN, about SCANNED_AT_ONCE keys each, and the time to live of those that are the namespace's. No key of another
namespace is read.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconverge.hub.diagnosis import COMMAND, Finding, Level
from reconverge_sync.merge import bounds
from reconverge_sync.redis.diagnosis.durability import window_of
from reconverge_sync.redis.layout import KEPT_MS

KEYS: Final = "keys"
SCANNED_AT_ONCE: Final = 1000
CALLS_MAX: Final = 20
BYTES_PER_KEY: Final = 300
"""The bytes of a key that one node asks for once, as in a flood; how they were measured: `docs/operate/redis.md`."""
MANY: Final = 100_000
"""So many keys one node keeps, by default; with more of them, a bound on memory is worth having."""
ENDLESS: Final = -1
"""The reply of PTTL for a key that stays."""
LIFE_MS_MAX: Final = 3 * bounds.WINDOW_MAX_US // 1000
"""No cell lives so long, with any window and any lease."""
NAMED_MAX: Final = 3
LATEST_END_S: Final = KEPT_MS // 1000
"""By then all that the agents share of a namespace has ended, and every cell of a limit per month or less."""

Ask = Callable[..., Awaitable[Any]]
AskAll = Callable[[Sequence[Sequence[object]]], Awaitable[Sequence[Any]]]


@dataclass(slots=True)
class KeySample:
    """A sample of the keys of a namespace."""

    seen: int = 0
    """Keys of the namespace."""
    scanned: int = 0
    """Keys among which they were, about."""
    whole: bool = False
    """All keys of the server were looked at."""
    endless: int = 0
    """Those that stay for good, or longer than anything that a hub keeps."""
    longest_us: int = 0
    """The longest window of the limits that they belong to, in microseconds."""
    named: list[str] = field(default_factory=list)
    """Some of those without an end."""


async def sample_keys(ask: Ask, ask_all: AskAll, namespace: str) -> KeySample:
    """Look at a bounded number of keys. Raises what `ask` raises."""
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
    """Of all shards; no character of a namespace means anything in a pattern."""
    return f"{namespace}:{{*}}:*"


def _note(sample: KeySample, name: bytes | str, life_ms: object) -> None:
    if not isinstance(life_ms, int) or life_ms < ENDLESS:
        return  # it has ended meanwhile, or this user may not ask about it
    sample.seen += 1
    sample.longest_us = max(sample.longest_us, window_of(name))
    if life_ms == ENDLESS or life_ms > LIFE_MS_MAX:
        sample.endless += 1
        said = name.decode(errors="replace") if isinstance(name, bytes) else name
        if len(sample.named) < NAMED_MAX and said.isascii() and said.isprintable():
            sample.named.append(said)  # as a command can be copied


def judge_keys(sample: KeySample, namespace: str, info: Mapping[str, Any], database: int) -> Finding:
    """Whether the keys take memory for good, or twice as many would be too many."""
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
        shown += f", each of which ends by itself{'' if sample.whole else f' ({sample.seen:,} looked at)'}"
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
        f"{sample.endless:,} of {sample.seen:,} keys that were looked at have no end of life ({shown}): "
        "their memory never comes back"
    )
    remedy = (
        "A tool that copied them without their time to live has left them so, or PERSIST. Give each an end (here "
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
        "they are of, and whether it counts what strangers make up; keep those out before they are limited, or raise "
        "the bound, also in the configuration file:\n"
        f"{COMMAND}redis-cli --scan --pattern '{_pattern(namespace)}'\n"
        f"{COMMAND}redis-cli CONFIG SET maxmemory {advised}"
    )
    return Finding(KEYS, Level.WARNING, fact, remedy)


def not_permitted() -> Finding:
    """SCAN is no command that agents need."""
    fact = "could not look whether the keys have an end and how many more there is room for: SCAN is not permitted"
    remedy = "To have it checked, have the right granted (SCAN shows names of keys, also of others):\n"
    return Finding(KEYS, Level.WARNING, fact, f"{remedy}{COMMAND}ACL SETUSER USER +scan")


def _all_keys(info: Mapping[str, Any], database: int) -> int:
    """Returns the number of keys in INFO; 0 if it may not be asked."""
    there = info.get(f"db{database}", {})
    return int(there.get("keys", 0)) if isinstance(there, Mapping) else 0
