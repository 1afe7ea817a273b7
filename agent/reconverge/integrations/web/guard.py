"""Decides about requests of any framework by rules; a failure of this module never breaks a request."""

# Theory of operation.
#
# In an asynchronous framework, functions for keys, tiers and costs may have to be awaited; under WSGI they cannot. Two
# separate guards would diverge over time. So a decision is a generator that yields each awaitable: `check_async` awaits
# it; `check` cannot, and raises an error inside the generator instead.
#
# First, the application's functions are called, which may wait. Then the limits decide together: all are charged at one
# moment, or none is (`limiter/joint.py`). If memory cannot decide for some limits, the request asks the hub for all of
# these at once, and waits. After a refusal, the other limits are tested, too, because Retry-After is the longest of all
# waits. Two rules with the same limit cannot be decided together, nor can limits of two agents: these are charged one
# after the other, and refunded after a refusal. A limit that is off or in shadow refuses nothing, so it comes last. A
# rule with `shadow` refuses nothing, either, so no request waits for it, and memory decides.

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

from reconverge.agent.agent import Agent
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.decision import Decision
from reconverge.errors import CostExceedsQuota, InvalidSetting
from reconverge.integrations.web.bound_rule import Claim, Declared, FoundKey, NoKey, NoTier, Steps, room_for
from reconverge.integrations.web.failures import Failures
from reconverge.integrations.web.fields import IETF_11, Fields, checked_dialects, fields_of
from reconverge.integrations.web.holding import HeldSlot, slot_for
from reconverge.integrations.web.metering import Metering, check_contracts, checked_meter
from reconverge.integrations.web.outcome import Outcome, Refusal, Ruling
from reconverge.integrations.web.pipeline import CompiledRule, Find, Pipeline, compile_rule, decide_together
from reconverge.integrations.web.refusal import refusal_of
from reconverge.integrations.web.request.addresses import X_FORWARDED_FOR, Addresses
from reconverge.integrations.web.request.keys import (
    ADDRESS,
    Asked,
    KeyFunction,
    asks,
    by_ip,
    checked_answer,
    checked_missing,
    name_of_function,
    waits,
)
from reconverge.integrations.web.request.proxies import UntrustedProxy
from reconverge.integrations.web.request.request import Request
from reconverge.integrations.web.rules import (
    Limits,
    Rule,
    check_takes,
    checked_flag,
    checked_status,
    fitting_name,
    name_of,
)
from reconverge.limiter.asking import within_s
from reconverge.limiter.certainty import for_any_node, hit_at_once, left_in_doubt, never_admitted
from reconverge.limiter.enforcement.bans import unheeded
from reconverge.limiter.enforcement.switches import ON
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.joint import Jointly, Member, can_be_joined, can_decide_together, hit_together, member_of
from reconverge.limiter.reservation import Reservation
from reconverge.runtime.threads import Total
from reconverge.usage.meter import Meter

OPEN: Final = "open"
CLOSED: Final = "closed"
ON_BREACH: Final = "on_breach"
REFUSED: Final = "is refused with the usual response"
TOGETHER_MAX: Final = 1024
"""The most sets of rules, and the most sets of limits, for which a guard caches how it decides by them."""
DEFAULT_NAME: Final = "requests"
"""The name of a limit without a name of its own that belongs to no view or route."""


@dataclass(frozen=True, slots=True)
class GuardStats:
    """The counts of one guard's decisions in this process; `agent.stats()` has those of each limit."""

    refused: int
    """The number of refused requests."""
    shadowed: int
    """The number of requests that went on only because a rule was in shadow."""
    exempted: int
    """The number of requests that a request filter has exempted."""
    failures: dict[str, int]
    """The number of failures during decisions, by the class of the error."""


Finders: TypeAlias = Callable[[Declared, Addresses], tuple[Find, Find | None] | None]
"""A function that returns two functions, which find a rule's key, and the key's part for route or scope, in a
framework's own request. Returns None if the rule needs a `Request`."""


class Guard:
    """Decides about requests by the limits of an application, and holds the settings that these limits share.

    Args:
        agent: the agent that decides; or the URL of a hub, for which an agent is made. By default `Agent()`.
        key_func: returns the key of a request, unless its rule has another function; by default `by_ip`.
        missing: what happens to a request without a key; see `Rule.missing`. By default it is counted by its address.
        dialect: the response fields: `ietf-11`, `draft-06`, `x-ratelimit`, or several of them.
        headers_enabled: whether responses have these fields. Refusals have Retry-After in any case.
        trusted_proxies, forwarded_header: the proxies whose reports of a client's address are used; see `Addresses`.
        fail: whether a request is counted with a safe value ("open"), or refused with status 503 ("closed"), if a
            function of the application fails. Neither makes a request unlimited: only a failure of this library itself
            lets a request go on uncounted. An unreachable hub is not a failure: then the agent decides from memory.
        status: the status of refusals, 429 or 503.
        in_doubt: what happens to a request that memory cannot decide, see `Rule.in_doubt`; by default the agent's
            setting, which is "ask:25ms" by default.
        on_breach: see `Rule.on_breach`; for rules that have none.
        passes: classes of exceptions that the application's functions may raise; the guard passes them on to the
            framework, and does not count them as failures.
        meter: counts the charges of each identity, by limit and route, including later corrections; a
            `reconverge.usage.Meter`. The identity is the key of a request, without scope, route and method.
        enabled: False to decide nothing at all.

    Raises:
        InvalidSetting: a value is invalid.
        HubUnavailable: the agent requires its hub (`require_hub`), and the hub does not answer.
    """

    def __init__(
        self,
        agent: Agent | str | None = None,
        *,
        key_func: KeyFunction = by_ip,
        missing: str = ADDRESS,
        dialect: str | Sequence[str] = IETF_11,
        headers_enabled: bool = True,
        trusted_proxies: Iterable[str] = (),
        forwarded_header: str = X_FORWARDED_FOR,
        fail: str = OPEN,
        status: int = 429,
        in_doubt: str | None = None,
        on_breach: Callable[..., Any] | None = None,
        passes: tuple[type[BaseException], ...] = (),
        meter: Meter | None = None,
        enabled: bool = True,
    ) -> None:
        if fail not in (OPEN, CLOSED):
            raise InvalidSetting("fail", fail, f"is neither {OPEN!r} nor {CLOSED!r}")
        if on_breach is not None and not callable(on_breach):
            raise InvalidSetting("on_breach", on_breach, "is not a function of the outcome; pass one, or leave it out")
        check_takes("on_breach", on_breach, "the outcome")
        if in_doubt is not None:
            within_s(in_doubt)
        self.agent = agent if isinstance(agent, Agent) else Agent(agent)
        if self.agent.requires_hub:
            self.agent.start()  # now, as the application starts: a decision would not wait for the hub
        self.addresses = Addresses(trusted_proxies, header=forwarded_header)
        self.dialects = checked_dialects(dialect)
        self.headers_enabled = checked_flag("headers_enabled", headers_enabled)
        self.enabled = checked_flag("enabled", enabled)
        self._clock = self.agent.clock
        self.key_func = key_func
        self._key = asks(key_func)
        self._defaults = {
            "missing": checked_missing(missing),
            "status": checked_status(status),
            "in_doubt": in_doubt or self.agent.in_doubt,
        }
        self._fails_closed = fail == CLOSED
        self._on_breach = on_breach
        self._passes = passes
        self.meter = checked_meter(meter)
        self._metering = None if meter is None else Metering(meter, self.failed)
        if meter is not None:
            meter.namespaces.add(self.agent.namespace)
        self.filters: list[Asked] = []
        """Functions that exempt a request from all limits by returning True."""
        self._compiled: dict[Declared, CompiledRule] = {}
        """The rules that are simple enough for the fast path, compiled."""
        self._pipelines: dict[Declared | tuple[Declared, ...], Pipeline | None] = {}
        """The cached pipeline (fast path) for each set of rules that apply to a request; None if the rules have no fast
        path."""
        self._together: dict[tuple[Limiter, ...], bool] = {}
        """For each set of limits, whether they can be charged in one step."""
        self._names: dict[str, object] = {}
        """The names in use, each with an object that identifies the owner of the name."""
        self.untrusted = UntrustedProxy(self.failed)
        self._refused, self._shadowed, self._exempted = Total(), Total(), Total()
        self._failures = Failures(self._clock, "is refused" if self._fails_closed else "goes on")

    def check_blocking(self, where: str) -> None:
        """Raises InvalidSetting if `key_func` or `on_breach` is a coroutine function, which `where` cannot await."""
        for name, function in (("key_func", self.key_func), ("on_breach", self._on_breach)):
            if callable(function) and waits(function):
                problem = f"is a coroutine function, which {where} cannot await; use a plain function"
                raise InvalidSetting(name, name_of_function(function), problem)

    def declare(
        self, rule: Rule | Limits, *, owner: object = None, name: str | None = None, shown: bool | None = None
    ) -> Declared:
        """Declares a rule's limits and returns the rule, ready to decide.

        A rule without a name of its own is called `name`, or else after `owner`, such as the decorated view. If `shown`
        is True, responses show the name; if it is False, the rate of each quota. By default, they show the name if the
        rule has one of its own, or if there is no owner.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: see `Agent.limit`.
            InvalidSetting: the rule has contracts with another meter than the guard's.
        """
        if not isinstance(rule, Rule):
            rule = Rule(limits=rule)
        check_contracts(rule.limits, self.meter)
        room = room_for(rule.limits, rule.name_room)
        chosen = fitting_name(rule.name, room=room) if rule.name else None
        if chosen is None:
            wanted = name or (DEFAULT_NAME if owner is None else name_of(owner))
            chosen = self._new_name(wanted, room)
        if shown is None:
            shown = bool(rule.name) or owner is None
        given = (rule.name or chosen) if shown else None
        settings: dict[str, Any] = self._defaults
        declared = Declared(self.agent, rule, name=chosen, given=given, key=self._key, **settings)
        metered = self._metering is not None  # a meter counts only decisions that `_steps` makes
        compiled = None if metered else compile_rule(declared, answered=self._on_breach is not None)
        if compiled is not None:
            self._compiled[declared] = compiled
        return declared

    def request_filter(self, function: Any) -> Any:
        """Exempts requests for which `function` returns true from all limits. Can be used as a decorator."""
        self.filters.append(asks(function, "request_filter"))
        return function

    def _new_name(self, wanted: str, room: int) -> str:
        name, number, mine = fitting_name(wanted, room=room), 1, object()
        while self._names.setdefault(name, mine) is not mine:
            number += 1
            name = fitting_name(f"{wanted}.{number}", room=room)
        return name

    def pipeline(self, rules: Sequence[Declared], finders: Finders | None = None) -> Pipeline | None:
        """Returns a fast path (`Pipeline`) for requests to which all these rules apply; None if a rule is too complex.

        `finders` makes functions that find a rule's keys in a framework's own request instead of a `Request`. The
        pipeline must not be used while the guard has request filters (`filters`) or is switched off (`enabled`).
        """
        compiled = [self._compiled[rule] for rule in rules if rule in self._compiled]
        if not compiled or len(compiled) < len(rules) or not decide_together(compiled):
            return None
        if finders is None:
            return Pipeline(self, compiled, [(rule.key_function, rule.part_of_key) for rule in rules])
        if not all(rule.is_about_all for rule in rules):
            return None
        found = [finders(rule, self.addresses) for rule in rules]
        known = [each for each in found if each is not None]
        return Pipeline(self, compiled, known) if len(known) == len(rules) else None

    def at_once(self, request: Request, rules: Sequence[Declared]) -> Outcome | list[FoundKey]:
        """Returns the outcome if the fast path can decide. Otherwise returns the keys that it has found so far.

        The caller passes these keys to `check_further`.
        """
        if self.filters or not self.enabled:
            return []
        only = rules[0] if len(rules) == 1 and rules[0].is_about_all else None
        about = self._about(request, rules) if only is None else only
        try:
            pipeline = self._pipelines[about]
        except KeyError:
            if len(self._pipelines) >= TOGETHER_MAX:
                self._pipelines.clear()
            pipeline = self._pipelines[about] = self.pipeline(rules if isinstance(about, Declared) else about)
        return [] if pipeline is None else pipeline.decide(request)

    @staticmethod
    def _about(request: Request, rules: Sequence[Declared]) -> tuple[Declared, ...]:
        """Returns the rules that apply to the request; empty if a router fails, so that this is unknown."""
        try:
            return tuple([rule for rule in rules if rule.is_about_all or rule.is_about(request)])
        except Exception:  # an error of a router; `_steps` will handle it
            return ()

    def check(self, request: Request, rules: Sequence[Declared]) -> Outcome:
        """Decides about a request without an event loop. Charges all limits, or none if any of them refuses.

        If memory is not certain, asks the hub and waits on this thread, but never on a thread that runs an event loop.
        Raises only exceptions in `passes`.
        """
        found = self.at_once(request, rules)
        return found if isinstance(found, Outcome) else self.check_further_blocking(request, rules, found)

    def check_further_blocking(self, request: Request, rules: Sequence[Declared], found: Sequence[FoundKey]) -> Outcome:
        """Decides as `check` does, if the fast path could not decide; `found` has the keys that it has found."""
        steps = self._steps(request, rules, found, blocking=True)
        try:
            wanted = steps.send(None)
            while True:
                if inspect.iscoroutine(wanted):
                    wanted.close()
                wanted = steps.throw(
                    InvalidSetting("rule", wanted, "must be awaited, which is not possible here; use plain functions")
                )
        except StopIteration as end:
            return cast("Outcome", end.value)

    async def check_async(self, request: Request, rules: Sequence[Declared]) -> Outcome:
        """Decides as `check`, without blocking the event loop. Functions of rules may be coroutine functions."""
        found = self.at_once(request, rules)
        return found if isinstance(found, Outcome) else await self.check_further(request, rules, found)

    async def check_further(self, request: Request, rules: Sequence[Declared], found: Sequence[FoundKey]) -> Outcome:
        """Decides as `check_async` does, if the fast path could not decide; `found` has the keys that it has found."""
        steps = self._steps(request, rules, found, blocking=False)
        try:
            wanted = steps.send(None)
            while True:
                try:
                    answer = await wanted
                except Exception as error:  # it is handled where the value was requested
                    wanted = steps.throw(error)
                else:
                    wanted = steps.send(answer)
        except StopIteration as end:
            return cast("Outcome", end.value)
        finally:
            steps.close()

    def _steps(
        self, request: Request, rules: Sequence[Declared], found: Sequence[FoundKey], *, blocking: bool
    ) -> Steps[Outcome]:
        if not self.enabled or not rules:
            return Outcome(self)
        if (yield from self._is_exempt(request)):
            return Outcome(self)
        claims: list[Claim] = []
        for declared in rules:
            try:
                if declared.concerns(request, self._mend):
                    asked = next((each for each in found if each.declared is declared), None)
                    claims += yield from declared.claims(request, self._mend, asked, blocking=blocking)
            except (NoKey, NoTier) as error:
                if not declared.rule.shadow:
                    return (yield from self._refuse(Outcome(self), None if isinstance(error, NoTier) else declared))
            except _ReportedFailure:
                return (yield from self._refuse(Outcome(self), None))
            except Exception as error:
                self._let_pass(error, declared.name)
                if self._fails_closed and not declared.rule.shadow:
                    return (yield from self._refuse(Outcome(self), None))
        outcome = yield from self._decide(claims, blocking=blocking)
        self._look_at_refused(outcome, request)
        return outcome if self._metering is None else self._metering.counted(request, claims, outcome)

    def _is_exempt(self, request: Request) -> Steps[bool]:
        for each in self.filters:
            try:
                exempt = each(request)
                if inspect.isawaitable(exempt):
                    exempt = yield exempt
                exempt = checked_answer(exempt)
            except Exception as error:
                self._let_pass(error, "request_filter", "is limited as any other")
                continue
            if exempt:
                self._exempted.add()
                return True
        return False

    def _decide(self, claims: Sequence[Claim], *, blocking: bool) -> Steps[Outcome]:
        """Decides by the limits of all claims (a claim is a limiter, a key and a cost), in one step if possible.

        After a refusal, no limit stays charged.
        """
        rulings: list[Ruling] = []
        refused_by: Declared | None = None
        broken = False
        patience = _RequestPatience(blocking=blocking)
        joined, others = self._sorted(claims)
        try:
            if joined:
                rulings, refused_by, broken = yield from self._jointly(joined, patience)
            for claim in others:
                try:
                    charge = refused_by is None and not broken
                    ruling = yield from self._ruling(claim, patience if charge else None)
                except Exception as error:
                    self._let_pass(error, claim.declared.name)
                    broken = broken or self._fails_closed
                    continue
                rulings.append(ruling)
                if refused_by is None and not ruling.decision.allowed:
                    refused_by = claim.declared
            if refused_by is None and not broken and any(isinstance(ruling.limiter, SlotLimiter) for ruling in rulings):
                refused_by = self._banned_meanwhile(rulings)
        except BaseException:  # the request was cancelled while it waited for the hub
            for ruling in rulings:
                self._taken_back(ruling)
            raise
        if joined and others:
            rulings = _in_order(rulings, claims)
        if broken or refused_by is not None:
            rulings = [self._taken_back(ruling) for ruling in rulings]
            outcome = Outcome(self, rulings)
            return (yield from self._refuse(outcome, refused_by))
        shadows = yield from self._shadows(claims)
        return Outcome(self, rulings, shadows)

    def _banned_meanwhile(self, rulings: list[Ruling]) -> Declared | None:
        """Returns the rule whose limit has banned the request's key since it admitted the request; None without one.

        The request may have waited for a slot meanwhile. The rule's ruling (the decision of its limit) becomes a
        refusal, and its charge is given back.
        """
        for at, ruling in enumerate(rulings):
            limiter, key = ruling.limiter, ruling.key
            if limiter.control.bans is None or not limiter.control.bans.in_force:
                continue
            try:
                decision = limiter.control.bans.decision(key)
                if decision is not None:
                    ruling.give_back()
                    announced = self.decision_for_clients(decision, limiter, key, ruling.cost, ruling.kind)
                    rulings[at] = replace(ruling, decision=announced, reservation=None, charged=False)
                    return ruling.declared
            except Exception as error:
                self._let_pass(error, limiter.name)
        return None

    def _jointly(
        self, claims: Sequence[Claim], patience: _RequestPatience
    ) -> Steps[tuple[list[Ruling], Declared | None, bool]]:
        """Decides by the limits of several claims, which are all charged in one step, or none of them.

        Returns the limits' rulings (decisions); the rule that refuses, or None; and whether the request must be refused
        because of a failure.
        """
        decisions = self._at_once(claims, patience)
        if isinstance(decisions, int):
            refusing = yield from self._ruling(claims[decisions], _HURRIED)
            if not refusing.decision.allowed:
                others = yield from self._looked_at(claims[:decisions])
                rest = yield from self._looked_at(claims[decisions + 1 :])
                return [*others, refusing, *rest], refusing.declared, False
            self._taken_back(refusing)  # the limit has room now
        elif decisions is not None:
            rulings = [
                Ruling(claim.declared, claim.limiter, claim.key, claim.cost, decision)
                for claim, decision in zip(claims, decisions, strict=True)
            ]
            return rulings, None, False
        members: list[Member] = []
        asked: list[Claim] = []
        for claim in claims:
            try:
                within_ns = round(claim.declared.within_s * SECOND_NS) if patience.waits else 0
                marks = claim.declared.settles or claim.limiter.control.borrows
                members.append(member_of(claim.limiter, claim.key, claim.cost, claim.kind, within_ns, marks=marks))
                asked.append(claim)
            except CostExceedsQuota:  # nothing is charged, and each limit is tested for its decision
                rulings = yield from self._looked_at(claims)
                return rulings, next(ruling.declared for ruling in rulings if not ruling.decision.allowed), False
            except Exception as error:
                self._let_pass(error, claim.declared.name)
                if self._fails_closed:
                    return [], None, True
        if not members:
            return [], None, False
        try:
            jointly = Jointly(members)
            answers = jointly.at_once(blocking=patience.blocking)
            if answers is None:
                answers = jointly.ask_blocking() if patience.blocking else (yield jointly.ask())
            allowed = all(decision.allowed for decision, _ in answers)
            rulings = [
                self._ruled(claim, *answer, charged=allowed) for claim, answer in zip(asked, answers, strict=True)
            ]
        except Exception as error:
            for claim in asked:
                self._let_pass(error, claim.declared.name)
            return [], None, self._fails_closed
        refused_by = next((ruling.declared for ruling in rulings if not ruling.decision.allowed), None)
        return rulings, refused_by, False

    def _sorted(self, claims: Sequence[Claim]) -> tuple[Sequence[Claim], Sequence[Claim]]:
        """Divides the claims, without those in shadow: first those to charge in one step, then those to charge singly.

        Claims are charged in one step if there are at least two, their limits belong to one agent, and no limit occurs
        twice.
        """
        asked = [claim for claim in claims if not claim.shadow]
        if len(asked) < 2:
            return (), asked
        joined = [claim for claim in asked if can_be_joined(claim.limiter)]
        limiters = tuple([claim.limiter for claim in joined])
        together = self._together.get(limiters)
        if together is None:
            if len(self._together) >= TOGETHER_MAX:
                self._together.clear()
            together = self._together[limiters] = len(limiters) > 1 and can_decide_together(limiters)
        if not together:
            return (), asked
        return joined, asked if len(joined) == 0 else [claim for claim in asked if not can_be_joined(claim.limiter)]

    @staticmethod
    def _at_once(claims: Sequence[Claim], patience: _RequestPatience) -> list[Decision] | int | None:
        """Charges all limits in one step and returns their decisions, if memory is certain that all of them admit.

        Otherwise charges nothing, and returns the position of a claim whose limit certainly refuses; None if none does.
        """
        certain = False
        for claim in claims:
            declared = claim.declared
            if claim.kind is not None or declared.settles or claim.limiter.control.borrows:
                return None
            certain = certain or (patience.waits and declared.within_s > 0)
        return hit_together([(claim.limiter, claim.key, claim.cost) for claim in claims], certain=certain)

    def _looked_at(self, claims: Sequence[Claim]) -> Steps[list[Ruling]]:
        """Tests the limits of these claims without charging anything, and returns their rulings (decisions)."""
        rulings: list[Ruling] = []
        for claim in claims:
            ruling = yield from self._ruling(claim, None)
            rulings.append(ruling)
        return rulings

    def _ruling(self, claim: Claim, patience: _RequestPatience | None) -> Steps[Ruling]:
        """Returns the ruling (decision) of one claim's limit. If `patience` is None, tests the limit, charges nothing.

        `patience` is the time for which the request may still wait for the hub.
        """
        limiter, key, cost, kind = claim.limiter, claim.key, claim.cost, claim.kind
        reservation: Reservation | HeldSlot | None = None
        try:
            if patience is None:
                decision = limiter.test(key, cost, kind)
            else:
                decision, reservation = yield from self._charged(claim, patience)
        except CostExceedsQuota as error:
            # The request costs more than the limit can ever admit, so waiting does not help. If all requests of a rule
            # have this cost, its limit has become too low for them, and operators must learn of that.
            if not callable(claim.declared.rule.cost):
                self._failures.add(error, claim.declared.name, "is refused, as every request of this cost is")
            decision = never_admitted(limiter, key)
        return self._ruled(claim, decision, reservation, charged=patience is not None)

    @classmethod
    def _ruled(
        cls, claim: Claim, decision: Decision, reservation: Reservation | HeldSlot | None, *, charged: bool
    ) -> Ruling:
        """Returns a claim's ruling, made from its limit's decision.

        A refusal states the wait and the remaining quota that hold on every node, as the client's next request may
        reach any node.
        """
        limiter, key, cost, kind = claim.limiter, claim.key, claim.cost, claim.kind
        if not decision.allowed:
            decision = cls.decision_for_clients(decision, limiter, key, cost, kind)
        return Ruling(claim.declared, limiter, key, cost, decision, reservation, kind, charged)

    @staticmethod
    def decision_for_clients(decision: Decision, limiter: Limiter, key: str, cost: int, kind: str | None) -> Decision:
        """Returns the refusal `decision` with the wait and the remaining quota that hold on every node.

        A client's next request may reach any node.
        """
        decision = for_any_node(limiter, decision, key, cost, kind)
        if not decision.certain:
            decision = replace(decision, remaining=left_in_doubt(limiter, decision, key))
        return decision

    @staticmethod
    def _charged(claim: Claim, patience: _RequestPatience) -> Steps[tuple[Decision, Reservation | HeldSlot | None]]:
        """Charges one claim's limit; asks the hub first, if memory is not certain.

        Returns the decision, and the reservation or slot that must be settled later, or None if there is none.
        """
        limiter, key, cost, kind = claim.limiter, claim.key, claim.cost, claim.kind
        settles = claim.declared.settles or limiter.control.borrows
        within_s = claim.declared.within_s if patience.waits else 0.0
        if not isinstance(limiter, RateLimiter):
            within_s, rule = patience.left_s(within_s), claim.declared.rule
            held = yield from slot_for(
                limiter, rule, key, cost, kind, within_s=within_s, blocking=patience.blocking, waits=patience.waits
            )
            return held.decision, held
        if not settles:
            decision = hit_at_once(limiter, key, cost, kind) if within_s else limiter.hit(key, cost, kind)
            if decision is not None:
                return decision, None
        within_s = patience.left_s(within_s)
        if settles:
            reservation: Reservation
            if patience.blocking or not within_s:
                reservation = limiter.reserve(key, cost, kind, within=within_s)
            else:
                reservation = yield limiter.reserve_async(key, cost, kind, within=within_s)
            return reservation.decision, reservation
        if not within_s:
            return limiter.hit(key, cost, kind), None
        if patience.blocking:
            return limiter.ask_blocking(key, cost, within=within_s, kind=kind), None
        return (yield limiter.ask(key, cost, within=within_s, kind=kind)), None

    def _taken_back(self, ruling: Ruling) -> Ruling:
        """Gives back a limit's charge, because another limit refuses. Returns `ruling`, marked as not charged."""
        if ruling.decision.allowed and ruling.charged:
            try:
                ruling.give_back()
                decision: Decision = ruling.limiter.test(ruling.key, ruling.cost, ruling.kind)
                ruling = replace(ruling, decision=decision, reservation=None, charged=False)
            except Exception as error:
                self._let_pass(error, ruling.name)
        return ruling

    def _shadows(self, claims: Sequence[Claim]) -> Steps[list[Ruling]]:
        """Charges the limits of rules in shadow, which never refuse the request. Returns their rulings (decisions)."""
        shadows: list[Ruling] = []
        for claim in claims:
            if claim.shadow:
                try:
                    with unheeded():
                        shadows.append((yield from self._ruling(claim, _HURRIED)))
                except Exception as error:
                    self._let_pass(error, claim.declared.name)
        if any(not ruling.decision.allowed for ruling in shadows):
            self._shadowed.add()
        return shadows

    def has_refused(self) -> None:
        self._refused.add()

    def _look_at_refused(self, outcome: Outcome, request: Request) -> None:
        for ruling in () if outcome.allowed else outcome.rulings:
            if not ruling.decision.allowed:
                self.untrusted.look(ruling.declared.key_function, ruling.key, request)

    def refusal_by(self, ruling: Ruling, fields: Fields | None) -> Refusal:
        return self._refusal((ruling,), ruling.declared, fields)

    def _refuse(self, outcome: Outcome, declared: Declared | None) -> Steps[Outcome]:
        """Refuses a request by the rule `declared`, or, if that is None, because of a failure. Calls `on_breach`."""
        self._refused.add()
        outcome.refusal = self._refusal(outcome.rulings, declared)
        on_breach = None if declared is None else declared.rule.on_breach or self._on_breach
        if on_breach is not None:
            try:
                response = on_breach(outcome)
                if inspect.isawaitable(response) and not callable(response):
                    response = yield response
                outcome.response = response
            except Exception as error:
                self._let_pass(error, ON_BREACH, REFUSED)
        return outcome

    def _refusal(self, rulings: Sequence[Ruling], declared: Declared | None, fields: Fields | None = None) -> Refusal:
        quota_decisions = [ruling.quota_decision for ruling in rulings]
        if fields is None:
            fields = self.fields(rulings)
        try:
            return refusal_of(quota_decisions, declared, fields)
        except Exception as error:  # an error of the function that makes the rule's `error_message`
            self._let_pass(error, "error_message", REFUSED)
            return refusal_of(quota_decisions, declared, fields, silent=True)

    def fields(self, rulings: Sequence[Ruling], *, refused: bool = False) -> Fields:
        """Returns the response fields for `rulings`, the limits' decisions.

        `refused` means that another limit has refused the request.
        """
        # Limits that refuse nothing have no fields: a client that heeded them would wait in vain.
        rulings = [ruling for ruling in rulings if ruling.decision.switch == ON]
        if not self.headers_enabled or not rulings:
            return []
        try:
            quota_decisions = [each for ruling in rulings for each in ruling.quota_decisions()]
            return fields_of(quota_decisions, self.dialects, wall_s=self._clock.wall_ns() / SECOND_NS, refused=refused)
        except Exception as error:
            self.failed(error, "fields")
            return []

    def failed(self, error: Exception, name: str, becomes: str | None = None) -> None:
        """Counts an error of the function `name`; logs the first error of each kind, and at most one a minute later.

        `becomes` is what happens to the request then; by default it goes on.
        """
        self._failures.add(error, name, REFUSED if name == ON_BREACH else becomes)

    def _let_pass(self, error: Exception, name: str, becomes: str | None = None) -> None:
        """Raises an error again if its class is in `passes`; otherwise counts it and logs it as `failed` does."""
        if isinstance(error, self._passes):
            raise error
        self._failures.add(error, name, becomes)

    def _mend(self, error: Exception, declared: Declared, becomes: str) -> None:
        """Counts a failure of an application's function, whose result the rule replaces by a safe one.

        Raises the error again if it is in `passes`, or _ReportedFailure if the request must be refused.
        """
        if self._fails_closed and not declared.rule.shadow:
            self._let_pass(error, declared.blamed(becomes))
            raise _ReportedFailure from error
        self._let_pass(error, declared.blamed(becomes), becomes)

    def stats(self) -> GuardStats:
        """Returns the numbers of refused, shadowed and exempted requests, and of failures, as they are now."""
        return GuardStats(self._refused.value, self._shadowed.value, self._exempted.value, self._failures.counts())


def _in_order(rulings: list[Ruling], claims: Sequence[Claim]) -> list[Ruling]:
    places = {(id(claim.declared), claim.limiter, claim.key): place for place, claim in enumerate(claims)}
    return sorted(rulings, key=lambda ruling: places[id(ruling.declared), ruling.limiter, ruling.key])


class _RequestPatience:
    """Measures how long one request may still wait for the hub; all limits of the request share that time."""

    def __init__(self, *, blocking: bool, waits: bool = True) -> None:
        self.blocking = blocking
        """Whether the request waits on its thread, not in an event loop."""
        self.waits = waits
        self._began_ns = 0

    def left_s(self, within_s: float) -> float:
        if not within_s:
            return 0.0
        # Not the agent's clock, which may be simulated: this waits for the real network.
        now_ns = SystemClock.monotonic_ns()
        if not self._began_ns:
            self._began_ns = now_ns
            return within_s
        return max(0.0, within_s - (now_ns - self._began_ns) / SECOND_NS)


_HURRIED: Final = _RequestPatience(blocking=True, waits=False)


class _ReportedFailure(Exception):
    """Raised if a request must be refused because of a failure, which was counted and logged already."""
