"""Followers read at the hub beside the exchanges."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from reconverge.hub.port import Hub


@runtime_checkable
class Parting(Protocol):
    """A follower that has something to let go of beside the hub."""

    async def part(self, timeout_s: float) -> None:
        """The exchanges end, or go on elsewhere: let go of it within so many seconds."""
        ...


class Follower(Protocol):
    """Reads something that a hub keeps for all nodes, in the rhythm of the exchanges and beside them.

    Promises: `follow` raises nothing but cancellation, which it is ended with when the node stops; after it, `due_ns`
    is later than it was. Does not promise: to be quick. Exchanges go on meanwhile.
    """

    @property
    def brief(self) -> bool:
        """Whether the next look is one small question at most.

        Then it is asked between two exchanges, and not beside them, which takes a connection more.
        """
        ...

    def due_ns(self) -> int:
        """When to look next, by the monotonic clock."""
        ...

    def start_over(self) -> None:
        """Look as soon as there is another driver, which drives from now on."""
        ...

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Look at the hub now, and wait for `timeout_s` seconds for each of its answers.

        `cut_off` if exchanges fail, which tell why; then it may be left for the next time.
        """
        ...
