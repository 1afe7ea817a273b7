"""Explains a customer's limits by the use of the whole fleet; works on nodes, and in programs that are none."""

# Theory of operation.
#
# A customer's limits follow from the contracts, which are the same everywhere. Its use is at the hub, to which all
# nodes report it. So a program that has the contracts and the hub can explain as a node does. If nodes hash keys, it
# needs their secret for that, too. It is no node: it reports nothing, and the hub stores nothing for it.
#
# Such a program declares the limits as a node does, in a kernel that never exchanges, because the hub finds a key by
# the properties of its limit: the name at the hub, the algorithm and the window. Nodes and this program use the same
# code to find the place and the shard of a key.
#
# By the hub's total a customer may go on if less than the quota is used. A node may still refuse it for a moment, while
# the rest of the quota is in the allowances of other nodes; `lines` is the sum of these allowances.

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reconverge.agent.fleet_usage import FleetUsage, asking_kernel, read_fleet
from reconverge.clock import SECOND_NS, Clock
from reconverge.contracts.answers import Asked, check_facts, hub_name, key_of, missing_fact, tier_name
from reconverge.contracts.explaining import Explanation, LimitStanding, MissingFact, explained
from reconverge.contracts.model import CUSTOMER, Document, InvalidContracts, check_identity
from reconverge.contracts.terms import Term, switch_at, terms_of
from reconverge.decision import Decision, Usage
from reconverge.errors import HubUnavailable, InvalidLimit, LimitConflict
from reconverge.hub.port import Hub
from reconverge.kernel import Table
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import TIER
from reconverge.limiter.long_keys import fitting
from reconverge.policies import choose

KEY_BYTES_MAX: Final = 256
"""The longest key of an agent with default settings, in bytes."""
UNSUPPORTED: Final = "the hub cannot return the counts of all servers"


def in_memory(asked: Asked) -> LimitStanding:
    """Returns the state of one limit for a customer, from this node's memory."""
    limiter, key = asked.limiter, asked.key
    decision, usage = limiter.test(key), limiter.usage(key)
    return LimitStanding(asked.term, decision, usage, shadow=asked.shadow, off=asked.switch == "off")


def by_hub(asked: Asked, usage: FleetUsage) -> LimitStanding:
    """Returns the state of one limit for a customer: its use as the hub counts it, its switch as on this node.

    The switch is whether the limit is on, off or in shadow.
    """
    switched = asked.limiter.switched
    shadow, off = asked.shadow or switched == "shadow", "off" in (asked.switch, switched)
    return replace(standing_with(asked.term, asked.limiter.limit, usage), shadow=shadow, off=off)


def standing_with(term: Term, limit: Limit, usage: FleetUsage) -> LimitStanding:
    """Returns the state of one limit for a customer from `usage`, the use that the hub has returned.

    `limit` is the limit that the hub was asked about; it is lower than the limit of `term` if this node has a cap.
    """
    in_force = limit.nominal * min(usage.limit, limit.capacity) // limit.capacity
    allowed, certain = usage.left > 0, usage.learning <= 0
    wait_s = 0.0 if allowed else usage.next_free
    decision = Decision(allowed, in_force, usage.left, wait_s, wait_s, 0.0, certain=certain)
    known = Usage(own=0, total=usage.used, limit=in_force, allowance=0, staleness=0.0)
    return LimitStanding(term, decision, known, lines=min(usage.allowances, usage.left))


def foreseen_use(limit: Limit, usage: FleetUsage) -> FleetUsage:
    """Returns the use to expect once all nodes have the new `limit`, from the `usage` under the present limit.

    If the present limit has room and the new one has none, the wait is unknown, and a whole window is assumed.
    """
    left = max(0, limit.capacity - usage.used)
    later = usage.next_free if usage.left <= 0 else limit.window_ns / SECOND_NS
    return replace(usage, limit=limit.capacity, left=left, next_free=0.0 if left else later)


def why_unknown(error: HubUnavailable) -> str:
    """Returns a clause on why the hub did not return the fleet's use.

    It shows only the error's kind, because the error's message may name hosts.
    """
    return UNSUPPORTED if error.kind == "unsupported" else f"the hub does not answer ({error.kind})"


class HubExplainer:
    """Explains the state of customers' limits from the use at a hub, in a program that is no node.

    Args:
        hub: a hub that is a `reconverge.hub.KeyReader`. If nodes hash keys, it must hash them in the same way.
        hub_name: the hub's name in messages.
        namespace: the fleet's namespace.
        document: the contracts in force.
        clock: the clock by which plans begin and end.
        foreseen: whether the contracts are not in force yet; then explains the state once all nodes have them.
        own: whether to explain only limits that count by the customer and nothing else.
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
        self._kernel = asking_kernel(namespace, hub)

    async def explain(self, customer: str, **facts: str) -> Explanation:
        """Explains whether a customer's next request would be admitted, by the fleet's use.

        Switches and caps of single nodes are unknown here. Raises MissingFact; InvalidKey for a fact that is no text,
        or empty; InvalidContracts for an invalid customer name; HubUnavailable.
        """
        check_identity(customer, "customer")
        now_s = self._clock.wall_ns() / SECOND_NS
        terms = terms_of(self._document, customer, now_s)
        explained_terms = [term for term in terms.terms if term.by == (CUSTOMER,) or not self._own]
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
        """Returns the kernel's `Table` of a limit, and the key under which it counts a customer's request with `facts`.

        Raises MissingFact, InvalidKey and InvalidContracts.
        """
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
    word = switch_at(standing.term, key_of(standing.term.by, customer, facts), now_s)
    return replace(standing, shadow=word == "shadow", off=word == "off")
