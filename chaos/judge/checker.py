"""The judge: computes from histories alone which promises were kept. Pure, and tested with histories made by hand.

Admissions are counted as Jepsen counts: an exchange was heard (`ok`), surely not (`fail`), or perhaps (`unknown`), and
a process that was killed may have made one more decision than it has recorded. So a hub's total has a least and a most,
which are the same if all processes ended in good order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from chaos.judge.case import Case, Violation
from chaos.judge.history import OK, Exchange, Life
from chaos.judge.slots import slot_violations
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limit import FIXED_WINDOW
from reconverge.simulation.truth import Bounds, DecidedRequest, TrueCharge, excess_by_place

OVER_ADMISSION: Final = "over-admission"
LOST: Final = "lost"
DOUBLED: Final = "doubled"
APART: Final = "apart"
DEAD: Final = "dead"
STORM: Final = "storm"
TOUCHED: Final = "input-output"
WAITED: Final = "waited"
ESCAPED: Final = "escaped"
SWOLLEN: Final = "swollen"
HUNG: Final = "hung"
LEAKED_SECRET: Final = "secret"  # noqa: S105  # a kind of violation

LONG_NS: Final = 50 * MILLISECOND_NS
"""An exchange is long from this duration on, in nanoseconds: it leaves time for many decisions."""
LOOK_NS: Final = 50 * MILLISECOND_NS
"""The longest time between the views of two nodes, in nanoseconds."""
LATE_TIMES: Final = 4
"""The number of times that a busy machine delays a process before all agree: in two exchanges, each in the node and the
server."""
GRACE_ATTEMPTS: Final = 4
"""The number of attempts of each node at the healthy pace at the start of an outage, before it backs off."""


def violations(case: Case) -> list[Violation]:
    """Yields all violations of a run, of any contestant."""
    return [
        *over_admission(case),
        *miscounting(case),
        *forgetting(case),
        *disagreement(case),
        *ignorance(case),
        *deadness(case),
        *storm(case),
        *touching(case),
        *waiting(case),
        *escapes(case),
        *swelling(case),
        *secrets(case),
        *hanging(case),
        *slot_violations(case),
    ]


# -------------------------------------------------------------------- what was admitted


def excesses(case: Case) -> tuple[dict[tuple[str, int], int], Bounds]:
    """Returns the excess of each window, and the bounds that apply."""
    decided, charges = [], []
    number = 0
    for life in case.lives:
        for one in life.decisions:
            if one.summed:
                continue
            epoch, moment_ns = case.place_of(one)
            number += 1
            decided.append(
                DecidedRequest(moment_ns, number, one.key, epoch, one.cost, 0, life.node, one.allowed, one.known)
            )
            if one.allowed:
                charges.append(TrueCharge(one.key, epoch, moment_ns, one.cost, settling=False))
    bounds = Bounds(case.limit, case.policy, case.members, decided)
    return excess_by_place(case.limit, charges, settling=False), bounds


def over_admission(case: Case) -> Iterator[Violation]:
    """Checks that no window of any key exceeded the limit by more than the declared bound."""
    excess, bounds = excesses(case)
    broken = {place: over for place, over in excess.items() if over > bounds.of(place) + case.beyond}
    if broken:
        place = max(broken, key=lambda place: broken[place])
        begin_ns = min(one.t_ns for one in case.decisions if (one.key, case.place_of(one)[0]) == place)
        yield Violation(
            OVER_ADMISSION,
            f"{len(broken)} windows exceeded their bound; that of {place[0]!r} at "
            f"{(begin_ns - case.start_ns) / SECOND_NS:.1f} s exceeded the limit by {broken[place]}, "
            f"where {bounds.of(place) + case.beyond:g} is promised",
        )


def miscounting(case: Case) -> Iterator[Violation]:
    """Checks that the hub never counted more than was admitted, and in the end counted all of it."""
    moments = [one.t_ns for one in case.decisions]
    sums = list(accumulate((one.cost if one.allowed else 0 for one in case.decisions), initial=0))
    unwritten = sum(_unwritten(life) for life in case.lives)
    for sight in case.sights:
        most = sums[bisect_right(moments, sight.after_ns)] + unwritten
        if sight.total > most:
            moment_s = (sight.after_ns - case.start_ns) / SECOND_NS
            yield Violation(DOUBLED, f"at {moment_s:.2f} s the hub knew of {sight.total}, and {most} was admitted")
            break
    least, most = least_and_most(case)
    for sight in case.sights[-1:]:
        if not least <= sight.total <= most:
            kind = LOST if sight.total < least else DOUBLED
            yield Violation(kind, f"before the last words the hub knew of {sight.total}, and {least} was admitted")
    if case.final.total < least:
        yield Violation(LOST, f"in the end the hub knew of {case.final.total}, and {least} was admitted")
    if case.final.total > most:
        yield Violation(DOUBLED, f"in the end the hub knew of {case.final.total}, and {most} was admitted")
    least, most = least_and_most(case, census=True)
    if case.final.census is not None and not least <= case.final.census <= most:
        yield Violation(LOST, f"of a second limit, which counts the same, the hub knew {case.final.census}")


def forgetting(case: Case, *, since_ns: int = 0) -> Iterator[Violation]:
    """Checks that the hub never forgets what it has confirmed, unless its data are lost on purpose."""
    if case.loses_data:
        return
    confirmed: dict[str, int] = {}
    answered = sorted((one.heard_ns, one) for one in case.exchanges if one.outcome == OK and one.heard_ns)
    for sight in case.sights:
        while answered and answered[0][0] <= sight.before_ns:
            one = answered.pop(0)[1]
            confirmed[one.account] = max(confirmed.get(one.account, 0), one.charged or 0)
        if sight.before_ns >= since_ns and sight.total < sum(confirmed.values()):
            words = f"knew of {sight.total}, and had confirmed {sum(confirmed.values())}"
            yield Violation(LOST, f"at {(sight.before_ns - case.start_ns) / SECOND_NS:.2f} s the hub {words}")
            return


def least_and_most(case: Case, *, census: bool = False) -> tuple[int, int]:
    """Returns the least and the most that the hub's total of the limit, or of the second one, may be in the end."""
    least = most = 0
    for life in case.lives:
        most += life.admitted + _unwritten(life)
        least += life.confirmed(census=census) if _was_cut_off(case, life) else life.admitted
    return least, most


def _was_cut_off(case: Case, life: Life) -> bool:
    """Returns whether a process could not send its last report: it was killed, or ended during a fault."""
    if life.facts is None:
        return True
    last = life.exchanges[-1] if life.exchanges else None
    return last is not None and last.outcome != OK and case.in_spell(last.sent_ns)


def _unwritten(life: Life) -> int:
    """Returns the cost that a process may have charged without a record of it.

    That is one request of a killed process, and each decision that a signal has interrupted may be another.
    """
    interrupted = sum(one.cost for one in life.unsure)
    return interrupted + (max((one.cost for one in life.decisions), default=1) if life.facts is None else 0)


# -------------------------------------------------------------------- what was known


def disagreement(case: Case) -> Iterator[Violation]:
    """Checks that all nodes agree on the true total soon after all is well and the requests have ended."""
    quiet_ns = max(case.healed_ns, case.load_end_ns)
    agreed_ns = agreed(case)
    if agreed_ns is None:
        yield Violation(APART, f"in the end not all nodes knew that {_truth(case)} was admitted: {_last_views(case)}")
    elif agreed_ns > deadline_ns(case, quiet_ns):
        yield Violation(APART, f"it took {(agreed_ns - quiet_ns) / SECOND_NS:.2f} s until all nodes knew the same")
    heard_ns = all_heard(case, case.healed_ns)
    if heard_ns is None:
        yield Violation(APART, "after all was well, not all nodes have heard of each other again")
    elif heard_ns > deadline_ns(case, case.healed_ns):
        seconds = (heard_ns - case.healed_ns) / SECOND_NS
        yield Violation(APART, f"it took {seconds:.2f} s until all nodes had heard of each other again")


def ignorance(case: Case) -> Iterator[Violation]:
    """Checks that a node that is asked about a window knows its use by all, though no other node was asked."""
    if case.limit.algorithm != FIXED_WINDOW or any(life.facts is None for life in case.lives):
        return  # the amount of fading use is known only nearly, and that of a killed process not exactly
    for life in case.survivors:
        for key, last in {one.key: one for one in life.asked}.items():
            truth = sum(one.cost for one in case.decisions if one.allowed and (one.key, one.epoch) == (key, last.epoch))
            most = truth + sum(_interrupted(each, key, last.epoch) for each in case.lives)
            if last.total < truth or (last.total > most and not case.mute):
                words = f"node {life.node} thinks that {last.total} was used by {key!r}, and it was {truth}"
                yield Violation(APART, words)


def _interrupted(life: Life, key: str, epoch: int) -> int:
    """Returns the cost that interrupted decisions may have charged to a window, without an answer.

    They are recorded once in a while, with the admissions of that time. So those of the last record in which an earlier
    window was charged may belong to this window, and so may all later ones.
    """
    since_ns = max((one.t_ns for one in life.decisions if one.key == key and one.epoch < epoch), default=0)
    return sum(one.cost for one in life.unsure if one.t_ns >= since_ns)


def deadline_ns(case: Case, moment_ns: int) -> int:
    """Returns the moment by which all must agree if no fault comes after it; later by the delays of the machine."""
    return moment_ns + case.reconverges_in_ns + LOOK_NS + LATE_TIMES * case.late_ns(after_ns=moment_ns)


def agreed(case: Case) -> int | None:
    """Returns the moment from which on all survivors knew the truth; None if they did not in the end.

    A batch carries the totals of all keys, also of one that it does not report. So the hub's total may contain the last
    charges of a killed node that no other node ever hears of.
    """
    truth = _truth(case)
    totals = {life.views[-1].total for life in case.survivors if life.views}
    if len(totals) == 1 and truth - _left_unreported(case) <= min(totals) <= truth:
        (truth,) = totals
    moments = [_knew_since(life, truth) for life in case.survivors]
    if not moments or None in moments:
        return None
    return max(moment for moment in moments if moment is not None)


def _knew_since(life: Life, truth: int) -> int | None:
    since = None
    for view in reversed(life.views):
        if view.total != truth:
            break
        since = view.t_ns
    return since


def _left_unreported(case: Case) -> int:
    """Returns the cost that killed nodes admitted too shortly before their end to have reported it for certain."""
    return sum(
        one.cost
        for life in case.lives
        if life.facts is None
        for one in life.decisions
        if one.allowed and one.t_ns > life.last_ns - case.silence_ns - 2 * case.interval_ns
    )


def _truth(case: Case) -> int:
    return case.final.total if case.final.census is None else case.final.census


def _last_views(case: Case) -> str:
    return ", ".join(str(life.views[-1].total) for life in case.survivors)


def all_heard(case: Case, moment_ns: int) -> int | None:
    """Returns when every survivor had heard of all that the others knew at `moment_ns`; None if never.

    By then each had made an exchange about each shard that it uses, begun since, and after that another one: about one
    shard, as an unused shard is seldom reported to.
    """
    for heard_ns in (heard_from_all_ns if case.shards > 1 else first_answer_ns, first_answer_ns):
        heard = [heard_ns(life, moment_ns) for life in case.survivors]
        if not heard or None in heard:
            return None
        moment_ns = max(moment for moment in heard if moment is not None)
    return moment_ns


def heard_from_all_ns(life: Life, moment_ns: int) -> int | None:
    """Returns the moment at which a node had an answer for each of its accounts; None if never.

    It has an account for each shard. It does not report to a shard about which it was never asked.
    """
    spoken_of = {one.account for one in life.exchanges if one.charged is not None}
    first: dict[str, int] = {}
    for one in life.exchanges:
        if one.outcome == OK and one.sent_ns >= moment_ns and one.heard_ns:
            first.setdefault(one.account, one.heard_ns)
    return max(first[account] for account in spoken_of) if spoken_of and spoken_of <= first.keys() else None


def first_answer_ns(life: Life, moment_ns: int) -> int | None:
    """Returns the moment of the first answer to a report made since then."""
    return min(
        (one.heard_ns for one in life.exchanges if one.outcome == OK and one.sent_ns >= moment_ns and one.heard_ns),
        default=None,
    )


# -------------------------------------------------------------------- how it lived


def deadness(case: Case) -> Iterator[Violation]:
    """Checks that each survivor has exchanged since all was well, and that nothing had surprised it."""
    if not case.survivors:
        yield Violation(DEAD, "nobody was left in the end")
    for life in case.survivors:
        if first_answer_ns(life, case.healed_ns) is None:
            yield Violation(DEAD, f"node {life.node} has not exchanged any more after all was well")
        facts = life.facts or {}
        bugs = [kind for kind in facts.get("failures", ()) if kind.startswith("bug:")]
        if facts.get("bugs") or bugs:
            yield Violation(DEAD, f"node {life.node} was surprised: {facts.get('bugs', 0)} times, {bugs}")


def storm(case: Case) -> Iterator[Violation]:
    """Checks that in an outage no node tries more often than in good times."""
    if not case.outage:
        return
    bad_ns = sum(end_ns - begin_ns for begin_ns, end_ns in case.spells)
    bad, good, good_ns = _attempts(case)
    if not bad_ns or not good_ns:
        return
    grace = GRACE_ATTEMPTS * len({one.account for one in case.exchanges})
    if (bad - grace) * good_ns > good * bad_ns:
        rates = (bad * SECOND_NS / bad_ns, good * SECOND_NS / good_ns)
        yield Violation(
            STORM, "{:.1f} exchanges a second were tried in the outage, {:.1f} in good times".format(*rates)
        )


def _attempts(case: Case) -> tuple[int, int, int]:
    """Returns the numbers of exchanges that began during faults and in good times, and the length of the good times."""
    begin_ns = min((begin_ns for begin_ns, _ in case.spells), default=case.load_end_ns)
    settled_ns = min(case.healed_ns + case.reconverges_in_ns, case.load_end_ns)
    good_spans = [(case.start_ns, begin_ns), (settled_ns, max(settled_ns, case.load_end_ns))]
    good = sum(any(begin <= one.sent_ns < end for begin, end in good_spans) for one in case.exchanges)
    bad = sum(case.in_spell(one.sent_ns) for one in case.exchanges)
    return bad, good, sum(max(0, end - begin) for begin, end in good_spans)


def touching(case: Case) -> Iterator[Violation]:
    """Checks that no decision did any input or output, or slept."""
    touched = [one for one in case.decisions if one.touched]
    if touched:
        yield Violation(TOUCHED, f"{len(touched)} decisions did {touched[0].touched}")


def waiting(case: Case) -> Iterator[Violation]:
    """Checks that no decision waited for an exchange: of those begun during a long one, some ended before it did.

    If a lock were held meanwhile, none of them would.
    """
    blocking = long = 0
    for life in case.lives:
        for exchange in life.exchanges:
            begun, made = _made_during(life, exchange)
            long += begun > 0
            blocking += begun > 0 and made == 0
    if long and 2 * blocking > long:
        yield Violation(
            WAITED, f"during {blocking} of {long} long exchanges no decision was made, though some were due"
        )


def _made_during(life: Life, exchange: Exchange) -> tuple[int, int]:
    """Returns the number of decisions that began during a long exchange, and how many of them ended before it did."""
    if exchange.heard_ns is None or exchange.heard_ns - exchange.sent_ns < LONG_NS:
        return 0, 0
    begun = [one for one in life.decisions if exchange.sent_ns < one.t_ns < exchange.heard_ns and not one.summed]
    return len(begun), sum(one.t_ns + one.took_ns < exchange.heard_ns for one in begun)


def escapes(case: Case) -> Iterator[Violation]:
    """Checks that no exception reached a caller, or ended a thread or a task."""
    for life in case.lives:
        for what in life.escaped[:1]:
            yield Violation(ESCAPED, f"from node {life.node}, {len(life.escaped)} times: {what}")


def swelling(case: Case) -> Iterator[Violation]:
    """Checks that a node has no more keys than it may have."""
    for life in case.lives:
        facts = life.facts or {}
        if facts.get("keys", 0) > facts.get("keys_max", 0):
            yield Violation(
                SWOLLEN, f"node {life.node} remembers {facts['keys']} keys; {facts['keys_max']} are allowed"
            )


def hanging(case: Case) -> Iterator[Violation]:
    """Checks that no process stood still for ever."""
    if case.hangs:
        yield Violation(HUNG, f"{len(case.hangs)} processes stood still, at: {case.hangs[0]}")


def secrets(case: Case) -> Iterator[Violation]:
    """Checks that the password is in no log and in no record."""
    if case.leaks:
        yield Violation(LEAKED_SECRET, f"the password stands in {', '.join(case.leaks)}")
