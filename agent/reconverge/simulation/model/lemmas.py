"""The arithmetic of use that fades or drains, and of quotas that differ, as facts that are true for all numbers."""

# Theory of operation.
#
# In the actions of this package, use stays until it is given back or its time is over. Sliding windows and buckets take
# the same steps: an allowance covers the use, and a vanished node has used all of it. What they add is arithmetic, with
# products of amounts and parts of a window, which stands here, apart: each lemma states that the code's sums keep a
# node's use below the hub's count of it, or the fleet's use below the sum of both.
#
# `part` is the part of the last window that a sliding window still covers; it falls from 1 to 0.
#
# sliding     use = current + previous * part
# floating    right = current when reported + vouchers, in one window; none in the next
# bucket      level, which drains; the rate is dealt out as the capacity is
# quotas      a node's allowance as a part of its own capacity

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from reconverge.simulation.model.guards import ProofGuard
from reconverge.simulation.model.terms import (
    NOTHING,
    Amount,
    Constant,
    Fact,
    Product,
    Symbol,
    equal,
    every,
    implies,
    larger,
)


class Lemma(NamedTuple):
    """A fact that follows from other facts, some of which are guards in the code."""

    name: str
    premises: tuple[Fact, ...]
    guarded: tuple[tuple[ProofGuard, Fact], ...]
    conclusion: Fact

    def fact(self, without: Collection[ProofGuard] = ()) -> Fact:
        """Returns the lemma as one condition, to be proved for all numbers, without the guards `without`."""
        kept = [fact for guard, fact in self.guarded if guard not in without]
        return implies(every([*self.premises, *kept]), self.conclusion)


def _real(name: str) -> Amount:
    return Symbol(name, whole=False)


def _amounts(*names: str) -> tuple[tuple[Amount, ...], tuple[Fact, ...]]:
    """Returns a symbol for each name, and the facts that these symbols are not negative."""
    made = tuple(map(_real, names))
    return made, tuple(amount >= 0 for amount in made)


def _parts(*names: str) -> tuple[tuple[Amount, ...], tuple[Fact, ...]]:
    made, facts = _amounts(*names)
    return made, (*facts, *(part <= 1 for part in made))


ONE: Final = Constant(1)


def _sliding() -> list[Lemma]:
    (current, previous, cost, allowance), amounts = _amounts("current", "previous", "cost", "allowance")
    (part, later, read), parts = _parts("part", "later", "read")
    fades = later <= part

    def use(now: Amount, before: Amount, covered: Amount) -> Amount:
        return now + Product(before, covered)

    charged = current + cost
    # The use that the hub counts for a departed node: the reported count, and the allowance beyond it.
    folded = allowance - Product(previous, later)
    return [
        Lemma(
            "a charge that fits by the node's clock fits by the hub's",
            (*amounts, *parts, use(charged, previous, read) <= allowance),
            ((ProofGuard.CLOCK_READ_LATE, read >= part),),
            use(charged, previous, part) <= allowance,
        ),
        Lemma(
            "use falls by itself",
            (*amounts, *parts, fades, use(current, previous, part) <= allowance),
            (),
            use(current, previous, later) <= allowance,
        ),
        Lemma(
            "an edge changes no use",
            (*amounts, use(current, previous, NOTHING) <= allowance),
            (),
            use(NOTHING, current, ONE) <= allowance,
        ),
        Lemma(
            "what the hub keeps of a vanished node fades no faster than what it used",
            (
                *amounts,
                *parts,
                fades,
                read <= later,
                use(current, previous, part) <= allowance,
                _real("kept") <= folded,
            ),
            ((ProofGuard.WHOLE_FADING_USE_FOLDS, _real("kept") >= folded),),
            use(current, previous, read) <= use(_real("kept"), previous, read),
        ),
        Lemma(
            "likewise in the next window",
            (*amounts, *parts, fades, use(current, previous, part) <= allowance, _real("kept") <= folded),
            ((ProofGuard.WHOLE_FADING_USE_FOLDS, _real("kept") >= folded),),
            Product(current, read) <= Product(_real("kept"), read),
        ),
    ]


def _floating() -> list[Lemma]:
    (reported, previous, vouchers, kept, current, fresh), amounts = _amounts(
        "reported", "previous", "vouchers", "kept", "current", "fresh"
    )
    (part,), parts = _parts("part")
    within = current <= reported + vouchers
    counted = (ProofGuard.VOUCHERS_COUNT_UNTIL_REPORT, kept >= vouchers)
    ended = (ProofGuard.VOUCHERS_END_WITH_WINDOW, equal(fresh, 0))
    return [
        Lemma(
            "in the window of the answer a node uses its count and its vouchers",
            (*amounts, *parts, within),
            (counted,),
            current + Product(previous, part) <= reported + kept + Product(previous, part),
        ),
        Lemma(
            "in the next window it uses no more than the hub counts, which has opened it, too",
            (*amounts, *parts, within, fresh <= reported + vouchers),
            (counted, ended),
            fresh + Product(current, part) <= kept + Product(reported, part),
        ),
        Lemma(
            "nor more than a hub counts that has not",
            (*amounts, *parts, within, fresh <= reported + vouchers),
            (counted, ended),
            fresh + Product(current, part) <= reported + kept,
        ),
    ]


def _buckets() -> list[Lemma]:
    (fleet, mine, others, at_hub, drains, d_mine, d_others, d_hub), amounts = _amounts(
        "fleet", "mine", "others", "at hub", "drains", "drains mine", "drains others", "drains hub"
    )
    (share, share_others, rest), parts = _parts("share", "share of others", "rest")

    def drained(level: Amount, by: Amount) -> Amount:
        return larger(level - by, 0)

    left = drained(mine, d_mine) + drained(others, d_others) + drained(at_hub, d_hub)
    (charged, vouchers, allowances, capacity), more = _amounts("charged", "vouchers", "allowances", "capacity")
    return [
        Lemma(
            "all buckets together drain no faster than the limit's",
            (
                *amounts,
                *parts,
                fleet <= mine + others + at_hub,
                d_others <= Product(drains, share_others),
                share + share_others + rest <= 1,
            ),
            (
                (ProofGuard.DRAINS_BY_ALLOWANCE, d_mine <= Product(drains, share)),
                (ProofGuard.HUB_DRAINS_BY_REST, d_hub <= Product(drains, rest)),
            ),
            drained(fleet, drains) <= left,
        ),
        Lemma(
            "a node whose share the hub has dealt out again drains nothing",
            (*amounts, fleet <= mine + others, d_others <= drains),
            ((ProofGuard.DRAINS_IN_LEASE, equal(d_mine, 0)),),
            drained(fleet, drains) <= drained(mine, d_mine) + drained(others, d_others),
        ),
        Lemma(
            "what a node pours into the hub's bucket fits there",
            (*more, at_hub >= 0, at_hub + vouchers + allowances <= capacity),
            ((ProofGuard.CHARGES_WITHIN_VOUCHERS, charged <= vouchers),),
            at_hub + charged + allowances <= capacity,
        ),
    ]


def _quotas() -> list[Lemma]:
    (before, after, low, high, mine, others, part, part_others, own, own_others), amounts = _amounts(
        "before", "after", "low", "high", "mine", "others", "part", "part of others", "own", "own of others"
    )
    smaller_quota = (low > 0) & (low <= high)
    scaled = Product(after, high) <= Product(before, low)
    is_part = Product(part, high) >= before
    return [
        Lemma(
            "a smaller quota makes no node's part larger",
            (*amounts, smaller_quota, is_part, after <= before),
            ((ProofGuard.SCALES_DOWN, scaled),),
            after <= Product(part, low),
        ),
        Lemma(
            "nor does an answer that was granted of the larger one",
            (*amounts, smaller_quota, is_part, after <= before),
            ((ProofGuard.ANSWERS_SCALE_DOWN, scaled),),
            after <= Product(part, low),
        ),
        Lemma(
            "what is dealt out of the smallest capacity are parts that sum to one",
            (
                *amounts,
                mine + others <= low,
                low > 0,
                equal(Product(part, own), mine),
                equal(Product(part_others, own_others), others),
            ),
            ((ProofGuard.SMALLEST_CAPACITY, (own >= low) & (own_others >= low)),),
            part + part_others <= 1,
        ),
    ]


def lemmas() -> list[Lemma]:
    """Returns all lemmas: of sliding windows, buckets, and nodes with different quotas."""
    return [*_sliding(), *_floating(), *_buckets(), *_quotas()]


IN_LEMMAS: Final = frozenset(guard for lemma in lemmas() for guard, _ in lemma.guarded)
"""The guards that lemmas need; actions need all others."""
