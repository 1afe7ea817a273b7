"""Checks by a Redis's replies whether it can be a hub: version, role, permissions, memory and clients."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconverge.hub.diagnosis import COMMAND, Finding, Level
from reconverge_sync.redis.diagnosis.advice import SERVER, Address

PERMISSION: Final = "permission"
MEMORY: Final = "memory"
CLIENTS: Final = "clients"
COMMANDS: Final = ("DEL", "EVAL", "EVALSHA", "HDEL", "HGET", "HGETALL", "HMGET", "HSET", "PEXPIRE", "PTTL", "TIME")
"""All commands that scripts and methods of the hub use, with their names in Redis 6.2 and in 7.0."""
CLUSTER_COMMANDS: Final = ("ASKING", "CLUSTER|SLOTS")
"""The further commands that a hub needs on a cluster."""
VERSION_MIN: Final = (6, 2)
FULL: Final = 0.9
"""If a server uses more than this fraction of its memory or of its connections, the finding is a warning."""
KEEPS_ALL: Final = "noeviction"


@dataclass(slots=True)
class RedisServer:
    """The facts that a Redis reports about itself; a fact is empty if the user has no right to ask for it."""

    name: str = "Redis"
    version: str = ""
    mode: str = ""
    role: str = ""
    info: Mapping[str, Any] | None = None
    """The reply of INFO; empty if the user has no right to it, None if it was not asked for."""


def services_at(sentinel: Address) -> str:
    """Returns the command that lists the services of a Sentinel, to be shown to people."""
    return f"{COMMAND}redis-cli -u {'rediss' if sentinel.encrypted else 'redis'}://{sentinel.place} SENTINEL MASTERS"


def judge_server(server: RedisServer, address: Address, *, clustered: bool = False) -> Finding:
    """Returns the finding on a server's version and role: whether it can be a hub, or a server of a cluster hub."""
    shown = f"{server.name} {server.version}".strip()
    if server.mode == "sentinel":
        fact = f"this is a Sentinel ({shown}), which knows the address of a Redis but cannot be a hub itself"
        remedy = "Begin the URL with redis+sentinel:// and end it with the name of the service, as listed by:\n"
        return Finding(SERVER, Level.PROBLEM, fact, f"{remedy}{services_at(address)}")
    version = re.match(r"(\d+)\.(\d+)", server.version)
    if version is None:
        fact = "could not find out the version: the server does not report it"
        return Finding(SERVER, Level.WARNING, fact, "Make sure that it is 6.2 or later.")
    if (int(version[1]), int(version[2])) < VERSION_MIN:
        remedy = "Use Redis 6.2 or later, or Valkey."
        return Finding(SERVER, Level.PROBLEM, f"{shown} is too old to be a hub", remedy)
    if server.role in ("replica", "slave"):
        info = server.info or {}
        master = f"{info.get('master_host', '')}:{info.get('master_port', '')}".strip(":")
        remedy = f"Point the URL at the master{f', {master}' if master else ''}."
        return Finding(SERVER, Level.PROBLEM, f"{shown}, but a replica, which must not be written to", remedy)
    if server.mode == "cluster" and not clustered:
        fact = f"{shown}, one node of a Redis Cluster; when the agents' slot moves to another, every exchange fails"
        return Finding(SERVER, Level.WARNING, fact, "Begin the URL with redis+cluster:// (rediss+cluster:// with TLS).")
    return Finding(SERVER, Level.OK, f"{shown}, {server.role or 'master'}")


def judge_permissions(
    denied: Collection[str], namespace: str, database: int, *, keys_denied: bool = False, clustered: bool = False
) -> Finding:
    """Returns the finding on permissions: which commands are `denied`, and what an administrator has to grant."""
    if not denied and not keys_denied:
        return Finding(PERMISSION, Level.OK, "the user may do all that an agent does")
    lacks = [f"run {', '.join(sorted(denied))}"] if denied else []
    lacks += [f"use keys that begin with {namespace}:"] if keys_denied else []
    missing = [f"~{namespace}:*"] if keys_denied else []
    missing += [f"+{command.lower()}" for command in sorted(denied)]
    remedy = (
        f"Have an administrator grant what is missing (and ACL SAVE it, or write it into the configuration):\n"
        f"  ACL SETUSER USER {' '.join(missing)}\n"
        f"Or make a user for the agents alone; this is all that they need:\n"
        f"  {acl_line(namespace, database, clustered=clustered)}"
    )
    return Finding(PERMISSION, Level.PROBLEM, f"the user may not {' nor '.join(lacks)}", remedy)


def acl_line(namespace: str, database: int, *, clustered: bool = False) -> str:
    """Returns the ACL command that makes a user with the rights that an agent needs, and no others."""
    commands = [*COMMANDS, *(["SELECT"] if database else []), *(CLUSTER_COMMANDS if clustered else [])]
    rights = " ".join(f"+{command.lower()}" for command in commands)
    return f"ACL SETUSER NEWUSER on >PASSWORD resetkeys ~{namespace}:* resetchannels -@all {rights}"


def judge_load(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields findings on whether the server may evict the agents' keys, or lacks memory or connections."""
    if not {"maxmemory_policy", "maxmemory", "used_memory"} <= info.keys():
        fact = "could not check eviction, memory and clients: INFO is not permitted"
        remedy = (
            "Ask an administrator whether `maxmemory-policy` is noeviction, or have the right granted (INFO shows "
            "numbers, no data):\n  ACL SETUSER USER +info"
        )
        yield Finding(MEMORY, Level.WARNING, fact, remedy)
        return
    yield _judge_memory(str(info["maxmemory_policy"]), int(info["used_memory"]), int(info["maxmemory"]))
    if "connected_clients" in info and "maxclients" in info:
        yield _judge_clients(int(info["connected_clients"]), int(info["maxclients"]))


def _judge_memory(policy: str, used: int, most: int) -> Finding:
    amount = f"{_bytes(used)} of {_bytes(most)} used" if most else f"{_bytes(used)} used, no maxmemory"
    if policy != KEEPS_ALL:
        keep = (
            "A hub must keep what it has until it expires, or limits are exceeded. Give the hub a Redis of its own, "
            "or set this, also in the configuration file:\n  redis-cli CONFIG SET maxmemory-policy noeviction"
        )
        if most:
            fact = f"maxmemory-policy is {policy}: when memory runs short, the server forgets counts ({amount})"
            return Finding(MEMORY, Level.PROBLEM, fact, keep)
        fact = f"maxmemory-policy is {policy}: once there is a maxmemory, the server may forget counts ({amount})"
        return Finding(MEMORY, Level.WARNING, fact, keep)
    if most and used >= most * FULL:
        remedy = "Raise `maxmemory`, or move other data off this server; what takes the memory:\n  redis-cli --bigkeys"
        if used >= most:
            fact = f"full ({amount}): keys that the hub knows are served, and no others are taken (hub_full)"
            return Finding(MEMORY, Level.PROBLEM, fact, remedy)
        fact = f"almost full ({amount}); when it is, the hub takes no keys that are new (hub_full)"
        return Finding(MEMORY, Level.WARNING, fact, remedy)
    return Finding(MEMORY, Level.OK, f"nothing is evicted ({KEEPS_ALL}); {amount}")


def _judge_clients(connected: int, most: int) -> Finding:
    fact = f"{connected} of {most} connections in use"
    if connected < most * FULL:
        return Finding(CLIENTS, Level.OK, fact)
    remedy = "See which clients hold them, and stop what leaks them; or raise `maxclients`:\n  redis-cli CLIENT LIST"
    return Finding(CLIENTS, Level.WARNING, f"{fact}; when all are in use, the server refuses agents", remedy)


def _bytes(number: int) -> str:
    """Returns a number of bytes as text such as "100 MB", with a megabyte of 1024 * 1024 bytes, as in Redis."""
    value = float(number)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TB"
