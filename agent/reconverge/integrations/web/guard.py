"""Decides about requests by rules, of any framework; a failure in here never breaks a request."""

# Theory of operation.
#
# Key functions, tiers and costs may have to be awaited in an asynchronous framework, and must not be under WSGI. Two
# guards would drift apart. So a decision is a generator that yields the things to await: `check_async` awaits
# it, `check` cannot, and throws an error in at that place.
#
# First all functions of the application are asked that may wait, then the limits, all at once: they are charged in one
# moment, or none is (`limiter/joint.py`). Limits whose memory cannot settle the request ask the hub, all at once,
# and the request waits. The limits that do not refuse are asked what they would say, because Retry-After is
# the longest wait of all. Two rules that count by the same limit cannot be weighed beside each other, nor limits of two
# agents, so they are charged one after the other, and given back. A limit that is off or in shadow refuses nothing, so
# it is charged last. A rule in the shadow refuses nothing, either, so no request waits for it: there memory decides.

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

from reconverge.agent.agent import Agent
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.decision import Decision
from reconverge.errors import CostExceedsQuota, InvalidSetting
from reconverge.integrations.web.bound_rule import Claim, Declared, FoundKey, NoKey, NoTier, Steps
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
    waits,
)
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
from reconverge.limiter.bans import unheeded
from reconverge.limiter.certainty import for_any_node, hit_at_once, left_in_doubt, never_admitted
from reconverge.limiter.doubt import within_s
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
"""Of so many sets of limits it is remembered whether they can decide together."""
DEFAULT_NAME: Final = "requests"
"""Of a limit that belongs to nothing in particular."""


@dataclass(frozen=True, slots=True)
class GuardStats:
    """Counts of one guard in this process. `agent.stats()` counts decisions, too, by limit."""

    refused: int
    """Requests."""
    shadowed: int
    """Requests that went on, and would have been refused but for the shadow."""
    exempted: int
    """Requests that a request filter let pass."""
    failures: dict[str, int]
    """Failures to decide, by the class of the error."""


Finders: TypeAlias = Callable[[Declared, Addresses], tuple[Find, Find | None] | None]
"""Finds a rule's key, and its part for the route or scope, in what stands for a request; None if nothing can."""


class Guard:
    """Decides by the limits of an application, and holds what they have in common.

    Args:
        agent: decides; or the URL of a hub to make one with. By default `Agent()`.
        key_func: the key of a request, unless its rule has another function; by default `by_ip`.
        missing: what becomes of a request without a key; see `Rule.missing`. By default it is counted by its address.
        dialect: the response fields: `ietf-11`, `draft-06`, `x-ratelimit`, or several of them.
        headers_enabled: whether responses have these fields. Refusals have Retry-After in any case.
        trusted_proxies, forwarded_header: the proxies that are believed about a client's address; see `Addresses`.
        fail: when a function of the application fails, its request is counted all the same, on the safe side ("open"),
            or is refused with status 503 ("closed"). Neither makes a request unlimited: what goes on uncounted is only
            what this library itself fails to decide. A hub that is away is no such case: then the agent decides from
            memory.
        status: of refusals, 429 or 503.
        in_doubt: what becomes of a request that memory cannot settle, see `Rule.in_doubt`; by default what the agent
            says, "ask:25ms" unless its settings differ.
        on_breach: see `Rule.on_breach`, for rules without.
        passes: exceptions of key functions and the like that are meant for the framework, and not failures.
        meter: counts what each identity is charged, by limit and route, with all that is given back or settled later;
            a `reconverge.usage.Meter`. The identity is the key of a request, without scope, route and method.
        enabled: False to decide nothing at all.

    Raises:
        InvalidSetting: a value makes no sense.
        HubUnavailable: the agent requires its hub (`require_hub`), which does not answer.
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
        self.filters: list[Asked] = []
        """Each lets the requests pass that it returns True for."""
        self._compiled: dict[Declared, CompiledRule] = {}
        """The plain rules."""
        self._pipelines: dict[Declared | tuple[Declared, ...], Pipeline | None] = {}
        """By the rules that are about a request, of as many as requests have met; None where `_steps` decides."""
        self._together: dict[tuple[Limiter, ...], bool] = {}
        """Whether those limits can decide together, of as many as requests have met."""
        self._names: dict[str, object] = {}
        """Those that are taken, each by a token of its own."""
        self._refused, self._shadowed, self._exempted = Total(), Total(), Total()
        self._failures = Failures(self._clock, "is refused" if self._fails_closed else "goes on")

    # ------------------------------------------------------------ declaring

    @property
    def ever_waits(self) -> bool:
        """Whether a function that is there for all rules is a coroutine function: `key_func` or `on_breach`."""
        return waits(self._key) or (self._on_breach is not None and waits(self._on_breach))

    def declare(self, rule: Rule | Limits, *, owner: object = None, name: str | None = None) -> Declared:
        """Make a rule ready to be asked; `owner` is what it is named after if it has no name, else `name`.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: see `Agent.limit`; InvalidSetting, too, for contracts that have
                a meter, if it is not the guard's.
        """
        if not isinstance(rule, Rule):
            rule = Rule(limits=rule)
        check_contracts(rule.limits, self.meter)
        chosen = fitting_name(rule.name, room=rule.name_room) if rule.name else None
        if chosen is None:
            wanted = name or (DEFAULT_NAME if owner is None else name_of(owner))
            chosen = self._new_name(wanted, rule.name_room)
        settings: dict[str, Any] = self._defaults
        declared = Declared(self.agent, rule, name=chosen, key=self._key, **settings)
        metered = self._metering is not None  # which counts what `_steps` has decided
        compiled = None if metered else compile_rule(declared, answered=self._on_breach is not None)
        if compiled is not None:
            self._compiled[declared] = compiled
        return declared

    def request_filter(self, function: Any) -> Any:
        """Let those requests pass for which `function` is true; a decorator, too."""
        self.filters.append(asks(function, "request_filter"))
        return function

    def _new_name(self, wanted: str, room: int) -> str:
        name, number, mine = fitting_name(wanted, room=room), 1, object()
        while self._names.setdefault(name, mine) is not mine:
            number += 1
            name = fitting_name(f"{wanted}.{number}", room=room)
        return name

    # ------------------------------------------------------------ deciding

    def pipeline(self, rules: Sequence[Declared], finders: Finders | None = None) -> Pipeline | None:
        """Makes a pipeline for requests that all of these rules are about; None if each needs a closer look.

        `finders` finds in what stands for a request what a rule finds in the request itself. What is returned is not
        to be asked while requests are let pass before (`filters`), or nothing is decided at all (`enabled`).
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
        """The outcome, if a pipeline decides about the request; else what `check_further` goes on with."""
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
        """Returns the rules that are about the request; none where that cannot be found out."""
        try:
            return tuple([rule for rule in rules if rule.is_about_all or rule.is_about(request)])
        except Exception:  # of a router that was asked; `_steps` finds out what becomes of it
            return ()

    def check(self, request: Request, rules: Sequence[Declared]) -> Outcome:
        """Decide about a request, without an event loop. Charges all limits, or none if any of them refuses.

        In doubt it waits on this thread; never on one that runs an event loop. Never fails, except with what `passes`
        says.
        """
        found = self.at_once(request, rules)
        return found if isinstance(found, Outcome) else self.check_further_blocking(request, rules, found)

    def check_further_blocking(self, request: Request, rules: Sequence[Declared], found: Sequence[FoundKey]) -> Outcome:
        """Does as `check`, after a pipeline has found keys and no outcome."""
        steps = self._steps(request, rules, found, blocking=True)
        try:
            wanted = steps.send(None)
            while True:
                if inspect.iscoroutine(wanted):
                    wanted.close()
                wanted = steps.throw(InvalidSetting("rule", wanted, "has to be awaited, which is not possible here"))
        except StopIteration as end:
            return cast("Outcome", end.value)

    async def check_async(self, request: Request, rules: Sequence[Declared]) -> Outcome:
        """Does as `check`, for rules that may have coroutine functions; the event loop is never held up."""
        found = self.at_once(request, rules)
        return found if isinstance(found, Outcome) else await self.check_further(request, rules, found)

    async def check_further(self, request: Request, rules: Sequence[Declared], found: Sequence[FoundKey]) -> Outcome:
        """Does as `check_async`, after a pipeline has found keys and no outcome."""
        steps = self._steps(request, rules, found, blocking=False)
        try:
            wanted = steps.send(None)
            while True:
                try:
                    answer = await wanted
                except Exception as error:  # it is seen to where it was asked for
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
                    return (yield from self._refuse(Outcome(self), declared if isinstance(error, NoKey) else None))
            except _ReportedFailure:
                return (yield from self._refuse(Outcome(self), None))
            except Exception as error:
                self._let_pass(error, declared.name)
                if self._fails_closed and not declared.rule.shadow:
                    return (yield from self._refuse(Outcome(self), None))
        outcome = yield from self._decide(claims, blocking=blocking)
        return outcome if self._metering is None else self._metering.counted(request, claims, outcome)

    def _is_exempt(self, request: Request) -> Steps[bool]:
        """Whether a request filter lets the request pass."""
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
        """Ask the limits, one after the other; after the first refusal nothing more is charged."""
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
        except BaseException:  # the request was cancelled while it asked
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
        """The rule whose limit has banned its key since it admitted the request, which has waited for a slot.

        Its ruling becomes a refusal, and is not charged any more.
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
        """Asks several limits, all of which charge or none.

        Returns their rulings, the rule that refuses, and whether something is broken.
        """
        decisions = self._at_once(claims, patience)
        if isinstance(decisions, int):
            refusing = yield from self._ruling(claims[decisions], _HURRIED)
            if not refusing.decision.allowed:
                others = yield from self._looked_at(claims[:decisions])
                rest = yield from self._looked_at(claims[decisions + 1 :])
                return [*others, refusing, *rest], refusing.declared, False
            self._taken_back(refusing)  # there is room since just now
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
            except CostExceedsQuota:  # so nothing is charged, and each is asked what it would say
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
        """The claims that are decided together, and the others, but for those in the shadow.

        Together at least two, of limits of one agent, of which none stands in two claims.
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
        """The decisions of limits all of which admit a request for certain, and have charged it.

        Or the place of a limit that refuses it for certain; else None.
        """
        certain = False
        for claim in claims:
            declared = claim.declared
            if claim.kind is not None or declared.settles or claim.limiter.control.borrows:
                return None
            certain = certain or (patience.waits and declared.within_s > 0)
        return hit_together([(claim.limiter, claim.key, claim.cost) for claim in claims], certain=certain)

    def _looked_at(self, claims: Sequence[Claim]) -> Steps[list[Ruling]]:
        """Tests limits without charging them."""
        rulings: list[Ruling] = []
        for claim in claims:
            ruling = yield from self._ruling(claim, None)
            rulings.append(ruling)
        return rulings

    def _ruling(self, claim: Claim, patience: _RequestPatience | None) -> Steps[Ruling]:
        """Asks one limit; nothing is charged without patience."""
        limiter, key, cost, kind = claim.limiter, claim.key, claim.cost, claim.kind
        reservation: Reservation | HeldSlot | None = None
        try:
            if patience is None:
                decision = limiter.test(key, cost, kind)
            else:
                decision, reservation = yield from self._charged(claim, patience)
        except CostExceedsQuota as error:
            # It is the request that asks for too much, and not the limit that is broken. Waiting does not help. Where
            # all requests of a rule ask for as much, its limit has become too low for them, which has to be known.
            if not callable(claim.declared.rule.cost):
                self._failures.add(error, claim.declared.name, "is refused, as every request of this cost is")
            decision = never_admitted(limiter, key)
        return self._ruled(claim, decision, reservation, charged=patience is not None)

    @classmethod
    def _ruled(
        cls, claim: Claim, decision: Decision, reservation: Reservation | HeldSlot | None, *, charged: bool
    ) -> Ruling:
        """Makes a ruling of a limit's decision, as the client will get it."""
        limiter, key, cost, kind = claim.limiter, claim.key, claim.cost, claim.kind
        if not decision.allowed:
            decision = cls.decision_for_clients(decision, limiter, key, cost, kind)
        return Ruling(claim.declared, limiter, key, cost, decision, reservation, kind, charged)

    @staticmethod
    def decision_for_clients(decision: Decision, limiter: Limiter, key: str, cost: int, kind: str | None) -> Decision:
        """Returns a refusal as it is sent to a client that may meet any node next."""
        decision = for_any_node(limiter, decision, key, cost, kind)
        if not decision.certain:
            decision = replace(decision, remaining=left_in_doubt(limiter, decision, key))
        return decision

    @staticmethod
    def _charged(claim: Claim, patience: _RequestPatience) -> Steps[tuple[Decision, Reservation | HeldSlot | None]]:
        """The decision of one limit, and what can be settled later; in doubt, after the hub has been asked."""
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
        """The ruling on a request that another limit refuses."""
        if ruling.decision.allowed and ruling.charged:
            try:
                ruling.give_back()
                decision: Decision = ruling.limiter.test(ruling.key, ruling.cost, ruling.kind)
                ruling = replace(ruling, decision=decision, reservation=None, charged=False)
            except Exception as error:
                self._let_pass(error, ruling.name)
        return ruling

    def _shadows(self, claims: Sequence[Claim]) -> Steps[list[Ruling]]:
        """Asks the limits in the shadow about a request that goes on."""
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

    # ------------------------------------------------------------ answering

    def has_refused(self) -> None:
        self._refused.add()

    def refusal_by(self, ruling: Ruling, fields: Fields | None) -> Refusal:
        return self._refusal((ruling,), ruling.declared, fields)

    def _refuse(self, outcome: Outcome, declared: Declared | None) -> Steps[Outcome]:
        """Refuse, for a limit or because something is broken; `on_breach` may answer otherwise."""
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
        quota_decisions = [ruling.quota_decisions for ruling in rulings]
        if fields is None:
            fields = self.fields(rulings)
        try:
            return refusal_of(quota_decisions, declared, fields)
        except Exception as error:  # of a message that the application makes up
            self._let_pass(error, "error_message", REFUSED)
            return refusal_of(quota_decisions, declared, fields, silent=True)

    def fields(self, rulings: Sequence[Ruling], *, refused: bool = False) -> Fields:
        """Returns the response fields of rulings; `refused` if others have refused the request."""
        if not self.headers_enabled or not rulings:
            return []
        try:
            quota_decisions = [ruling.quota_decisions for ruling in rulings]
            return fields_of(quota_decisions, self.dialects, wall_s=self._clock.wall_ns() / SECOND_NS, refused=refused)
        except Exception as error:
            self.failed(error, "fields")
            return []

    # ------------------------------------------------------------ what goes wrong

    def failed(self, error: Exception, name: str) -> None:
        """Count what went wrong about a limit, and log it unless something was within the last minute."""
        self._failures.add(error, name, REFUSED if name == ON_BREACH else None)

    def _let_pass(self, error: Exception, name: str, becomes: str | None = None) -> None:
        """Notes an error, as `failed` does; raises one that is meant for the framework."""
        if isinstance(error, self._passes):
            raise error
        self._failures.add(error, name, becomes)

    def _mend(self, error: Exception, declared: Declared, becomes: str) -> None:
        """Note a failure of an application's function, whose result the rule replaces by a safe one.

        Raises the error again if it is meant for the framework, or if such a request is to be refused.
        """
        if self._fails_closed and not declared.rule.shadow:
            self._let_pass(error, declared.blamed(becomes))
            raise _ReportedFailure from error
        self._let_pass(error, declared.blamed(becomes), becomes)

    def stats(self) -> GuardStats:
        """A snapshot of the counts."""
        return GuardStats(self._refused.value, self._shadowed.value, self._exempted.value, self._failures.counts())


def _in_order(rulings: list[Ruling], claims: Sequence[Claim]) -> list[Ruling]:
    """The rulings, as their rules stand."""
    places = {(id(claim.declared), claim.limiter, claim.key): place for place, claim in enumerate(claims)}
    return sorted(rulings, key=lambda ruling: places[id(ruling.declared), ruling.limiter, ruling.key])


class _RequestPatience:
    """For how long one request may still wait for the hub, whichever of its limits asks."""

    def __init__(self, *, blocking: bool, waits: bool = True) -> None:
        self.blocking = blocking
        """Whether it waits on its thread."""
        self.waits = waits
        self._began_ns = 0

    def left_s(self, within_s: float) -> float:
        if not within_s:
            return 0.0
        now_ns = SystemClock.monotonic_ns()  # the agent's clock may be another one, but this waits for the network
        if not self._began_ns:
            self._began_ns = now_ns
            return within_s
        return max(0.0, within_s - (now_ns - self._began_ns) / SECOND_NS)


_HURRIED: Final = _RequestPatience(blocking=True, waits=False)


class _ReportedFailure(Exception):
    """Raised for a request that is to be refused because of a failure, which was counted and logged."""
