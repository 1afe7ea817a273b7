"""Applies the settings that are published for the fleet to the limits of one agent, and to its intervals.

`Overrides` holds the whole published document. `Limiter` and `Pacing` hold the node's own settings, and combine each
with the published one in a `Layered` value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from reconverge.errors import InvalidSetting
from reconverge.limiter.faces.limiter import Limiter
from reconverge.published.caps import quotas_as_said
from reconverge.published.settings import FleetSettings, LimitOverride
from reconverge.published.settings_reader import FleetSettingsStats
from reconverge.runtime.locks import new_lock
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

PACE = "sync_interval"
NOTHING = LimitOverride()
OF_CONTRACTS = (
    "is a limit of contracts, of which published settings can only change the switch; to change its quota, change the"
    " plans in the contracts"
)


class Overrides:
    """Applies published settings to one agent, and records which of them the agent cannot apply.

    `take_pace(limit, seconds)` sets a published sync interval: for the limit of that name, or for the whole agent if
    `limit` is None. With None for `seconds`, the node's own interval is in force again. It raises InvalidSetting for an
    interval that is too long for the leases.
    """

    def __init__(self, take_pace: Callable[[str | None, float | None], None]) -> None:
        self._take_pace = take_pace
        self._fleet_settings: FleetSettings | None = None
        self._capped: set[str] = set()
        self._unfit: dict[str, str] = {}
        self._logged = LoggedOnce()
        self.lock = new_lock()
        """The lock that a thread holds while it declares or changes limits."""

    def apply(self, fleet_settings: FleetSettings | None, limiters: Iterable[Limiter]) -> None:
        """Applies published settings to all limiters; if they are None, restores the agent's own. Raises nothing."""
        with self.lock:
            self._fleet_settings = fleet_settings
            self._capped, self._unfit = set(), {}
            try:
                self._take_pace(None, None if fleet_settings is None else fleet_settings.sync_interval)
            except InvalidSetting as error:
                self._unfit[PACE] = str(error)
            for limiter in limiters:
                self.apply_to(limiter)

    def apply_to(self, limiter: Limiter) -> None:
        """Applies the published settings in force to one limiter."""
        fleet_settings = self._fleet_settings
        said = {} if fleet_settings is None else fleet_settings.limits
        override = next((said[name] for name in limiter.control.addresses if name in said), NOTHING)
        unfit = limiter.control.is_tier and replace(override, switch=None) != NOTHING
        if unfit:
            override = LimitOverride(switch=override.switch)
        capped, problem = limiter.control.apply_override(
            override, None if fleet_settings is None else fleet_settings.switch
        )
        problems = [each for each in (OF_CONTRACTS if unfit else "", problem) if each]
        name = limiter.control.addresses[-1]
        try:
            self._take_pace(limiter.name, override.sync_interval)
        except InvalidSetting as error:
            problems.append(str(error))
        if capped:
            self._capped.add(name)
            self._log_capped(limiter, override.limit)
        if problems:
            self._unfit[name] = "; ".join(problems)
            self._log_unfit(name)

    def _log_unfit(self, name: str) -> None:
        """Logs once that published settings of a limit are not in force on this node."""
        problem = self._unfit[name]
        if self._logged.is_new((name, problem)):
            logger.warning(
                "reconverge: this node does not follow what is published for the limit %r: %s", name, problem
            )

    def _log_capped(self, limiter: Limiter, published: str | None) -> None:
        """Logs once that a published quota is not in force because the limit was declared without a cap."""
        control = limiter.control
        if published is None or control.has_cap or not self._logged.is_new((limiter.name, published)):
            return
        in_force = control.quotas
        if quotas_as_said(limiter.name, control.own_quotas, published) != in_force:
            logger.warning(
                "reconverge: %r is published for the limit %r, and %s is in force, as published settings can lower a "
                "limit without a cap, and not raise it; declare the limit with cap=%r",
                published,
                limiter.name,
                "; ".join(map(str, in_force.values())),
                published,
            )

    def with_refusals(self, stats: FleetSettingsStats) -> FleetSettingsStats:
        """Returns `stats`, with the limits whose cap has lowered a published value, and the settings not applied.

        Each setting that the agent cannot apply comes with the reason.
        """
        return replace(stats, capped=tuple(sorted(self._capped)), unfit=dict(self._unfit))
