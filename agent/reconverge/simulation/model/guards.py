"""The guards: each precondition by which the code keeps a bound, by name, and the place where the code checks it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from reconverge.simulation.model.state import ModelState, fields, of_numbers
from reconverge.simulation.model.terms import TRUE, Amount, Constant, Fact, Flag, Number, Symbol, Valuation
from reconverge.simulation.model.terms import amount as as_amount


class HeldBy(NamedTuple):
    """The file and function in which the code enforces a guard, and a sentence about what the guard ensures."""

    file: str
    function: str
    says: str


_KERNEL = "agent/reconverge/kernel"
_REPORTS = f"{_KERNEL}/reporting/cell_reports.py"
_SYNCER = "agent/reconverge/exchange/syncer.py"
_MERGE = "sync/reconverge_sync/merge"


class ProofGuard(Enum):
    """All guards of the proof: the preconditions of actions without which a bound could break."""

    # a node decides
    WITHIN_ALLOWANCE = HeldBy(f"{_KERNEL}/table/slow_path.py", "evaluate", "a charge fits below the allowance")
    NODE_STOPS_AT_LEASE = HeldBy(f"{_KERNEL}/cell.py", "usable_allowance", "after its lease an allowance is 0")
    BEYOND_WHILE_FRESH = HeldBy("agent/reconverge/policies.py", "balanced", "beyond the allowance only while fresh")
    ONE_REQUEST_BEYOND = HeldBy("agent/reconverge/policies.py", "balanced", "beyond both allowances by one request")
    OPEN_FROM_BASE = HeldBy(f"{_KERNEL}/algorithms/windows.py", "open_window", "a window begins with the base")
    # a node reports
    LOWER_BEFORE_REPORT = HeldBy(_REPORTS, "report_cell", "allowances are lowered before they are reported")
    ZERO_AFTER_LEASE = HeldBy(_REPORTS, "report_cell", "after its lease a node reports no allowance")
    OVERDRAFT_IN_USE_STAYS = HeldBy(_REPORTS, "keep_overdraft_within", "an overdraft in use is not given back")
    NO_NAME_AFTER_LEASE = HeldBy(_SYNCER, "take", "after its lease a node takes another name")
    NAMES_ONCE = HeldBy(_SYNCER, "_lapse", "no name is used again")
    # the hub hears
    SEQUENCE = HeldBy(f"{_MERGE}/rule.py", "merging", "a batch that is no newer changes nothing")
    GONE_STAYS_GONE = HeldBy(f"{_MERGE}/rule.py", "merging", "a name whose lease is over stays gone")
    FOLLOW_AHEAD = HeldBy(f"{_MERGE}/windows.py", "uniform_epoch", "a node that is ahead is followed")
    NEVER_BACK = HeldBy(f"{_MERGE}/ledger.py", "go_to", "a late report opens no earlier window")
    HUBS_CLOCK = HeldBy(f"{_MERGE}/windows.py", "place_epoch", "the hub's clock opens windows")
    LOWER_OWN_WINDOW = HeldBy(f"{_MERGE}/hearing.py", "lower", "only a report of this window lowers its allowance")
    NONE_RISES_BY_REPORT = HeldBy(f"{_MERGE}/hearing.py", "lower", "no allowance rises by a report")
    WELCOME_BELIEVES = HeldBy(f"{_MERGE}/rule.py", "_welcome", "unknown allowances are believed")
    WELCOME_BASE = HeldBy(f"{_MERGE}/rule.py", "_welcome", "of the window before, the base counts")
    LEDGER_KEEPS_OVERDRAFT_IN_USE = HeldBy(f"{_MERGE}/hearing.py", "take_counts", "an overdraft in use stays")
    DEBTS_COUNT = HeldBy(f"{_MERGE}/hearing.py", "take_counts", "use beyond an allowance is not free")
    # the hub grants
    ALLOWANCES_WITHIN = HeldBy(f"{_MERGE}/granting.py", "grant", "allowances sum to the capacity")
    BASES_WITHIN = HeldBy(f"{_MERGE}/granting.py", "raise_base", "bases sum to the capacity")
    BASE_OWN_WINDOW = HeldBy(f"{_MERGE}/granting.py", "raise_base", "bases rise for nodes of this window alone")
    ALLOWANCE_OWN_WINDOW = HeldBy(f"{_MERGE}/granting.py", "grant", "allowances rise for nodes of this window alone")
    OVERDRAFTS_WITHIN = HeldBy(f"{_MERGE}/granting.py", "grant", "overdrafts have a sum of their own")
    OVERDRAFTS_LESS_EXCESS = HeldBy(f"{_MERGE}/granting.py", "grant", "used overdrafts of departed names take room")
    UNCOVERED_USE_TAKES_ROOM = HeldBy(f"{_MERGE}/granting.py", "grant", "use that neither covers takes room, too")
    RAISE_BEFORE_ANSWER = HeldBy(f"{_MERGE}/rule.py", "_answer", "the ledger is raised before the answer")
    ANSWER_WITHIN_ROOM = HeldBy(f"{_MERGE}/ledger.py", "answer", "an answer grants no more than there is room for")
    # the hub gives up on a node
    HUB_WAITS_FOR_LEASE = HeldBy(f"{_MERGE}/rule.py", "scan", "a name is given up after its lease")
    ALLOWANCE_COUNTS_AS_USED = HeldBy(f"{_MERGE}/ledger.py", "depart", "its whole allowance counts as used")
    OVERDRAFT_COUNTS_AS_USED = HeldBy(f"{_MERGE}/ledger.py", "depart", "and its overdraft")
    DATES_COUNT_A_WINDOW = HeldBy(f"{_MERGE}/ledger.py", "depart", "dated use counts for a window after the lease")
    ROLL_TAKES_BASES = HeldBy(f"{_MERGE}/ledger.py", "catch_up", "the ledger opens a window with the bases")
    # the node hears
    INSTALL_OWN_WINDOW = HeldBy(_REPORTS, "apply_answer", "an allowance is installed in its own window")
    ANSWER_UNDER_WAY = HeldBy(_SYNCER, "merged", "an answer counts only for the batch under way")
    ONE_BATCH = HeldBy(_SYNCER, "take", "one batch is under way")
    OVERDRAFT_NOT_AHEAD = HeldBy(_REPORTS, "apply_answer", "no overdraft rises by an answer of a later window")
    LEASE_FROM_SENDING = HeldBy(_SYNCER, "merged", "a lease runs from the sending")
    LEASE_LESS_DRIFT = HeldBy(_SYNCER, "merged", "it is shorter by the drift of clocks")
    CONFIRM_BEFORE_LEASE = HeldBy(_SYNCER, "merged", "after a loss no lease before every key is confirmed")
    # the hub has lost its data
    WAIT_AFTER_LOSS = HeldBy(f"{_MERGE}/rule.py", "_learning", "after a loss nothing is granted for a while")
    WAIT_A_LEASE = HeldBy(f"{_MERGE}/rule.py", "learning_us", "that wait is as long as a lease")
    WAIT_TWO_WINDOWS = HeldBy(f"{_MERGE}/rule.py", "learning_us", "and for two windows")
    # use fades, or drains
    CLOCK_READ_LATE = HeldBy(f"{_KERNEL}/algorithms/windows.py", "_left_ns", "the hub's clock is taken to be behind")
    WHOLE_FADING_USE_FOLDS = HeldBy(f"{_MERGE}/ledger.py", "depart", "a fading allowance departs as new use")
    VOUCHERS_END_WITH_WINDOW = HeldBy(f"{_KERNEL}/algorithms/windows.py", "open_window", "vouchers end with the window")
    VOUCHERS_COUNT_UNTIL_REPORT = HeldBy(f"{_MERGE}/hearing.py", "lower", "at the hub vouchers last until a report")
    DRAINS_BY_ALLOWANCE = HeldBy(f"{_KERNEL}/algorithms/bucket.py", "_rate", "a node drains by its allowance")
    DRAINS_IN_LEASE = HeldBy(f"{_KERNEL}/algorithms/bucket.py", "_drained", "a node drains while its lease lasts")
    HUB_DRAINS_BY_REST = HeldBy(f"{_MERGE}/ledger.py", "drain_pool", "the hub's bucket drains by the rest")
    CHARGES_WITHIN_VOUCHERS = HeldBy(f"{_KERNEL}/algorithms/bucket.py", "spare", "a node charges within its vouchers")
    # a quota changes
    SCALES_DOWN = HeldBy(f"{_KERNEL}/table/changes.py", "adapt_to_quota", "allowances fall as the quota does")
    ANSWERS_SCALE_DOWN = HeldBy(_REPORTS, "as_lowered", "answers to earlier reports fall as the quota does")
    SMALLEST_CAPACITY = HeldBy(f"{_MERGE}/rule.py", "scan", "the smallest capacity of all nodes is dealt out")


NOT_ALONE: Final[Mapping[ProofGuard, str]] = {
    ProofGuard.ZERO_AFTER_LEASE: "NO_NAME_AFTER_LEASE keeps the node from reporting at all by then",
    ProofGuard.OVERDRAFT_IN_USE_STAYS: "UNCOVERED_USE_TAKES_ROOM does as much",
    ProofGuard.LEDGER_KEEPS_OVERDRAFT_IN_USE: "UNCOVERED_USE_TAKES_ROOM does as much",
    ProofGuard.ANSWER_WITHIN_ROOM: "the ledger stays within the bound; the guard only adapts to a smaller quota sooner",
    ProofGuard.ALLOWANCE_OWN_WINDOW: "INSTALL_OWN_WINDOW keeps the node from using it",
}
"""The guards without each of which the proof still succeeds, because another guard has the same effect; each with the
reason."""


class Assumption(Enum):
    """All assumptions about the world that the proof takes for granted."""

    CLOCKS = (
        "a node enters a window no earlier than the hub's clock does, less the error of clocks, which is under a window"
    )
    NOT_AHEAD_WHEN_GONE = "when the hub gives up on a name, its node was not ahead of the hub's window"
    DATES = "what a report dates has ended at its node when it does at the hub"
    ALL_HAVE_SPOKEN = (
        "outside strict, all that hold allowances reach a hub that has lost its data before its wait is over"
    )
    NO_LATE_BATCH_AFTER_LOSS = "a batch that was given up before a loss of data does not arrive after it"
    NO_BATCH_OUTLIVES_A_WAIT = "a batch that was sent before a loss has arrived, or is lost, when the wait is over"


class MeterClass(Enum):
    """A class of limits with one proof: in all of them use ceases to count in the same way."""

    WINDOW = "fixed windows: use counts until its window ends"
    DATED = "logs and slices: each charge counts for a window"
    SLOTS = "work in progress: use counts until it ends, and no longer than the lease"


class Law:
    """The conditions of one proof: the class of limits, the policy, and the guards that are in force.

    For each amount that an action may choose freely, it returns a symbol to the prover; to the check of a recorded step
    it returns the amount in the state after the step.
    """

    def __init__(
        self,
        meter: MeterClass,
        *,
        strict: bool,
        without: Collection[ProofGuard] = (),
        after: ModelState | None = None,
        chosen: Mapping[str, Number] | None = None,
        assuming: bool = True,
    ) -> None:
        self.meter = meter
        self.strict = strict
        self.without = frozenset(without)
        self.consulted: set[ProofGuard] = set()
        """All guards (preconditions in the code) that actions have asked for."""
        self.assumed: set[Assumption] = set()
        self._after = after
        self._chosen = chosen or {}
        """The choices of a recorded step that the state after it does not show."""
        self._assuming = assuming

    def keeps(self, guard: ProofGuard) -> bool:
        """Returns whether `guard`, a precondition in the code, is in force in this proof."""
        self.consulted.add(guard)
        return guard not in self.without

    def given(self, guard: ProofGuard, fact: Fact) -> Fact:
        """Returns the precondition `fact`, which `guard` enforces; TRUE if that guard is left out."""
        return fact if self.keeps(guard) else TRUE

    def by(self, guard: ProofGuard, amount: Amount | int, otherwise: Amount | int) -> Amount:
        """Returns `amount`, if `guard`, which enforces it, is in force; else `otherwise`."""
        return as_amount(amount if self.keeps(guard) else otherwise)

    def assume(self, assumption: Assumption, fact: Fact) -> Fact:
        """Returns `fact`, which the proof takes for granted; TRUE if this law makes no assumptions."""
        self.assumed.add(assumption)
        return fact if self._assuming else TRUE

    def any(self, name: str, seen: Callable[[ModelState], Amount], *, whole: bool = True) -> Amount:
        """Returns an amount that an action may choose freely: a symbol, or `seen(state)` after a recorded step."""
        if self._after is None:
            return Symbol(f"any.{name}", whole)
        return Constant(self._chosen[name]) if name in self._chosen else seen(self._after)

    def either(self, name: str, seen: Callable[[ModelState], Fact]) -> Fact:
        """Returns a truth value that an action may choose freely: a symbol, or `seen(state)` after a recorded step."""
        return Flag(f"any.{name}") if self._after is None else seen(self._after)


class Move(NamedTuple):
    """One step of the model, made by an action: the conditions that must hold before it, and the state after it."""

    needs: Fact
    after: ModelState


Action = Callable[[ModelState, Law], Move]
"""A function that returns the step (`Move`) that an event makes in a given state."""


def is_step(action: Action, law: Law, before: Mapping[str, Number | bool], after: Mapping[str, Number | bool]) -> bool:
    """Returns whether the step from `before` to `after`, recorded from the code, is one that `action` can make.

    `law` must have been made with the state after the step. Fields that `after` lacks are not compared.
    """
    move = action(of_numbers(before), law)
    numbers = Valuation({})
    if not numbers.holds(move.needs):
        return False
    for name, value in fields(move.after):
        if name in after:
            found = numbers.holds(value) if isinstance(value, Fact) else numbers.value(value)
            if found != after[name]:
                return False
    return True
