"""Asks z3 whether actions keep the invariants; the only file that imports z3."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import z3

from reconverge.simulation.model.at_node import node_actions
from reconverge.simulation.model.errands import errands
from reconverge.simulation.model.guards import Action, Law, MeterClass, ProofGuard
from reconverge.simulation.model.hub_events import hub_actions
from reconverge.simulation.model.invariants import (
    SUM,
    THEOREM,
    frame_holds,
    fresh_name,
    of_a_name,
    of_sums,
    state_holds,
)
from reconverge.simulation.model.leaving import leaving
from reconverge.simulation.model.lemmas import IN_LEMMAS, Lemma, lemmas
from reconverge.simulation.model.state import ModelState, fields, symbols
from reconverge.simulation.model.terms import (
    Amount,
    AtMost,
    Both,
    Choice,
    Constant,
    Either,
    Fact,
    Flag,
    Known,
    Less,
    Not,
    Number,
    Product,
    Sum,
    Symbol,
)


class Translator:
    """Turns amounts and facts into terms of z3, with one z3 variable for all symbols of the same name."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[object, Any]] = {}
        self.symbols: dict[str, Any] = {}

    def amount(self, of: Amount) -> Any:
        """Returns the term of z3 for an amount."""
        kept = self._made.get(id(of))
        if kept is None:
            kept = self._made[id(of)] = (of, self._amount(of))
        return kept[1]

    def fact(self, of: Fact) -> Any:
        """Returns the term of z3 for a fact."""
        kept = self._made.get(id(of))
        if kept is None:
            kept = self._made[id(of)] = (of, self._fact(of))
        return kept[1]

    def _amount(self, of: Amount) -> Any:
        match of:
            case Symbol():
                return self.symbols.setdefault(of.name, (z3.Int if of.whole else z3.Real)(of.name))
            case Constant():
                value = Fraction(of.value)
                return z3.IntVal(value.numerator) if value.denominator == 1 else z3.RealVal(str(value))
            case Sum():
                return self.amount(of.one) + self.amount(of.other)
            case Less():
                return self.amount(of.one) - self.amount(of.other)
            case Product():
                return self.amount(of.one) * self.amount(of.other)
            case Choice():
                return z3.If(self.fact(of.fact), self.amount(of.then), self.amount(of.otherwise))
            case _:
                raise TypeError(f"an amount is a number or a term of the model, not {type(of).__name__}: {of!r}")

    def _fact(self, of: Fact) -> Any:
        match of:
            case Known():
                return z3.BoolVal(of.value)
            case Flag():
                return self.symbols.setdefault(of.name, z3.Bool(of.name))
            case AtMost():
                return self.amount(of.one) <= self.amount(of.other)
            case Not():
                return z3.Not(self.fact(of.fact))
            case Both():
                return z3.And([self.fact(fact) for fact in of.facts])
            case Either():
                return z3.Or([self.fact(fact) for fact in of.facts])
            case _:
                raise TypeError(f"a fact is a `Fact` of the model, not {type(of).__name__}: {of!r}")

    def value_of(self, term: Any, values: Mapping[str, Number | bool]) -> Number | bool:
        """Returns the value of a term after each symbol in it is replaced by its number in `values`."""
        put_in = [(symbol, _constant(symbol, value=values[name])) for name, symbol in self.symbols.items()]
        found = z3.simplify(z3.substitute(term, *put_in))
        return bool(z3.is_true(found)) if z3.is_bool(found) else _read(found)


def is_flag(symbol: Any) -> bool:
    """Returns whether a variable of z3 stands for a truth value, not a number."""
    return bool(z3.is_bool(symbol))


def _constant(symbol: Any, *, value: Number | bool) -> Any:
    if z3.is_bool(symbol):
        return z3.BoolVal(bool(value))
    return z3.IntVal(int(value)) if z3.is_int(symbol) else z3.RealVal(str(Fraction(value)))


class Check(NamedTuple):
    """The result of asking z3 whether an action keeps an invariant."""

    action: str
    invariant: str
    proved: bool
    counterexample: Mapping[str, tuple[Number | bool, Number | bool]]
    """By the field of a state that breaks the invariant: the value before the action and after it. Empty if no state
    breaks it."""


def actions_of(law: Law) -> Mapping[str, Action]:
    """Returns all actions that can happen to limits of the class and under the policy in `law`, by name."""
    return {**node_actions(law), **errands(), **leaving(), **hub_actions(law)}


SMALL = 12
"""The largest amount in the first search for a counterexample, as small amounts are easier to read."""


def checks(law: Law, name: str, action: Action, *, timeout_ms: int = 60_000) -> Iterator[Check]:
    """Yields for each invariant the result of asking z3 whether `action` keeps it."""
    before = symbols()
    move = action(before, law)
    yield from _checks(law, name, before, move.needs, move.after, timeout_ms)


def _checks(
    law: Law, name: str, before: ModelState, needs: Fact, after: ModelState, timeout_ms: int
) -> Iterator[Check]:
    to_z3 = Translator()
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.add(to_z3.fact(frame_holds(before, law)), to_z3.fact(needs))
    for fact in state_holds(before, law).values():
        solver.add(to_z3.fact(fact))
    for invariant, fact in state_holds(after, law).items():
        solver.push()
        solver.add(z3.Not(to_z3.fact(fact)))
        result = solver.check()
        found: Mapping[str, tuple[Number | bool, Number | bool]] = {}
        if result != z3.unsat:
            found = _small_example(solver, to_z3, before, after)
        solver.pop()
        yield Check(name, invariant, result == z3.unsat, found)


def _small_example(
    solver: Any,
    to_z3: Translator,
    before: ModelState,
    after: ModelState,
) -> Mapping[str, tuple[Number | bool, Number | bool]]:
    solver.push()
    for symbol in to_z3.symbols.values():
        if not z3.is_bool(symbol):
            solver.add(symbol >= -SMALL, symbol <= SMALL)
    if solver.check() != z3.sat:
        solver.pop()
        if solver.check() != z3.sat:
            return {}
        solver.push()
    model = solver.model()
    solver.pop()
    found: dict[str, tuple[Number | bool, Number | bool]] = {}
    for (name, one), (_, other) in zip(fields(before), fields(after), strict=True):
        found[name] = (_value(model, to_z3, one), _value(model, to_z3, other))
    return found


def _value(model: Any, to_z3: Translator, of: Amount | Fact) -> Number | bool:
    if isinstance(of, Fact):
        return bool(z3.is_true(model.eval(to_z3.fact(of), model_completion=True)))
    return _read(model.eval(to_z3.amount(of), model_completion=True))


def _read(value: Any) -> Number:
    if z3.is_algebraic_value(value):
        value = value.approx(6)
    whole = z3.is_int_value(value)
    number = Fraction(value.as_long()) if whole else Fraction(value.numerator_as_long(), value.denominator_as_long())
    return int(number) if number.denominator == 1 else number


def check_beginning(law: Law) -> Iterator[Check]:
    """Yields, for each invariant of a name, the result of asking z3 whether a name that has just begun fulfils it.

    The invariants of the sums are taken as given.
    """
    scene = symbols()
    to_z3, solver = Translator(), z3.Solver()
    solver.add(to_z3.fact(frame_holds(scene, law)), to_z3.fact(fresh_name(scene)))
    for fact in of_sums(scene, law).values():
        solver.add(to_z3.fact(fact))
    for invariant, fact in of_a_name(scene, law).items():
        solver.push()
        solver.add(z3.Not(to_z3.fact(fact)))
        result = solver.check()
        found = {} if result == z3.unsat else _small_example(solver, to_z3, scene, scene)
        solver.pop()
        yield Check("a name begins", invariant, result == z3.unsat, found)


def prove(law: Law) -> Iterator[Check]:
    """Yields the results of all checks: that a new name fulfils the invariants, and that each action keeps them."""
    yield from check_beginning(law)
    for name, action in actions_of(law).items():
        yield from checks(law, name, action)


def laws() -> list[Law]:
    """Returns a law (conditions of a proof) with all guards, for each class of limits and policy with a bound."""
    return [Law(meter, strict=strict) for meter in MeterClass for strict in (True, False)]


def possible(law: Law, action: Action) -> bool:
    """Returns whether there is a state in which all invariants hold and `action` can happen."""
    before = symbols()
    move, to_z3, solver = action(before, law), Translator(), z3.Solver()
    solver.add(to_z3.fact(frame_holds(before, law)), to_z3.fact(move.needs))
    solver.add(*(to_z3.fact(fact) for fact in state_holds(before, law).values()))
    return bool(solver.check() == z3.sat)


def broken_without(*guards: ProofGuard, at_once: bool = True) -> tuple[Law, Check] | None:
    """Returns a counterexample that exists without `guards`, and its law; None if z3 proves all invariants even so.

    With `at_once`, a counterexample that breaks the bound in one step is preferred to one that breaks another
    invariant.
    """
    if any(guard in IN_LEMMAS for guard in guards):
        return _broken_lemma(guards)
    found: tuple[Law, Check] | None = None
    for law in laws():
        bare = Law(law.meter, strict=law.strict, without=guards)
        for name, action in actions_of(bare).items():
            probe = Law(law.meter, strict=law.strict)
            action(symbols(), probe)
            if not probe.consulted.intersection(guards):
                continue
            for outcome in checks(bare, name, action):
                if outcome.counterexample and (not at_once or outcome.invariant in (THEOREM, SUM)):
                    return bare, outcome
                if outcome.counterexample and found is None:
                    found = bare, outcome
    return found


def _broken_lemma(guards: Collection[ProofGuard]) -> tuple[Law, Check] | None:
    for lemma in lemmas():
        outcome = check_lemma(lemma, guards)
        if outcome.counterexample:
            return laws()[0], outcome
    return None


def check_lemma(lemma: Lemma, without: Collection[ProofGuard] = ()) -> Check:
    """Returns the result of asking z3 whether a lemma is true for all numbers, without the guards `without`."""
    to_z3, solver = Translator(), z3.Solver()
    solver.set("timeout", 60_000)
    solver.add(z3.Not(to_z3.fact(lemma.fact(without))))
    result = solver.check()
    found: dict[str, tuple[Number | bool, Number | bool]] = {}
    if result == z3.sat:
        for name in to_z3.symbols:
            value = _value(solver.model(), to_z3, Symbol(name, whole=False))
            found[name] = (value, value)
    return Check("a lemma", lemma.name, result == z3.unsat, found)
