"""The state of one name of a node, of its entry at the hub, and of the sums of all others, as the proof sees them."""

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

from reconverge.simulation.model.terms import Amount, Constant, Fact, Flag, Known, Number, Symbol


class Frame(NamedTuple):
    """The numbers that no action changes. Times are of the hub's clock."""

    looked: Amount
    """The number of the window that is looked at."""
    opens: Amount
    length: Amount
    error: Amount
    """How far a node's idea of the hub's clock may be ahead; less than a window."""
    lease: Amount
    drift: Amount
    """By how much longer a lease is by a node's clock if that clock is slow."""
    request: Amount
    """The cost of the dearest request."""


class HubState(NamedTuple):
    """The hub's part of the cell that all names share."""

    now: Amount
    window: Amount
    waits: Fact
    """Whether the hub has lost its data and may not grant yet."""
    lost: Amount
    """When data were lost last."""
    capacity: Amount
    most: Amount
    """The largest capacity that was ever in force; in the proof alone."""
    overdrafts: Amount
    """The most that all overdrafts together may be."""


class NodeState(NamedTuple):
    """A node's knowledge under this name. Its allowances count while its lease lasts."""

    alive: Fact
    """Whether the process still goes by this name."""
    until: Amount
    """When its lease ends."""
    window: Amount
    allowance: Amount
    base: Amount
    overdraft: Amount
    used: Amount
    """The use that the node counts in its window, with its debt."""
    spent: Amount
    """The cost that it has admitted in the window that is looked at, less what was given back; in the proof alone."""
    last: Amount
    """When the node admitted a request last; in the proof alone."""
    knows: Fact
    """Whether the node has an answer from the hub's present data, or has never had any answer."""
    unconfirmed: Fact
    """Whether the node has noticed a loss of data and has not been answered about this key since."""
    sent: Amount
    """When it sent the batch that is under way."""


class EntryState(NamedTuple):
    """The part of the hub's ledger under this name."""

    known: Fact
    gone: Fact
    """Whether the hub has given up on the name; it then counts `allowance` as the use of the name."""
    left: Fact
    """Whether the node has left, and the hub has not given up on the name yet."""
    seen: Amount
    allowance: Amount
    base: Amount
    overdraft: Amount
    debt: Amount
    part: Amount
    """The least that the ledger counts of this name in the window that is looked at; in the proof alone."""
    extra: Amount
    """The least that the ledger counts of its overdraft in that window; in the proof alone."""


class ReportState(NamedTuple):
    """A report of the cell on its way to the hub."""

    there: Fact
    fresh: Fact
    """Whether the hub has merged no newer report of this name."""
    final: Fact
    """Whether the node holds nothing any more: it leaves, or forgets the key."""
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
    """Whether these are the data that the node had heard from before."""
    window: Amount
    allowance: Amount
    base: Amount
    overdraft: Amount


class ErrandState(NamedTuple):
    """A batch that does not report this key, and the answer to it."""

    under_way: Fact
    answered: Fact
    leaves: Fact
    present: Fact
    own: Fact


class Others(NamedTuple):
    """Sums over all other names, in the window that is looked at; see `held` and `held_beyond` in `at_hub.py`."""

    held: Amount
    overdrafts: Amount
    lost: Amount
    """The part held by names that the hub has lost with its data and that have not reported since."""
    lost_overdrafts: Amount


class ModelState(NamedTuple):
    """The whole state: one name at its node, at the hub and in messages, and the sums over all other names."""

    frame: Frame
    hub: HubState
    node: NodeState
    entry: EntryState
    flight: ReportState
    """The batch that is under way."""
    late: ReportState
    """A batch that the node has given up, and that may still arrive; any one of those."""
    answer: AnswerState
    stray: AnswerState
    """An answer to a batch that the node has given up."""
    errand: ErrandState
    others: Others


TIMES = frozenset({"opens", "length", "error", "lease", "drift", "now", "lost", "until", "last", "sent", "seen"})
"""The fields that are not whole numbers."""


def symbols(prefix: str = "") -> ModelState:
    """Returns a state of symbols; their names are those of the fields, such as `node.used`, with `prefix` in front."""
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
    """Returns all fields of a state by name."""
    of_groups: tuple[tuple[Amount | Fact, ...], ...] = scene
    for (group, shape), values in zip(SHAPES.items(), of_groups, strict=True):
        for field, value in zip(get_type_hints(shape), values, strict=True):
            yield f"{group}.{field}", value


def of_numbers(values: Mapping[str, Number | bool]) -> ModelState:
    """Returns a state of plain numbers. Raises KeyError if a field has no value."""
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
