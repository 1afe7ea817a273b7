"""Decides requests by customers' contracts: if all limits of a contract have room, all are charged; else none is."""

# Theory of operation.
#
# A document has plans and customers (`document.py`). `terms.py` finds the limits that are in force for a customer at a
# moment: its terms. This file makes a limiter of each of these limits, by `Agent.tier`. Limiters of one limit name
# share their counts if algorithm and window are the same. A customer is in one of them at a time, so what it has used
# stays counted when its plan changes. The limiters of a plan are made once. The standing of a customer (its terms with
# their limiters) is made at its first request, and cached. A customer that has nothing but a plan shares the plan's
# limiters.
#
# A request names the customer, and facts: further values by which limits count, such as a user. Most contracts have one
# limit, which is one call of its limiter. With several, all are charged in one moment or none is (`limiter/joint.py`).
# A limit that is switched off is not asked. A limit in shadow is charged after the others have admitted the request,
# and refuses nothing.
#
# When a new document changes a customer's quota, a node moves the customer's keys to the limiter of the new quota at
# once, and does not wait for the customer's next request. The reason is that a larger quota is in force only when all
# nodes have reported it: a node without requests would keep the smaller one in force on all. Keys that are made of
# several facts are searched among all keys of the node.
#
# No decision waits for a change of the document: the slow work is done before and after the new document comes into
# force, and the lock that decisions also take is held only for the step in between. A decision that has begun by one
# document ends by it.
#
# A node may have caps: no document can raise a limit beyond its cap, or switch a limit that has a cap off or to shadow.

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, NoReturn

from reconverge.agent.agent import Agent
from reconverge.agent.erasing import WAIT_S, Forgotten
from reconverge.arguments import checked_class
from reconverge.clock import SECOND_NS, Seconds, in_seconds
from reconverge.contracts.answers import (
    Asked,
    ContractDecision,
    ErasableMeter,
    Standing,
    UsageMeter,
    cells_name,
    check_facts,
    hub_name,
    identity_in,
    key_of,
    missing_fact,
    tier_name,
)
from reconverge.contracts.document import checked
from reconverge.contracts.explaining import NOT_MET, Explanation, MissingFact, explained
from reconverge.contracts.fleet import by_hub, in_memory, why_unknown
from reconverge.contracts.meeting import (
    customers_changed,
    is_past,
    keep_what_held,
    named_in,
    still_pending,
    terms_met,
    wait_for_page,
    wait_for_page_blocking,
)
from reconverge.contracts.model import (
    CUSTOMER,
    REFUSED,
    Customer,
    Document,
    InvalidContracts,
    check_identity,
    overridden,
)
from reconverge.contracts.on_demand.customers import OnDemandCustomers
from reconverge.contracts.store.reader import ContractsReader
from reconverge.contracts.terms import Term, Terms, cap_as_said, log_idle, switch_at, within_cap
from reconverge.decision import Decision, Usage
from reconverge.errors import CostExceedsQuota, HubUnavailable, InvalidLimit, InvalidSetting, LimitConflict, NeedsSlot
from reconverge.limit.quotas import TIER
from reconverge.limiter.awaiting import undecided
from reconverge.limiter.certainty import cost_in_first_quota, has_charged, never_admitted
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.joint import Jointly, Member, can_be_joined, hit_together, is_closed, member_of
from reconverge.limiter.long_keys import fitting
from reconverge.limiter.reservation import Reservation
from reconverge.runtime.locks import new_lock

logger = logging.getLogger("reconverge")

WITHIN_S: Final = 0.025
MEETING_S: Final = 1.0
"""The longest time, in seconds, for which `meet` and `reset` wait until a customer's contract is fetched."""
ONLY_CUSTOMER: Final = (CUSTOMER,)
IN_A_GUARD: Final = (
    "would take a slot and never free it; decide by a guard, which frees the slot when the response has ended: "
    "Rule(limits=contracts)"
)
NOTHING_TO_RESET: Final = (
    "would change nothing: work in progress counts until it ends, and the contract has no other limit"
)
ELSEWHERE: Final = {
    **dict.fromkeys(
        ("allow", "check", "consume", "is_allowed", "try_acquire"),
        "contracts.hit(customer), which charges, and is true if the request may go on",
    ),
    **dict.fromkeys(("wait", "wait_blocking"), "contracts.hit(customer).retry_after, the seconds to wait for"),
    **dict.fromkeys(("usage", "remaining", "peek"), "contracts.usages(customer), which charges nothing"),
    "slot": "Rule(limits=contracts), whose guard frees the slot when the response has ended",
}
"""Methods of limiters that contracts lack, each with the code to write, for the end of an error message."""
STANDINGS_MAX: Final = 100_000
"""The most customers whose limits are cached. If there are more, the cache is emptied; an entry is made in
microseconds."""


def _check_table(document: object) -> None:
    if not isinstance(document, Mapping):
        problem = "must be a dict, as yaml.safe_load returns it for a file of contracts"
        raise InvalidSetting("document", document, problem)


class Contracts:
    """Decides requests in one agent by the contracts of customers; explains and resets what customers have used.

    Args:
        agent: the agent that counts the requests. Its policy is used if `policy` is None.
        document: the contracts, as `checked` returns them, or a dict as read from a file.
        policy: "strict", "balanced" and so on, as for `Agent.limit`.
        caps: for a limit's name, a limit string over the same window, beyond which no document can raise the limit.
        meter: a `reconverge.usage.Meter`, which counts what `hit`, `ask` and `ask_blocking` charge to each limit of
            each customer. A guard whose rules use these contracts must have the same meter; it counts its own requests
            there, with their routes and later corrections.

    Raises:
        InvalidContracts: the document is invalid.
        InvalidSetting: a cap does not fit a limit.
    """

    def __init__(
        self,
        agent: Agent,
        document: Document | Mapping[str, object],
        *,
        policy: str | None = None,
        caps: Mapping[str, str] | None = None,
        meter: UsageMeter | None = None,
    ) -> None:
        self.agent = checked_class("agent", agent, Agent, "write Contracts(agent, document)")
        self.meter = meter
        """The meter that counts each request for billing; None if there is none."""
        self.reader: ContractsReader | None = None
        """Reads the contracts at the hub, and has `stats()`; None unless `follow_hub` has set it."""
        self._policy = policy
        self._caps = {name: cap_as_said(name, text) for name, text in (caps or {}).items()}
        self._changing = new_lock()
        """The lock of the thread that puts another document in force; no decision takes this lock."""
        self._lock = new_lock(whole=True)
        """The lock that decisions take, too: held only for a step or two, even with many customers."""
        self._document = Document({})
        self._standings: dict[str, Standing] = {}
        self._formerly: tuple[dict[str, Standing], ...] = ()
        """The caches of former documents, the newest first. Provisional entries, made while a customer's contract was
        not fetched, are still needed."""
        self._plans: dict[str, tuple[tuple[Term, Limiter], ...]] = {}
        self._declared: set[str] = set()
        """The names of all limiters that were declared and not dropped since."""
        self.version = 0
        """The version of the document in force."""
        self._logged_by_hand = False
        self.replace(document)
        log_idle(self._caps, self._document)
        agent.on_forget(self._forget)

    if not TYPE_CHECKING:  # a type checker reports each name that is missing

        def __getattr__(self, name: str) -> NoReturn:
            """Raises AttributeError. For a method of a limiter, the message shows what to write."""
            hint = f": contracts decide about customers; write {ELSEWHERE[name]}" if name in ELSEWHERE else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    # ------------------------------------------------------------ what is in force

    @property
    def document(self) -> Document:
        """Returns the contracts document that is in force."""
        return self._document

    def replace(self, document: Document | Mapping[str, object], version: int = 0) -> None:
        """Puts another document in force from the next decision on. What customers have used stays counted.

        A limit that has another algorithm or window in the new document begins with empty counts. So that a customer
        cannot use its quota twice, the document can list the former limit, which then stays in force for a while; a
        `Book` lists it.

        Raises InvalidContracts, and changes nothing, if the document is invalid or cannot be in force on this node.
        """
        if not isinstance(document, Document):
            _check_table(document)
            document = checked(dict(document))
        if self.reader is not None and not version and not self._logged_by_hand:  # versions of a hub begin with 1
            self._logged_by_hand = True
            logger.warning(
                "reconverge: replace() puts a document in force on this node alone, while follow_hub puts in force what"
                " is at the hub (version %d so far), whose next version replaces that document; publish it at the hub,"
                " by replace() of a HubBook or reconverge contracts publish",
                self.version,
            )
        with self._changing:
            plans = {name: self._parts(terms) for name, terms in self._terms_of_plans(document)}
            self.check_customers(named_in(document), document)
            with self._lock:
                before, self._document = self._document, document
                self._plans, self.version = plans, version
                self._begin_standings_anew()
            self._keep_pending()
            self._take_over(customers_changed(before, document, self._met))
            self._drop_past()

    def terms(self, customer: str) -> Terms:
        """Returns the plan and the limits that are in force for a customer now."""
        return terms_met(self._document, customer, self._now_s())[0]

    # ------------------------------------------------------------ deciding

    def hit(self, customer: str, cost: int = 1, *, kind: str | None = None, **facts: str) -> ContractDecision:
        """Decides whether the customer may use `cost` now; if so, charges all limits of its contract. Never waits.

        `facts` are further values by which limits count, by their names, such as `user="ada"`.

        Raises:
            MissingFact: a limit counts by a fact that `facts` lacks.
            InvalidContracts: the customer is no text, is empty or too long, or holds NUL.
            InvalidKey: a fact is no text, or is empty.
            InvalidKey, InvalidCost, CostExceedsQuota, UnknownKind: as `RateLimiter.hit` does.
            NeedsSlot: the contract limits requests in progress; a guard has to decide, because it sees when a request
                ends: `Rule(limits=contracts)`.
        """
        standing = self.standing(customer)
        if standing.plain is not None:
            decision = standing.plain.hit(customer, cost, standing.kind(kind))
            return self._counted(self._plainly(customer, standing, decision), standing, cost, kind)
        asked = _without_slots(self.asked(customer, standing, facts), "hit")
        joined = _joined(asked)
        answers = self._answers(joined, cost, kind, within_ns=0)
        return self._decided(customer, standing, asked, joined, answers, cost, kind)

    def test(self, customer: str, cost: int = 1, *, kind: str | None = None, **facts: str) -> ContractDecision:
        """Returns the decision that `hit` would make now, and charges nothing."""
        standing = self.standing(customer)
        asked = self.asked(customer, standing, facts)
        decisions = {each.label: _decision_of(each, each.limiter.test, cost, kind) for each in asked}
        return self._answer(customer, standing, decisions, {each.label for each in asked if each.shadow})

    @undecided
    async def ask(
        self, customer: str, cost: int = 1, *, within: Seconds = WITHIN_S, kind: str | None = None, **facts: str
    ) -> ContractDecision:
        """Decides as `hit` does, but in doubt asks the hub about all limits, and waits for its answer.

        A decision is in doubt if the hub's answer might change it. The wait is at most `within` seconds.
        """
        within_s = in_seconds(within)
        standing = self.standing(customer)
        if standing.pending:
            within_s = await wait_for_page(self._document, customer, within_s)
            standing = self.standing(customer)
        within_ns = round(within_s * SECOND_NS)
        if standing.plain is not None:
            decision = await standing.plain.ask(customer, cost, within=within_s, kind=standing.kind(kind))
            return self._counted(self._plainly(customer, standing, decision), standing, cost, kind)
        asked = _without_slots(self.asked(customer, standing, facts), "ask")
        joined = _joined(asked)
        answers = _closed_to(joined, cost, kind)
        jointly = self._jointly(joined, cost, kind, within_ns) if joined and answers is None else None
        if jointly is not None:
            answers = jointly.at_once(blocking=False)
            if answers is None:
                answers = await jointly.ask()
        return self._decided(customer, standing, asked, joined, answers or (), cost, kind)

    def ask_blocking(
        self, customer: str, cost: int = 1, *, within: Seconds = WITHIN_S, kind: str | None = None, **facts: str
    ) -> ContractDecision:
        """Decides as `ask` does, but blocks the calling thread while it waits.

        Where blocking is not allowed, as on an event loop, it decides from memory.
        """
        within_s = in_seconds(within)
        standing = self.standing(customer)
        if standing.pending:
            within_s = wait_for_page_blocking(self._document, customer, within_s)
            standing = self.standing(customer)
        within_ns = round(within_s * SECOND_NS)
        if standing.plain is not None:
            decision = standing.plain.ask_blocking(customer, cost, within=within_s, kind=standing.kind(kind))
            return self._counted(self._plainly(customer, standing, decision), standing, cost, kind)
        asked = _without_slots(self.asked(customer, standing, facts), "ask_blocking")
        joined = _joined(asked)
        answers = self._answers(joined, cost, kind, within_ns)
        return self._decided(customer, standing, asked, joined, answers, cost, kind)

    # ------------------------------------------------------------ reading, resetting and explaining use

    def usages(self, customer: str, **facts: str) -> dict[str, Usage]:
        """Returns the customer's use of each limit, by the limit's name, as far as this node knows."""
        standing = self.standing(customer)
        return {
            each.label: each.limiter.usage(each.key) for each in self.asked(customer, standing, facts, lenient=True)
        }

    async def meet(self, customer: str, *, within: Seconds = MEETING_S) -> bool:
        """Waits until this node knows the contract of a customer. Returns whether the node knows it.

        There is a wait only on a node that fetches contracts on demand and has not fetched the customer's contract yet.
        """
        if self.standing(customer).pending:
            await wait_for_page(self._document, customer, in_seconds(within))
        return not self.standing(customer).pending

    def reset(self, customer: str, **facts: str) -> None:
        """Resets the use of the customer: on this node at once, on all others with their next exchange with the hub.

        A limit that counts by further facts is reset only for the values in `facts`. Limits on work in progress are not
        reset; raises NeedsSlot if the contract has only such limits.

        Raises HubUnavailable if the customer's contract has to be fetched first, and has not come within MEETING_S. On
        an event loop, where this method must not wait, call `await meet(customer)` first.
        """
        standing = self.standing(customer)
        if standing.pending:
            wait_for_page_blocking(self._document, customer, MEETING_S)
            standing = self.standing(customer)
        if standing.pending:
            raise HubUnavailable("page", f"{NOT_MET}; nothing was reset: try again", applied=False)
        places = self._places(customer, standing, facts, lenient=True)
        rates = [(each.limiter, each.key) for each in places if isinstance(each.limiter, RateLimiter)]
        if places and not rates:
            raise NeedsSlot(places[0].label, "reset", NOTHING_TO_RESET)
        for limiter, key in rates:
            limiter.control.reset(key)

    async def forget(self, customer: str, *, wait: Seconds = WAIT_S) -> Forgotten:
        """Erases all counts and usage of a customer, on all nodes and at the hub, as `Agent.forget` does.

        The customer's contract is not erased: `Book.forget` does that. While the contract stays, the customer is
        admitted as before, with no use.

        Raises InvalidContracts, and InvalidKey and HubUnavailable as `Agent.forget` does.
        """
        return await self.agent.forget(check_identity(customer, "customer"), wait=wait)

    def explain(self, customer: str, **facts: str) -> Explanation:
        """Explains whether the customer is admitted now, and if not, why and until when. Charges nothing.

        The explanation has a sentence for people. It is from this node's memory; `explain_fleet` asks the hub. Raises
        MissingFact if a limit counts by a fact that `facts` lacks.
        """
        standing = self.standing(customer)
        places = self._places(customer, standing, facts)
        problem = NOT_MET if standing.pending else ""
        return explained(customer, standing.plan, [in_memory(each) for each in places], problem=problem)

    async def explain_fleet(self, customer: str, **facts: str) -> Explanation:
        """Explains as `explain` does, but from the use of all nodes, which is at most a sync interval old.

        If the hub cannot be asked, explains from this node's memory, with the reason in `problem`. Raises MissingFact.
        """
        if not await self.meet(customer):
            return self.explain(customer, **facts)
        standing = self.standing(customer)
        places = self._places(customer, standing, facts)
        try:
            asked = [(each.limiter, each.key) for each in places]
            usages = await self.agent.fleet_usages_of(asked) if asked else []
        except HubUnavailable as error:
            standings, problem = [in_memory(each) for each in places], why_unknown(error)
            return explained(customer, standing.plan, standings, problem=problem)
        standings = [by_hub(each, usage) for each, usage in zip(places, usages, strict=True)]
        return explained(customer, standing.plan, standings, fleetwide=True)

    def standing(self, customer: str) -> Standing:
        """Returns a customer's limits in force with their limiters, from a cache if the entry is still valid."""
        standing = self._standings.get(customer) if isinstance(customer, str) else None
        if standing is None or (standing.until < inf and is_past(standing, self._document, customer, self._now_s())):
            standing = self._stand(customer)
        return standing

    def asked(
        self, customer: str, standing: Standing, facts: Mapping[str, str], *, lenient: bool = False
    ) -> list[Asked]:
        """Returns the limits that decide a request with `facts`, each with its key; leaves out limits that are off.

        Raises MissingFact if a limit counts by a fact that `facts` lacks; with `lenient`, leaves that limit out.
        """
        return [each for each in self._places(customer, standing, facts, lenient=lenient) if each.switch != "off"]

    # ------------------------------------------------------------ inside

    def _places(
        self, customer: str, standing: Standing, facts: Mapping[str, str], *, lenient: bool = False
    ) -> list[Asked]:
        places = []
        for term, limiter in standing.parts:
            missing = missing_fact(term, facts)
            if missing is not None and lenient:
                continue
            if missing is not None:
                raise MissingFact(term.name, missing)
            if term.by != ONLY_CUSTOMER:
                check_facts(term, facts)
            key = key_of(term.by, customer, facts)
            switch = "on" if not term.switches or term.name in self._caps else switch_at(term, key, self._now_s())
            places.append(Asked(term, limiter, fitting(key, limiter.control.key_bytes_max), switch))
        return places

    def _decided(
        self,
        customer: str,
        standing: Standing,
        asked: Sequence[Asked],
        joined: Sequence[Asked],
        answers: Sequence[tuple[Decision, Reservation | None]],
        cost: int,
        kind: str | None,
    ) -> ContractDecision:
        """Makes the decision of a contract from `answers`, the decisions and reservations of its `joined` limits.

        The `joined` limits are those that can refuse the request. All other limits of `asked`, such as those in shadow,
        are charged here if the request is admitted, and only tested if it is refused.
        """
        decisions = {each.label: decision for each, (decision, _) in zip(joined, answers, strict=True)}
        allowed = all(decision.allowed for decision, _ in answers)
        for each in asked:
            if each not in joined:
                limiter = each.limiter
                ask = limiter.hit if allowed and isinstance(limiter, RateLimiter) else limiter.test
                decisions[each.label] = _decision_of(each, ask, cost, kind)
        answer = self._answer(customer, standing, decisions, {each.label for each in asked if each.shadow})
        return self._counted(answer, standing, cost, kind)

    def _answers(
        self, joined: Sequence[Asked], cost: int, kind: str | None, within_ns: int
    ) -> Sequence[tuple[Decision, Reservation | None]]:
        if not joined:
            return ()
        closed = _closed_to(joined, cost, kind)
        if closed is not None:
            return closed
        if len(joined) > 1 and kind is None:
            claims = [(each.limiter, each.key, each.price(cost, None)[0]) for each in joined]
            at_once = hit_together(claims, certain=within_ns > 0)
            if isinstance(at_once, list):
                return [(decision, None) for decision in at_once]
        jointly = self._jointly(joined, cost, kind, within_ns)
        answers = jointly.at_once(blocking=True)
        return jointly.ask_blocking() if answers is None else answers

    @staticmethod
    def _jointly(joined: Sequence[Asked], cost: int, kind: str | None, within_ns: int) -> Jointly:
        members: list[Member] = [
            member_of(each.limiter, each.key, *each.price(cost, kind), within_ns, marks=False) for each in joined
        ]
        return Jointly(members)

    def _plainly(self, customer: str, standing: Standing, decision: Decision) -> ContractDecision:
        return self._answer(customer, standing, {standing.parts[0][0].name: decision})

    def _counted(self, answer: ContractDecision, standing: Standing, cost: int, kind: str | None) -> ContractDecision:
        """Reports the charges of a decision to the meter, if there is one. Returns the decision unchanged."""
        if self.meter is not None and answer.known:
            # A refused request counts as refused for all limits; a limit in shadow or off may have charged nothing.
            said = answer.decisions
            charges = [
                (term.name, cost_in_first_quota(limiter, cost, kind if limiter.control.has_costs else None))
                for term, limiter in standing.parts
                if term.name in said and not term.former and (has_charged(said[term.name]) or not answer.allowed)
            ]
            self.meter.add_request(answer.customer, charges, refused=not answer.allowed)
        return answer

    @staticmethod
    def _answer(
        customer: str, standing: Standing, decisions: Mapping[str, Decision], shadows: Iterable[str] = ()
    ) -> ContractDecision:
        refusing = {
            label: decision for label, decision in decisions.items() if not decision.allowed and label not in shadows
        }
        if standing.plan == REFUSED:
            return ContractDecision(allowed=False, customer=customer, plan=REFUSED, pending=standing.pending)
        if not refusing:
            return ContractDecision(True, customer, standing.plan, decisions, None, standing.pending)  # noqa: FBT003
        by = max(refusing, key=lambda label: refusing[label].retry_after)
        return ContractDecision(
            allowed=False,
            customer=customer,
            plan=standing.plan,
            decisions=decisions,
            refused_by=by,
            pending=standing.pending,
        )

    def _forget(self, is_named: Callable[[str], bool]) -> None:
        """Drops all that is stored here about customers for whose names `is_named` is true, and their metered usage."""
        for customer in [each for each in self._names_of_standings() if is_named(each)]:
            self._let_go_of(customer)
        customers = self._document.customers
        if isinstance(customers, OnDemandCustomers):
            customers.forget(is_named)
        meter: object = self.meter
        if isinstance(meter, ErasableMeter):
            meter.erase(is_named)

    def _stand(self, customer: str) -> Standing:
        check_identity(customer, "customer")
        while True:
            with self._lock:
                document, plans, standings, formerly = self._document, self._plans, self._standings, self._formerly
            former = next((each[customer] for each in (standings, *formerly) if customer in each), None)
            was_pending = former is not None and former.pending
            standing = self._worked_out(customer, document, plans, was_pending=was_pending)
            with self._lock:
                if self._standings is standings:  # no other document has come into force meanwhile
                    if len(standings) >= STANDINGS_MAX:
                        standings.clear()
                    standings[customer] = standing
                    for each in formerly:
                        each.pop(customer, None)
                    return standing

    def _worked_out(
        self,
        customer: str,
        document: Document,
        plans: Mapping[str, tuple[tuple[Term, Limiter], ...]],
        *,
        was_pending: bool,
    ) -> Standing:
        """Computes the limits in force for a customer from a document and the limiters of its plans.

        `was_pending`: whether the customer's previous limits were provisional, because its contract had not been
        fetched yet.
        """
        terms, pending = terms_met(document, customer, self._now_s(), was_pending=was_pending)
        parts = plans.get(terms.plan, ())
        if [term for term, _ in parts] != list(terms.terms):
            parts = self._parts(terms.terms)
        alone = parts[0] if len(parts) == 1 else None
        plain = None
        if alone and alone[0].by == (CUSTOMER,) and not alone[0].switches and isinstance(alone[1], RateLimiter):
            fits = fitting(customer, alone[1].control.key_bytes_max) == customer
            plain = alone[1] if fits else None
        return Standing(terms.plan, parts, terms.until, plain, pending)

    def _begin_standings_anew(self) -> None:
        self._formerly = (self._standings, *self._formerly)
        self._standings = {}

    def _keep_pending(self) -> None:
        """Drops the limits that are cached for former documents, except provisional ones.

        These are needed when the customer's contract is fetched.
        """
        formerly = self._formerly
        kept: dict[str, Standing] = {}
        for standings in reversed(formerly):
            kept |= still_pending(standings)
        with self._lock:
            if self._formerly is formerly:
                self._formerly = (kept,) if kept else ()

    def _let_go_of(self, customer: str) -> None:
        for standings in (self._standings, *self._formerly):
            standings.pop(customer, None)

    def _names_of_standings(self) -> list[str]:
        return [each for standings in (self._standings, *self._formerly) for each in list(standings)]

    def _terms_of_plans(self, document: Document) -> Iterable[tuple[str, tuple[Term, ...]]]:
        for name, plan in document.plans.items():
            yield (
                name,
                tuple(
                    Term(limit, each.limit, each.by, name, () if each.switch is None else (each.switch,))
                    for limit, each in plan.limits.items()
                ),
            )

    def _parts(self, terms: Iterable[Term]) -> tuple[tuple[Term, Limiter], ...]:
        return tuple((term, self._limiter(term)) for term in terms)

    def _limiter(self, term: Term) -> Limiter:
        """Declares a customer's limit, reduced to this node's cap, and returns its limiter.

        Raises InvalidContracts if the agent rejects the limit.
        """
        limit = term.limit
        cap = None if term.former else self._caps.get(term.name)  # a former limit only tightens
        if cap is not None:
            limit = within_cap(limit, cap, term.name)
        hub_knows = hub_name(term)
        name = f"{hub_knows}{TIER}{tier_name(limit)}"
        self._declared.add(name)
        try:
            return self.agent.tier(
                hub_knows, name, limit, policy=self._policy, called=term.name, has_cap=cap is not None
            )
        except (InvalidLimit, InvalidSetting, LimitConflict) as error:
            raise InvalidContracts(str(error), "plans", term.tier, "limits", term.name) from None

    def arrived(self, customers: OnDemandCustomers, hold: Callable[[], Iterable[str]]) -> None:
        """Puts a fetched page (a part of the contracts) in force, and moves its customers' counts to their own limits.

        `hold` stores the page. It returns the customers whose requests were decided before the page came, by
        provisional limits. Their counts move as they do when a customer changes plans.
        """
        with self._changing:
            identities = hold()
            if self._document.customers is not customers:
                return
            now_s, named = self._now_s(), list[str]()
            for identity in identities:
                if keep_what_held(self._document, customers, identity, now_s):
                    named.append(identity)
                self._let_go_of(identity)  # only now, so that its next standing includes the former limits
            self._take_over(named)

    def forget_standings(self) -> None:
        with self._changing:
            with self._lock:
                self._begin_standings_anew()
            self._keep_pending()

    def met(self) -> list[str]:
        return list(dict.fromkeys([*self._names_of_standings(), *self._met()]))

    def _take_over(self, changed: Collection[str]) -> None:
        """Moves the keys of the customers `changed`, with their counts, from limiters of former quotas to new ones."""
        for identity in changed:
            for term, limiter in self._stand(identity).parts:
                if term.by == (CUSTOMER,):
                    limiter.control.take_over(fitting(identity, limiter.control.key_bytes_max))
        wanted = set(changed)
        for term, limiter in self._counting_by_facts():
            for key in limiter.control.keys_beside():
                identity = identity_in(term.by, key)
                if CUSTOMER not in term.by:
                    limiter.control.take_over(key)
                elif identity in wanted:
                    for own, target in self._stand(identity).parts:
                        if (own.name, own.by, own.former) == (term.name, term.by, False):
                            target.control.take_over(key)

    def _drop_past(self) -> None:
        """Drops the limiters of past quotas. If a customer still needs one, its next request declares it again."""
        standing = [each.parts for known in (self._standings, *self._formerly) for each in list(known.values())]
        needed = {limiter.name for parts in (*self._plans.values(), *standing) for _, limiter in parts}
        past = self._declared - needed
        self._declared -= past
        self.agent.drop_tiers(past)

    def _counting_by_facts(self) -> list[tuple[Term, Limiter]]:
        """Returns one limiter for each limit that counts by other facts than the customer alone.

        One limiter is enough, because it also finds the keys that belong to limiters of the same name in other plans.
        """
        found = {hub_name(term): (term, limiter) for term, limiter in self._all_parts()}
        return [(term, limiter) for term, limiter in found.values() if term.by != (CUSTOMER,)]

    def _met(self) -> list[str]:
        met = dict[str, None]()
        for term, limiter in {cells_name(term): (term, limiter) for term, limiter in self._all_parts()}.values():
            for key in limiter.control.keys_beside() if CUSTOMER in term.by else ():
                identity = identity_in(term.by, key)
                if identity:
                    met[identity] = None
        return list(met)

    def _all_parts(self) -> Iterable[tuple[Term, Limiter]]:
        return (part for parts in self._plans.values() for part in parts)

    def check_customers(self, customers: Iterable[tuple[str, Customer]], document: Document) -> None:
        """Raises InvalidContracts if this node has a cap over another window than a customer's own limit has."""
        for identity, customer in customers if self._caps else ():
            for name, override in customer.limits.items():
                cap, own = self._caps.get(name), document.plans[customer.plan].limits.get(name)
                if cap is not None and own is not None:
                    try:
                        within_cap(overridden(own.limit, override), cap, name)
                    except InvalidContracts as error:
                        raise InvalidContracts(error.problem, "customers", identity, "limits", name) from None

    def _now_s(self) -> float:
        return self.agent.clock.wall_ns() / SECOND_NS


def _joined(asked: Sequence[Asked]) -> list[Asked]:
    return [each for each in asked if not each.shadow and (can_be_joined(each.limiter) or is_closed(each.limiter))]


def _closed_to(
    joined: Sequence[Asked], cost: int, kind: str | None
) -> list[tuple[Decision, Reservation | None]] | None:
    """Returns the decisions of all `joined` limits if one of them has a quota of 0, so that nothing can be admitted.

    Charges nothing. Returns None if no limit has a quota of 0.
    """
    if not any(is_closed(each.limiter) for each in joined):
        return None
    return [(_decision_of(each, each.limiter.test, cost, kind), None) for each in joined]


def _without_slots(asked: list[Asked], method: str) -> list[Asked]:
    for each in asked:
        if isinstance(each.limiter, SlotLimiter):
            raise NeedsSlot(each.label, method, IN_A_GUARD)
    return asked


def _decision_of(each: Asked, ask: Callable[..., Decision], cost: int, kind: str | None) -> Decision:
    """Returns the decision that `ask` makes for one limit; a cost above the limit's quota counts as refused."""
    try:
        return ask(each.key, *each.price(cost, kind))
    except CostExceedsQuota:
        return never_admitted(each.limiter, each.key)
