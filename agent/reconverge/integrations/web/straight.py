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

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from reconverge.decision import Decision
from reconverge.integrations.web.bound_rule import Declared, Found
from reconverge.integrations.web.fields import IETF_11, Fields, policy_11, service_11, sf_string, waited_for_s
from reconverge.integrations.web.outcome import Judge, Outcome, Refusal, Ruling
from reconverge.integrations.web.refusal import Answer, usual_answer, usual_refusal
from reconverge.integrations.web.request.keys import escaped
from reconverge.integrations.web.request.request import Request
from reconverge.limit.limit import Limit
from reconverge.limiter.certainty import is_alone
from reconverge.limiter.limiter import Limiter
from reconverge.limiter.long_keys import OURS

Headers: TypeAlias = list[tuple[bytes, bytes]]

POLICY: Final = "RateLimit-Policy"
SERVICE: Final = "RateLimit"
POLICY_BYTES: Final = POLICY.lower().encode()
SERVICE_BYTES: Final = SERVICE.lower().encode()
PLAIN: Final = frozenset({int, UUID})
"""Types of keys that have one text each."""
UNUSUAL: Final = f"{OURS}\x00"
"""With these begin keys that have to be replaced."""
ROUTES_MAX: Final = 1024
"""Of so many routes the part of the key is remembered."""

_part_of: Final = lru_cache(maxsize=ROUTES_MAX)(escaped)


class OfOneLimit(Outcome):
    """The outcome of a request that one limit has decided about; the ruling is made when it is asked for."""

    __slots__ = ("_key", "decision", "straight")

    _key: str
    decision: Decision
    straight: Straight

    @property
    def rulings(self) -> Sequence[Ruling]:
        """What its limit has said."""
        if not self._rulings:
            self._rulings = (self.straight.ruling(self._key, self.decision),)
        return self._rulings


class Admitted(OfOneLimit):
    """The outcome of a request that its only limit has admitted."""

    __slots__ = ()

    def __init__(self, guard: Judge, straight: Straight, key: str, decision: Decision) -> None:
        # What `Outcome` has, without a call, and without looking for what is to be settled: nothing is.
        self.guard = guard
        self.refusal = None
        self.response = None
        self.metered = None
        self.shadows = ()
        self._rulings = ()
        self._unsettled = ()
        self.straight = straight
        self.decision = decision
        self._key = key

    def fields_beside(self, *, refused: bool) -> Fields:
        """See `Outcome.fields_beside`."""
        straight = self.straight
        fields = straight.fields(self.decision, refused=refused)
        return super().fields_beside(refused=refused) if fields is None else fields

    def encoded_beside(self, *, refused: bool) -> Headers | None:
        """The same as ASGI has it, for names of fields that add up; None where `fields_beside` has to be asked."""
        straight = self.straight
        if not straight.guard.headers_enabled:
            return []
        return straight.encoded(self.decision, refused=refused) if straight.is_prepared else None


class Refused(OfOneLimit):
    """The outcome of a request that its only limit refuses; the response is made when it is asked for, too."""

    __slots__ = ()

    def __init__(self, guard: Judge, straight: Straight, key: str, decision: Decision) -> None:
        # As `Admitted` does, but for `refusal`: what is not there yet is made in `__getattr__`.
        self.guard = guard
        self.response = None
        self.metered = None
        self.shadows = ()
        self._rulings = ()
        self._unsettled = ()
        self.straight = straight
        self.decision = decision
        self._key = key

    def __getattr__(self, name: str) -> Any:
        """The refusal, which is not there before it is asked for. Raises AttributeError for anything else."""
        if name != "refusal":
            raise AttributeError(f"an outcome has no {name!r}", name=name, obj=self)
        self.refusal = refusal = self.straight.usual_refusal(self.decision) or self.straight.refusal(self.rulings[0])
        return refusal

    @property
    def allowed(self) -> bool:
        """It is not."""
        return False

    def __bool__(self) -> bool:
        return False

    def encoded(self) -> Answer | None:
        """The response as ASGI has it; None where `refusal` has to be asked."""
        straight = self.straight
        answer = straight.usual_answer(self.decision)
        if answer is None:
            return None
        status, head, body = answer
        if not straight.guard.headers_enabled:
            return status, [*head], body  # a list of its own, which others may change
        fields = straight.encoded(self.decision, refused=False)
        return None if fields is None else (status, head + fields, body)


class Counting(Protocol):
    """What counts by one quota."""

    limit: Limit
    """The quota, which may change."""


class Prepared(NamedTuple):
    """What `ietf-11` says of a limit, whatever the decision of which this quota binds."""

    policy: str
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
        "_further",
        "_has_found",
        "_key",
        "_limit",
        "_part",
        "_prepared",
        "_priced",
        "_says",
        "_status",
        "_table",
        "_tables",
        "cost",
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
        self._has_found = False
        self._key = declared.key_function
        self._part = declared.part_of_key
        self.is_about_all = declared.methods is None and declared.places is None
        self._asks = declared.within_s > 0 and not is_alone(limiter)
        self._says = declared.rule.error_message is not None
        self._status = declared.status
        self._board = limiter.enforcement
        self._tables = limiter.tables
        self._table = self._tables[0]
        self._limit = self._table.limit
        self._further: Sequence[tuple[Counting, Limit]] = ()
        self._take()

    def _take(self) -> None:
        """Prepare what depends on the quotas, which may change while they are in use."""
        limits = {table.name: table.limit for table in self._tables}
        policies = {name: policy_11(name, limit) for name, limit in limits.items()}
        prepared = dict[str, Prepared]()
        for name, policy in policies.items():
            all_of_it = ", ".join([policy, *[each for other, each in policies.items() if other != name]])
            prepared[name] = Prepared(all_of_it, (POLICY_BYTES, all_of_it.encode()), sf_string(name))
        self._prepared = prepared
        self.is_prepared = self.guard.dialects == (IETF_11,)
        self._priced = any(limit.costs is not None for limit in limits.values())
        # Last: another thread that finds these up to date goes by what stands above.
        self._further = [(table, limits[table.name]) for table in self._tables[1:]]
        self._limit = limits[self._table.name]

    def _look_at_further(self) -> None:
        """Prepare anew what has changed since, of several quotas."""
        for table, limit in self._further:
            if table.limit is not limit:
                self._take()
                return

    def decide(self, request: Request) -> Outcome | Found | None:
        """The outcome for a request that the rule is about; or what the key function has found, for the guard.

        None if it was not asked.
        """
        try:
            found = self._key(request)
        except Exception as error:  # noqa: BLE001  # of the application's function; the guard says what it becomes
            return Found(self.declared, error=error)
        key = found if type(found) is str else str(found) if type(found) in PLAIN else ""
        if not key or key[0] in UNUSUAL:
            return Found(self.declared, found)
        if self._part is not None:
            try:
                key = f"{_part_of(self._part(request))}|{escaped(key)}"
            except Exception:  # noqa: BLE001  # of a router that was asked; the guard asks it again
                return Found(self.declared, found)
        decision = self._decision(key)
        if decision is None:
            return Found(self.declared, found)
        if not self._has_found:
            self._has_found = True
            self.declared.has_found_keys()
        if decision.allowed:
            return Admitted(self.guard, self, key, decision)
        guard = self.guard
        guard.has_refused()
        outcome = Refused(guard, self, key, guard.told_to_clients(decision, self.limiter, key, self.cost, None))
        if self._says or not self.is_prepared:  # a message that is made up, or fields that tell the time: now
            outcome.refusal = self.refusal(outcome.rulings[0])
        return outcome

    def _decision(self, key: str) -> Decision | None:
        """What the limit says; None, and nothing charged, where the guard has to look closer."""
        answers = self._board.on
        if self._board.answers is not answers:
            return None
        if self._table.limit is not self._limit:
            self._take()
        elif self._further:
            self._look_at_further()
        if self._priced:
            return None
        try:
            if self._asks and not answers.settles(key, self.cost, None):
                if self._further:  # one of several may refuse for certain while another one is in doubt
                    return None
                told = answers.test(key, self.cost, None)
                if told.allowed or not told.certain:
                    return None
            return answers.hit(key, self.cost)
        except Exception:  # noqa: BLE001  # the guard meets it again, and knows what to do
            return None

    def ruling(self, key: str, decision: Decision) -> Ruling:
        """What the limit has said of a request."""
        return Ruling(self.declared, self.limiter, key, self.cost, decision)

    def refusal(self, ruling: Ruling) -> Refusal:
        """The response to a request that the limit refuses."""
        return self.guard.refusal_by(ruling, self.fields(ruling.decision, refused=False))

    def usual_answer(self, decision: Decision) -> Answer | None:
        """The response to a refused request without fields of a dialect; None where the guard has to write it."""
        return None if self._says or not self.is_prepared else usual_answer(self._status, *_grounds(decision))

    def usual_refusal(self, decision: Decision) -> Refusal | None:
        """The whole response as other frameworks have it; None where the guard has to write it."""
        if self._says or not self.is_prepared:
            return None
        fields = self.fields(decision, refused=False) if self.guard.headers_enabled else []
        return None if fields is None else usual_refusal(self._status, *_grounds(decision), fields)

    def fields(self, decision: Decision, *, refused: bool) -> Fields | None:
        """The fields that say what was decided; None where the guard has to write them."""
        if not self.is_prepared or not self.guard.headers_enabled:
            return None
        prepared = self._prepared_for(decision)
        if prepared is None:
            return None
        return [(POLICY, prepared.policy), (SERVICE, service_11(prepared.name, decision, refused=refused))]

    def _prepared_for(self, decision: Decision) -> Prepared | None:
        """What is said of the limit with such a decision."""
        if self._table.limit is not self._limit:
            self._take()
        elif self._further:
            self._look_at_further()
        return self._prepared.get(decision.binding)

    def encoded(self, decision: Decision, *, refused: bool) -> Headers | None:
        """What `ietf-11` says of a decision, as ASGI has it; None where the guard has to write it.

        `refused` if something else has refused the request.
        """
        prepared = self._prepared_for(decision)
        if prepared is None:
            return None
        service = service_11(prepared.name, decision, refused=refused)
        return [prepared.policy_field, (SERVICE_BYTES, service.encode())]


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
