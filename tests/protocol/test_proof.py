"""Goal: the bounds hold for every number of nodes, and each guard that the code has for their sake is needed.

Method: z3 proves that each action of the model keeps each invariant; without a guard it finds a state that breaks one.
"""

from __future__ import annotations

import importlib.util
import os
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.simulation.model.at_node import admits, enters, sends
from reconverge.simulation.model.guards import NOT_ALONE, Law, MeterClass, ProofGuard, is_step
from reconverge.simulation.model.invariants import frame_holds, state_holds
from reconverge.simulation.model.lemmas import IN_LEMMAS, lemmas
from reconverge.simulation.model.state import TIMES, fields, of_numbers, symbols
from reconverge.simulation.model.terms import Amount, Fact, Number, Valuation

if importlib.util.find_spec("z3") is None and not os.environ.get("CI"):
    pytest.skip("z3 is missing: pip install 'reconverge[prove]'", allow_module_level=True)

from reconverge.simulation.model import proving

ROOT = Path(__file__).parents[2]
LAWS = {f"{law.meter.name}, {'strict' if law.strict else 'balanced'}": law for law in proving.laws()}
NEEDED = frozenset(ProofGuard) - set(NOT_ALONE)
"""The guards without which something is not proved."""
NEVER = ("a node hears a stray answer", "a name comes back")
"""The actions that can happen only without a guard."""


@cache
def counterexample(*guards: ProofGuard) -> tuple[Law, proving.Check] | None:
    return proving.broken_without(*guards, at_once=False)


@pytest.mark.parametrize("case", LAWS)
def test_every_action_keeps_every_invariant(case: str) -> None:
    """Nothing that can happen leads out of the invariants, for any number of nodes and any capacity."""
    outcomes = list(proving.prove(LAWS[case]))

    assert [] == [(each.action, each.invariant) for each in outcomes if not each.proved]
    assert len(outcomes) > 900


@pytest.mark.parametrize("case", LAWS)
def test_every_action_can_happen(case: str) -> None:
    """The invariants contradict neither each other nor any action: what is proved is not proved of nothing."""
    law = LAWS[case]

    assert set(NEVER) == {name for name, action in proving.actions_of(law).items() if not proving.possible(law, action)}


@pytest.mark.parametrize("lemma", [lemma.name for lemma in lemmas()])
def test_use_that_fades_and_drains_stays_below_what_the_hub_has_for_it(lemma: str) -> None:
    """The arithmetic of sliding windows, buckets and quotas that differ holds of all numbers."""
    (found,) = [each for each in lemmas() if each.name == lemma]

    assert proving.check_lemma(found).proved


@pytest.mark.parametrize(
    "guard", [guard for guard in ProofGuard if guard not in NOT_ALONE], ids=lambda guard: guard.name
)
def test_without_a_guard_there_is_a_counterexample(guard: ProofGuard) -> None:
    """Each guard is needed: without it, an action leads out of an invariant."""
    found = counterexample(guard)

    assert found is not None
    assert found[1].counterexample


@pytest.mark.parametrize("guard", NOT_ALONE, ids=lambda guard: guard.name)
def test_what_another_guard_does_as_well_is_known(guard: ProofGuard) -> None:
    """A guard without which all is proved has a reason in the list."""
    assert counterexample(guard) is None


@pytest.mark.parametrize("guard", [ProofGuard.ALLOWANCES_WITHIN, ProofGuard.BASES_WITHIN], ids=lambda guard: guard.name)
def test_a_counterexample_is_one(guard: ProofGuard) -> None:
    """A counterexample keeps all invariants before the action, and one fewer after it, by plain numbers."""
    found = counterexample(guard, ProofGuard.ANSWER_WITHIN_ROOM)

    assert found is not None
    law, outcome = found
    before, after = ({name: values[place] for name, values in outcome.counterexample.items()} for place in (0, 1))
    numbers = Valuation({})
    assert numbers.holds(frame_holds(of_numbers(before), law))
    assert all(numbers.holds(fact) for fact in state_holds(of_numbers(before), law).values())
    assert not numbers.holds(state_holds(of_numbers(after), law)[outcome.invariant])


def test_at_least_25_guards_are_of_the_code() -> None:
    """There are enough guards, and each stands where the list says."""
    assert len(ProofGuard) >= 25
    for guard in ProofGuard:
        assert f"def {guard.value.function}(" in (ROOT / guard.value.file).read_text(), guard.name


def test_every_guard_is_one_of_an_action_or_of_a_lemma() -> None:
    """No guard is listed that nothing asks about."""
    asked = set(IN_LEMMAS)
    for law in LAWS.values():
        probe = Law(law.meter, strict=law.strict)
        for action in proving.actions_of(probe).values():
            action(symbols(), probe)
        asked |= probe.consulted

    assert set(ProofGuard) == asked


def _values(data: st.DataObject) -> dict[str, Number | bool]:
    flags = st.booleans()
    whole = st.integers(-3, 6)
    found: dict[str, Number | bool] = {}
    for name, kind in fields(symbols()):
        if isinstance(kind, Fact):
            found[name] = data.draw(flags)
        else:
            quarters = 1 if name.rpartition(".")[2] in TIMES else 4
            found[name] = Fraction(quarters * data.draw(whole), 4)
    return found


@settings(max_examples=40)
@given(st.data())
def test_numbers_and_z3_read_the_relations_alike(data: st.DataObject) -> None:
    """In any state an action needs and leaves the same, whether numbers are put in before or after the translation."""
    law = LAWS[data.draw(st.sampled_from(sorted(LAWS)))]
    actions = proving.actions_of(law)
    action = actions[data.draw(st.sampled_from(sorted(actions)))]
    values = _values(data)
    move = action(symbols(), law)
    translated = proving.Translator()
    terms = [translated.fact(move.needs), *(_term(translated, value) for _, value in fields(move.after))]
    for name, symbol in translated.symbols.items():
        if name not in values:
            values[name] = data.draw(st.booleans() if proving.is_flag(symbol) else st.integers(-3, 6))
    numbers = Valuation(values)
    expected = [numbers.holds(move.needs), *(_number(numbers, value) for _, value in fields(move.after))]

    assert expected == [translated.value_of(term, values) for term in terms]


def _term(translated: proving.Translator, value: Amount | Fact) -> object:
    return translated.fact(value) if isinstance(value, Fact) else translated.amount(value)


def _number(numbers: Valuation, value: Amount | Fact) -> Number | bool:
    return numbers.holds(value) if isinstance(value, Fact) else numbers.value(value)


def _beginning(**changed: Number | bool) -> dict[str, Number | bool]:
    """Returns a state in which a node has just been granted five of ten, in the window that is looked at."""
    values: dict[str, Number | bool] = {
        name: False if isinstance(kind, Fact) else 0 for name, kind in fields(symbols())
    }
    held = {"allowance": 5, "base": 5}
    return {
        **values,
        "frame.length": 60,
        "frame.error": 1,
        "frame.lease": 30,
        "frame.drift": 1,
        "hub.capacity": 10,
        "hub.most": 10,
        "hub.now": 40,
        "hub.lost": -100,
        "node.alive": True,
        "node.knows": True,
        "node.until": 60,
        "node.sent": 30,
        "entry.known": True,
        "entry.seen": 30,
        "entry.part": 5,
        "others.held": 5,
        **{f"{side}.{name}": value for side in ("node", "entry") for name, value in held.items()},
        **{name.replace("_", ".", 1): value for name, value in changed.items()},
    }


def _law(after: dict[str, Number | bool]) -> Law:
    return Law(MeterClass.WINDOW, strict=True, after=of_numbers(after))


def _changed(before: dict[str, Number | bool], **changed: Number | bool) -> dict[str, Number | bool]:
    return {**before, **{name.replace("_", ".", 1): value for name, value in changed.items()}}


def test_a_recorded_step_is_an_instance_of_its_action() -> None:
    """A step of plain numbers is recognised, with what the action was free to choose read off the state after it."""
    before = _beginning()
    admitted = _changed(before, node_used=3, node_spent=3, node_last=40)
    sent = _changed(before, node_allowance=2, node_base=1, node_sent=40, flight_there=True, flight_fresh=True)
    sent = _changed(sent, flight_allowance=2, flight_base=1)

    assert is_step(admits, _law(admitted), before, admitted)
    assert is_step(sends, _law(sent), before, sent)
    assert not is_step(sends, _law(admitted), before, admitted)


def test_a_step_that_breaks_a_guard_is_no_instance() -> None:
    """A charge beyond the allowance, a report of more than is left, and a window that begins with too much are none."""
    before = _beginning()
    too_much = _changed(before, node_used=6, node_spent=6, node_last=40)
    told = _changed(before, node_allowance=3, node_base=1, node_sent=40, flight_there=True, flight_fresh=True)
    told = _changed(told, flight_allowance=2, flight_base=1)
    opened = _changed(before, node_window=1, node_allowance=5, node_base=4)

    assert not is_step(admits, _law(too_much), before, too_much)
    assert not is_step(sends, _law(told), before, told)
    assert not is_step(enters, _law(opened), before, opened)
