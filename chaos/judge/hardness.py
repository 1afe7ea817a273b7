"""Expectations of scenarios with floods, lying hubs, storms of signals and crashes, besides the invariants."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from chaos.faults.attacks import HUB_BYTES
from chaos.judge.case import Case, Expectation, Violation
from chaos.judge.checker import SWOLLEN, first_answer_ns
from chaos.judge.history import Life
from reconverge.clock import SECOND_NS

STARVED: Final = "starved"
SHUT_OUT: Final = "shut out"
UNTRUE: Final = "untrue"
UNANSWERED: Final = "unanswered"
MISCOUNTED: Final = "miscounted"
RUN_TWICE: Final = "run twice"
LOCKED_OUT: Final = "locked out"
UNREPORTED: Final = "unreported"

SICK: Final = ("degraded", "partitioned")
WELL: Final = "ready"
NOTICED_S: Final = 1.0
"""A lie of the hub is noticed if it lasts longer than this, in seconds."""
MB: Final = 1_000_000


# -------------------------------------------------------------------- floods of keys


def serves_customers(share: float) -> Expectation:
    """Checks that during the flood customers of other limits are admitted at this share of the former rate, or more."""

    def expectation(case: Case) -> Iterator[Violation]:
        begin_ns = min(begin_ns for begin_ns, _ in case.spells)
        before = _admitted_share(case, case.start_ns, begin_ns)
        after = _admitted_share(case, begin_ns, case.load_end_ns)
        if not before or after < share * before:
            words = f"{after:.1%} of the customers' requests were admitted since the flood began, {before:.1%} before"
            yield Violation(STARVED, words)

    return expectation


def _admitted_share(case: Case, begin_ns: int, end_ns: int) -> float:
    allowed = [one.allowed for one in case.decisions if begin_ns <= one.t_ns < end_ns and not one.summed]
    return sum(allowed) / len(allowed) if allowed else 0.0


def admits_newcomers(share: float) -> Expectation:
    """Checks that during the flood this share of the newcomers of the flooded limit is admitted, or more."""

    def expectation(case: Case) -> Iterator[Violation]:
        strangers = [stranger for life in case.lives if (stranger := (life.facts or {}).get("stranger"))]
        newcomers = sum(stranger["newcomers"] for stranger in strangers)
        admitted = sum(stranger["newcomers_admitted"] for stranger in strangers)
        if not newcomers:
            yield Violation(UNREPORTED, "no newcomer came during the flood")
        elif admitted < share * newcomers:
            yield Violation(SHUT_OUT, f"{admitted} of {newcomers} newcomers were admitted during the flood")

    return expectation


def stays_small(*, node_mb: int, hub_mb: int) -> Expectation:
    """Checks that during the flood neither a node nor the hub grows by more than this."""

    def expectation(case: Case) -> Iterator[Violation]:
        for life in case.lives:
            grown_mb = (life.facts or {}).get("stranger", {}).get("grown_kb", 0) * 1024 / MB
            if grown_mb > node_mb:
                yield Violation(SWOLLEN, f"node {life.node} grew by {grown_mb:.0f} MB; {node_mb} are allowed")
        hub_grown_mb = case.noted.get(HUB_BYTES, 0) / MB
        if hub_grown_mb > hub_mb:
            yield Violation(SWOLLEN, f"the hub grew by {hub_grown_mb:.1f} MB; {hub_mb} are allowed")

    return expectation


# -------------------------------------------------------------------- nonsense


def was_lied_to(case: Case) -> Iterator[Violation]:
    """Checks that lies were sent; otherwise the scenario shows nothing."""
    if not case.noted.get("lies") and not any((life.facts or {}).get("lies") for life in case.lives):
        yield Violation(UNREPORTED, "no lie was sent")


def says_how_it_is(case: Case) -> Iterator[Violation]:
    """Checks that a node reports that it is not well while answers make no sense, and that it is well afterwards.

    Lies may come between true answers, so it need not report them all the time.
    """
    for life in case.survivors:
        states = [one for one in life.health if one.state]
        for begin_ns, end_ns in case.spells:
            seen = {one.state for one in states if begin_ns <= one.t_ns < end_ns}
            if end_ns - begin_ns > NOTICED_S * SECOND_NS and not seen & set(SICK):
                yield Violation(UNTRUE, f"node {life.node} said no more than {sorted(seen)} while it was lied to")
        answered_ns = first_answer_ns(life, case.healed_ns)
        if states and (answered_ns is None or states[-1].state != WELL):
            yield Violation(UNTRUE, f"in the end node {life.node} said {states[-1].state!r}")


# -------------------------------------------------------------------- requests to a server


def answers_every_request(case: Case) -> Iterator[Violation]:
    """Checks that every request of every burst got an answer."""
    clients = [life.facts for life in case.lives if life.facts and "asked" in life.facts]
    asked, answered = (sum(client[what] for client in clients) for what in ("asked", "answered"))
    if not asked:
        yield Violation(UNREPORTED, "nobody asked anything")
    elif answered < asked:
        yield Violation(UNANSWERED, f"{asked - answered} of {asked} requests got no answer")


# -------------------------------------------------------------------- signals


def counts_are_consistent(case: Case) -> Iterator[Violation]:
    """Checks, for each limit, that each returned True was counted, and at most the interrupted decisions besides."""
    for life in case.lives:
        for name, target in _storm(life).get("targets", {}).items():
            admitted, unsure, own = target["admitted"], target["unsure"], target["own"]
            if not admitted <= own <= admitted + unsure:
                words = f"node {life.node} has admitted {admitted} of {name!r} ({unsure} unsure), and counts {own}"
                yield Violation(MISCOUNTED, words)


def runs_once(case: Case) -> Iterator[Violation]:
    """Checks that no agent had two runners at once, or one that went on after its end."""
    for life in case.lives:
        storm = _storm(life)
        if storm.get("runners_most", 0) > 1 or storm.get("runners_left", 0) > 0:
            words = f"{storm['runners_most']} runners drove one agent, and {storm['runners_left']} outlived it"
            yield Violation(RUN_TWICE, f"on node {life.node} {words}")
        latest_ns: dict[str, int] = {}
        for one in life.exchanges:
            if one.sent_ns < latest_ns.get(one.account, 0):
                yield Violation(RUN_TWICE, f"node {life.node} made two exchanges at once")
                break
            latest_ns[one.account] = one.heard_ns or one.sent_ns


def was_stormed(interruptions: int) -> Expectation:
    """Checks that each node that came to its end was interrupted often enough."""

    def expectation(case: Case) -> Iterator[Violation]:
        for life in case.lives:
            if life.facts is not None and _storm(life).get("interrupted", 0) < interruptions:
                words = f"node {life.node} was interrupted {_storm(life).get('interrupted', 0)} times"
                yield Violation(UNREPORTED, f"{words}; {interruptions} were to be")

    return expectation


def _storm(life: Life) -> dict[str, Any]:
    return dict((life.facts or {}).get("storm", {}))


# -------------------------------------------------------------------- crashes


def loses_little(held_fraction: float) -> Expectation:
    """Checks that a crash costs a customer little: the use since the last report, and this share of the capacity.

    After the crashes there are requests for more than is left. So the total of admissions is what the crashes have left
    of the capacity. Only for fixed windows longer than the run.
    """

    def expectation(case: Case) -> Iterator[Violation]:
        crashed = [life for life in case.lives if life.facts is None]
        if not crashed:
            yield Violation(UNREPORTED, "no process has crashed")
        asked: Counter[str] = Counter()
        admitted: Counter[str] = Counter()
        for one in case.decisions:
            asked[one.key] += one.cost
            admitted[one.key] += one.cost * one.allowed
        unreported = sum(life.admitted - life.confirmed() for life in crashed)
        lost_most = unreported + len(crashed) * held_fraction * case.limit.capacity
        for key, cost in admitted.items():
            if asked[key] < 2 * case.limit.capacity - cost:
                yield Violation(UNREPORTED, f"only {asked[key]} were asked for of {key!r}")
            if case.limit.capacity - cost > lost_most:
                words = f"{len(crashed)} crashes have cost {key!r} {case.limit.capacity - cost} of"
                yield Violation(LOCKED_OUT, f"{words} {case.limit.capacity}; {lost_most:.0f} are allowed")

    return expectation


def goes_on_after_crashes(case: Case) -> Iterator[Violation]:
    """Checks that each replacing process admitted some of its requests, as long as there was capacity left."""
    by_node: defaultdict[int, list[Life]] = defaultdict(list)
    for life in sorted(case.lives, key=lambda life: life.born_ns):
        by_node[life.node].append(life)
    for node, lives in by_node.items():
        for number, life in enumerate(lives[1:], start=1):
            if life.decisions and not any(one.allowed for one in life.decisions):
                words = f"after {number} crashes node {node} admitted nothing of {len(life.decisions)} requests"
                yield Violation(LOCKED_OUT, words)
                break
