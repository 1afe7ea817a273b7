"""Computes when the hub has given up all node names that no process uses; from then on its counts are stable."""

# Theory of operation.
#
# A process that was killed, and a node that has another name since its lease ended, leave a name behind. Until the
# lease of that name ends, the hub keeps the last report under it; then all that may have been used under the name
# begins to count (`Entry.depart` of the merge rule). The nodes that exchange after that know of it, and those that
# exchanged right before it do not. So whether nodes agree can be judged only before that, or long enough after it.
#
# The hub counts a lease from when it merges a batch, and not from when the batch was sent. So a lease does not end one
# length after the process was killed: a batch that is slow, or is repeated by the network, arrives when its process has
# been dead for long, and the lease runs from there.
#
#     process  |--- sends the last batch --- killed
#     network                 |------ on its way ------|
#     hub                                              |--- merges it ------ lease ------| gives up on the name
#
# So the ends are noted as the hub merges, and what is still under way is reckoned with.

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from reconverge.clock import MICROSECOND_NS
from reconverge.hub.report import Answer, Batch, Status


class UnderWay(NamedTuple):
    """A batch on its way to the hub, and the time of its arrival."""

    arrives_ns: int
    batch: Batch


class Leases:
    """The leases on node names, as the hub knows them. All times are by one clock, that of the caller."""

    def __init__(self) -> None:
        self._ends_ns: dict[str, int] = {}
        """By name, the time at which its lease ends according to the last batch that the hub merged."""

    def note_answer(self, batch: Batch, answer: Answer, now_ns: int) -> None:
        """Notes the hub's answer to `batch` at `now_ns`; a merged batch makes the lease of its node last longer."""
        if answer.status is Status.MERGED:
            self._ends_ns[batch.node] = _end_ns(batch, now_ns)

    def given_up_ns(self, in_use: Collection[str], under_way: Iterable[UnderWay]) -> int:
        """Returns the time at which the leases of all names but those `in_use` are over; 0 if there is no such name.

        A batch that is `under_way` extends the lease of its name, if it arrives before the lease is over.
        """
        ends_ns = {name: end_ns for name, end_ns in self._ends_ns.items() if name not in in_use}
        for arrives_ns, batch in sorted(under_way, key=lambda one: one.arrives_ns):
            name = batch.node
            if name not in in_use and arrives_ns < ends_ns.get(name, arrives_ns + 1):
                ends_ns[name] = max(ends_ns.get(name, 0), _end_ns(batch, arrives_ns))
        return max(ends_ns.values(), default=0)


def _end_ns(batch: Batch, merged_ns: int) -> int:
    """Returns when the hub gives up a batch's node after merging it at `merged_ns`, unless it merges a later batch."""
    if batch.leaving:
        return merged_ns
    return merged_ns + (batch.lease_us + 1) * MICROSECOND_NS  # its clock counts microseconds, and rounds down
