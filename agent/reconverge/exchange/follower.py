"""The interface of followers: tasks that read published data at the hub, beside the exchanges."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from reconverge.hub.port import Hub


@runtime_checkable
class Parting(Protocol):
    """A follower that has to release something besides the hub."""

    async def part(self, timeout_s: float) -> None:
        """Releases it within `timeout_s` seconds, because the exchanges end, or go on elsewhere."""
        ...


class Follower(Protocol):
    """Reads data that a hub keeps for all nodes, at regular times beside the exchanges.

    Promises: `follow` raises nothing but cancellation, by which it is ended when the node stops; after it, `due_ns` is
    later than before.
    Does not promise: to be quick. Exchanges go on meanwhile.
    """

    @property
    def brief(self) -> bool:
        """Whether the next read takes one small question at most.

        Then it is made between two exchanges, and not beside them, which would take another connection.
        """
        ...

    def due_ns(self) -> int:
        """Returns when to read next, by the monotonic clock."""
        ...

    def start_over(self) -> None:
        """Makes the follower read as soon as possible, because another driver has taken over."""
        ...

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Reads from the hub now; waits at most `timeout_s` seconds for each of its answers.

        `cut_off`: the exchanges fail at present, and log the reason; then the follower may put the read off.
        """
        ...
