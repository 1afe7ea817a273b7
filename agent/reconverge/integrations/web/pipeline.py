"""From a request to its outcome: rules that are compiled when they are declared find keys, charge limits, and answer.

A `Pipeline` decides by a fixed sequence of `CompiledRule`s, one or several, that are all about a request. Its outcomes
are `Admitted` and `RefusedByOne`.
"""

# Theory of operation.
#
# What most rules need of a request is known when they are declared: a plain function finds the key, the cost is a
# number, and nothing depends on the response. So each request goes one way: find the keys, charge all limits in one
# step, and keep the decisions. Rulings, fields and refusals are made when they are asked for, because few are.
#
# Where the keys are found depends on the protocol, and nothing else does: a finder looks into a scope of ASGI, an
# environment of WSGI or a request (`asgi/scope_keys.py`, `environment_keys.py`, `web/request/keys.py`).
#
# What takes a closer look goes on in the generator of the guard (`Guard.check_further`), with what was found so far, so
# no function of the application is asked twice. Nothing is charged before:
#
#     what a request meets                            goes on with
#     a key that has to be awaited, hashed, replaced  the keys that were found
#     a key function that fails                       its error
#     doubt, of a limit that asks the hub             all keys
#     a limit that is off, in shadow, has prices      all keys
#     one of several limits that refuses              all keys: the others are looked at, too
#
# The only limit of a request refuses here.
#
# What has to stay so. What lies in a scope, an environment or a request knows neither how to send nor whose it is: else
# each request leaves a circle of objects that only the collector frees. What a key function looks at is noted beside it
# and not as an attribute, because `functools.wraps` copies attributes to wrappers that return something else. Header
# fields that come as an iterator are kept as a list in the scope, or a second rule and the application find none. Flask
# looks at each function that it calls whether it has to be awaited, so it gets two plain ones; what has no response is
# settled by `request_tearing_down`, which is connected by the first request that leaves something.

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
    service_11,
    waited_for_s,
    written_11,
)
from reconverge.integrations.web.outcome import Judge, Outcome, Refusal, Ruling
from reconverge.integrations.web.refusal import Answer, usual_answer, usual_refusal
from reconverge.integrations.web.request.keys import escaped, unescaped
from reconverge.limit.limit import Limit
from reconverge.limiter.certainty import is_alone
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.joint import can_decide_together, hit_stores, stores_if_joint
from reconverge.limiter.long_keys import OURS

Headers: TypeAlias = list[tuple[bytes, bytes]]
Find: TypeAlias = Callable[[Any], Any]
"""Finds the key of a request, or a part of it, in the thing that stands for the request."""
Decide: TypeAlias = Callable[[Any], "Outcome | list[FoundKey]"]
"""Decides about the thing that stands for a request; returns the keys where that takes a closer look."""

SERVICE_ENCODED: Final = SERVICE.lower().encode()
PLAIN: Final = frozenset({int, UUID})
"""Types of keys that have one text each."""
UNUSUAL: Final = f"{OURS}\x00"
"""With these begin keys that have to be replaced."""
FIRST: Final = "\x01"
"""The first text that begins with none of them; between it and `OURS` are nearly all keys."""
REFUSALS_MAX: Final = 1024
"""So many refusals of one rule are at hand: they differ in the whole seconds until the next try."""
ROUTES_MAX: Final = 1024
"""Of so many routes the part of the key is remembered."""

_part_of: Final = lru_cache(maxsize=ROUTES_MAX)(escaped)
_AS_YET: Final[dict[str, Any]] = {
    "response": None,
    "metered": None,
    "shadows": (),
    "_rulings": (),
    "_unsettled": (),
}
"""The attributes of a pipeline's outcome until others are put there."""


class OfPipeline(Outcome):
    """The outcome of a request that a pipeline has decided about; what few ask for is made when it is asked for."""

    __slots__ = ("decisions", "keys", "pipeline")

    pipeline: Pipeline
    decisions: Sequence[Decision]
    """One for each rule."""
    keys: Sequence[str]

    # These three are assigned by the pipeline that makes one: a function for that would take longer, for each request.
    if TYPE_CHECKING:

        def __init__(self) -> None: ...

    else:
        __init__ = object.__init__

    def __getattr__(self, name: str) -> Any:
        """Make an attribute when it is first read. Raises AttributeError for one that no outcome has."""
        if name == "guard":
            value: Any = self.pipeline.guard
        elif name == "refusal":
            value = self._made_refusal()
        elif name in _AS_YET:
            value = _AS_YET[name]
        else:
            raise AttributeError(f"an outcome has no {name!r}", name=name, obj=self)
        setattr(self, name, value)
        return value

    def _made_refusal(self) -> Refusal | None:
        return None

    @property
    def rulings(self) -> Sequence[Ruling]:
        """One for each rule."""
        if not self._rulings:
            self._rulings = self.pipeline.rulings(self.keys, self.decisions)
        return self._rulings

    def prepared(self) -> Sequence[tuple[Binding, Decision]] | None:
        """Return what `ietf-11` is written of."""
        return self.pipeline.prepared(self.decisions)

    @property
    def unsettled(self) -> bool:
        """Nothing depends on the response."""
        return False


class Admitted(OfPipeline):
    """The outcome of a request that all its limits have admitted."""

    __slots__ = ()

    @property
    def allowed(self) -> bool:
        """It is."""
        return True

    def __bool__(self) -> bool:
        return True

    def fields_beside(self, *, refused: bool) -> Fields:
        """Return the fields for a response, beside what others have decided."""
        fields = self.pipeline.fields(self.decisions, refused=refused)
        return super().fields_beside(refused=refused) if fields is None else fields


class RefusedByOne(OfPipeline):
    """The outcome of a request that its only limit refuses; the response is made when it is asked for, too."""

    __slots__ = ()

    def _made_refusal(self) -> Refusal | None:
        return self.pipeline.usual_refusal(self.decisions[0]) or self.pipeline.refusal(self.rulings[0])

    @property
    def allowed(self) -> bool:
        """It is not."""
        return False

    def __bool__(self) -> bool:
        return False

    def encoded(self) -> Answer | None:
        """The response as ASGI has it, with lists that others may change; None where `refusal` has to be asked."""
        return self.pipeline.encoded_refusal(self.decisions[0])


class Answering(Judge, Protocol):
    """A guard, as its pipeline needs it."""

    dialects: tuple[str, ...]
    headers_enabled: bool

    def has_refused(self) -> None:
        """Count a request that is refused."""
        ...

    def refusal_by(self, ruling: Ruling, fields: Fields | None) -> Refusal:
        """The response to a request that one limit refuses, where no function of the application answers for it.

        `fields` say so, where they are at hand.
        """
        ...

    def decision_for_clients(
        self, decision: Decision, limiter: Limiter, key: str, cost: int, kind: str | None
    ) -> Decision:
        """The decision for a client that may meet another node when it comes again."""
        ...


class CompiledRule:
    """A plain rule: its limit, the cost of a request, and what responses say of its quotas.

    The quotas may change while they are in use: `table.limit is rule.limit` says that this has kept up, and
    `table.limit is rule.settled` that there is nothing else to know of a request.
    """

    __slots__ = (
        "_further",
        "asks",
        "bindings",
        "board",
        "cost",
        "declared",
        "joint",
        "limit",
        "limiter",
        "missed",
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
        """Whether no key was found so far."""
        self.settled: Limit | None = None
        """The quota, if that is the only one and says all there is to know of a request."""
        self.joint: Limit | None = None
        """Likewise, where other limits decide in the same moment."""
        self._take()

    def _take(self) -> None:
        """Prepare what depends on the quotas."""
        limits = {table.name: table.limit for table in self.tables}
        self.bindings = {name: binding_of(name, *limits.items()) for name in limits}
        self.plain = all(limit.costs is None for limit in limits.values())
        """Whether all requests cost as much."""
        # Last: another thread that finds these up to date goes by what stands above.
        self._further = [(table, limits[table.name]) for table in self.tables[1:]]
        self.limit = limits[self.table.name]
        self.settled = self.limit if self.plain and not (self.missed or self._further or self.asks) else None
        self.stores = stores_if_joint(self.limiter)
        self.joint = self.limit if self.plain and self.stores and not self.missed else None

    def keep_up(self) -> None:
        """Prepare anew what has changed since, of any quota."""
        if self.table.limit is not self.limit or any(table.limit is not limit for table, limit in self._further):
            self._take()

    def has_key(self) -> None:
        """Keep up, and note that the key function finds keys."""
        if self.missed:
            self.missed = False
            self.declared.has_found_keys()
            self._take()
        self.keep_up()

    def may_decide(self, key: str) -> bool:
        """Whether a limit that is on may decide alone; not where that takes a closer look. Nothing is charged here."""
        self.has_key()
        if not self.plain:
            return False
        if not self.asks:
            return True
        answers = self.board.on
        try:
            if answers.settles(key, self.cost, None):
                return True
            if self._further:  # one of several may refuse for certain while another one is in doubt
                return False
            would = answers.test(key, self.cost, None)
        except Exception:  # noqa: BLE001  # the guard meets it again, and knows what to do
            return False
        return not would.allowed and would.certain

    def keying(self, find: Find, part: Find | None) -> Callable[[Any], str | FoundKey]:
        """A function that finds the key to charge, or `FoundKey` where that takes a closer look.

        `find` finds what the key function finds in a request, `part` the part of the key for its route or scope.
        """
        declared = self.declared

        def key_in(asked: Any) -> str | FoundKey:
            try:
                found = find(asked)
            except Exception as error:  # noqa: BLE001  # of the application's function; the guard says what it becomes
                return FoundKey(declared, error=error)
            key: str = found
            if type(found) is not str or not FIRST <= found < OURS:
                key = found if type(found) is str else str(found) if type(found) in PLAIN else ""
                if not key or key[0] in UNUSUAL:
                    return FoundKey(declared, found)
            if part is not None:
                try:
                    key = f"{_part_of(part(asked))}|{escaped(key) if '%' in key or '|' in key else key}"
                except Exception:  # noqa: BLE001  # of a router that was asked; the guard asks it again
                    return FoundKey(declared, found)
            return key

        return key_in

    def found(self, key: str) -> FoundKey:
        """Returns the key function's result, recovered from the key that was made of it."""
        if self.declared.part_of_key is not None:
            key = unescaped(key.partition("|")[2])
        return FoundKey(self.declared, key)

    def ruling(self, key: str, decision: Decision) -> Ruling:
        """Makes a ruling of the limit's decision."""
        return Ruling(self.declared, self.limiter, key, self.cost, decision)


class Pipeline:
    """Decides by a sequence of rules, all of which are about the request."""

    __slots__ = ("_alone", "_first", "_refusals", "_rules", "_says", "_status", "decide", "guard", "is_prepared")

    def __init__(
        self, guard: Answering, rules: Sequence[CompiledRule], finders: Sequence[tuple[Find, Find | None]]
    ) -> None:
        self.guard = guard
        self._rules = rules
        first = self._first = rules[0]
        self.is_prepared = guard.dialects == (IETF_11,)
        self._alone = first if self.is_prepared and len(rules) == 1 else None
        """The only rule, if its fields are those of `ietf-11`."""
        self._says = first.declared.rule.error_message is not None
        self._status = first.declared.status
        self._refusals: dict[tuple[int | None, str, bool], Answer] = {}
        """Without the fields of a dialect, by wait in seconds, quota, and whether the refusal is certain."""
        keying = [rule.keying(*finder) for rule, finder in zip(rules, finders, strict=True)]
        self.decide: Decide = self._by_one(first, keying[0]) if len(rules) == 1 else self._by_all(keying)
        """Decides about what its finders look into."""

    # All that an admitted request meets stands in one function, and what stays the same is at hand: a call, or three
    # looks into an object, take as long as a decision.

    def _by_one(self, rule: CompiledRule, key_in: Callable[[Any], str | FoundKey]) -> Decide:
        board, answers, table, cost = rule.board, rule.board.on, rule.table, rule.cost

        def decide(asked: Any) -> Outcome | list[FoundKey]:
            key: Any = key_in(asked)
            if key.__class__ is not str:
                return [key]
            if board.answers is not answers or not (table.limit is rule.settled or rule.may_decide(key)):
                return [rule.found(key)]
            try:
                decision = answers.hit(key, cost)
            except Exception:  # noqa: BLE001  # the guard meets it again, and knows what to do
                return [rule.found(key)]
            if not decision.allowed:
                return self._refused(key, decision)
            outcome = Admitted()
            outcome.refusal = None  # as all but ASGI ask
            outcome.pipeline = self
            outcome.decisions = (decision,)
            outcome.keys = (key,)
            return outcome

        return decide

    def _by_all(self, keying: Sequence[Callable[[Any], str | FoundKey]]) -> Decide:
        rules = self._rules
        steps = [
            (rule, rule.board, rule.board.on, rule.table, rule.cost, key_in)
            for rule, key_in in zip(rules, keying, strict=True)
        ]
        certain = any(rule.declared.within_s > 0 for rule in rules)

        def decide(asked: Any) -> Outcome | list[FoundKey]:
            keys: list[str] = []
            arguments: list[object] = [certain]
            sizes: list[int] = []
            closer = False
            for rule, board, answers, table, cost, key_in in steps:
                key = key_in(asked)
                if isinstance(key, FoundKey):
                    return [*self._found(keys), key]
                keys.append(key)
                if table.limit is not rule.joint:
                    rule.has_key()
                closer = closer or table.limit is not rule.joint or board.answers is not answers
                stores = rule.stores
                sizes.append(len(stores))
                for store in stores:
                    arguments += (store, key, cost)
            try:
                decisions = None if closer else hit_stores(arguments, sizes)
            except Exception:  # noqa: BLE001  # the guard meets it again, and knows what to do
                decisions = None
            if decisions is None:
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

    def _refused(self, key: str, decision: Decision) -> RefusedByOne:
        guard, rule = self.guard, self._first
        guard.has_refused()
        outcome = RefusedByOne()
        outcome.response = None
        outcome.pipeline = self
        outcome.decisions = (guard.decision_for_clients(decision, rule.limiter, key, rule.cost, None),)
        outcome.keys = (key,)
        if self._says or not self.is_prepared:  # a message that is made up, or fields that state the time: now
            outcome.refusal = self.refusal(outcome.rulings[0])
        return outcome

    # ------------------------------------------------------------ answering

    def rulings(self, keys: Sequence[str], decisions: Sequence[Decision]) -> tuple[Ruling, ...]:
        """Makes rulings of the limits' decisions."""
        each = zip(self._rules, keys, decisions, strict=True)
        return tuple([rule.ruling(key, decision) for rule, key, decision in each])

    def refusal(self, ruling: Ruling) -> Refusal:
        """The response to a request that the only limit refuses."""
        return self.guard.refusal_by(ruling, self.fields((ruling.decision,)))

    def encoded_refusal(self, decision: Decision) -> Answer | None:
        """The response to a refused request as ASGI has it; None where the guard has to write it."""
        if self._says or not self.is_prepared:
            return None
        after_s, binding = decision.retry_after, decision.binding
        wait_s = ceil(after_s) if 1.0 < after_s < FAR_OFF_S else waited_for_s(decision)
        answer = self._refusals.get((wait_s, binding, decision.certain))
        if answer is None:
            answer = usual_answer(self._status, *_grounds(decision))
            if len(self._refusals) >= REFUSALS_MAX:
                self._refusals.clear()
            self._refusals[wait_s, binding, decision.certain] = answer
        status, head, body = answer
        fields = self.encoded((decision,))
        return None if fields is None else (status, head + fields, body)

    def usual_refusal(self, decision: Decision) -> Refusal | None:
        """The whole response as other frameworks have it; None where the guard has to write it."""
        if self._says or not self.is_prepared:
            return None
        fields = self.fields((decision,))
        return None if fields is None else usual_refusal(self._status, *_grounds(decision), fields)

    def fields(self, decisions: Sequence[Decision], *, refused: bool = False) -> Fields | None:
        """The fields of a response; None where the guard has to write them. `refused` if others have refused."""
        if not self.guard.headers_enabled:
            return []
        alone = self._alone
        if alone is not None and not refused and alone.table.limit is alone.settled:
            decision = decisions[0]
            binding = alone.bindings.get(decision.binding)
            if binding is not None:
                return [binding.field, (SERVICE, service_11(binding.name, decision))]
        written = self._written(decisions, refused=refused)
        return None if written is None else [written[0].field, (SERVICE, written[1])]

    def encoded(self, decisions: Sequence[Decision], *, refused: bool = False) -> Headers | None:
        """The same as ASGI has it."""
        if not self.guard.headers_enabled:
            return []
        alone = self._alone
        if alone is not None and not refused and alone.table.limit is alone.settled:
            # As below, without the calls: most responses have this.
            decision = decisions[0]
            binding, remaining, after_s = alone.bindings.get(decision.binding), decision.remaining, decision.reset_after
            if binding is not None and 0.0 < after_s < FAR_OFF_S and decision.allowed and 0 <= remaining <= INTEGER_MAX:
                return [binding.encoded, (SERVICE_ENCODED, binding.service % (remaining, ceil(after_s)))]
        written = self._written(decisions, refused=refused)
        return None if written is None else [written[0].encoded, (SERVICE_ENCODED, written[1].encode())]

    def _written(self, decisions: Sequence[Decision], *, refused: bool) -> tuple[PolicyField, str] | None:
        """Writes `ietf-11`'s fields for decisions; None for other dialects, and where a ban binds."""
        if not self.is_prepared:
            return None
        if len(decisions) > 1:
            bound = self._bound(decisions)
            return None if bound is None else written_11(bound, refused=refused)
        first, decision = self._first, decisions[0]
        if first.table.limit is not first.settled:
            first.keep_up()
        binding = first.bindings.get(decision.binding)
        return None if binding is None else (binding, service_11(binding.name, decision, refused=refused))

    def prepared(self, decisions: Sequence[Decision]) -> Sequence[tuple[Binding, Decision]] | None:
        """Returns the policies that `ietf-11` is written of.

        None for other dialects and where a ban binds, and empty without fields.
        """
        if not self.guard.headers_enabled:
            return ()
        return self._bound(decisions) if self.is_prepared else None

    def _bound(self, decisions: Sequence[Decision]) -> Sequence[tuple[Binding, Decision]] | None:
        bound: list[tuple[Binding, Decision]] = []
        for rule, decision in zip(self._rules, decisions, strict=True):
            if rule.table.limit is not rule.settled:
                rule.keep_up()
            binding = rule.bindings.get(decision.binding)
            if binding is None:
                return None
            bound.append((binding, decision))
        return bound


def _grounds(decision: Decision) -> tuple[tuple[str, ...], tuple[str, ...], int | None]:
    """Of a single refusal: the names of the quotas that have refused, of those that are used up, and the wait in s."""
    names = (decision.binding,)
    return names, names if decision.certain else (), waited_for_s(decision)


def compile_rule(declared: Declared, *, answered: bool) -> CompiledRule | None:
    """Compile a rule, if it is plain; `answered` if a function of the application answers for refusals."""
    limiter = declared.only_limiter
    if limiter is None or answered or declared.rule.on_breach is not None:
        return None
    control = limiter.control
    if control.borrows or (len(control.tables) == 1 and control.table.name != limiter.name):
        return None
    return CompiledRule(declared, limiter)


def decide_together(rules: Sequence[CompiledRule]) -> bool:
    """Whether rules can be charged in one step."""
    limiters = [rule.limiter for rule in rules]
    banning = any(limiter.control.bans is not None for limiter in limiters)
    return len(rules) == 1 or (can_decide_together(limiters) and not banning)
