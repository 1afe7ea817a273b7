"""A vocabulary for tests of published settings of a fleet."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from reconverge import Agent
from reconverge.clock import SystemClock
from reconverge.hub import SettingsStore
from reconverge.hub.registry import HubSettings
from reconverge.published.envelope import Secrets
from reconverge.published.settings import FleetSettings, LimitOverride, Word, seal
from reconverge.published.settings_reader import FleetSettingsStats
from reconverge_sync.mqtt.hub import MqttHub
from reconverge_sync.redis.hub import RedisHub

SECRET: Final = "margaret-is-a-secret-of-the-fleet"  # noqa: S105  # a test's own
OTHER: Final = "another-one-that-nobody-knows"
NOON: Final = 1_000_000
"""The moment at which everything begins by the clocks of tests, in seconds."""
HOUR_S: Final = 3600


def orders(
    version: int = 1, *, issued: int = NOON, lifetime: int = HOUR_S, namespace: str = "shop", **said: Any
) -> FleetSettings:
    """Returns FleetSettings for the namespace `shop`; `said` are fields of `FleetSettings`."""
    return FleetSettings(namespace, version, issued, issued + lifetime, **said)


def login(
    limit: str | None = None,
    switch: Word | None = None,
    max_overshoot: float | None = None,
    sync_interval: float | None = None,
) -> dict[str, LimitOverride]:
    """Returns settings for the limit `login`, and for no other."""
    return {"login": LimitOverride(limit, max_overshoot, sync_interval, switch)}


def sealed(said: FleetSettings, secret: str = SECRET) -> bytes:
    return seal(said, Secrets(secret))


def sealed_now(version: int = 1, *, lifetime: int = HOUR_S, secret: str = SECRET, **said: Any) -> bytes:
    """Returns settings that are signed now, by this machine's clock."""
    now_s = SystemClock().wall_ns() // 10**9
    return sealed(replace(orders(version, **said), issued=now_s, expires=now_s + lifetime), secret)


def post(hub: SettingsStore, payload: bytes, *, keep_s: float = HOUR_S) -> None:
    asyncio.run(hub.post(payload, keep_s=keep_s))


def post_at(url: str, payload: bytes, *, namespace: str = "shop", keep_s: float = HOUR_S) -> None:
    """Posts settings to the Redis at a URL."""
    post_to(RedisHub(url, HubSettings(namespace, 5.0)), payload, keep_s=keep_s)


def post_to(hub: RedisHub | MqttHub, payload: bytes, *, keep_s: float = HOUR_S) -> None:
    """Posts settings to a hub, which is closed then."""

    async def send() -> None:
        try:
            await hub.post(payload, keep_s=keep_s)
        finally:
            await hub.close()

    asyncio.run(send())


def known_by(agent: Agent) -> FleetSettingsStats:
    """Returns an agent's statistics of published settings."""
    stats = agent.stats().orders
    assert stats is not None
    return stats
