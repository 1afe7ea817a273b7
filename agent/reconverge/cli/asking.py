"""How commands ask a hub: with what the environment holds of secrets, for so long and no longer."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from reconverge.errors import InvalidSetting
from reconverge.hub.port import Hub
from reconverge.hub.registry import MEMORY, HubSettings, open_hub, redacted, scheme_of
from reconverge.remote_settings.signed import VARIABLE, Secrets

T = TypeVar("T")
PATIENCE_S: Final = 3.0


def secrets_as_said() -> Secrets:
    """The secrets in the environment; an argument could be seen in the list of processes. Raises InvalidSetting."""
    if not os.environ.get(VARIABLE):
        raise InvalidSetting(
            VARIABLE, "", "is not set; put the fleet's secret there, for instance: openssl rand -hex 32"
        )
    return Secrets(os.environ[VARIABLE], name=VARIABLE)


def ask_hub(url: str, namespace: str, question: Callable[[Hub], Awaitable[T]], *, what: str) -> T:
    """Ask the hub of that URL, and let go of it. Raises HubUnavailable, or InvalidSetting if no nodes meet there.

    `what` is what cannot be done there, as in "nothing can be published".
    """
    if scheme_of(url) == MEMORY:
        raise InvalidSetting("hub", redacted(url), f"is nowhere that nodes meet, so {what} there")
    hub = open_hub(url, HubSettings(namespace, PATIENCE_S))

    async def ask() -> T:
        try:
            return await question(hub)
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(hub.close(), PATIENCE_S)

    return asyncio.run(ask())
