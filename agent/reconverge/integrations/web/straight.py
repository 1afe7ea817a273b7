"""The straight path of a guard: one rule with one limit, whose key is at hand and whose cost is a number.

The limit may have several quotas, as "10/minute; 100/hour" has.
"""

# Theory of operation.
#
# Most rules ask one limit, by a key that a plain function finds, and nothing depends on the response. What such a rule
# needs of a request is known when it is declared. The guard's own way makes a generator, a claim, a ruling and an
# outcome of every request, and writes the response fields from objects; that cost fifty times what the decision does.
#
# So such a rule has a `Straight`, which goes one way: key, decision, outcome. It takes nothing else upon itself:
#
#     what it meets                                   becomes
#     a key that has to be awaited, hashed, replaced  `Found`: the guard goes its own way with what was found
#     a key function that fails                       likewise, with the error; the function is not asked twice
#     doubt, of a limit that asks the hub             likewise
#     a limit that is off or in shadow                likewise
#     a refusal                                       `Refused`, whose response is written when it is asked for
#
# Which of several rules is about a request, the guard finds out before; with two of them it decides itself.
# Nothing was charged where the guard goes on. Fields are written from what is known before: the policy once for each
# limit, and of the service only what is left and until when. `tests/integrations/web/test_straight.py` holds both ways
# against each other, byte for byte.

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from reconverge.decision import Decision
from reconverge.integrations.web.bound_rule import Declared, Found
from reconverge.integrations.web.fields import (
    FAR_S,
    IETF_11,
    INTEGER_MAX,
    Fields,
    policy_11,
    service_11,
    sf_string,
    waited_for_s,
)
from reconverge.integrations.web.outcome import Judge, Outcome, Refusal, Ruling
from reconverge.integrations.web.refusal import Answer, usual_answer, usual_refusal
from reconverge.integrations.web.request.keys import escaped
from reconverge.limit.limit import Limit
from reconverge.limiter.certainty import is_alone
from reconverge.limiter.limiter import Limiter
from reconverge.limiter.long_keys import OURS

Headers: TypeAlias = list[tuple[bytes, bytes]]
Deciding: TypeAlias = Callable[[Any], Outcome | Found]
"""Decides about a request, or about what says as much of it; returns what was found where that is left to the guard."""

POLICY: Final = "RateLimit-Policy"
SERVICE: Final = "RateLimit"
POLICY_BYTES: Final = POLICY.lower().encode()
SERVICE_BYTES: Final = SERVICE.lower().encode()
PLAIN: Final = frozenset({int, UUID})
"""Types of keys that have one text each."""
UNUSUAL: Final = f"{OURS}\x00"
"""With these begin keys that have to be replaced."""
FIRST: Final = "\x01"
"""The first text that begins with none of them; between it and `OURS` are nearly all keys."""
FAR_OFF_S: Final = float(FAR_S)
"""To be compared with a float, which takes half as long as an integer."""
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
"""What an outcome of the straight path has where nothing else was put there."""


class OfOneLimit(Outcome):
    """The outcome of a request that one limit has decided about; what few ask for is made when it is asked for.

    Few ask: of most requests only the response fields are, which need the decision and nothing else.
    """

    __slots__ = ("decision", "key", "straight")

    straight: Straight
    decision: Decision
    key: str

    # These three are assigned by the path that makes one: a function for that would take longer, for each request.
    if TYPE_CHECKING:

        def __init__(self) -> None: ...

    else:
        __init__ = object.__init__

    def __getattr__(self, name: str) -> Any:
        """What is not there before it is asked for. Raises AttributeError for what no outcome has."""
        if name == "guard":
            value: Any = self.straight.guard
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
        """What its limit has said."""
        if not self._rulings:
            self._rulings = (self.straight.ruling(self.key, self.decision),)
        return self._rulings

    @property
    def unsettled(self) -> bool:
        """Nothing depends on the response."""
        return False


class Admitted(OfOneLimit):
    """The outcome of a request that its only limit has admitted."""

    __slots__ = ()

    @property
    def allowed(self) -> bool:
        """It is."""
        return True

    def __bool__(self) -> bool:
        return True

    def fields_beside(self, *, refused: bool) -> Fields:
        """See `Outcome.fields_beside`."""
        straight = self.straight
        fields = straight.fields(self.decision, refused=refused)
        return super().fields_beside(refused=refused) if fields is None else fields

    def encoded_beside(self, *, refused: bool) -> Headers | None:
        """The same as ASGI has it, for names of fields that add up; None where `fields_beside` has to be asked."""
        if refused and self.straight.guard.headers_enabled:
            return None
        return self.straight.encoded(self.decision)


class Refused(OfOneLimit):
    """The outcome of a request that its only limit refuses; the response is made when it is asked for, too."""

    __slots__ = ()

    def _made_refusal(self) -> Refusal | None:
        return self.straight.usual_refusal(self.decision) or self.straight.refusal(self.rulings[0])

    @property
    def allowed(self) -> bool:
        """It is not."""
        return False

    def __bool__(self) -> bool:
        return False

    def encoded(self) -> Answer | None:
        """The response as ASGI has it, with lists that others may change; None where `refusal` has to be asked."""
        return self.straight.encoded_refusal(self.decision)


class Counting(Protocol):
    """What counts by one quota."""

    limit: Limit
    """The quota, which may change."""


class Prepared(NamedTuple):
    """What `ietf-11` says of a limit, whatever the decision of which this quota binds."""

    policy_text: tuple[str, str]
    """Of all quotas, the one that binds before the others."""
    policy_field: tuple[bytes, bytes]
    name: str
    """The quota's, as a String of structured fields."""


class Answering(Judge, Protocol):
    """What the straight path needs of its guard."""

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

    def told_to_clients(self, decision: Decision, limiter: Limiter, key: str, cost: int, kind: str | None) -> Decision:
        """The decision, as a client is told of it that may meet another node when it comes again."""
        ...


class Straight:
    """Decides by one rule; see above for what it leaves to its guard."""

    __slots__ = (
        "_asks",
        "_board",
        "_encodable",
        "_further",
        "_limit",
        "_missed",
        "_prepared",
        "_priced",
        "_refusals",
        "_says",
        "_settled",
        "_status",
        "_table",
        "_tables",
        "cost",
        "decide",
        "declared",
        "guard",
        "is_about_all",
        "is_prepared",
        "limiter",
    )

    def __init__(self, guard: Answering, declared: Declared, limiter: Limiter) -> None:
        self.guard = guard
        self.declared = declared
        self.limiter = limiter
        self.cost = declared.fixed_cost
        self._missed = True
        """Whether no key was found so far."""
        self.is_about_all = declared.methods is None and declared.places is None
        self._asks = declared.within_s > 0 and not is_alone(limiter)
        self._says = declared.rule.error_message is not None
        self._status = declared.status
        self._board = limiter.enforcement
        self._tables = limiter.tables
        self._table = self._tables[0]
        self._limit = self._table.limit
        self._further: Sequence[tuple[Counting, Limit]] = ()
        self._refusals: dict[tuple[int | None, str, bool], Answer] = {}
        """Without the fields of a dialect, by wait in seconds, quota, and whether the refusal is certain."""
        self._settled: Limit | None = None
        """The quota, if that is the only one and says all there is to know of a request: none is in doubt, say."""
        self._take()
        self.decide = self.deciding(declared.key_function, declared.part_of_key)
        """Decides about a request that the rule is about; see `deciding`."""

    def _take(self) -> None:
        """Prepare what depends on the quotas, which may change while they are in use."""
        limits = {table.name: table.limit for table in self._tables}
        policies = {name: policy_11(name, limit) for name, limit in limits.items()}
        prepared = dict[str, Prepared]()
        for name, policy in policies.items():
            all_of_it = ", ".join([policy, *[each for other, each in policies.items() if other != name]])
            prepared[name] = Prepared((POLICY, all_of_it), (POLICY_BYTES, all_of_it.encode()), sf_string(name))
        self._prepared = prepared
        self.is_prepared = self.guard.dialects == (IETF_11,)
        self._encodable = {
            name: (each.policy_field, b"%b;r=%%d;t=%%d" % each.name.encode().replace(b"%", b"%%"))
            for name, each in prepared.items()
            if self.is_prepared
        }
        self._priced = any(limit.costs is not None for limit in limits.values())
        # Last: another thread that finds these up to date goes by what stands above.
        self._further = [(table, limits[table.name]) for table in self._tables[1:]]
        self._limit = limits[self._table.name]
        self._settled = None if self._missed or self._further or self._priced or self._asks else self._limit

    def _keep_up(self) -> None:
        """Prepare anew what has changed since, of any quota."""
        if self._table.limit is not self._limit or any(table.limit is not limit for table, limit in self._further):
            self._take()

    def deciding(self, find: Callable[[Any], Any], part: Callable[[Any], Any] | None) -> Deciding:
        """What decides about what it is called with; `find` finds in that what the key function finds in a request.

        And `part` finds the part of the key, if it has one. Its answer is an outcome; or what was found, for the guard.
        """
        # All that an admitted request meets stands in one function, and what stays the same is at hand: a call, or
        # three looks into an object, take as long as the decision.
        declared, board, answers, table, cost = self.declared, self._board, self._board.on, self._table, self.cost

        def decide(asked: Any) -> Outcome | Found:
            try:
                found = find(asked)
            except Exception as error:  # noqa: BLE001  # of the application's function; the guard says what it becomes
                return Found(declared, error=error)
            key = found
            if type(found) is not str or not FIRST <= found < OURS:
                key = found if type(found) is str else str(found) if type(found) in PLAIN else ""
                if not key or key[0] in UNUSUAL:
                    return Found(declared, found)
            if part is not None:
                try:
                    key = f"{_part_of(part(asked))}|{escaped(key) if '%' in key or '|' in key else key}"
                except Exception:  # noqa: BLE001  # of a router that was asked; the guard asks it again
                    return Found(declared, found)
            if board.answers is not answers or not (table.limit is self._settled or self._may_decide(key)):
                return Found(declared, found)
            try:
                decision = answers.hit(key, cost)
            except Exception:  # noqa: BLE001  # the guard meets it again, and knows what to do
                return Found(declared, found)
            if not decision.allowed:
                return self._refused(key, decision)
            outcome = Admitted()
            outcome.refusal = None  # as all but ASGI ask
            outcome.straight = self
            outcome.decision = decision
            outcome.key = key
            return outcome

        return decide

    def _may_decide(self, key: str) -> bool:
        """Whether a limit that is on may decide; not where the guard has to look closer. Nothing is charged here."""
        if self._missed:  # the first key
            self._missed = False
            self.declared.has_found_keys()
            self._take()
        self._keep_up()
        if self._priced:
            return False
        if not self._asks:
            return True
        answers = self._board.on
        try:
            if answers.settles(key, self.cost, None):
                return True
            if self._further:  # one of several may refuse for certain while another one is in doubt
                return False
            told = answers.test(key, self.cost, None)
        except Exception:  # noqa: BLE001  # the guard meets it again, and knows what to do
            return False
        return not told.allowed and told.certain

    def _refused(self, key: str, decision: Decision) -> Refused:
        guard = self.guard
        guard.has_refused()
        outcome = Refused()
        outcome.response = None
        outcome.straight = self
        outcome.decision = guard.told_to_clients(decision, self.limiter, key, self.cost, None)
        outcome.key = key
        if self._says or not self.is_prepared:  # a message that is made up, or fields that tell the time: now
            outcome.refusal = self.refusal(outcome.rulings[0])
        return outcome

    def ruling(self, key: str, decision: Decision) -> Ruling:
        """What the limit has said of a request."""
        return Ruling(self.declared, self.limiter, key, self.cost, decision)

    def refusal(self, ruling: Ruling) -> Refusal:
        """The response to a request that the limit refuses."""
        return self.guard.refusal_by(ruling, self.fields(ruling.decision, refused=False))

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
        fields = self.encoded(decision)
        return None if fields is None else (status, head + fields, body)

    def usual_refusal(self, decision: Decision) -> Refusal | None:
        """The whole response as other frameworks have it; None where the guard has to write it."""
        if self._says or not self.is_prepared:
            return None
        fields = self.fields(decision, refused=False)
        return None if fields is None else usual_refusal(self._status, *_grounds(decision), fields)

    def fields(self, decision: Decision, *, refused: bool) -> Fields | None:
        """The fields that say what was decided; None where the guard has to write them."""
        if not self.guard.headers_enabled:
            return []
        if not self.is_prepared:
            return None
        if self._table.limit is not self._settled:
            self._keep_up()
        prepared = self._prepared.get(decision.binding)
        if prepared is None:
            return None
        policy_text, _, name = prepared
        remaining, after_s = decision.remaining, decision.reset_after
        if not refused and 0.0 < after_s < FAR_OFF_S and decision.allowed and 0 <= remaining <= INTEGER_MAX:
            # As below, for most responses.
            return [policy_text, (SERVICE, f"{name};r={remaining};t={ceil(after_s)}")]
        return [policy_text, (SERVICE, service_11(name, decision, refused=refused))]

    def encoded(self, decision: Decision) -> Headers | None:
        """What `ietf-11` says of a decision, as ASGI has it; None where the guard has to write it."""
        if not self.guard.headers_enabled:
            return []
        if self._table.limit is not self._settled:
            self._keep_up()
        encodable = self._encodable.get(decision.binding)
        if encodable is None:
            return None
        policy_field, service = encodable
        remaining, after_s = decision.remaining, decision.reset_after
        if 0.0 < after_s < FAR_OFF_S and decision.allowed and 0 <= remaining <= INTEGER_MAX:
            # As below, for most responses.
            return [policy_field, (SERVICE_BYTES, service % (remaining, ceil(after_s)))]
        name = self._prepared[decision.binding].name
        return [policy_field, (SERVICE_BYTES, service_11(name, decision, refused=False).encode())]


def _grounds(decision: Decision) -> tuple[tuple[str, ...], tuple[str, ...], int | None]:
    """Of a single refusal: the names of the quotas that have refused, of those that are used up, and the wait in s."""
    names = (decision.binding,)
    return names, names if decision.certain else (), waited_for_s(decision)


def straight_for(guard: Answering, declared: Declared, *, answered: bool) -> Straight | None:
    """The straight path of a rule that has one; `answered` if a function of the application answers for refusals."""
    limiter = declared.only_limiter
    if limiter is None or answered or declared.rule.on_breach is not None:
        return None
    if limiter.borrows or (len(limiter.tables) == 1 and limiter.table.name != limiter.name):
        return None
    return Straight(guard, declared, limiter)
