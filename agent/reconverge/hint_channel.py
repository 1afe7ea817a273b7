"""The port through which hints travel from node to node, and how the one of a URL is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hubs import EXTRAS, HubSettings, installed, loaded, redacted, scheme_of

GROUP: Final = "reconverge.hints"
"""The entry-point group: each entry is named after a scheme and is a `HintChannelFactory`."""
SETTING: Final = "hints"

Hear = Callable[[bytes], None]
"""Is told what comes, in the loop, whoever sent it, also what was told here. It neither waits nor raises."""
Troubled = Callable[[HubUnavailable | None], None]
"""Is told that there is no connection and why, or that there is one, each time that this changes; likewise."""


@runtime_checkable
class HintChannel(Protocol):
    """Carries short messages to all nodes of a namespace, as fast as it can.

    Promises: nothing waits, and nothing is raised. Does not promise: that any message arrives, nor once only, nor in
    order; nor who has sent it. One object serves one event loop at a time, and one process.
    """

    def open(self, hear: Hear, troubled: Troubled) -> None:
        """Connect in the running loop, and stay connected, also after failures; nothing happens if that is so."""
        ...

    def tell(self, payload: bytes) -> None:
        """Have all nodes hear that, if there is a connection."""
        ...

    async def close(self) -> None:
        """Let go of all connections. It may be opened again, in another loop too."""
        ...


HintChannelFactory = Callable[[str, HubSettings], HintChannel]


def open_channel(given: str | HintChannel, settings: HubSettings) -> HintChannel:
    """The channel for a URL; nothing is connected yet.

    Raises:
        InvalidSetting: the URL cannot be read, no installed package answers to its scheme, or that is no channel.
        MissingExtra: one does, but needs a package that is not installed.
    """
    if not isinstance(given, str):
        if not isinstance(given, HintChannel):
            raise InvalidSetting(SETTING, given, "is neither a URL nor a HintChannel")
        return given
    try:
        scheme = scheme_of(given)
    except InvalidSetting as error:
        raise InvalidSetting(SETTING, error.value, "is not a URL like mqtt://localhost:1883") from None
    entries = installed(GROUP)
    if scheme not in entries:
        known = ", ".join(f"{name}://" for name in sorted(entries)) or "none"
        raise InvalidSetting(SETTING, redacted(given), f"hints do not travel by {scheme}://; known: {known}")
    factory: HintChannelFactory = loaded(entries[scheme], f"hints by {scheme}://", EXTRAS.get(scheme, "mqtt"))
    return factory(given, settings)
