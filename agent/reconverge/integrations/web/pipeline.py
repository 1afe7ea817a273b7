"""The fast path from a request to its outcome, by rules that are compiled when they are declared.

A `Pipeline` decides by a fixed sequence of one or several `CompiledRule`s that all apply to a request. Its outcomes are
`Admitted` and `RefusedByOne`.
"""

# Theory of operation.
#
# For most rules, everything that a decision needs is known when they are declared: a plain function finds the key, the
# cost is a number, and nothing depends on the response. So each request takes one path: find the keys, charge all
# limits in one step, and store the decisions. Rulings, fields and refusals are made only when they are first read,
# because most are never read.
#
# Only the functions that find keys (finders) depend on the protocol: they read an ASGI scope, a WSGI environment or a
# request (`asgi/scope_keys.py`, `environment_keys.py`, `web/request/keys.py`).
#
# In every other case the guard's generator (`Guard.check_further`) decides. It gets what was found so far, so no
# function of the application is called twice. Nothing has been charged by then:
#
#     case of the request                             the generator gets
#     a key to be awaited, hashed or replaced         the keys that were found
#     a key function that fails                       its error
#     doubt, for a limit that asks the hub            all keys
#     a limit that is off, in shadow, or has prices   all keys
#     one of several limits refuses                   all keys: the others are tested, too
#
# The refusal of a request's only limit is decided here.
#
# Changes must keep these properties. An object in a scope, an environment or a request refers neither to its owner nor
# to a function that sends: otherwise each request would leave a reference cycle for the garbage collector. What a key
# function reads is recorded beside the function and not as an attribute, because `functools.wraps` copies attributes to
# wrappers, which may return something else. Header fields that come as an iterator are stored as a list in the scope,
# because a second rule and the application would find none. Flask checks for each function that it calls whether it
# must be awaited, so it gets two plain functions; outcomes without a response are settled by `request_tearing_down`,
# which is connected by the first request that needs it.

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from uuid import UUID

from reconverge.decision import Decision
from reconverge.integrations.web.bound_rule import Declared, FoundKey
from reconverge.integrations.web.fields import (
    FAR_OFF_S,
    IETF_11,
    INTEGER_MAX,
    SERVICE,
    Binding,
    Fields,
    PolicyField,
    binding_of,
    policy_of,
    retry_after_of,
    service_11,
    usual_11,
    written_11,
)
from reconverge.integrations.web.outcome import Judge, Outcome, Refusal, Ruling
from reconverge.integrations.web.refusal import Answer, usual_answer, usual_refusal
from reconverge.integrations.web.request.keys import escaped, unescaped
from reconverge.integrations.web.request.proxies import UntrustedProxy
from reconverge.limit.limit import Limit
from reconverge.limiter.certainty import is_alone, left_of_others
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.joint import Stores, can_decide_together, hit_stores, stores_if_joint
from reconverge.limiter.long_keys import OURS

Headers: TypeAlias = list[tuple[bytes, bytes]]
Find: TypeAlias = Callable[[Any], Any]
"""A function that finds the key of a request, or a part of the key, in the raw request: an ASGI scope, a WSGI
environment, a framework's request or a `Request`."""
Decide: TypeAlias = Callable[[Any], "Outcome | list[FoundKey]"]
"""A function that decides about a raw request. Returns the outcome, or, if the guard must decide, the keys found so
far."""

SERVICE_ENCODED: Final = SERVICE.lower().encode()
PLAIN: Final = frozenset({int, UUID})
"""Types of keys, besides text, whose equal values have equal texts, so that `str` can convert them."""
UNUSUAL: Final = f"{OURS}\x00"
"""The first characters of keys that this library makes itself. A client's key that begins with one is hashed by the
guard."""
FIRST: Final = "\x01"
"""The smallest text that begins with no character of `UNUSUAL`. A key from here up to `OURS`, as nearly all are, needs
no change."""
REFUSALS_MAX: Final = 1024
"""The most refusals of one rule that are cached; they differ in the whole seconds until a retry."""
ROUTES_MAX: Final = 1024
"""The most routes whose part of the key is cached."""

_part_of: Final = lru_cache(maxsize=ROUTES_MAX)(escaped)
_AS_YET: Final[dict[str, Any]] = {
    "response": None,
    "metered": None,
    "shadows": (),
    "_rulings": (),
    "_unsettled": (),
}
"""The initial values of the attributes of an outcome that are created when they are first read."""


class OfPipeline(Outcome):
    """The outcome of a request that a pipeline has decided. Its rarely needed attributes are made when first read."""

    __slots__ = ("decisions", "keys", "pipeline")

    pipeline: Pipeline
    decisions: Sequence[Decision]
    """The decisions of the pipeline's rules, in the order of the rules."""
    keys: Sequence[str]

    # The pipeline assigns these three attributes itself: a constructor would take longer, for each request.
    if TYPE_CHECKING:

        def __init__(self) -> None: ...

    else:
        __init__ = object.__init__

    def __getattr__(self, name: str) -> Any:
        """Returns a rarely needed attribute, made when it is first read. Raises AttributeError for an unknown one."""
        if name == "guard":
            value: Any = self.pipeline.guard
        elif name == "refusal":
            value = self._made_refusal()
        elif name in _AS_YET:
            value = _AS_YET[name]
        else:
            raise AttributeError(
                f"an outcome has no {name!r}; its other attributes are {', '.join(_AS_YET)}", name=name, obj=self
            )
        setattr(self, name, value)
        return value

    def _made_refusal(self) -> Refusal | None:
        return None

    @property
    def rulings(self) -> Sequence[Ruling]:
        if not self._rulings:
            self._rulings = self.pipeline.rulings(self.keys, self.decisions)
        return self._rulings

    def prepared(self) -> Sequence[tuple[Binding, Decision]] | None:
        return self.pipeline.prepared(self.decisions, self.keys)

    @property
    def unsettled(self) -> bool:
        """Returns False, because no cost of these rules depends on the response."""
        return False


class Admitted(OfPipeline):
    """The outcome of a request that all its limits have admitted."""

    __slots__ = ()

    @property
    def allowed(self) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def fields_beside(self, *, refused: bool) -> Fields:
        fields = self.pipeline.fields(self.decisions, self.keys, refused=refused)
        return super().fields_beside(refused=refused) if fields is None else fields


class RefusedByOne(OfPipeline):
    """The outcome of a request that its only limit refuses; the response is made when it is first read."""

    __slots__ = ()

    def _made_refusal(self) -> Refusal | None:
        return self.pipeline.usual_refusal(self.decisions[0], self.keys[0]) or self.pipeline.refusal(self.rulings[0])

    @property
    def allowed(self) -> bool:
        return False

    def __bool__(self) -> bool:
        return False

    def encoded(self) -> Answer | None:
        """Returns the response for ASGI, in lists that the caller may change; None if `refusal` must be used."""
        return self.pipeline.encoded_refusal(self.decisions[0], self.keys[0])


class Answering(Judge, Protocol):
    """The methods of a guard that its pipelines call."""

    dialects: tuple[str, ...]
    headers_enabled: bool
    untrusted: UntrustedProxy

    def has_refused(self) -> None:
        """Counts a refused request."""
        ...

    def refusal_by(self, ruling: Ruling, fields: Fields | None) -> Refusal:
        """Returns the standard response to a request that one limit refuses.

        `fields` are the response fields, if the caller has them already.
        """
        ...

    def decision_for_clients(
        self, decision: Decision, limiter: Limiter, key: str, cost: int, kind: str | None
    ) -> Decision:
        """Returns the refusal `decision` with the wait and the remaining quota that hold on every node."""
        ...


class CompiledRule:
    """A rule compiled for the fast path: its limit, the cost of a request, and the texts of its quotas for responses.

    The quotas may change while the rule is in use. The rule is up to date if `table.limit is rule.limit`. If
    `table.limit is rule.settled`, the rule is also simple enough that the guard decides only about keys in doubt.
    """

    __slots__ = (
        "_policies",
        "_quotas",
        "asks",
        "bindings",
        "board",
        "cost",
        "declared",
        "joint",
        "limit",
        "limiter",
        "missed",
        "names",
        "plain",
        "settled",
        "stores",
        "table",
        "tables",
    )

    def __init__(self, declared: Declared, limiter: Limiter) -> None:
        self.declared = declared
        self.limiter = limiter
        self.cost = declared.fixed_cost
        self.asks = declared.within_s > 0 and not is_alone(limiter)
        self.board = limiter.control.enforcement
        self.tables = limiter.control.tables
        self.table = self.tables[0]
        self.missed = True
        """Whether the key function has found no key so far."""
        self.settled: Limit | None = None
        """The limit's quota, if it has only one, all requests have the same cost, and a key was found; else None."""
        self.joint: Limit | None = None
        """The limit's first quota, if the rule can be charged in one step with other rules, all requests have the same
        cost, and a key was found; else None."""
        self._take()

    def _take(self) -> None:
        """Computes all values that depend on the quotas, such as the texts for responses."""
        limits = {table.name: table.limit for table in self.tables}
        names = self.names = self.declared.shown_names(self.limiter, limits)
        """The names of the quotas in responses, by their names at the hub."""
        self.bindings = {name: binding_of(names[name], (names[name], limit)) for name, limit in limits.items()}
        """The prepared texts for response fields, by the name of the quota at the hub."""
        self._policies = {
            name: policy_of(binding, *[each for each in self.bindings.values() if each is not binding])
            for name, binding in self.bindings.items()
        }
        """The RateLimit-Policy field of all quotas, for each quota that a decision may bind, by its name at the hub."""
        self.plain = all(limit.costs is None for limit in limits.values())
        """Whether all requests have the same cost."""
        # These come last: if another thread finds them up to date, it uses the values above.
        self._quotas = [(table, limits[table.name]) for table in self.tables]
        self.limit = limits[self.table.name]
        self.settled = self.limit if self.plain and not (self.missed or len(self.tables) > 1) else None
        self.stores = stores_if_joint(self.limiter)
        self.joint = self.limit if self.plain and self.stores and not self.missed else None

    def keep_up(self) -> None:
        """Computes the rule's values again if one of its quotas has changed."""
        for table, limit in self._quotas:
            if table.limit is not limit:
                self._take()
                return

    def has_key(self, key: str) -> None:
        """Records that the key function has found its first key."""
        self.missed = False
        self.declared.has_found_keys(key)
        self._take()

    def catch_up(self, key: str) -> bool:
        """Brings the rule up to date after its key function has found `key`; returns `plain`.

        If that is False, the guard must decide.
        """
        if self.missed:
            self.has_key(key)
        self.keep_up()
        return self.plain

    def certainly_refuses(self, key: str) -> bool:
        """Returns whether the limit (if it is on) certainly refuses a request, so that the hub need not be asked.

        Charges nothing. Returns False for a limit with several quotas: one may refuse while another one is in doubt.
        """
        if len(self.tables) > 1:
            return False
        would = self.board.on.test(key, self.cost, None)
        return not would.allowed and would.certain

    def keying(self, find: Find, part: Find | None) -> Callable[[Any], str | FoundKey]:
        """Returns a function that finds the key to charge in a raw request, or a `FoundKey` if the guard must decide.

        `find` returns the result of the rule's key function for a raw request; `part` returns the route or scope that
        the key begins with.
        """
        declared = self.declared

        def key_in(asked: Any) -> str | FoundKey:
            try:
                found = find(asked)
            except Exception as error:  # noqa: BLE001  # an error of the application's function; the guard handles it
                return FoundKey(declared, error=error)
            key: str = found
            if type(found) is not str or not FIRST <= found < OURS:
                key = found if type(found) is str else str(found) if type(found) in PLAIN else ""
                if not key or key[0] in UNUSUAL:
                    return FoundKey(declared, found)
            if part is not None:
                try:
                    key = f"{_part_of(part(asked))}|{escaped(key) if '%' in key or '|' in key else key}"
                except Exception:  # noqa: BLE001  # an error of a router; the guard calls it again
                    return FoundKey(declared, found)
            return key

        return key_in

    def found(self, key: str) -> FoundKey:
        """Returns the key function's result as a `FoundKey`, recovered from `key`, for the guard to decide."""
        if self.declared.part_of_key is not None:
            key = unescaped(key.partition("|")[2])
        return FoundKey(self.declared, key)

    def usually_written(self, decision: Decision, key: str) -> tuple[PolicyField, str] | None:
        """Returns the `ietf-11` fields of a limit with several quotas; None unless they are usual (see `usual_11`)."""
        name = decision.binding
        decisions = [decision]
        for table, limit in self._quotas:
            if table.limit is not limit:
                return None
            if table.name != name:
                decisions.append(table.test(key, 0))
        policy = self._policies.get(name)
        return None if policy is None else usual_11(policy, decisions)

    def ruling(self, key: str, decision: Decision) -> Ruling:
        """Returns `decision` as the ruling of the rule's limit about `key`."""
        return Ruling(self.declared, self.limiter, key, self.cost, decision)


class Pipeline:
    """Decides about a request by a sequence of rules, all of which apply to it."""

    __slots__ = (
        "_alone",
        "_first",
        "_refusals",
        "_rules",
        "_says",
        "_several",
        "_status",
        "decide",
        "guard",
        "is_prepared",
    )

    def __init__(
        self, guard: Answering, rules: Sequence[CompiledRule], finders: Sequence[tuple[Find, Find | None]]
    ) -> None:
        self.guard = guard
        self._rules = rules
        first = self._first = rules[0]
        self.is_prepared = guard.dialects == (IETF_11,)
        only = first if self.is_prepared and len(rules) == 1 else None
        self._alone = only if len(first.tables) == 1 else None
        """The only rule, if it has one quota, and the response fields are those of `ietf-11`; else None."""
        self._several = only if len(first.tables) > 1 else None
        """The only rule, if it has several quotas, and the response fields are those of `ietf-11`; else None."""
        self._says = first.declared.rule.error_message is not None
        self._status = first.declared.status
        self._refusals: dict[tuple[int | None, str, bool], Answer] = {}
        """Cached refusals without RateLimit fields, by wait in seconds, quota, and whether the refusal is certain."""
        keying = [rule.keying(*finder) for rule, finder in zip(rules, finders, strict=True)]
        self.decide: Decide = self._by_one(first, keying[0]) if len(rules) == 1 else self._by_all(keying)
        """A function that decides about a raw request, and returns its outcome, or the keys found if the guard must
        decide."""

    # An admitted request is decided in one function, with constants in local variables: each further call, or three
    # attribute accesses, would take as long as the decision itself.

    def _by_one(self, rule: CompiledRule, key_in: Callable[[Any], str | FoundKey]) -> Decide:
        board, answers, table, cost, asks = rule.board, rule.board.on, rule.table, rule.cost, rule.asks

        def decide(asked: Any) -> Outcome | list[FoundKey]:
            key: Any = key_in(asked)
            if key.__class__ is not str:
                return [key]
            if board.answers is not answers or not (table.limit is rule.settled or rule.catch_up(key)):
                return [rule.found(key)]
            try:
                if asks and not (answers.settles(key, cost, None) or rule.certainly_refuses(key)):
                    return [rule.found(key)]
                decision = answers.hit(key, cost)
            except Exception:  # noqa: BLE001  # the guard will get the error again and handle it
                return [rule.found(key)]
            if not decision.allowed:
                return self._refused(key, decision, asked)
            outcome = Admitted()
            outcome.refusal = None  # because every protocol except ASGI reads it
            outcome.pipeline = self
            outcome.decisions = (decision,)
            outcome.keys = (key,)
            return outcome

        return decide

    def _by_all(self, keying: Sequence[Callable[[Any], str | FoundKey]]) -> Decide:
        rules = self._rules
        steps = [
            (rule, rule.board, rule.board.on, rule.table, key_in) for rule, key_in in zip(rules, keying, strict=True)
        ]
        costs = [rule.cost for rule in rules]
        certain = any(rule.declared.within_s > 0 for rule in rules)

        def decide(asked: Any) -> Outcome | list[FoundKey]:
            keys: list[str] = []
            stores: list[Stores] = []
            closer = False
            for rule, board, answers, table, key_in in steps:
                key = key_in(asked)
                if isinstance(key, FoundKey):
                    return [*self._found(keys), key]
                keys.append(key)
                if table.limit is not rule.joint or board.answers is not answers:
                    if rule.missed:
                        rule.has_key(key)
                    rule.keep_up()
                    closer = closer or table.limit is not rule.joint or board.answers is not answers
                stores.append(rule.stores)
            try:
                decisions = None if closer else hit_stores(certain, stores, keys, costs)
            except Exception:  # noqa: BLE001  # the guard will get the error again and handle it
                decisions = None
            if not isinstance(decisions, list):
                return self._found(keys)
            outcome = Admitted()
            outcome.refusal = None
            outcome.pipeline = self
            outcome.decisions = decisions
            outcome.keys = keys
            return outcome

        return decide

    def _found(self, keys: Sequence[str]) -> list[FoundKey]:
        return [rule.found(key) for rule, key in zip(self._rules, keys, strict=False)]

    def _refused(self, key: str, decision: Decision, asked: Any) -> RefusedByOne:
        guard, rule = self.guard, self._first
        guard.has_refused()
        guard.untrusted.look(rule.declared.key_function, key, asked)
        outcome = RefusedByOne()
        outcome.response = None
        outcome.pipeline = self
        outcome.decisions = (guard.decision_for_clients(decision, rule.limiter, key, rule.cost, None),)
        outcome.keys = (key,)
        if self._says or not self.is_prepared:  # the message or the fields may depend on the time: make them now
            outcome.refusal = self.refusal(outcome.rulings[0])
        return outcome

    def rulings(self, keys: Sequence[str], decisions: Sequence[Decision]) -> tuple[Ruling, ...]:
        """Returns all rules' rulings, each made from a rule's key and its limit's decision."""
        each = zip(self._rules, keys, decisions, strict=True)
        return tuple([rule.ruling(key, decision) for rule, key, decision in each])

    def refusal(self, ruling: Ruling) -> Refusal:
        """Returns the response to a request that its only limit refuses."""
        return self.guard.refusal_by(ruling, self.fields((ruling.decision,), (ruling.key,)))

    def encoded_refusal(self, decision: Decision, key: str) -> Answer | None:
        """Returns the response to a refused request in the form of ASGI; None if the guard must write it."""
        if self._says or not self.is_prepared:
            return None
        fields = self.encoded((decision,), (key,))
        if fields is None:
            return None
        after_s, name = decision.retry_after, self._name(decision)
        wait_s = ceil(after_s) if 1.0 < after_s < FAR_OFF_S else retry_after_of(decision)
        answer = self._refusals.get((wait_s, name, decision.certain))
        if answer is None:
            answer = usual_answer(self._status, *self._grounds(decision))
            if len(self._refusals) >= REFUSALS_MAX:
                self._refusals.clear()
            self._refusals[wait_s, name, decision.certain] = answer
        status, head, body = answer
        return status, head + fields, body

    def usual_refusal(self, decision: Decision, key: str) -> Refusal | None:
        """Returns the response to a refused request for other frameworks than ASGI; None if the guard must write it."""
        if self._says or not self.is_prepared:
            return None
        fields = self.fields((decision,), (key,))
        return None if fields is None else usual_refusal(self._status, *self._grounds(decision), fields)

    def fields(self, decisions: Sequence[Decision], keys: Sequence[str], *, refused: bool = False) -> Fields | None:
        """Returns the response fields for decisions about `keys`; None if the guard must write them.

        `refused` means that another limit has refused the request.
        """
        if not self.guard.headers_enabled:
            return []
        alone = self._alone
        if alone is not None and not refused:
            if alone.table.limit is not alone.settled:
                alone.keep_up()
            decision = decisions[0]
            binding = alone.bindings.get(decision.binding)
            if binding is not None:
                return [binding.field, (SERVICE, service_11(binding.name, decision))]
        written = self._written(decisions, keys, refused=refused)
        return None if written is None else [written[0].field, (SERVICE, written[1])]

    def encoded(self, decisions: Sequence[Decision], keys: Sequence[str], *, refused: bool = False) -> Headers | None:
        """Returns the fields as `fields` does, but as pairs of bytes for ASGI; None if the guard must write them."""
        if not self.guard.headers_enabled:
            return []
        alone = self._alone
        if alone is not None and not refused:
            # The same as below without the calls, because most responses end here.
            if alone.table.limit is not alone.settled:
                alone.keep_up()
            decision = decisions[0]
            binding, remaining, after_s = alone.bindings.get(decision.binding), decision.remaining, decision.reset_after
            if binding is not None and 0.0 < after_s < FAR_OFF_S and decision.allowed and 0 <= remaining <= INTEGER_MAX:
                return [binding.encoded, (SERVICE_ENCODED, binding.service % (remaining, ceil(after_s)))]
        written = self._written(decisions, keys, refused=refused)
        return None if written is None else [written[0].encoded, (SERVICE_ENCODED, written[1].encode())]

    def _written(
        self, decisions: Sequence[Decision], keys: Sequence[str], *, refused: bool
    ) -> tuple[PolicyField, str] | None:
        """Returns the RateLimit-Policy field and the value of RateLimit in `ietf-11`; None if the guard must write.

        The guard writes other dialects, and refusals by a ban.
        """
        several = self._several
        if several is not None and not refused:
            written = several.usually_written(decisions[0], keys[0])
            if written is not None:
                return written
        if not self.is_prepared:
            return None
        first, decision = self._first, decisions[0]
        if len(decisions) > 1 or len(first.tables) > 1:
            bound = self._bound(decisions, keys)
            return None if bound is None else written_11(bound, refused=refused)
        if first.table.limit is not first.settled:
            first.keep_up()
        binding = first.bindings.get(decision.binding)
        return None if binding is None else (binding, service_11(binding.name, decision, refused=refused))

    def prepared(self, decisions: Sequence[Decision], keys: Sequence[str]) -> Sequence[tuple[Binding, Decision]] | None:
        """Returns each limit's `Binding` and decision, to make `ietf-11` fields from; empty if fields are off.

        Returns None for other dialects, and for a refusal by a ban.
        """
        if not self.guard.headers_enabled:
            return ()
        return self._bound(decisions, keys) if self.is_prepared else None

    def _bound(self, decisions: Sequence[Decision], keys: Sequence[str]) -> Sequence[tuple[Binding, Decision]] | None:
        bound: list[tuple[Binding, Decision]] = []
        for rule, decision, key in zip(self._rules, decisions, keys, strict=True):
            if rule.table.limit is not rule.settled:
                rule.keep_up()
            binding = rule.bindings.get(decision.binding)
            if binding is None:
                return None
            bound.append((binding, decision))
            if len(rule.tables) > 1:
                others = left_of_others(rule.limiter, decision, key)
                bound += [(rule.bindings[each.binding], each) for each in others]
        return bound

    def _grounds(self, decision: Decision) -> tuple[tuple[str, ...], tuple[str, ...], int | None]:
        """Returns the names of the quotas that refuse, the names of the used-up ones, and the wait in seconds."""
        names = (self._name(decision),)
        return names, names if decision.certain else (), retry_after_of(decision)

    def _name(self, decision: Decision) -> str:
        """Returns the name in responses of the quota that a decision of the first rule is about."""
        return self._first.names.get(decision.binding, decision.binding)


def compile_rule(declared: Declared, *, answered: bool) -> CompiledRule | None:
    """Returns a rule compiled for the fast path; None if the guard must always decide by it.

    The guard must decide by rules that have other functions than a plain key function. If `answered` is True, the guard
    has an `on_breach`, and must decide by every rule.
    """
    limiter = declared.only_limiter
    if limiter is None or answered or declared.rule.on_breach is not None:
        return None
    control = limiter.control
    if control.borrows or (len(control.tables) == 1 and control.table.name != limiter.name):
        return None
    return CompiledRule(declared, limiter)


def decide_together(rules: Sequence[CompiledRule]) -> bool:
    """Returns whether the limits of these rules can be charged in one step, all or none."""
    limiters = [rule.limiter for rule in rules]
    banning = any(limiter.control.bans is not None for limiter in limiters)
    return len(rules) == 1 or (can_decide_together(limiters) and not banning)
