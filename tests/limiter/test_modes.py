"""Goal: a limit that is off or in shadow refuses nobody, in whichever way it is asked, and says so.

Method: the clock stands still, so that what would be refused is known; every way of asking is tried in every switch.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconverge import Agent, CostExceedsQuota, Decision, InvalidKey, InvalidSetting, Limit, RateLimiter
from reconverge.testing import ManualClock
from tests.support.waiters import scene_of, settled
from tests.support.waiting import exit_code_of

DECLARED: dict[str, dict[str, Any]] = {
    "one quota": {"limit": "2/minute"},
    "in Python": {"limit": "2/minute", "algorithm": "sliding-log"},
    "several quotas": {"limit": "2/minute; 100/hour"},
}

ASK: dict[str, Callable[[RateLimiter], bool]] = {
    "allow": lambda limiter: limiter.allow("ada"),
    "allow, by the class": lambda limiter: RateLimiter.allow(limiter, "ada"),
    "hit": lambda limiter: bool(limiter.hit("ada")),
    "hit, by the class": lambda limiter: bool(RateLimiter.hit(limiter, "ada")),
    "allow_many": lambda limiter: limiter.allow_many(["ada"])[0],
    "test": lambda limiter: bool(limiter.test("ada")),
    "reserve": lambda limiter: limiter.reserve("ada", 1).allowed,
    "wait": lambda limiter: bool(asyncio.run(limiter.wait("ada", timeout=0))),
    "wait_blocking": lambda limiter: bool(limiter.wait_blocking("ada", timeout=0)),
}


def limiter_of(declared: dict[str, Any] | None = None, **settings: Any) -> RateLimiter:
    """A limiter on a clock that stands still."""
    agent = Agent("memory://", clock=ManualClock(start=0), **settings)
    return agent.limit("login", **(declared or DECLARED["one quota"]))


def used_up(declared: dict[str, Any] | None = None) -> RateLimiter:
    """A limiter of which nothing is left for "ada"."""
    limiter = limiter_of(declared)
    assert [True, True, False] == [limiter.allow("ada") for _ in range(3)]
    return limiter


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)
@pytest.mark.parametrize("switch", ["shadow", "off"])
def test_what_is_not_on_refuses_nobody_and_refuses_again_when_it_is(
    declared: dict[str, Any], ask: Callable[[RateLimiter], bool], switch: Any
) -> None:
    """However it is asked, and whatever decides about it."""
    limiter = used_up(declared)
    answers = [ask(limiter)]
    for to in (switch, "on"):
        limiter.switch(to)
        answers.append(ask(limiter))

    assert [False, True, False] == answers


def test_off_charges_nothing_and_counts_what_came() -> None:
    """Earlier use is still used afterwards, and no more than that."""
    limiter = limiter_of()
    limiter.allow("ada")
    limiter.switch("off")
    limiter.allow("ada")
    limiter.hit("ada")
    limiter.allow_many(["ada", "bob"])
    limiter.test("ada")
    with limiter.reserve("ada", 800) as reservation:
        reservation.settle(900)

    assert 1 == limiter.usage("ada").own
    assert 5 == limiter.control.enforcement.unlimited


def test_shadow_decides_and_charges_as_ever() -> None:
    """Admitted requests are charged, requests that would be refused are counted and are not."""
    limiter = limiter_of()
    limiter.switch("shadow")
    decisions = [limiter.hit("ada") for _ in range(5)]

    assert [True] * 5 == [decision.allowed for decision in decisions]
    assert [False, False, True, True, True] == [decision.would_refuse for decision in decisions]
    assert 2 == limiter.usage("ada").own
    assert 3 == limiter.control.enforcement.would_refuse


def test_every_decision_says_how_its_limit_was_switched() -> None:
    """Also where nothing was out of the ordinary; and in shadow it keeps the grounds for what it would have been."""
    limiter = limiter_of()
    told: list[tuple[str, bool]] = []
    for to in ("on", "shadow", "off"):
        limiter.switch(to)
        decision = limiter.hit("ada")
        told.append((decision.switch, decision.would_refuse))
    limiter.switch("shadow")
    limiter.hit("ada")
    refused = limiter.hit("ada")

    assert [("on", False), ("shadow", False), ("off", False)] == told
    assert ("shadow", True, 0) == (refused.switch, refused.would_refuse, refused.remaining)
    assert refused.retry_after > 0
    assert "WouldRefuse(allowed=True" in repr(refused)
    assert refused == pickle.loads(pickle.dumps(refused))  # noqa: S301  # our own
    assert replace(refused, remaining=7).would_refuse


def test_a_reservation_that_would_have_been_refused_settles_nothing() -> None:
    """It was not charged, so there is nothing to correct; one that was admitted is settled as ever."""
    limiter = limiter_of()
    limiter.switch("shadow")
    with limiter.reserve("ada", 1) as admitted:
        admitted.settle(2)
    with limiter.reserve("ada", 1) as refused:
        refused.spend(5)

    assert (True, True) == (admitted.allowed, refused.allowed)
    assert 2 == limiter.usage("ada").own


def test_in_shadow_a_cost_above_the_quota_is_no_mistake() -> None:
    """It is what the shadow is there to find out; other mistakes are raised as ever, and off nothing is looked at."""
    limiter = limiter_of()
    with pytest.raises(CostExceedsQuota):
        limiter.allow("ada", 3)
    limiter.switch("shadow")

    assert limiter.allow("ada", 3)
    assert limiter.hit("ada", 3).would_refuse
    assert [True, True] == limiter.allow_many(["ada", "ada"], [3, 1])
    assert 3 == limiter.control.enforcement.would_refuse
    with pytest.raises(InvalidKey):
        limiter.allow("")
    limiter.switch("off")
    assert limiter.allow("")


def test_whoever_kept_allow_while_it_was_not_on_obeys_later_switches() -> None:
    """Whoever kept it while it was on asks the limit itself, for good: the limit goes on holding."""
    limiter = used_up()
    kept_on = limiter.allow
    limiter.switch("off")
    kept_off, kept_hit = limiter.allow, limiter.hit
    limiter.switch("shadow")
    kept_shadow = limiter.allow
    shadowed = kept_hit("ada")
    limiter.switch("on")

    assert shadowed.would_refuse
    assert [False] * 4 == [kept_on("ada"), kept_off("ada"), kept_shadow("ada"), kept_hit("ada").allowed]


def test_on_is_the_limit_itself() -> None:
    """Being switched on costs a decision nothing, before and after it was switched."""
    limiter = limiter_of()
    table = limiter.control.table
    limiter.switch("shadow")
    limiter.switch("on")

    assert table.allow == limiter.allow
    assert table.hit == limiter.hit


def test_of_an_agents_switch_and_a_limits_the_one_that_refuses_less_is_in_force() -> None:
    """The kill switch reaches all limits, declared before and after; on gives each its own back."""
    agent = Agent("memory://", switch="shadow")
    limiters = [agent.limit("login", "1/minute", switch="off"), agent.limit("api", "1/minute")]
    in_force = [[limiter.switched for limiter in limiters]]
    agent.switch("off")
    limiters.append(agent.limit("late", "1/minute"))
    in_force.append([limiter.switched for limiter in limiters])
    agent.switch("on")
    in_force.append([limiter.switched for limiter in limiters])

    assert [["off", "shadow"], ["off", "off", "off"], ["off", "on", "on"]] == in_force
    assert "off" == agent.limit("login", "1/minute").switched


@pytest.mark.parametrize("switch", ["shadow", "off"])
async def test_whoever_waits_goes_at_once(switch: Any) -> None:
    """In a loop and on a thread; nobody who comes afterwards waits either."""
    scene = scene_of(Limit(1, 3600))
    answers: list[Decision] = []

    await scene.waits("first")
    tasks = [asyncio.create_task(scene.limiter.wait("ada")) for _ in range(2)]
    await settled()
    thread = scene.waits_blocking("thread")
    scene.limiter.switch(switch)
    answers.extend(await asyncio.gather(*tasks))
    answers.append(await scene.limiter.wait("ada"))
    await asyncio.to_thread(thread.join)

    assert [(True, switch)] * 3 == [(answer.allowed, answer.switch) for answer in answers]
    assert ["first", "thread"] == [name for name, _ in scene.released]
    assert 1 == scene.charged
    assert scene.is_empty()


def test_the_statistics_tell_refusals_from_what_would_have_been_one() -> None:
    """Of each quota; a refusal in shadow is none."""
    agent = Agent("memory://", clock=ManualClock(start=0))
    limiter = agent.limit("login", "1/minute")
    for to in ("on", "shadow", "on", "off"):
        limiter.switch(to)
        limiter.allow("ada")
        limiter.allow("ada")
    stats = agent.stats().limits["login"]

    assert (1, 3, 2, 2, "off") == (stats.admitted, stats.refused, stats.would_refuse, stats.unlimited, stats.switch)


def test_what_is_no_switch_is_a_mistake() -> None:
    """And nothing has changed."""
    limiter = limiter_of()
    with pytest.raises(InvalidSetting, match="must be 'on', 'shadow', 'off'"):
        limiter.switch("dark")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidSetting):
        limiter_of({"limit": "1/minute", "switch": "dark"})

    assert "on" == limiter.switched


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child only counts, and leaves
def test_a_forked_child_keeps_the_switch_and_not_the_counts() -> None:
    """It counts its own; there is no lock that a thread of its parent's might have held."""
    limiter = limiter_of()
    limiter.switch("off")
    limiter.allow("ada")
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # whoever waits for a lock that nobody holds would wait for ever
        limiter.allow("ada")
        os._exit(limiter.control.enforcement.unlimited if limiter.switched == "off" else 99)

    assert 1 == exit_code_of(child)
    assert 1 == limiter.control.enforcement.unlimited


@pytest.mark.parametrize("switch", ["on", "shadow", "off"])
@pytest.mark.parametrize("left", [True, False], ids=["left", "used up"])
def test_every_answer_is_a_decision(switch: Any, left: bool) -> None:
    """However the limit is switched: an instance that can be compared, copied and shown as what it is."""
    limiter = limiter_of() if left else used_up()
    limiter.switch(switch)
    decision = limiter.test("ada")
    also = pickle.loads(pickle.dumps(decision))  # noqa: S301  # of our own

    assert isinstance(decision, Decision)
    assert (decision, hash(decision), type(decision)) == (also, hash(also), type(also))
    assert decision != replace(decision, remaining=77)
    assert (switch == "on") == (decision == Decision(*[getattr(decision, name) for name in Decision.__match_args__]))
    assert repr(decision).startswith(f"{type(decision).__name__}(allowed=")
