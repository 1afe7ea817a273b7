"""Asking the hub before a small quota is decided about in doubt, for callers that are used to wait for a server."""

# Theory of operation.
#
# A node that decides from memory is in doubt about a key that is new to it, and about a refusal while other nodes, or
# the hub, may have room: of a quota of five, four nodes hold a request each, and one lies nowhere. A large quota makes
# up for that from its lines. A small one is kept at the hub instead: no node holds a right that it has not asked for,
# and a request in doubt waits for the answer, for a few milliseconds.
#
# Nothing waits for a refusal that is certain: by what all nodes have said, there is no room. Nothing waits on a thread
# that runs an event loop, which would be held up, nor for a hub that has left a question without an answer, until it
# answers again. Memory decides there.

from __future__ import annotations

import logging
from typing import Final

from reconverge.agent.agent import Agent
from reconverge.clock import ManualClock
from reconverge.decision import Decision
from reconverge.errors import InvalidSetting
from reconverge.integrations.web.first_answer import WAIT_MAX_S, Cold, cold_key, has_a_loop, said_s
from reconverge.limiter.certainty import is_certain, leave_spare_at_hub, leaves_spare_at_hub, unheard
from reconverge.limiter.limiter import Limiter
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

REFUSE: Final = "refuse"
"""Do not ask: in doubt, memory decides."""
ASK: Final = "ask:50ms"
SMALL: Final = 32
"""The largest quota that is kept at the hub: each request that it admits costs an exchange."""


def within_s(in_doubt: object) -> float:
    """How long a request in doubt waits, in seconds: 0.0 for "refuse", else as "ask:50ms" says. Raises InvalidSetting.

    At most ten seconds.
    """
    if in_doubt == REFUSE:
        return 0.0
    asked_s = said_s("ask", in_doubt)
    if asked_s is None:
        raise InvalidSetting("in_doubt", in_doubt, f"is neither {REFUSE!r} nor a time to ask within, such as {ASK!r}")
    if not 0 < asked_s <= WAIT_MAX_S:
        raise InvalidSetting(
            "in_doubt", in_doubt, f"is not between 0 and {WAIT_MAX_S:g} s, the longest that a request may wait"
        )
    return asked_s


class Asking:
    """How the limits of one agent ask in doubt.

    Args:
        agent: whose limits they are.
        in_doubt: see `within_s`.
    """

    def __init__(self, agent: Agent, in_doubt: object) -> None:
        self._agent = agent
        self._within_s = within_s(in_doubt)
        self._in_vain = -1
        """How many answers there had been when a question was left without one."""
        self._logged = LoggedOnce()

    def prepare(self, limiter: Limiter) -> None:
        """Have a small quota kept at the hub. To be called when it is declared."""
        made_up = isinstance(limiter.clock, ManualClock)  # by which a wait of milliseconds may last for ever
        if self._within_s > 0 and limiter.limit.quota <= SMALL and not made_up:
            leave_spare_at_hub(limiter)

    def hit(self, limiter: Limiter, key: str, cost: int) -> Decision:
        """As `limiter.hit`, but in doubt it asks the hub and waits for the answer, on this thread."""
        if not self._may_ask(limiter):
            return limiter.hit(key, cost)
        if has_a_loop():
            self._do_without(limiter)
            return limiter.hit(key, cost)
        before = self._agent.answers
        cold = self._cold(limiter, key)
        if cold is not None:
            cold.wait_blocking()
            self._look(before)
        decision = limiter.hit(key, cost)
        if self._is_settled(decision, limiter, key, cost):
            return decision
        before = self._agent.answers
        decision = limiter.wait_blocking(key, cost, timeout=self._within_s, max_queue=limiter.limit.quota)
        self._look(before)
        return decision

    async def hit_async(self, limiter: Limiter, key: str, cost: int) -> Decision:
        """The same without holding up the event loop."""
        if not self._may_ask(limiter):
            return limiter.hit(key, cost)
        before = self._agent.answers
        cold = self._cold(limiter, key)
        if cold is not None:
            await cold.wait()
            self._look(before)
        decision = limiter.hit(key, cost)
        if self._is_settled(decision, limiter, key, cost):
            return decision
        before = self._agent.answers
        decision = await limiter.wait(key, cost, timeout=self._within_s, max_queue=limiter.limit.quota)
        self._look(before)
        return decision

    def _may_ask(self, limiter: Limiter) -> bool:
        if self._within_s == 0 or not leaves_spare_at_hub(limiter):
            return False
        return not self._agent.cut_off and self._agent.answers != self._in_vain

    def _cold(self, limiter: Limiter, key: str) -> Cold | None:
        """A key of which the hub has told nothing yet; others may be waiting for it already."""
        cold = cold_key(limiter, key, self._within_s)
        return Cold(limiter, key, self._within_s) if cold is None and unheard(limiter, key) else cold

    def _is_settled(self, decision: Decision, limiter: Limiter, key: str, cost: int) -> bool:
        if decision.allowed or decision.reentered or not self._may_ask(limiter):
            return True
        return is_certain(limiter, key, cost)

    def _look(self, before: int) -> None:
        """A question was asked when there had been so many answers."""
        self._in_vain = before if self._agent.answers == before else -1

    def _do_without(self, limiter: Limiter) -> None:
        leave_spare_at_hub(limiter, leave=False)
        if self._logged.is_new():
            logger.warning(
                "reconverge: the limit %r is asked on the thread of an event loop, which must not wait, so in doubt"
                " memory decides, and small quotas may be refused or admitted falsely. Where the library can await its"
                " storage, write async+reconverge+redis://",
                limiter.name,
            )
