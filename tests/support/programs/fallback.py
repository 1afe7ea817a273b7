"""Programs of processes with two hubs: `python -m tests.support.programs.fallback NAME ...` runs one of them."""

from __future__ import annotations

import sys

from reconverge import Agent
from reconverge.clock import SECOND_NS
from reconverge.hub.fallback import TwoHubs, selector
from tests.support.agents import NEVER_FULL
from tests.support.programs.agents import say, wait_for_a_line
from tests.support.waiting import eventually


def ask_on(primary: str, fallback: str, quota: str) -> None:
    """Asks without end; prints when the node has moved, when it is back, and at the end the admitted cost."""
    selector.PROBE_NS = SECOND_NS // 5  # type: ignore[misc]
    admitted = 0
    with Agent(primary, fallback=fallback, sync_interval=0.02, exchange_timeout=1.0, stop_timeout=20.0) as agent:
        many, few = agent.limit("many", NEVER_FULL), agent.limit("few", f"{quota}/year", cold_allowance=0.0)
        hub = agent._lifecycle.hub
        assert isinstance(hub, TwoHubs)

        def ask() -> None:
            nonlocal admitted
            for _ in range(10):
                admitted += many.allow("ada")
                few.allow("ada")

        def is_with(*, primary: bool) -> bool:
            ask()
            return hub.with_primary is primary and agent.stats().exchanges[0].failures_in_a_row == 0

        eventually(lambda: is_with(primary=True) and agent.ready, "the first answer")
        say("ready")
        eventually(lambda: is_with(primary=False), "the fallback")
        say("moved")
        eventually(lambda: is_with(primary=True), "the primary again")
        say("back")
        wait_for_a_line()
        ask()
    say(admitted)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
