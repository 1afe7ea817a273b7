"""A run is judged by what its nodes did: values worked out by hand."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from reconverge import Limit
from reconverge.cli.replay.figures import as_figures, figures_rows, verdict_on
from reconverge.cli.replay.fleet import ReplayOutcome, Setup
from reconverge.cli.replay.judgement import Judgement, judge
from reconverge.cli.replay.trace import RecordedRequest
from reconverge.cli.replay.worker import NOT_ASKED, NodeHistory
from reconverge.clock import SECOND_NS

WINDOW_S = 10
FIRST_EPOCH = 1000
BEGIN_NS = FIRST_EPOCH * WINDOW_S * SECOND_NS
LIMIT = Limit(10, float(WINDOW_S), algorithm="fixed-window")


def outcome(
    asked: list[tuple[float, int]],
    refused: tuple[int, ...] = (),
    *,
    limit: Limit = LIMIT,
    policy: str = "strict",
    hub_total: int | None = None,
    cold: tuple[int, ...] = (),
    settled: dict[int, tuple[float, int]] | None = None,
    waited_ns: dict[int, int] | None = None,
) -> ReplayOutcome:
    """A run of two nodes that decided these requests in turn: seconds after the start, and cost.

    Those that asked waited before that: `waited_ns`, by their numbers.
    """
    waited_ns = waited_ns or {}
    settled = settled or {}
    requests = [
        RecordedRequest(t_s, "ada", cost, settled[number][1] if number in settled else 0)
        for number, (t_s, cost) in enumerate(asked)
    ]
    setup = Setup(requests, limit, (policy,), 2, 1.0, "embedded://", 0.1)
    hands = setup.deal()
    histories = []
    for hand in hands:
        history = NodeHistory(
            allowed=array("b", (number not in refused for number in hand)),
            hub_ns=array("q", (BEGIN_NS + round(asked[number][0] * SECOND_NS) for number in hand)),
            epoch=array("q", (FIRST_EPOCH + int(asked[number][0]) // WINDOW_S for number in hand)),
            slice_number=array("q", (0 for _ in hand)),
            known=array("b", (number not in cold for number in hand)),
            waited_ns=array("q", (waited_ns.get(number, NOT_ASKED) for number in hand)),
            decision_ns=array("q", (1000 for _ in hand)),
            floor_ns=array("q", (100 for _ in hand)),
        )
        for index, number in enumerate(hand):
            if number in settled:
                at_s = settled[number][0]
                epoch = FIRST_EPOCH + int(at_s) // WINDOW_S
                history.settled.append((index, BEGIN_NS + round(at_s * SECOND_NS), epoch, 0))
        histories.append([history])
    charged = sum(cost for number, (_, cost) in enumerate(asked) if number not in refused)
    charged += sum(amount for _, amount in settled.values())
    return ReplayOutcome(setup, hands, histories, [charged if hub_total is None else hub_total])


def judged(*arguments: object, **more: object) -> Judgement:
    """The figures of the only policy of such a run."""
    (judgement,) = judge(outcome(*arguments, **more))  # type: ignore[arg-type]
    return judgement


def test_what_is_above_the_limit_in_a_window_is_its_over_admission() -> None:
    """Twelve of ten is 20 %; the mean is over both windows."""
    judgement = judged([(1.0, 6), (2.0, 6), (11.0, 5)])

    assert 20.0 == judgement.over_admission_max_pct
    assert 10.0 == judgement.over_admission_mean_pct


def test_strict_that_exceeds_has_broken_its_bound() -> None:
    """And says so, in figures and in words; a promise that is kept looks different."""
    broken, kept = judged([(1.0, 6), (2.0, 6)]), judged([(1.0, 5), (2.0, 5)])

    assert (1, False) == (broken.bound_violations, broken.kept)
    assert (0, True) == (kept.bound_violations, kept.kept)
    assert "BROKE ITS BOUND in 1 windows" in verdict_on(broken)
    assert "kept its bound in every window" in verdict_on(kept)


def test_balanced_may_exceed_by_its_overdraft_and_a_request_for_each_node() -> None:
    """A tenth of ten, and two requests of a cost of 2: 50 %."""
    within = judged([(1.0, 2)] * 7 + [(2.0, 1)], policy="balanced")
    beyond = judged([(1.0, 2)] * 8, policy="balanced")

    assert 50.0 == within.bound_pct
    assert (50.0, 0) == (within.over_admission_max_pct, within.bound_violations)
    assert (60.0, 1) == (beyond.over_admission_max_pct, beyond.bound_violations)


def test_a_key_that_was_new_to_nodes_may_exceed_by_the_whole_limit_on_each() -> None:
    """The figures tell such windows from those of known keys."""
    judgement = judged([(1.0, 10), (1.0, 10), (12.0, 5)], policy="balanced", cold=(0, 1))

    assert 100.0 == judgement.over_admission_max_pct
    assert 0.0 == judgement.known_over_admission_max_pct
    assert 0 == judgement.bound_violations
    assert judgement.bound_pct == judgement.known_bound_pct + 200.0


def test_what_a_new_key_may_cost_is_said_in_words_and_stands_in_no_table() -> None:
    """It is a figure of a moment that most keys never have, and a reader would stumble over it."""
    judgement = judged([(1.0, 10), (1.0, 10), (12.0, 5)], policy="balanced", cold=(0, 1))
    declared = f"{judgement.bound_pct:g} %"

    assert (
        f"by itself until the hub's first answer: at worst 100 % above the limit ({declared} declared)"
        in verdict_on(judgement)
    )
    assert declared not in [text for row in figures_rows([judgement]) for text in row]


def test_a_window_after_the_new_one_is_judged_as_known_in_fixed_windows() -> None:
    """The grant to a new key does not excuse later windows, where counts begin at zero."""
    judgement = judged([(1.0, 1)] * 20 + [(12.0, 1)] * 20, policy="balanced", cold=tuple(range(20)))

    assert 1 == judgement.bound_violations


def test_under_admission_is_what_a_central_limiter_would_have_admitted_besides() -> None:
    """Ten of twelve were possible and six were admitted: four tenths are missing."""
    judgement = judged([(0.5 + number / 2, 1) for number in range(12)], refused=(6, 7, 8, 9, 10, 11))

    assert 10 == judgement.ideal_admitted
    assert 40.0 == judgement.under_admission_pct


def test_over_admission_elsewhere_does_not_make_up_for_under_admission() -> None:
    """Windows are compared one by one."""
    judgement = judged([(1.0, 10), (2.0, 5), (11.0, 10)], refused=(2,))

    assert 50.0 == judgement.under_admission_pct


def test_what_a_later_window_makes_up_for_was_not_refused_falsely_over_the_run() -> None:
    """A bucket that admits its ten in the second window, not in the first, has admitted all that a central one does.

    By window it lacks ten of twenty; over the run it lacks nothing.
    """
    bucket = replace(LIMIT, algorithm="token-bucket")
    judgement = judged([(1.0, 10), (10.0, 10), (11.0, 1)], limit=bucket, refused=(0,))

    assert 10 == judgement.admitted_cost - 1
    assert 1 == judgement.ideal_admitted - 1
    assert (90.909, 0.0) == (judgement.under_admission_pct, judgement.falsely_refused_pct)


def test_excess_makes_up_for_no_false_refusal_over_the_run() -> None:
    """Of twenty that a central limiter admits the fleet has admitted fifteen within the limit, and five above it."""
    judgement = judged([(1.0, 10), (2.0, 5), (11.0, 5), (12.0, 5)], refused=(2,))

    assert 25.0 == judgement.falsely_refused_pct


def test_what_asked_and_how_long_it_waited_is_told() -> None:
    """One of four requests, for two milliseconds; where none asked, there are no rows about it."""
    judgement = judged([(1.0, 1)] * 4, waited_ns={2: 2_000_000})

    assert 25.0 == judgement.asked_pct
    assert (2.0, 2.0, 2.0) == (judgement.waited_median_ms, judgement.waited_p99_ms, judgement.waited_max_ms)
    assert [
        ["requests that asked the hub", "25 %"],
        ["waited, median / 99th / longest", "2.0 / 2.0 / 2.0 ms"],
    ] == figures_rows([judgement])[-2:]
    assert not any("asked" in row[0] for row in figures_rows([judged([(1.0, 1)])]))


def test_a_central_limiter_is_asked_when_the_request_came_not_when_it_was_decided() -> None:
    """One that waited across a window's end was asked for in the window before, which has room for it."""
    full = [(11.0, 1)] * 10
    late = judged([(10.001, 1), *full], refused=tuple(range(1, 11)), waited_ns={0: 2_000_000})
    prompt = judged([(10.001, 1), *full], refused=tuple(range(1, 11)))

    assert (11, 10) == (late.ideal_admitted, prompt.ideal_admitted)


def test_what_settling_adds_is_debt_and_no_over_admission() -> None:
    """Ten were admitted and turned out to cost thirteen."""
    judgement = judged([(1.0, 10)], settled={0: (3.0, 3)})

    assert 0.0 == judgement.over_admission_max_pct
    assert 30.0 == judgement.debt_max_pct
    assert 13 == judgement.admitted_cost


def test_a_total_that_differs_from_what_was_admitted_is_a_broken_promise() -> None:
    """Whether something was lost or doubled."""
    for total in (9, 11):
        judgement = judged([(1.0, 10)], hub_total=total)

        assert not judgement.hub_total_equals_admitted
        assert not judgement.kept
        assert f"THE HUB COUNTS {total}, BUT 10 WAS ADMITTED" in verdict_on(judgement)


@pytest.mark.parametrize("policies", [1, 2])
def test_one_policy_is_told_flat_and_several_by_name(policies: int) -> None:
    """So that a script that asks for one need not look for it."""
    one = outcome([(1.0, 1), (2.0, 1)])
    names = ("strict", "naive")[:policies]
    several = ReplayOutcome(
        replace(one.setup, policies=names), one.hands, [each * policies for each in one.histories], [2] * policies
    )

    figures = as_figures(several, judge(several))

    if policies == 1:
        assert "strict" == figures["policy"]
    else:
        assert {"strict", "naive"} == set(figures["policies"])  # type: ignore[call-overload]
