"""Checks whether the hub has counted each charge once, apart from the losses that the promises allow."""

# Theory of operation.
#
# The hub keeps lifetime sums by account. Their total is compared with the tallies of charges that the nodes keep. Two
# things make them differ:
#
# - A killed node takes with it what it had not reported, and does not know whether its last report has arrived. So the
#   hub counts anything between what was confirmed and what was charged.
# - A node that has heard nothing of the hub for half a day opens a new account (`exchange/syncer.py`), and its tallies
#   begin anew, with what was not confirmed. That may have arrived under the old account all the same, and counts twice
#   then. What was confirmed stays at the hub, unless the hub loses its data after that: no node reports it again.
#
# A hub may be away for half a day without any fault of a node: members that keep a ledger among themselves are cut off
# from each other for some windows, and a window may be a day.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from reconverge.hub.report import Totals
from reconverge.kernel import Cell, Kernel, Table, measure


class AccountedKernel(Kernel):
    """A kernel that also keeps the sums of the charges that were made under accounts that are closed now."""

    def keep_accounts(self) -> None:
        """Starts the record of closed accounts, which is empty."""
        self.left_behind: Counter[str] = Counter()
        """By limit, the cost charged under closed accounts that the hub has confirmed."""
        self.reported_again: Counter[str] = Counter()
        """By limit, the cost charged under closed accounts that the hub had not confirmed when they were closed."""

    def open_account(self, shard_index: int) -> None:
        for table in self.tables.values():
            tally = table.tallies[shard_index]
            self.left_behind[table.reported_as] += tally.charged - tally.unconfirmed
            self.reported_again[table.reported_as] += tally.unconfirmed
        super().open_account(shard_index)


class Accounts:
    """The charges of a run by limit, and by how much the hub's count may differ from them."""

    def __init__(self) -> None:
        self.unreported: Counter[str] = Counter()
        """By limit, the cost that killed nodes had charged and the hub had not confirmed."""
        self.unreported_of_keys: Counter[str] = Counter()
        """The same summed up from the reports about keys. It may be more: a batch carries the sums of all charges, and
        leaves out the keys about which the node is silent."""
        self._killed: Counter[str] = Counter()
        self._left_behind: Counter[str] = Counter()
        self._reported_again: Counter[str] = Counter()
        self._generations: set[str] = set()

    def note_answer(self, generation: str) -> None:
        """Notes the generation of data that an answer of the hub has named; a second one shows a loss of data."""
        self._generations.add(generation)

    def note_ended(self, kernel: AccountedKernel, tables: Iterable[Table]) -> None:
        """Notes the charges of a process that ends, whether or not its last report has arrived."""
        tables = list(tables)
        self._killed += charged_by(tables)
        for table in tables:
            self.unreported[table.reported_as] += table.tallies[0].unconfirmed
            self.unreported_of_keys[table.reported_as] += sum(map(_unreported, table.cells.values()))
        self._left_behind += kernel.left_behind
        self._reported_again += kernel.reported_again

    def miscounted(
        self, alive: Iterable[tuple[AccountedKernel, tuple[Table, ...]]], sums: Mapping[str, Totals]
    ) -> list[str]:
        """Returns a sentence for each limit whose charges the hub, by its `sums`, has lost or counted twice.

        `alive` has the kernel and the tables of each live node. To be called when all nodes have had time to report.
        """
        charged, left_behind, reported_again = (
            Counter(self._killed),
            Counter(self._left_behind),
            Counter(self._reported_again),
        )
        for kernel, tables in alive:
            charged += charged_by(tables)
            left_behind += kernel.left_behind
            reported_again += kernel.reported_again
        charged += left_behind
        lost = Counter(self.unreported)
        if len(self._generations) > 1:
            lost += left_behind
        known = Counter({name: totals.charged for name, totals in sums.items()})
        return [
            f"the hub counts {known[name]}, but {charged[name]} was charged, of which {lost[name]} may be lost and"
            f" {reported_again[name]} doubled"
            for name in charged | known
            if not charged[name] - lost[name] <= known[name] <= charged[name] + reported_again[name]
        ]


def _unreported(cell: Cell) -> int:
    epoch, current, _ = cell.confirmed
    return max(0, cell.used - current * (epoch == cell.epoch))


def charged_by(tables: Iterable[Table]) -> Counter[str]:
    """Returns the cost that a node has charged under its present account, by the name of the quota."""
    charged = Counter[str]()
    for table in tables:
        for cell in table.cells.values():
            measure(cell)
        charged[table.reported_as] += table.tallies[0].charged
    return charged
