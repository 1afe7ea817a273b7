"""The state that the proof looks at: one name of a node, its entry at the hub, and the sums over all other names."""

# Theory of operation.
#
# A proof for every number of nodes needs a state whose size does not grow with that number. One name of a node, any
# one, is looked at closely: `node`, its `entry` at the hub, its batches and answers. Of all others there are only sums.
# An invariant of a single name holds for each of the others, too, as any of them might have been the one that is looked
# at; so sums over the others keep what each of them keeps.
#
# A name ends with its lease, and with its process. What begins after that is another name, which holds nothing; so
# names come and go without any action that turns one into another.
#
# Likewise one window is looked at, any one (`frame.looked`), so that nothing has to be remembered of all others. What
# the ledger counts for this name in this window is `entry.part`, and `entry.extra` for its overdraft. Before the hub
# opens the window, these stand for the base with which the window will begin; while it is open, for the allowance;
# afterwards they stay as they were, as a node may be behind. They exist in the proof alone.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple, get_type_hints

from reconverge.simulation.model.terms import Amount, Constant, Fact, Flag, Known, Number, Symbol, equal


class Frame(NamedTuple):
    """The numbers that no action changes. Times are by the hub's clock."""

    looked: Amount
    """The number of the one window that the proof looks at."""
    opens: Amount
    length: Amount
    error: Amount
    """The most by which a node's estimate of the hub's clock is ahead; less than a window."""
    lease: Amount
    drift: Amount
    """How much longer a lease lasts by the clock of a node whose clock runs slow."""
    request: Amount
    """The highest cost of a request."""


class HubState(NamedTuple):
    """The parts of the hub's cell that all names share."""

    now: Amount
    window: Amount
    waits: Fact
    """Whether the hub has lost its data and must not grant yet."""
    lost: Amount
    """The time when the hub last lost its data."""
    capacity: Amount
    most: Amount
    """The largest capacity that was ever in force; only the proof knows it, not the hub."""
    overdrafts: Amount
    """The highest sum of all names' overdrafts."""


class NodeState(NamedTuple):
    """The data that a node has under one name. Its allowances count while its lease lasts."""

    alive: Fact
    """Whether the process still uses this name."""
    until: Amount
    """The time when the node's lease ends."""
    window: Amount
    allowance: Amount
    base: Amount
    overdraft: Amount
    used: Amount
    """The use that the node counts in its window, its debt included."""
    spent: Amount
    """The cost that the node has admitted in window `frame.looked`, less the cost given back; only the proof knows
    it."""
    last: Amount
    """The time when the node last admitted a request; only the proof knows it."""
    knows: Fact
    """Whether the node has an answer from the hub's present data, or never had an answer."""
    unconfirmed: Fact
    """Whether the node has noticed a loss of the hub's data and has had no answer about this key since."""
    sent: Amount
    """The time when the node sent the batch that is under way."""


def holds_nothing(node: NodeState) -> Fact:
    """Returns the condition that a node has no allowance, no base and no overdraft."""
    return equal(node.allowance, 0) & equal(node.base, 0) & equal(node.overdraft, 0)


class EntryState(NamedTuple):
    """The entry of the node's name in the hub's ledger."""

    known: Fact
    gone: Fact
    """Whether the hub has given up on the name; it then counts `allowance` as the name's use."""
    left: Fact
    """Whether the node has left, and the hub has not given up on the name yet."""
    seen: Amount
    allowance: Amount
    base: Amount
    overdraft: Amount
    debt: Amount
    part: Amount
    """The least that the ledger counts of this name in window `frame.looked`; only the proof knows it."""
    extra: Amount
    """The least that the ledger counts of this name's overdraft in window `frame.looked`; only the proof knows it."""


class ReportState(NamedTuple):
    """A node's report of the cell, on its way to the hub."""

    there: Fact
    fresh: Fact
    """Whether the hub has merged no newer report of the same name."""
    final: Fact
    """Whether the node holds nothing from this report on, as it leaves or forgets the key."""
    leaves: Fact
    window: Amount
    allowance: Amount
    base: Amount
    overdraft: Amount
    used: Amount


class AnswerState(NamedTuple):
    """The hub's answer to a report, on its way to the node."""

    there: Fact
    present: Fact
    """Whether the hub still has the data from which it answered."""
    own: Fact
    """Whether the answer comes from the same data of the hub as the node's answers before it."""
    window: Amount
    allowance: Amount
    base: Amount
    overdraft: Amount


class ErrandState(NamedTuple):
    """A batch that does not report the key of the proof, and the answer to it."""

    under_way: Fact
    answered: Fact
    leaves: Fact
    present: Fact
    own: Fact


class Others(NamedTuple):
    """The sums over all other names of `held` and `held_beyond` (`at_hub.py`), in window `frame.looked`."""

    held: Amount
    overdrafts: Amount
    lost: Amount
    """The amount held by names that the hub has lost with its data and that have not reported since."""
    lost_overdrafts: Amount


class ModelState(NamedTuple):
    """The whole state of the proof: one name at its node, at the hub and in messages, and sums over all other names."""

    frame: Frame
    hub: HubState
    node: NodeState
    entry: EntryState
    flight: ReportState
    """The batch that is under way."""
    late: ReportState
    """One of the batches that the node has given up, and that may still arrive."""
    answer: AnswerState
    stray: AnswerState
    """An answer to a batch that the node has given up."""
    errand: ErrandState
    others: Others


TIMES = frozenset({"opens", "length", "error", "lease", "drift", "now", "lost", "until", "last", "sent", "seen"})
"""The fields that are times or durations, so need not be whole numbers."""


def symbols(prefix: str = "") -> ModelState:
    """Returns a state whose fields are symbols, named after the fields, such as `node.used`, with `prefix` in front."""
    groups: dict[str, object] = {}
    for group, shape in SHAPES.items():
        made = {
            field: Flag(f"{prefix}{group}.{field}")
            if kind is Fact
            else Symbol(f"{prefix}{group}.{field}", whole=field not in TIMES)
            for field, kind in get_type_hints(shape).items()
        }
        groups[group] = shape(**made)
    return ModelState(**groups)  # type: ignore[arg-type]


SHAPES: Mapping[str, type] = {
    "frame": Frame,
    "hub": HubState,
    "node": NodeState,
    "entry": EntryState,
    "flight": ReportState,
    "late": ReportState,
    "answer": AnswerState,
    "stray": AnswerState,
    "errand": ErrandState,
    "others": Others,
}


def fields(scene: ModelState) -> Iterator[tuple[str, Amount | Fact]]:
    """Yields the name and the value of each field of a state, such as `node.used`."""
    of_groups: tuple[tuple[Amount | Fact, ...], ...] = scene
    for (group, shape), values in zip(SHAPES.items(), of_groups, strict=True):
        for field, value in zip(get_type_hints(shape), values, strict=True):
            yield f"{group}.{field}", value


def of_numbers(values: Mapping[str, Number | bool]) -> ModelState:
    """Returns the state whose fields have these values. Raises KeyError if a field has none."""
    groups: dict[str, object] = {}
    for group, shape in SHAPES.items():
        made: dict[str, Amount | Fact] = {}
        for field in get_type_hints(shape):
            value = values[f"{group}.{field}"]
            made[field] = Known(value) if isinstance(value, bool) else Constant(value)
        groups[group] = shape(**made)
    return ModelState(**groups)  # type: ignore[arg-type]


@cache
def nothing() -> ModelState:
    """Returns a state in which every amount is 0 and every fact is false."""
    blank = {name: False if isinstance(kind, Flag) else 0 for name, kind in fields(symbols())}
    return of_numbers(blank)
