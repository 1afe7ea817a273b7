"""The loans to a region's hub beyond its own part of each capacity, and the list of cells that need more.

In Redis, `exchange.lua`, `wishes.lua` and `lend.lua` keep the same data, in the hashes of the cells and of the shard.
"""

# Theory of operation.
#
# A region's hub grants its own part of a capacity, and its loans beyond that. A loan can be lowered at any
# moment, but counts as held until nodes have given it back: the ledger keeps the higher allowances, answers contain
# lower ones, and `lend` returns the amount held: the loan, or the allowances and debts beyond the region's own part
# less what other lenders have lent, if that is more. Loans raise the allowances of the present window alone: the next
# window would begin with a loan that may have ended by then. They are kept by lender, so two bridges need no election:
# the amounts that they lend are added up. A late message has no effect: its sequence number is old, or its loans have
# ended.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from reconverge.hub.report import Lent, Loan, Status, Wish
from reconverge_sync.merge.ledger import LedgerCell, LimitRule

WISHES_MAX: Final = 1000
"""The most keys of a shard that can have loans at one time; further keys get no loan."""
LENDERS_MAX: Final = 8
"""The most lenders of one key; a call of a further lender changes nothing."""
PACES: Final = 4
"""For how many sync intervals a key stays on the list beyond the time in which its use and its leases run out: a node
may report the key that late."""

Identity = tuple[str, str, int, str]


class Credit(NamedTuple):
    """A loan of one lender on one key, and the number of the lender's last call that confirmed the loan."""

    amount: int
    until_us: int
    sequence: int


@dataclass(slots=True)
class Lending:
    """The loans of one shard, and the list of keys that need a loan."""

    wishes: dict[Identity, Wish] = field(default_factory=dict)
    credits: dict[Identity, dict[str, Credit]] = field(default_factory=dict)
    """For each cell on the list, its loans by the name of the lender."""
    names: dict[str, Identity] = field(default_factory=dict)
    """For each name of a cell that could get a loan, the identity of the cell."""

    def lent(self, identity: Identity, hub_us: int) -> int:
        """Returns the sum of all loans on a key that last beyond `hub_us`, as cost."""
        known = self.credits.get(identity)
        return sum(credit.amount for credit in known.values() if credit.until_us > hub_us) if known else 0

    def look(self, identity: Identity, cell: LedgerCell, rule: LimitRule, pace_us: int, hub_us: int) -> None:
        """Puts a key that lacks capacity or has a loan on the list of keys that need loans; removes any other key."""
        # Each region has its own windows that begin with a hit; and a loan of slots would end while they are in use.
        if rule.apart == 0 or rule.first_hit or rule.slots:
            return
        name = _name(identity)
        self.names[name] = identity
        used = ceil(cell.used(rule, hub_us))
        wanting = (
            cell.reserved > 0
            or used * 1000 + cell.needs_milli > cell.capacity * 1000
            or carrying_milli(rule, cell.demand_milli) > cell.capacity * 1000
        )
        lasting = any(credit.until_us > hub_us for credit in self.credits.get(identity, {}).values())
        if not (wanting or lasting):
            self.wishes.pop(identity, None)
            self.credits.pop(identity, None)
        elif identity in self.credits or len(self.wishes) < WISHES_MAX:
            self.credits.setdefault(identity, {})
            self.wishes[identity] = Wish(
                cell=name,
                limit=identity[0],
                capacity=rule.capacity,
                quota=rule.quota,
                window_us=rule.window_us,
                own=cell.capacity,
                used=used,
                needs_milli=cell.needs_milli,
                demand_milli=cell.demand_milli,
                reserved=cell.reserved,
                fades_us=2 * rule.counts_for_us + PACES * pace_us,
                heard_us=hub_us,
            )

    def lend(
        self,
        cells: Mapping[Identity, LedgerCell],
        generation: str,
        lender: str,
        sequence: int,
        loans: Sequence[Loan],
        hub_us: int,
    ) -> Lent:
        """Stores the loans of a call, or none if a newer call of the lender came before.

        Returns for each loan the amount that nodes hold or may hold of it; -1 if the hub has no such cell.
        """
        stale = False
        for loan in loans:
            credit = self.credits.get(self.names.get(loan.cell, _NONE), {}).get(lender)
            stale = stale or (credit is not None and sequence <= credit.sequence)
        held: list[int] = []
        for loan in loans:
            identity = self.names.get(loan.cell, _NONE)
            cell = cells.get(identity)
            if cell is None or hub_us > cell.expires_us:
                held.append(-1)
                continue
            lasting = {
                name: credit for name, credit in self.credits.get(identity, {}).items() if credit.until_us > hub_us
            }
            room = lender in lasting or len(lasting) < LENDERS_MAX
            if not stale and room and loan.until_us > hub_us:
                lasting[lender] = Credit(loan.amount, loan.until_us, sequence)
                self.credits[identity] = lasting
            own = lasting[lender].amount if lender in lasting else 0
            others = sum(credit.amount for credit in lasting.values()) - own
            held.append(max(own, cell.allowances + cell.debts - cell.capacity - others))
        return Lent(hub_us, generation, Status.STALE if stale else Status.MERGED, tuple(held))

    def current(self, lease_us: int, hub_us: int) -> tuple[Wish, ...]:
        """Removes keys that no report has renewed for long from the list; returns the others, as wishes for a loan."""
        for identity, wish in list(self.wishes.items()):
            if hub_us - wish.heard_us > wish.fades_us + 2 * lease_us:
                del self.wishes[identity]
        return tuple(self.wishes.values())

    def forget(self, identity: Identity) -> None:
        """Removes a key that the hub no longer keeps from the list of keys that need a loan, and deletes its loans."""
        self.wishes.pop(identity, None)
        self.credits.pop(identity, None)
        self.names.pop(_name(identity), None)


def carrying_milli(rule: LimitRule, demand_milli: int) -> float:
    """Returns the use that counts at any moment of a steady demand of `demand_milli` per second, in thousandths."""
    return float(demand_milli) * rule.window_us / 1_000_000 * rule.capacity / rule.quota


def _name(identity: Identity) -> str:
    return ":".join(map(str, identity))


_NONE: Final[Identity] = ("", "", 0, "")
