"""Goal: limits that decide about one request together charge it all in one moment, each by its own key, or none does.

Method: examples, random requests beside limits that are asked by themselves, and threads that look all the time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent, CostExceedsQuota, RateLimiter
from reconverge.clock import ManualClock
from reconverge.kernel import Part, Reentry, settle_jointly
from reconverge.kernel.composite.joint import run_under
from tests.support.effort import tried
from tests.support.kernel.lone import NOON_S

ALGORITHMS = ["fixed-window", "sliding-window", "token-bucket", "sliding-log", "sliding-slices", "gcra"]


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def part_of(limiter: RateLimiter, key: str, cost: int = 1) -> Part:
    decider = limiter.control.enforcement.table
    return Part(decider, key, decider.costs_of(cost))


def charged(*parts: Part) -> bool:
    """Whether all were charged."""
    return settle_jointly(parts).allowed


def limiters(*limits: str, algorithm: str = "fixed-window") -> list[RateLimiter]:
    """Limits of one agent."""
    agent = Agent("memory://", clock=ManualClock(NOON_S))
    return [agent.limit(f"l{number}", limit, algorithm=algorithm) for number, limit in enumerate(limits)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_are_charged_each_by_its_own_key(algorithm: str) -> None:
    """The user, the organisation, and what else there is."""
    user, organisation = limiters("5/hour", "9/hour", algorithm=algorithm)

    assert charged(part_of(user, "ada"), part_of(organisation, "acme", 2))

    assert [1, 0, 2, 0] == [
        limiter.usage(key).own
        for limiter, key in [(user, "ada"), (user, "acme"), (organisation, "acme"), (organisation, "ada")]
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_none_is_charged_if_one_refuses(algorithm: str) -> None:
    """And the answer of each is its own."""
    user, organisation = limiters("1/hour", "9/hour", algorithm=algorithm)
    assert charged(part_of(user, "ada"), part_of(organisation, "acme"))

    joint = settle_jointly([part_of(organisation, "acme"), part_of(user, "ada")])

    assert not joint.allowed
    assert [True, False] == [settled.decision.allowed for settled in joint.settled]
    assert 8 == joint.settled[0].decision.remaining
    assert joint.settled[1].decision.retry_after > 0
    assert 1 == organisation.usage("acme").own
    assert organisation.allow("acme", 8)


def test_limits_of_several_quotas_and_shares_take_part() -> None:
    """A share that is used up borrows."""
    agent = Agent("memory://", clock=ManualClock(NOON_S))
    several = agent.limit("several", "5/minute; 6/hour")
    parent = agent.limit("parent", "10/hour")
    share = agent.limit("share", "3/hour", parent=parent)

    answers = [settle_jointly([part_of(several, "ada"), part_of(share, "acme")]) for _ in range(6)]

    assert [True] * 5 + [False] == [joint.allowed for joint in answers]
    assert [False] * 3 + [True] * 2 == [joint.settled[1].decision.borrowed for joint in answers][:5]
    assert [5, 5] == [usage.own for usage in several.usages("ada").values()]
    assert 2 == parent.usage("acme").own


def test_what_could_never_be_admitted_is_a_mistake_before_anything_is_charged() -> None:
    """By whichever limit."""
    user, organisation = limiters("5/hour", "9/hour")

    with pytest.raises(CostExceedsQuota):
        settle_jointly([part_of(organisation, "acme"), part_of(user, "ada", 6)])

    assert 0 == organisation.usage("acme").own


def test_a_limit_cannot_stand_in_two_parts() -> None:
    """To look up one key may make another one leave that is new."""
    (limiter,) = limiters("5/hour")

    with pytest.raises(ValueError, match="names a quota of l0 twice; name each limit only once"):
        settle_jointly([part_of(limiter, "ada"), part_of(limiter, "bob")])


@settings(max_examples=tried(80, long=1000), deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=4),
            st.integers(0, 20_000_000_000),
        ),
        max_size=30,
    ),
    algorithm=st.sampled_from(ALGORITHMS[:3]),
)
def test_any_requests_are_charged_as_by_limits_that_are_asked_first(
    requests: list[tuple[list[tuple[int, str, int]], int]], algorithm: str
) -> None:
    """The same as asking all what they would say, and charging all if none refuses."""
    clock, twin = ManualClock(NOON_S), ManualClock(NOON_S)
    quotas = ["3/minute", "5/minute", "7/minute"]
    joint, plain = (
        [
            Agent("memory://", clock=each).limit(f"l{number}", quota, algorithm=algorithm)
            for number, quota in enumerate(quotas)
        ]
        for each in (clock, twin)
    )
    for wanted, passes_ns in requests:
        clock.advance_ns(passes_ns)
        twin.advance_ns(passes_ns)
        places = {(number, key): cost for number, (key, cost) in {each[0]: each[1:] for each in wanted}.items()}
        parts = [part_of(joint[number], key, cost) for (number, key), cost in places.items()]
        admits = all(plain[number].test(key, cost).allowed for (number, key), cost in places.items())
        if admits:
            for (number, key), cost in places.items():
                plain[number].hit(key, cost)

        assert admits == charged(*parts)

    for number in range(3):
        for key in "ab":
            assert plain[number].usage(key).own == joint[number].usage(key).own


@pytest.mark.usefixtures("hurried")
def test_nothing_is_ever_seen_to_be_taken_by_a_request_that_is_refused() -> None:
    """A place of the organisation is free all the time, while a user who has used up his own goes on asking."""
    agent = Agent("memory://")
    organisation, user = agent.limit("organisation", "2/hour"), agent.limit("user", "1/hour")
    assert charged(part_of(organisation, "acme"), part_of(user, "bob"))
    ended = threading.Event()

    def goes_on() -> None:
        while not ended.is_set():
            assert not charged(part_of(organisation, "acme"), part_of(user, "bob"))

    threads = [threading.Thread(target=goes_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    seen = [organisation.test("acme").allowed for _ in range(3000)]
    ended.set()
    for thread in threads:
        thread.join()

    assert all(seen)
    assert 1 == organisation.usage("acme").own


@pytest.mark.usefixtures("hurried")
def test_threads_that_need_the_same_limits_in_another_order_all_come_through() -> None:
    """And charge as much as there is, together with others that ask one limit alone."""
    agent = Agent("memory://")
    first, second = agent.limit("first", "3000/hour"), agent.limit("second", "3000/hour")
    admitted = [0, 0, 0]

    def asks(place: int, *order: RateLimiter) -> None:
        for _ in range(1500):
            admitted[place] += charged(*[part_of(limiter, "ada") for limiter in order])

    def asks_alone() -> None:
        for _ in range(1500):
            admitted[2] += first.allow("ada")

    threads = [
        threading.Thread(target=asks, args=(0, first, second)),
        threading.Thread(target=asks, args=(1, second, first)),
        threading.Thread(target=asks_alone),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert 3000 == sum(admitted) == first.usage("ada").own
    assert admitted[0] + admitted[1] == second.usage("ada").own


def test_in_the_middle_of_a_decision_about_one_of_them_none_is_charged() -> None:
    """A signal handler may ask then."""
    user, organisation = limiters("5/hour", "9/hour")

    def interrupted() -> None:
        with pytest.raises(Reentry):
            charged(part_of(organisation, "acme"), part_of(user, "ada"))

    user.control.table.lock.run(interrupted)

    assert [0, 0] == [user.usage("ada").own, organisation.usage("acme").own]


def test_what_was_put_off_is_done_when_the_last_lock_is_free() -> None:
    """Before that it would meet the others."""
    user, organisation = limiters("5/hour", "9/hour")
    held: list[bool] = []
    locks = [user.control.table.lock, organisation.control.table.lock]

    def work() -> None:
        user.control.table.kernel.put_off(lambda: held.append(any(lock.locked() for lock in locks)))

    run_under(user.control.table.kernel, locks, work)

    assert [False] == held
