"""Amounts and facts (conditions) with symbols; the same expression is evaluated, or translated for the prover."""

# Theory of operation.
#
# An action of the protocol has two readers. The prover asks whether some state breaks an invariant, so it needs
# symbols; a check of a recorded step has numbers. Were the action written twice, nothing would say that both are the
# same. So an action builds a small tree, once: `Amount` for numbers, `Fact` for what is true or false. `Valuation`
# walks the tree with a value for each symbol; `proving.py` translates it for z3, which only that file imports.
#
# An operation on known values is computed at once, so that a step of plain numbers builds no tree at all. Checks of
# recorded steps spend their time with that, so `Constant` and `Known` answer for themselves.
#
# `==` compares trees by identity, since Python expects a bool of it. The fact that two amounts are equal is written
# `equal(one, other)`.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

Number = int | Fraction
"""A value of an amount: exact, as the protocol's own amounts are."""


class Amount:
    """A number that may depend on symbols, kept as an expression."""

    __slots__ = ()

    def __add__(self, other: Amount | int) -> Amount:
        return Sum(self, amount(other))

    def __sub__(self, other: Amount | int) -> Amount:
        return Less(self, amount(other))

    def __le__(self, other: Amount | int) -> Fact:
        return at_most(self, amount(other))

    def __ge__(self, other: Amount | int) -> Fact:
        return at_most(amount(other), self)

    def __lt__(self, other: Amount | int) -> Fact:
        return ~at_most(amount(other), self)

    def __gt__(self, other: Amount | int) -> Fact:
        return ~at_most(self, amount(other))


class Fact:
    """A condition that is true or false, depending on the values of symbols."""

    __slots__ = ()

    def __and__(self, other: Fact) -> Fact:
        return every((self, other))

    def __or__(self, other: Fact) -> Fact:
        return either_of((self, other))

    def __invert__(self) -> Fact:
        return Not(self)


@dataclass(frozen=True, slots=True, eq=False)
class Symbol(Amount):
    """A number known by its name alone, whose value is given at the evaluation; `whole` if it is an integer."""

    name: str
    whole: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Amount):
    """A number whose value is known."""

    value: Number

    def __add__(self, other: Amount | int) -> Amount:
        if type(other) is Constant:
            return Constant(self.value + other.value)
        return Constant(self.value + other) if isinstance(other, int) else Sum(self, amount(other))

    def __sub__(self, other: Amount | int) -> Amount:
        if type(other) is Constant:
            return Constant(self.value - other.value)
        return Constant(self.value - other) if isinstance(other, int) else Less(self, amount(other))


@dataclass(frozen=True, slots=True, eq=False)
class Sum(Amount):
    """The sum of two amounts."""

    one: Amount
    other: Amount


@dataclass(frozen=True, slots=True, eq=False)
class Less(Amount):
    """The first amount minus the second."""

    one: Amount
    other: Amount


@dataclass(frozen=True, slots=True, eq=False)
class Product(Amount):
    """The product of two amounts; only the lemmas about fading use contain any."""

    one: Amount
    other: Amount


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Amount):
    """The first amount if a fact is true, the second one if not."""

    fact: Fact
    then: Amount
    otherwise: Amount


@dataclass(frozen=True, slots=True, eq=False)
class Known(Fact):
    """A fact whose truth is known: `TRUE` or `FALSE`."""

    value: bool

    def __and__(self, other: Fact) -> Fact:
        return other if self.value else FALSE

    def __or__(self, other: Fact) -> Fact:
        return TRUE if self.value else other

    def __invert__(self) -> Fact:
        return FALSE if self.value else TRUE


@dataclass(frozen=True, slots=True, eq=False)
class Flag(Fact):
    """A fact known by its name alone, whose truth is given at the evaluation."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class AtMost(Fact):
    """The fact that one amount is no larger than another."""

    one: Amount
    other: Amount


@dataclass(frozen=True, slots=True, eq=False)
class Not(Fact):
    """The opposite of a fact."""

    fact: Fact


@dataclass(frozen=True, slots=True, eq=False)
class Both(Fact):
    """The fact that all of several facts are true."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Either(Fact):
    """The fact that at least one of several facts is true."""

    facts: tuple[Fact, ...]


TRUE: Final = Known(True)  # noqa: FBT003, it is nothing but a truth value
FALSE: Final = Known(False)  # noqa: FBT003, likewise
NOTHING: Final = Constant(0)


def amount(value: Amount | int) -> Amount:
    """Returns `value` as an `Amount`: a plain number as a constant."""
    return Constant(value) if isinstance(value, int) else value


def at_most(one: Amount, other: Amount) -> Fact:
    """Returns the condition that `one` is no larger than `other`."""
    if type(one) is Constant and type(other) is Constant:
        return TRUE if one.value <= other.value else FALSE
    return AtMost(one, other)


def every(facts: Iterable[Fact]) -> Fact:
    """Returns the condition that all of `facts` are true."""
    left = []
    for fact in facts:
        if type(fact) is not Known:
            left.append(fact)
        elif not fact.value:
            return FALSE
    return Both(tuple(left)) if left else TRUE


def either_of(facts: Iterable[Fact]) -> Fact:
    """Returns the condition that at least one of `facts` is true."""
    left = []
    for fact in facts:
        if type(fact) is not Known:
            left.append(fact)
        elif fact.value:
            return TRUE
    return Either(tuple(left)) if left else FALSE


def implies(fact: Fact, other: Fact) -> Fact:
    """Returns the condition that `other` is true if `fact` is."""
    return ~fact | other


def equal(one: Amount, other: Amount | int) -> Fact:
    """Returns the condition that two amounts are equal."""
    second = amount(other)
    if type(one) is Constant and type(second) is Constant:
        return TRUE if one.value == second.value else FALSE
    return at_most(one, second) & at_most(second, one)


def same(one: Fact, other: Fact) -> Fact:
    """Returns the condition that both facts are true, or both are false."""
    return implies(one, other) & implies(other, one)


def choose(fact: Fact, then: Amount | int, otherwise: Amount | int) -> Amount:
    """Returns `then` if the fact is true, else `otherwise`."""
    if isinstance(fact, Known):
        return amount(then if fact.value else otherwise)
    return Choice(fact, amount(then), amount(otherwise))


def decide(fact: Fact, then: Fact, otherwise: Fact) -> Fact:
    """Returns the fact `then` if `fact` is true, else `otherwise`."""
    return implies(fact, then) & implies(~fact, otherwise)


def smaller(one: Amount, other: Amount | int) -> Amount:
    """Returns the smaller of two amounts."""
    return choose(one <= other, one, other)


def larger(one: Amount, other: Amount | int) -> Amount:
    """Returns the larger of two amounts."""
    return choose(one >= other, one, other)


class Valuation:
    """Evaluates amounts and facts by a given value for each symbol."""

    def __init__(self, values: Mapping[str, Number | bool]) -> None:
        self._values = values

    def value(self, of: Amount) -> Number:
        """Returns the value of an amount. Raises KeyError if a symbol has none."""
        match of:
            case Symbol():
                return self._values[of.name]
            case Constant():
                return of.value
            case Sum():
                return self.value(of.one) + self.value(of.other)
            case Less():
                return self.value(of.one) - self.value(of.other)
            case Product():
                return self.value(of.one) * self.value(of.other)
            case Choice():
                return self.value(of.then if self.holds(of.fact) else of.otherwise)
            case _:
                raise TypeError(f"{type(of).__name__} is no amount; pass an object of one of this module's classes")

    def holds(self, fact: Fact) -> bool:
        """Returns whether a fact is true. Raises KeyError if a symbol has no value."""
        match fact:
            case Known():
                return fact.value
            case Flag():
                return bool(self._values[fact.name])
            case AtMost():
                return self.value(fact.one) <= self.value(fact.other)
            case Not():
                return not self.holds(fact.fact)
            case Both():
                return all(map(self.holds, fact.facts))
            case Either():
                return any(map(self.holds, fact.facts))
            case _:
                raise TypeError(f"{type(fact).__name__} is no fact; pass an object of one of this module's classes")
