"""Checks that the model allows the steps of the production code, by evaluating it with plain numbers."""

# Theory of operation.
#
# A `BoundKey` follows one key of one limit. For each name that a node ever had, and for each window that matters, it
# keeps a state of the model, made of plain numbers. What the code does is a *step*: an action of the model, and the
# fields that were seen in the code's objects after it. The action is evaluated on the state before; if what it needs
# does not hold, or if it leaves other values than were seen, the step is rejected. Fields that no object of
# the code has, the ghosts, take the values that the action leaves. So no relation is written a second time.
#
# One window after all others is kept as well, and stands for all later windows; when it is reached, the next one begins
# as a copy of it. Sums over the other names are sums over their states.
#
# A step against what the model assumes (`Assumption`) ends the checks of that run: after it the proof claims nothing.
# Such runs are counted separately.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NoReturn

from reconverge.clock import NEVER_NS, SECOND_NS
from reconverge.hub.clock import DRIFT
from reconverge.simulation.model.at_hub import held, held_beyond
from reconverge.simulation.model.at_node import node_actions
from reconverge.simulation.model.errands import errands
from reconverge.simulation.model.guards import Action, Law, MeterClass
from reconverge.simulation.model.hub_events import hub_actions
from reconverge.simulation.model.leaving import leaving
from reconverge.simulation.model.state import (
    EntryState,
    Frame,
    HubState,
    ModelState,
    Others,
    ReportState,
    fields,
    nothing,
)
from reconverge.simulation.model.terms import FALSE, TRUE, Amount, Constant, Fact, Known, Number, Valuation

NUMBERS: Final = Valuation({})
LONG_AGO: Final = -(10**18)
WINDOWS_BEHIND: Final = 2
"""The number of windows by which a node's charge may be behind the hub's, as no clock is wrong by a whole window."""


class UnboundStep(Exception):  # it is no error of this program
    """Raised for a step of the code that is no step of the model."""


class OutsideAssumption(Exception):  # likewise
    """Raised for a step of the code that the proof assumes not to happen."""


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """The settings of one followed key that are the same in all its states: its limit, its policy and times."""

    meter: MeterClass
    strict: bool
    window_ns: int
    counts_ns: int
    """The shortest time for which a charge counts, in nanoseconds."""
    lease_ns: int
    capacity: int
    overdrafts: int
    request: int


@dataclass(eq=False, slots=True)
class BoundName:
    """A node under one of its names, with the model's state for each window whose bound may still be broken."""

    title: str
    scenes: dict[int, ModelState]
    sequence: int = 0
    """The sequence number of the name's last batch that the hub has merged."""
    before_loss: int = 0
    """The sequence number of the last batch that was merged, or given up, before the hub lost its data."""
    late: dict[int, ReportState | None] = field(default_factory=dict)
    """The reports of batches that the node has given up, by sequence number; None for a batch without this key."""
    of_node: bool = True
    """Whether a node has this name; one that has left does until it has the answer to its last report."""
    sums: dict[int, tuple[EntryState, Amount, tuple[bool, Number, Number]]] = field(default_factory=dict)
    """For each window: what the sums of other names contain of this name, and the values from which that is computed.
    """

    @property
    def any_scene(self) -> ModelState:
        """Returns the name's state in any one window; only fields known to the proof alone differ between windows."""
        return next(iter(self.scenes.values()))


def value_of(what: Amount | Fact) -> Number | bool:
    """Returns the number that `what` is, or if it is a fact, whether it is true."""
    return NUMBERS.holds(what) if isinstance(what, Fact) else NUMBERS.value(what)


def _plain(what: object) -> Amount | Fact:
    if isinstance(what, bool):
        return TRUE if what else FALSE
    assert isinstance(what, int | Fraction)
    return Constant(what)


def with_values(scene: ModelState, values: Mapping[str, Number | bool]) -> ModelState:
    """Returns `scene` with new values of some fields; `values` is by field, such as `node.used`."""
    groups: dict[str, dict[str, Amount | Fact]] = {}
    for name, value in values.items():
        group, _, one = name.partition(".")
        groups.setdefault(group, {})[one] = _plain(value)
    return scene._replace(**{group: getattr(scene, group)._replace(**inner) for group, inner in groups.items()})


class BoundKey:
    """The states of the model for one key of a run, and how many steps of each action were accepted."""

    def __init__(self, terms: KeyTerms, now_ns: int, accepted: Counter[str] | None = None) -> None:
        self.terms = terms
        self.accepted = Counter[str]() if accepted is None else accepted
        self.names: dict[str, BoundName] = {}
        law = Law(terms.meter, strict=terms.strict)
        self._actions: Mapping[str, Action] = {**node_actions(law), **errands(), **leaving(), **hub_actions(law)}
        self._begins = now_ns // terms.window_ns - 1 if terms.meter is MeterClass.WINDOW else 0
        self.hub = HubState(
            Constant(now_ns),
            Constant(self._begins),
            FALSE,
            Constant(LONG_AGO),
            Constant(terms.capacity),
            Constant(terms.capacity),
            Constant(terms.overdrafts),
        )
        self._last = self._begins + 1 if terms.meter is MeterClass.WINDOW else 0
        """The last window that has states. Nothing has happened in it yet, and it stands for all later windows."""
        self._taken: list[tuple[int, Number, Number]] = []
        """The use that the hub has taken over from names that forgot the key: the window, the amount, and the time
        until which it counts (NEVER_NS: as long as the window is open)."""
        self._taken_and_lost: list[tuple[int, Number, Number]] = []

    # ------------------------------------------------------------ names, windows and sums

    def _frame(self, looked: int) -> Frame:
        terms = self.terms
        opens = looked * terms.window_ns
        numbers = (looked, opens, terms.counts_ns, terms.window_ns - 1, terms.lease_ns)
        return Frame(*map(Constant, (*numbers, round(DRIFT * terms.lease_ns) + 1, terms.request)))

    def begin(self, title: str) -> BoundName:
        """Adds a node's name that holds nothing, and returns it."""
        blank = with_values(
            nothing(),
            {
                "node.alive": True,
                "node.knows": True,
                "node.until": LONG_AGO,
                "node.last": LONG_AGO,
                "node.sent": LONG_AGO,
                "entry.seen": LONG_AGO,
                "node.window": self._begins,
            },
        )
        windows = next(iter(self.names.values())).scenes if self.names else range(self._begins, self._last + 1)
        name = BoundName(title, {looked: blank._replace(frame=self._frame(looked)) for looked in windows})
        self.names[title] = name
        return name

    def reach(self, window: int) -> None:
        """Adds states for all windows up to `window + 1`."""
        while self.terms.meter is MeterClass.WINDOW and self._last <= window:
            for name in self.names.values():
                ahead = name.scenes[self._last]
                name.scenes[self._last + 1] = ahead._replace(frame=self._frame(self._last + 1))
            self._last += 1

    def forget_departed(self) -> None:
        """Makes the steps by which the hub forgets dated charges of departed names, if the model allows them by now."""
        for name in list(self.names.values()):
            entry = name.any_scene.entry
            if (
                is_known(entry.gone)
                and value_of(entry.part)
                and self.can(name, "the hub forgets what has departed", {}, {})
            ):
                self.step(name, "the hub forgets what has departed")
        self.forget_old()

    def forget_old(self) -> None:
        """Drops past windows in which no use counts, and names that count in none and have no batch that may arrive."""
        least = int(NUMBERS.value(self.hub.window)) - WINDOWS_BEHIND
        for name in list(self.names.values()):
            for looked in [looked for looked in name.scenes if looked < least and looked != self._last]:
                del name.scenes[looked]
            scenes = name.scenes.values()
            counts = any(value_of(held(self._at_hub(each))) or value_of(each.node.spent) for each in scenes)
            arrives = name.late or is_known(name.any_scene.flight.there) or is_known(name.any_scene.errand.under_way)
            if not (name.of_node or counts or arrives or len(self.names) == 1):
                del self.names[name.title]

    def _at_hub(self, scene: ModelState) -> ModelState:
        return scene._replace(hub=self.hub)

    def _others(self, name: BoundName, looked: int) -> Others:
        all_held, lost = self._sum_of(self._taken, looked), self._sum_of(self._taken_and_lost, looked)
        beyond: Number = 0
        lost_beyond: Number = 0
        for other in self.names.values():
            if other is name:
                continue
            there, its_own, its_beyond = self._held_of(other, looked)
            if there:
                all_held += its_own
                beyond += its_beyond
            else:
                lost += its_own
                lost_beyond += its_beyond
        return Others(Constant(all_held), Constant(beyond), Constant(lost), Constant(lost_beyond))

    def _held_of(self, name: BoundName, looked: int) -> tuple[bool, Number, Number]:
        """Returns whether the hub knows a name, and the name's amounts `held` and `held_beyond` in window `looked`."""
        scene = name.scenes[looked]
        kept = name.sums.get(looked)
        if kept is not None and kept[0] is scene.entry and kept[1] is self.hub.window:
            return kept[2]
        whole = self._at_hub(scene)
        found = is_known(scene.entry.known), NUMBERS.value(held(whole)), NUMBERS.value(held_beyond(whole))
        name.sums[looked] = scene.entry, self.hub.window, found
        return found

    def _sum_of(self, taken: list[tuple[int, Number, Number]], looked: int) -> Number:
        now = NUMBERS.value(self.hub.now)
        return sum((amount for window, amount, until in taken if window == looked and now < until), start=0)

    def scene(self, name: BoundName, looked: int) -> ModelState:
        """Returns the state of `name` in window `looked`, with the sums over all other names."""
        return name.scenes[looked]._replace(hub=self.hub, others=self._others(name, looked))

    # ------------------------------------------------------------ steps

    def passes(self, now_ns: int) -> None:
        """Sets the time in all states to `now_ns`."""
        if now_ns > NUMBERS.value(self.hub.now):
            self.hub = self.hub._replace(now=Constant(now_ns))
            self.accepted["time passes"] += 1

    def step(
        self,
        name: BoundName,
        action: str,
        seen: Mapping[str, Number | bool] | None = None,
        chosen: Mapping[str, Number] | None = None,
    ) -> None:
        """Checks a step of one name, and makes it in the model; after it, the name's fields had the values `seen`.

        Raises UnboundStep if the model does not allow the step, OutsideAssumption if the proof assumes it away.
        """
        after: dict[int, ModelState] = {}
        for looked in name.scenes:
            scene = self.scene(name, looked)
            moved = self._moved(name, action, scene, seen or {}, chosen or {})
            taken = NUMBERS.value(moved.others.held) - NUMBERS.value(scene.others.held)
            if taken:
                dated = self.terms.meter is MeterClass.DATED
                until = NUMBERS.value(scene.node.last) + self.terms.counts_ns if dated else NEVER_NS
                self._taken.append((looked, taken, until))
            after[looked] = moved
        name.scenes = after
        self.accepted[action] += 1

    def can(
        self, name: BoundName, action: str, seen: Mapping[str, Number | bool], chosen: Mapping[str, Number]
    ) -> bool:
        """Returns whether the model would accept a step, without making it."""
        try:
            for looked in name.scenes:
                self._moved(name, action, self.scene(name, looked), seen, chosen)
        except (UnboundStep, OutsideAssumption):
            return False
        return True

    def _moved(
        self,
        name: BoundName,
        action: str,
        scene: ModelState,
        seen: Mapping[str, Number | bool],
        chosen: Mapping[str, Number],
    ) -> ModelState:
        terms, target = self.terms, with_values(scene, seen)
        law = Law(terms.meter, strict=terms.strict, after=target, chosen=chosen)
        move = self._actions[action](scene, law)
        if not NUMBERS.holds(move.needs):
            bold = Law(terms.meter, strict=terms.strict, after=target, chosen=chosen, assuming=False)
            if NUMBERS.holds(self._actions[action](scene, bold).needs):
                raise OutsideAssumption(action)
            self._reject(name, action, scene, seen, chosen, "a precondition of the action does not hold")
        for field_name, value in seen.items():
            group, _, one = field_name.partition(".")
            left = value_of(getattr(getattr(move.after, group), one))
            if left != value:
                self._reject(name, action, scene, seen, chosen, f"it leaves {field_name} {left}, not {value}")
        return move.after

    def _reject(
        self,
        name: BoundName,
        action: str,
        scene: ModelState,
        seen: Mapping[str, Number | bool],
        chosen: Mapping[str, Number],
        why: str,
    ) -> NoReturn:
        before = {of: value for of, kind in fields(scene) if (value := value_of(kind)) not in (0, False, LONG_AGO)}
        raise UnboundStep(
            f"{action} ({name.title}): {why}\n  before: {_written(before)}\n  after: {_written(seen)}"
            f"\n  chosen: {_written(chosen)}"
        )

    def reject(self, name: BoundName, what: str, seen: Mapping[str, Number | bool]) -> NoReturn:
        """Raises UnboundStep for a step that no action of the model allows."""
        self._reject(name, what, self.scene(name, next(iter(name.scenes))), seen, {}, "no action does that")

    # ------------------------------------------------------------ steps of all names at once

    def _all_move(
        self,
        action: str,
        hub: Mapping[str, Number | bool],
        of_names: Mapping[BoundName, Mapping[str, Number | bool]] | None = None,
    ) -> None:
        """Checks and makes a step of the hub that changes all names' states; each gets the sums after the step."""
        of_hub = {f"hub.{of}": value for of, value in hub.items()}
        seen = {name: {**of_hub, **(of_names or {}).get(name, {})} for name in self.names.values()}
        before = {name: {looked: self.scene(name, looked) for looked in name.scenes} for name in self.names.values()}
        was = self.hub
        bare: dict[BoundName, dict[int, ModelState]] = {}
        for name, scenes in before.items():
            bare[name] = {looked: self._unchecked(action, scene, seen[name]) for looked, scene in scenes.items()}
        for name, moved in bare.items():
            name.scenes = moved
            self.hub = name.any_scene.hub
        sums = {name: {looked: self._others(name, looked) for looked in name.scenes} for name in self.names.values()}
        now, self.hub = self.hub, was
        for name, scenes in before.items():
            for looked, scene in scenes.items():
                others = sums[name][looked]
                chosen = {
                    "held by others": NUMBERS.value(others.held),
                    "lost by others": NUMBERS.value(others.lost),
                }
                self._moved(name, action, scene, seen[name], chosen)
        self.hub = now
        self.accepted[action] += 1

    def _unchecked(self, action: str, scene: ModelState, seen: Mapping[str, Number | bool]) -> ModelState:
        law = Law(self.terms.meter, strict=self.terms.strict, after=with_values(scene, seen))
        return self._actions[action](scene, law).after

    def opens(self, window: int) -> None:
        """Makes the model's step by which the hub opens `window`."""
        self.reach(window)
        self._all_move("the hub opens a window", {"window": window})
        self.forget_old()

    def loses_data(self, knows: Mapping[BoundName, bool]) -> None:
        """Makes the step by which the hub loses its data; `knows` is true for nodes that have had no answer yet."""
        self._taken_and_lost += self._taken
        self._taken = []
        for name in self.names.values():
            name.before_loss = max(name.sequence, *name.late, 0)
        heard = {name: {"node.knows": knows.get(name, False)} for name in self.names.values()}
        self._all_move("the hub loses its data", {}, heard)

    def ends_wait(self) -> None:
        """Makes the model's step by which the hub ends its wait after a loss, and grants again."""
        self._taken_and_lost = []
        self._all_move("the wait after a loss ends", {})

    def changes_capacity(self, capacity: int) -> None:
        """Makes the model's step by which the hub changes to another capacity."""
        if capacity != NUMBERS.value(self.hub.capacity):
            self._all_move("the hub learns of another quota", {"capacity": capacity})


def _written(values: Mapping[str, Number | bool]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in values.items())


def _short(value: object) -> str:
    is_time = isinstance(value, int) and abs(value) > SECOND_NS
    return f"{value / SECOND_NS:.6f} s" if is_time else str(value)  # type: ignore[operator]


def is_known(fact: Fact) -> bool:
    """Returns whether a fact is true, in a state whose fields are numbers."""
    return fact.value if isinstance(fact, Known) else NUMBERS.holds(fact)
