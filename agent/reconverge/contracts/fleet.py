"""How customers stand in the whole fleet: on a node, and for a reader that is none, such as a command."""

# Theory of operation.
#
# What holds for a customer follows from the contracts, which are the same everywhere; what it has used is at the hub,
# where all nodes tell it. So a program that has both, and the secret with which keys are hashed if they are, says what
# a node would say, and need be no node: it reports nothing, and the hub begins to keep nothing.
#
# A reader declares the limits as a node does, in a kernel that never exchanges, because the hub finds a key by what a
# node says of the limit: its name there, how it is counted, over which window. Where keys are counted, and in which
# shard they are, is said in one place for both.
#
# By the hub's word a customer may go on if less than the quota is used. A node may refuse it for a moment all the same,
# while other nodes hold what is left: `lines` says how much that is.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reconverge.agent.fleet_usage import FleetUsage, read_fleet
from reconverge.clock import SECOND_NS, Clock
from reconverge.contracts.answers import Asked, check_facts, hub_name, key_of, missing_fact, tier_name
from reconverge.contracts.explaining import Explanation, LimitStanding, MissingFact, explained
from reconverge.contracts.model import CUSTOMER, Document, InvalidContracts, check_identity
from reconverge.contracts.terms import Term, switch_at, terms_of
from reconverge.decision import Decision, Usage
from reconverge.errors import HubUnavailable, InvalidLimit, LimitConflict
from reconverge.hub.port import Hub
from reconverge.kernel import Kernel, Table
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import TIER
from reconverge.limiter.long_keys import fitting
from reconverge.policies import choose

KEY_BYTES_MAX: Final = 256
"""The longest key of an agent that says nothing else."""
INTERVAL_NS: Final = SECOND_NS
"""A kernel has an interval, and this one never exchanges."""
UNSUPPORTED: Final = "the hub does not tell what all servers have counted"


def in_memory(asked: Asked) -> LimitStanding:
    """How a customer stands with one limit, as far as this node knows."""
    limiter, key = asked.limiter, asked.key
    decision, usage = limiter.test(key), limiter.usage(key)
    return LimitStanding(asked.term, decision, usage, shadow=asked.shadow, off=asked.switch == "off")


def by_hub(asked: Asked, usage: FleetUsage) -> LimitStanding:
    """How a customer stands with one limit by what the hub knows, and as this node has switched it."""
    switched = asked.limiter.switched
    shadow, off = asked.shadow or switched == "shadow", "off" in (asked.switch, switched)
    return replace(standing_with(asked.term, asked.limiter.limit, usage), shadow=shadow, off=off)


def standing_with(term: Term, limit: Limit, usage: FleetUsage) -> LimitStanding:
    """How a customer stands with one limit by what the hub knows; `limit` is what was asked about, maybe capped."""
    in_force = limit.nominal * min(usage.limit, limit.capacity) // limit.capacity
    allowed, certain = usage.left > 0, usage.learning <= 0
    wait_s = 0.0 if allowed else usage.next_free
    decision = Decision(allowed, in_force, usage.left, wait_s, wait_s, 0.0, certain=certain)
    known = Usage(own=0, total=usage.used, limit=in_force, allowance=0, staleness=0.0)
    return LimitStanding(term, decision, known, lines=min(usage.allowances, usage.left))


def foreseen_use(limit: Limit, usage: FleetUsage) -> FleetUsage:
    """Foresees the rest of a limit that not all nodes go by yet: the hub knows the rest of the former one.

    Where that leaves something and the limit does not, nothing shows when one is free: after a window at the latest.
    """
    left = max(0, limit.capacity - usage.used)
    later = usage.next_free if usage.left <= 0 else limit.window_ns / SECOND_NS
    return replace(usage, limit=limit.capacity, left=left, next_free=0.0 if left else later)


def why_unknown(error: HubUnavailable) -> str:
    """Why the fleet's use is unknown: the kind of the failure alone, as the rest may name hosts and users."""
    return UNSUPPORTED if error.kind == "unsupported" else f"the hub does not answer ({error.kind})"


def own_terms(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Those limits that count by the customer and nothing else: of others each fact stands for itself, or for many."""
    return tuple(term for term in terms if term.by == (CUSTOMER,))


class HubExplainer:
    """Explains how customers stand from what a hub has, in a program that is no node.

    Args:
        hub: answers readers of keys (`reconverge.hub.KeyReader`). Where nodes hash keys, one that hashes them likewise.
        hub_name: what it may be called in messages.
        namespace: the fleet's.
        document: the contracts in force.
        clock: decides which plan holds.
        foreseen: the contracts are not in force yet; explain how customers would stand once all nodes go by them.
        own: explain those limits alone that count by the customer and by nothing else.
    """

    def __init__(
        self,
        hub: Hub,
        hub_name: str,
        *,
        namespace: str,
        document: Document,
        clock: Clock,
        foreseen: bool = False,
        own: bool = False,
    ) -> None:
        self._hub = hub
        self._hub_name = hub_name
        self._document = document
        self._clock = clock
        self._foreseen = foreseen
        self._own = own
        self._policy = choose(None)
        self._kernel = Kernel(
            clock,
            namespace=namespace,
            interval_ns=INTERVAL_NS,
            interval_min_ns=INTERVAL_NS,
            keys_max=1,
            key_bytes_max=KEY_BYTES_MAX,
            shards=hub.shards,
        )

    async def explain(self, customer: str, **facts: str) -> Explanation:
        """How a customer stands by the use of the whole fleet. Switches and caps of single nodes are not known here.

        Raises MissingFact; InvalidKey for a fact that is no text, or empty; InvalidContracts for what no customer can
        be called; HubUnavailable.
        """
        check_identity(customer, "customer")
        now_s = self._clock.wall_ns() / SECOND_NS
        terms = terms_of(self._document, customer, now_s)
        explained_terms = own_terms(terms.terms) if self._own else terms.terms
        places = [self._place(term, customer, facts) for term in explained_terms]
        usages = await read_fleet(places, self._kernel, self._hub, self._hub_name) if places else []
        if self._foreseen:
            usages = [foreseen_use(term.limit, usage) for term, usage in zip(explained_terms, usages, strict=True)]
        standings = [
            _switched(standing_with(term, term.limit, usage), customer, facts, now_s)
            for term, usage in zip(explained_terms, usages, strict=True)
        ]
        return explained(customer, terms.plan, standings, fleetwide=True)

    def _place(self, term: Term, customer: str, facts: dict[str, str]) -> tuple[Table, str]:
        """Where a limit counts a customer. Raises MissingFact, InvalidKey and InvalidContracts."""
        missing = missing_fact(term, facts)
        if missing is not None:
            raise MissingFact(term.name, missing)
        check_facts(term, facts)
        name = hub_name(term)
        try:
            table = self._kernel.tier(
                f"{name}{TIER}{tier_name(term.limit)}", term.limit, self._policy, reported_as=name
            )
        except (InvalidLimit, LimitConflict) as error:
            raise InvalidContracts(str(error), "plans", term.tier, "limits", term.name) from None
        return table, table.check_key(fitting(key_of(term.by, customer, facts), KEY_BYTES_MAX))


def _switched(standing: LimitStanding, customer: str, facts: dict[str, str], now_s: float) -> LimitStanding:
    """The same, as the contract has switched the limit."""
    word = switch_at(standing.term, key_of(standing.term.by, customer, facts), now_s)
    return replace(standing, shadow=word == "shadow", off=word == "off")
