"""Ends, by an operator's order, the time in which a hub that has lost its data grants nothing of strict limits."""

# Theory of operation.
#
# The problem. A hub that has lost its data grants nothing of a strict limit until nothing from before can count any
# more: a lease and two windows. Of a limit per month that is 62 days. Most of what it waits for it knows after seconds,
# because every live node reports its counts and its allowances again. What it cannot know is what departed nodes had
# used, which the lost data knew, and what nodes hold that are cut off just now.
#
# Why nothing does this by itself. A hub cannot tell a node that is gone from one that is cut off, nor whether any node
# had left before the loss. An operator can, or can accept the price: what such nodes had used, or use meanwhile, may
# be admitted once more.
#
# How it works. The data go on as if they had begun so long ago that no wait is left (`ADOPTED_US`), and stay lost: a
# node that comes back from before the loss shows nothing new. Each cell's own wait ends. A node that brings allowances
# along has its cells wait as briefly as those of a limit that is not strict. All of it is part of the data: other data,
# after the next loss, know nothing of it.
from __future__ import annotations

from reconverge.hub.adopting import Adoption, HubData
from reconverge_sync.merge.rule import ADOPTED_US, SPEAK_UP_US, LedgerShard


def data_of(shard: LedgerShard, hub_us: int) -> HubData:
    """Returns the state of a shard's data, for an operator."""
    live = [each for each in shard.nodes.values() if not each.gone and hub_us - each.seen_us <= each.lease_us]
    waits = shard.born_us not in (0, ADOPTED_US)
    interval_us = max((each.interval_us for each in live), default=0)
    return HubData(
        hub_us=hub_us,
        generation=shard.generation,
        lost=shard.lost,
        begun_us=shard.born_us if waits else 0,
        reports_until_us=shard.born_us + max(2 * interval_us, interval_us + SPEAK_UP_US) + shard.grace_us
        if waits
        else 0,
        nodes=len(live),
        adopted=shard.adopted,
    )


def refusal(data: HubData, generation: str) -> str:
    """Returns the reason why a loss of data cannot be adopted; an empty string if it can."""
    if not data.generation:
        return "no node has reported to the hub yet, so there is nothing to adopt"
    if data.generation != generation:
        return f"the hub's data are called {data.generation}, not {generation}; check again what was lost"
    if not data.waits and data.adopted == 0:
        return "the hub has lost nothing, and waits for nothing"
    if data.hub_us < data.reports_until_us:
        left_s = (data.reports_until_us - data.hub_us) / 1_000_000
        return f"nodes may still be reporting what they know; come back in {left_s:.1f} s"
    return ""


def adopt(shard: LedgerShard, generation: str, hub_us: int) -> Adoption:
    """Ends a shard's wait if its data have that generation; returns the outcome."""
    problem = refusal(data_of(shard, hub_us), generation)
    if problem:
        return Adoption(problem, 0)
    shard.lost, shard.born_us, shard.adopted = True, ADOPTED_US, shard.adopted + 1
    waiting = [cell for cell in shard.cells.values() if cell.learn_until_us > 0]
    for cell in waiting:
        cell.learn_until_us = 0
    return Adoption("", len(waiting))
