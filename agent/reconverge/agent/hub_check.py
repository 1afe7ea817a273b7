"""Checks whether the hub answers, for programs that must not start without it.

A node goes on deciding from its memory if the hub does not answer, so a wrong password or host looks like an endless
outage. A check requests one exchange with each shard, on the connections that the agent uses afterwards. It succeeds
when all shards have answered. A wrong setting makes it fail at once; any other failure may pass, so the check waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from reconverge.agent.environment import HUB
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.exchange.driver import ExchangeDriver
from reconverge.exchange.syncer import Syncer
from reconverge.hub.registry import advice_about
from reconverge.settings import check_truth

CHECK_S: Final = 5.0
"""The seconds that a check waits for the hub's answer, by default."""
_POLL_S: Final = 0.005

logger = logging.getLogger("reconverge")


class RequiredHub:
    """Stores whether the hub must have answered before an agent decides, and whether that was checked.

    Args:
        required: see `Agent(require_hub=...)`.
        named: whether the program or its environment names a hub; memory:// counts as one.
    """

    def __init__(self, *, required: bool, named: bool) -> None:
        check_truth("require_hub", required)
        self.required = required
        self._named = named
        self._unheeded = required

    def checks(self) -> None:
        """Records that a check of the hub begins.

        Raises InvalidSetting if neither program nor environment names a hub.
        """
        if not self._named:
            raise InvalidSetting("hub", None, f"is not set, so there is no hub to check; pass one, or set {HUB}")
        self._unheeded = False

    def begins_unchecked(self) -> None:
        """Records that a first decision, not a check, starts the exchanges. Logs an error if a check was required."""
        if self._unheeded:
            self._unheeded = False
            logger.error(
                "reconverge: require_hub=True had no effect: a decision was made before start(), without waiting for "
                "the hub; call start() or check() when the program starts, or use `with agent`"
            )


def until_answered(
    exchanges: ExchangeDriver, syncers: Sequence[Syncer], *, hub_name: str, timeout_s: float
) -> Iterator[float]:
    """Checks whether every shard of the hub answers; until all have, yields the seconds to sleep before the next step.

    Raises:
        HubUnavailable: a setting keeps the hub from answering, or it has not answered for `timeout_s`.
    """
    until_ns = SystemClock.monotonic_ns() + round(timeout_s * SECOND_NS)
    answers = {syncer: syncer.answers for syncer in syncers}
    for syncer in syncers:
        exchanges.troubles.pop(syncer, None)  # an earlier outage does not matter now
        syncer.speak_up()
    owner = exchanges.owner
    if owner is not None:
        owner.wake()
    while waiting := [syncer for syncer in syncers if syncer.failing or syncer.answers == answers[syncer]]:
        troubles = [exchanges.troubles[syncer] for syncer in waiting if syncer in exchanges.troubles]
        for trouble in troubles:
            if trouble.misconfigured:
                raise _unavailable(hub_name, trouble, "")
        if SystemClock.monotonic_ns() >= until_ns:
            silent = HubUnavailable("timeout", "no answer came to the exchange")
            raise _unavailable(hub_name, next(iter(troubles), silent), f" within {timeout_s:g} s")
        yield _POLL_S


def _unavailable(hub_name: str, trouble: HubUnavailable, within: str) -> HubUnavailable:
    problem = f"the hub {hub_name} has not answered{within}: {trouble.problem.rstrip('.')}; {advice_about(hub_name)}"
    return HubUnavailable(trouble.kind, problem, applied=trouble.applied, misconfigured=trouble.misconfigured)
