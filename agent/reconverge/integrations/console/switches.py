"""Reads and turns the fleet's switches ("on", "off" and so on) for a console, in published and signed settings."""

# When a console or a command turns a switch, it adds a line to a log at the hub. A console shows this log together with
# the switches that it has turned itself: a hub may keep no log, may have lost it, or may not have stored the last line.

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from reconverge.agent import Agent
from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable, ReconvergeError, shown
from reconverge.hub.port import Hub, SettingsStore
from reconverge.published.envelope import PAYLOAD_BYTES_MAX, Rejection, Secrets
from reconverge.published.publisher import publish, published, renewed, turned, unknown_limits
from reconverge.published.settings import SETTINGS, WORDS, FleetSettings, Word
from reconverge.published.switch_log import Turned, read_log, turned_between

KEPT_S: Final = 86_400
"""The seconds for which published switches are valid after the first one was published: one day."""
TURNED_MAX: Final = 50
"""The most changes of switches that the console lists."""
EXTENDED_S: Final = 3600
"""The shortest time, in seconds, for which published settings stay valid after a console has turned a switch."""


class UnknownSwitch(ReconvergeError):
    """Raised for a switch of a limit that no node has, for example with a misspelt name, as it would have no effect."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no node has a limit {name[:100]!r}, so the switch would have no effect; check the name")


class FleetSwitches:
    """Reads and turns the published switches for an agent's fleet. The methods raise the errors of `publish`."""

    def __init__(self, agent: Agent, secrets: Secrets, clock: Clock) -> None:
        self._agent = agent
        self._secrets = secrets
        self._clock = clock
        self._turned: deque[Turned] = deque(maxlen=TURNED_MAX)
        """The switches that this console has turned, the newest first."""

    async def read(self) -> dict[str, Any]:
        """Returns the published switches, and the log of their changes with the authors. Raises HubUnavailable."""

        async def read(hub: Hub) -> tuple[bytes | None, list[Turned] | None]:
            return await _store(hub).read(bytes_max=PAYLOAD_BYTES_MAX), await self._log(hub)

        payload, log = await self._agent.ask_hub(read)
        found = None if payload is None else SETTINGS.opened(payload, self._secrets, self._agent.namespace)
        if isinstance(found, Rejection):
            return self._answer(None, log, f"the published document {found.problem}")
        valid = found is not None and found.expires > self._now_s()
        return self._answer(found if valid else None, log)

    async def turn(
        self, to: Word | None, limit: str | None, *, author: str, reported: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Publishes a switch for all limits, or for one, and returns the switches with their log.

        If `to` is None, each node's own setting applies again. `reported` holds the names of quotas in nodes'
        snapshots, by which a misspelt limit is noticed; names at the hub are added.
        Raises UnknownSwitch, HubUnavailable, UnverifiedDocument, InvalidSetting and InvalidDocument.
        """

        async def turn(hub: Hub) -> tuple[FleetSettings, list[Turned] | None]:
            store = _store(hub)
            before = await published(store, self._secrets, self._agent.namespace)
            if limit is not None and to is not None:
                overridden = () if before is None else before.limits
                own = [name for each in list(self._agent.limiters.values()) for name in each.control.addresses]
                if unknown_limits([limit], [*reported, *own, *overridden, *await hub.totals()]):
                    raise UnknownSwitch(limit)
            changed = self._changed(before, to, limit)
            posted = await publish(store, changed, self._secrets, raise_version=True, author=author)
            self._turned.extendleft(turned_between(before, posted, author))
            return posted, await self._log(hub)

        return self._answer(*await self._agent.ask_hub(turn))

    async def _log(self, hub: Hub) -> list[Turned] | None:
        """Returns the hub's log of turned switches; None if it cannot be read, as the console also works without it."""
        try:
            return await read_log(hub, self._agent.namespace, self._secrets)
        except HubUnavailable:
            return None

    def _answer(self, settings: FleetSettings | None, log: list[Turned] | None, problem: str = "") -> dict[str, Any]:
        lines = sorted(dict.fromkeys((*(log or ()), *self._turned)), key=lambda each: each.when, reverse=True)
        listed = [each._asdict() for each in lines[:TURNED_MAX]]
        return {"problem": problem, **_table(settings), "turned": listed, "turned_by_all": log is not None}

    def _changed(self, before: FleetSettings | None, to: Word | None, limit: str | None) -> FleetSettings:
        now_ns = self._clock.wall_ns()
        now_s = now_ns // SECOND_NS
        ends = now_s + KEPT_S if before is None or before.expires <= now_s else before.expires
        new = renewed(before, self._agent.namespace, now_ns=now_ns, expires=max(ends, now_s + EXTENDED_S))
        return turned(new, to, () if limit is None else (limit,))

    def _now_s(self) -> int:
        return self._clock.wall_ns() // SECOND_NS


def word_of(said: object) -> Word | None:
    """Returns the switch that a request names; None if each node's own setting is to apply.

    Raises ValueError for any other value.
    """
    if said is None:
        return None
    if not isinstance(said, str) or said not in WORDS:
        raise ValueError(f"must be one of {', '.join(WORDS)}, or null to leave it to each node, not {shown(said)}")
    return WORDS[said]


def _store(hub: Hub) -> SettingsStore:
    if not isinstance(hub, SettingsStore):
        raise HubUnavailable(
            "unsupported", "settings cannot be published at this hub; use a Redis or a broker of MQTT", applied=False
        )
    return hub


def _table(settings: FleetSettings | None) -> dict[str, Any]:
    if settings is None:
        return {"version": 0, "expires": None, "switch": None, "limits": {}}
    return {
        "version": settings.version,
        "expires": settings.expires,
        "switch": settings.switch,
        "limits": {name: each.switch for name, each in settings.limits.items() if each.switch is not None},
    }
