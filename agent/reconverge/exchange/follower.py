"""The interface of followers: tasks that read published data at the hub, beside the exchanges."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from reconverge.hub.port import Hub


@runtime_checkable
class Parting(Protocol):
    """A follower that uses resources besides the hub, such as its own connection, and must release them at the end."""

    async def part(self, timeout_s: float) -> None:
        """Releases the follower's own resources within `timeout_s` seconds, as the runner of the exchanges ends."""
        ...


class Follower(Protocol):
    """Reads data that a hub keeps for all nodes, at regular times beside the exchanges.

    Promises: `follow` raises nothing but cancellation, which ends it when the node stops; each `follow` makes `due_ns`
    return a later moment.
    Does not promise: to be quick. Exchanges go on during a read.
    """

    @property
    def brief(self) -> bool:
        """Returns whether the next read sends the hub at most one small question.

        Such a small read is made between two exchanges. A longer read is made beside the exchanges, on another
        connection.
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

        `cut_off` is true while the exchanges fail, of which the driver has logged the reason; then the follower may put
        its read off.
        """
        ...
