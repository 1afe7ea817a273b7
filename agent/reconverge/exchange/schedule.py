"""When limits at each sync interval are exchanged next in the regular course."""

# One exchange carries all limits that are due, so there is a moment for each interval that is in use, and an exchange
# at the first of them. The alternative was a stream for each interval, with a name, a lease and a schedule of its own.
# It needs no word of the hub, but a limit could change its interval only by giving up its lines and being introduced
# anew, and each interval would cost a message. Back-off, silence and learning go by the agent's own interval: they are
# about the node.

from __future__ import annotations

from collections.abc import Callable, Iterable


class Intervals:
    """The moments at which what is exchanged at each interval is due. Most agents have one interval."""

    def __init__(self, intervals_ns: tuple[int, ...], due_ns: int) -> None:
        self._known = intervals_ns
        self._due_ns = dict.fromkeys(intervals_ns, due_ns)
        self.due_ns = due_ns
        """When the first of them is due."""

    def __len__(self) -> int:
        return len(self._due_ns)

    @property
    def shortest(self) -> frozenset[int]:
        """The shortest interval alone."""
        return frozenset(self._known[:1])

    def follow(self, intervals_ns: tuple[int, ...], now_ns: int) -> None:
        """Have those intervals, which are in their order; one that is new begins now."""
        if intervals_ns is not self._known:
            self._known = intervals_ns
            self._due_ns = {each: self._due_ns.get(each, now_ns + each) for each in intervals_ns}
            self.due_ns = min(self._due_ns.values())

    def due(self, now_ns: int) -> frozenset[int]:
        """The intervals that are over."""
        return frozenset(each for each, due_ns in self._due_ns.items() if due_ns <= now_ns)

    def first_of(self, intervals_ns: Iterable[int]) -> int:
        """When the first of some intervals is over; whatever is not known is due with the first of all."""
        return min(self._due_ns.get(each, self.due_ns) for each in intervals_ns)

    def begin(self, intervals_ns: Iterable[int] | None, length_ns: Callable[[int], int], now_ns: int) -> None:
        """Have some of them begin now, or all; `length_ns` says for how long an interval lasts this time."""
        for each in self._due_ns if intervals_ns is None else self._due_ns.keys() & intervals_ns:
            self._due_ns[each] = now_ns + length_ns(each)
        self.due_ns = min(self._due_ns.values())

    def all_at(self, due_ns: int) -> None:
        """Have everything be due at one moment."""
        self._due_ns = dict.fromkeys(self._due_ns, due_ns)
        self.due_ns = due_ns

    def no_longer(self, now_ns: int) -> None:
        """Have nothing last longer than from now on."""
        self._due_ns = {each: min(due_ns, now_ns + each) for each, due_ns in self._due_ns.items()}
        self.due_ns = min(self._due_ns.values())
