"""Calls a hub on behalf of a command: with the secrets in the environment, and with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from reconverge.agent.agent import Agent
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.exchange.syncer import SyncerStats
from reconverge.hub.port import Hub
from reconverge.hub.registry import MEMORY, HubSettings, advice_about, open_hub, redacted, scheme_of
from reconverge.published.envelope import VARIABLE, Secrets

T = TypeVar("T")
PATIENCE_S: Final = 3.0
FORGOTTEN_AFTER: Final = 2
"""The number of answers to wait for after a reset: the first may belong to a report that was sent before it."""
LOOK_S: Final = 0.02


def secrets_as_said() -> Secrets:
    """Returns the secrets from the environment; an argument would show in process lists. Raises InvalidSetting."""
    if not os.environ.get(VARIABLE):
        raise InvalidSetting(VARIABLE, "", "is not set; put the fleet's secret there (openssl rand -hex 32 makes one)")
    return Secrets(os.environ[VARIABLE], name=VARIABLE)


def check_shared(url: str, consequence: str) -> None:
    """Raises InvalidSetting for `memory://`, which nodes do not share; `consequence` is a clause of the message."""
    if scheme_of(url) == MEMORY:
        problem = f"is no hub that nodes share, so {consequence}; give the URL of the nodes' hub"
        raise InvalidSetting("hub", redacted(url), problem)


def ask_hub(url: str, namespace: str, question: Callable[[Hub], Awaitable[T]], *, what: str) -> T:
    """Opens the hub of that URL, returns the result of `question`, and closes the hub.

    Raises HubUnavailable, whose message names the hub and the remedy, or InvalidSetting if nodes cannot share the hub.
    `what` is the part of the message about what cannot be done there, as in "nothing can be published".
    """
    check_shared(url, f"{what} there")
    hub = open_hub(url, HubSettings(namespace, PATIENCE_S))

    async def ask() -> T:
        try:
            return await question(hub)
        except HubUnavailable as error:
            raise advised(error, redacted(url)) from error
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(hub.close(), PATIENCE_S)

    return asyncio.run(ask())


def advised(error: HubUnavailable, name: str) -> HubUnavailable:
    """Returns an error like `error` whose message also names the hub and a remedy."""
    problem = f"the hub {name} is unavailable ({error.problem}); {advice_about(name)}"
    return HubUnavailable(error.kind, problem, applied=error.applied, misconfigured=error.misconfigured)


def wait_until_reported(agent: Agent, before: Sequence[SyncerStats]) -> None:
    """Waits until the hub has answered all that the agent has had to report since an earlier moment.

    `before` are the agent's exchange statistics of that moment, one for each shard. A shard to which nothing was to be
    reported since is not waited for: it may not exchange for many seconds. Raises HubUnavailable if the hub takes too
    long.
    """
    wanted: dict[int, int] = {}
    # The statistics are read twice, as a report may leave between reading the sent ones and the queued ones.
    for exchanges in (agent.stats().exchanges, agent.stats().exchanges):
        for index, (shard, former) in enumerate(zip(exchanges, before, strict=True)):
            if len(before) == 1 or shard.pending or shard.cells > former.cells:
                wanted.setdefault(index, shard.exchanges + FORGOTTEN_AFTER)
    until_s = time.monotonic() + PATIENCE_S
    while any(agent.stats().exchanges[index].exchanges < least for index, least in wanted.items()):
        if time.monotonic() > until_s:
            raise HubUnavailable("timeout", f"the hub has not answered the report within {PATIENCE_S:g} s; try again")
        time.sleep(LOOK_S)
