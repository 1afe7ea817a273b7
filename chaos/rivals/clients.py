"""Clients for rivals that do not retry by themselves: of one Redis, of a master that Sentinels name, of a cluster."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel


def redis_client(url: str, timeout_s: float | None) -> Any:
    """Returns a client that waits up to `timeout_s` for each answer, or for ever."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    if parts.scheme.startswith("rediss"):
        options |= {"ssl": True, "ssl_ca_certs": query["ssl_ca_certs"]}
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    login: dict[str, Any] = {"username": user or None, "password": password or None}
    places = [place.rpartition(":") for place in parts.netloc.rpartition("@")[2].split(",")]
    hosts = [(host, int(port)) for host, _, port in places]
    if "+cluster" in parts.scheme:
        nodes = [ClusterNode(host, port) for host, port in hosts]
        return RedisCluster(
            startup_nodes=nodes, retry=Retry(NoBackoff(), 0), require_full_coverage=False, **options, **login
        )
    options["retry"] = Retry(NoBackoff(), 0)
    if "+sentinel" in parts.scheme:
        sentinel = Sentinel(hosts, sentinel_kwargs=options)
        return sentinel.master_for(parts.path.strip("/"), **options, **login)
    host, port = hosts[0]
    return redis.Redis(host=host, port=port, **options, **login)
