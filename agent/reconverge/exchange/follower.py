"""The interface of followers: tasks that read published data at the hub, beside the exchanges."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from reconverge.hub.port import Hub


@runtime_checkable
class Parting(Protocol):
    """A follower that holds resources of its own, such as a connection, and closes them when the exchanges end."""

    async def part(self, timeout_s: float) -> None:
        """Close its resources within so many seconds: the exchanges end here, or go on in another loop."""
        ...


class Follower(Protocol):
    """Reads data that a hub keeps for all nodes, such as published settings, beside the exchanges.

    Promises: `follow` raises nothing but cancellation, which it is ended with when the node stops; after it, `due_ns`
    is later than it was. Does not promise: to be quick. Exchanges go on meanwhile.
    """

    @property
    def brief(self) -> bool:
        """Whether the next look asks the hub one small question at most.

        The runner then asks it between two exchanges: beside them it would need a further connection.
        """
        ...

    def due_ns(self) -> int:
        """When to look next, by the monotonic clock."""
        ...

    def start_over(self) -> None:
        """Forget earlier looks, so that the driver which takes over now looks at once."""
        ...

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Look at the hub now, and wait for `timeout_s` seconds for each of its answers.

        `cut_off` if exchanges fail, which log the reason; then it may be left for the next time.
        """
        ...
