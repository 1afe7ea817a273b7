"""The interface of followers: objects that regularly read published data, such as settings, at the hub."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from reconverge.hub.port import Hub


@runtime_checkable
class Parting(Protocol):
    """A follower with work to do at the end, such as to release a connection of its own."""

    async def part(self, timeout_s: float) -> None:
        """Does this work within about `timeout_s` seconds, because the exchanges end. The hub can still be asked."""
        ...


class Follower(Protocol):
    """Reads data that a hub keeps for all nodes, at regular times beside the exchanges.

    Promises: `follow` raises only CancelledError, when the node stops; after each call of `follow`, `due_ns` returns a
    later moment. Does not promise: to be quick. Exchanges go on during a read.
    """

    @property
    def brief(self) -> bool:
        """Returns whether the next read sends the hub at most one small question.

        If True, the read is made between two exchanges; if False, beside the exchanges, on another connection.
        """
        ...

    def due_ns(self) -> int:
        """Returns the moment of the next read, in nanoseconds of the monotonic clock."""
        ...

    def start_over(self) -> None:
        """Makes the next read due at once, because another thread or task has taken over the exchanges."""
        ...

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Reads the published data from the hub now; waits at most `timeout_s` seconds for each of the hub's answers.

        If `cut_off` is True, exchanges with this hub fail at present, so the follower may put the read off.
        """
        ...
