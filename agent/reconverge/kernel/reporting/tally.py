"""What was charged to one limit and given back, for the hub to add up."""

from __future__ import annotations

from reconverge.kernel.engine import TallyFields


class Tally(TallyFields):
    """What was charged and given back since the account began, to one shard. Both only rise."""

    __slots__ = ("_confirmed", "_reported")

    def __init__(self) -> None:
        self.begin()
        self.charged = 0
        self.refunded = 0
        self._reported = (0, 0)
        self._confirmed = (0, 0)

    @property
    def changed(self) -> bool:
        """Whether the hub has yet to hear of the latest numbers."""
        return (self.charged, self.refunded) != self._confirmed

    @property
    def unconfirmed(self) -> int:
        """Charged, and not known to have arrived."""
        return self.charged - self._confirmed[0]

    def report(self) -> tuple[int, int]:
        """The numbers, which are on their way now."""
        self._reported = (self.charged, self.refunded)
        return self._reported

    def confirm(self) -> None:
        """They have arrived."""
        self._confirmed = self._reported

    def unconfirm(self) -> None:
        """The hub has forgotten them."""
        self._confirmed = (0, 0)

    def drop_confirmed(self) -> None:
        """Keep only what has not arrived."""
        self.charged -= self._confirmed[0]
        self.refunded -= self._confirmed[1]
        self._reported = self._confirmed = (0, 0)
