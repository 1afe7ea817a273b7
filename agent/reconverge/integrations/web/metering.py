"""Counts in a meter of usage what requests were charged by a guard, and what of that is corrected later."""

# Theory of operation.
#
# A request is counted once it was decided about: what each limit has charged, under the identity, the limit's name and
# the route. A refused request is counted as refused by each of its limits, and costs nothing. What charged nothing is
# not counted: a limit that is off, one in shadow that would have refused, a request that is exempt.
#
# What is charged may be corrected until long after the response: a reservation is settled or spent, the request is
# taken back because another limit refuses it. Each correction is reported to the meter where it happens: the
# reservation itself reports its own (`Reservation.on_correction`), also if the application settles it, so the meter
# follows what the limiter counts without working it out again. A correction is counted in the period in which it
# happens.
#
# The route is a pattern of the framework's, or else of the rule, and never a path: of paths there are as many as
# clients think of. All that leads nowhere has the empty route.
#
# What fails in here breaks no request: it is counted and logged by the guard, as `meter`.

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from reconverge.contracts.contracts import Contracts
from reconverge.errors import InvalidSetting
from reconverge.hub.usage import OTHERS
from reconverge.integrations.web.bound_rule import NO_IDENTITY
from reconverge.limiter.certainty import cost_in_first_quota, has_charged
from reconverge.usage.meter import Meter

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.integrations.web.bound_rule import Claim
    from reconverge.integrations.web.outcome import Outcome, Ruling
    from reconverge.integrations.web.request.request import Request
    from reconverge.limiter.faces.limiter import Limiter

METER: Final = "meter"
"""Under this name a guard counts and logs what has failed in here."""
NO_CUSTOMERS: Final = frozenset({NO_IDENTITY, OTHERS})
"""Identities that are several, whose addresses say nothing."""


class Counted(NamedTuple):
    """One limit's charge, as a meter has counted it."""

    identity: str
    limit: str
    cost: int
    """The cost that a request gives back when it is taken back, unless its reservation tells that itself."""
    refused: bool
    """Whether a request that is taken back counts as refused by this limit: not by one in the shadow."""


class Metered:
    """One admitted or refused request, as a meter has counted it."""

    __slots__ = ("_counted", "_metering", "_route")

    def __init__(self, metering: Metering, route: str, counted: Sequence[Counted]) -> None:
        self._metering = metering
        self._route = route
        self._counted = counted

    def is_about_the_same_request(self) -> None:
        """Corrects the meter: the request was counted before, so the node serves no further one."""
        if self._counted:
            self._metering.meter.join_requests()

    def take_back(self) -> None:
        """The request does not go on after all: it costs nothing, and counts as refused."""
        counted, self._counted = self._counted, ()
        for each in counted:
            self._metering.amend(each, self._route, -each.cost, requests=-1, refused=int(each.refused))


class Metering:
    """Counts a guard's charges. `failed` hears of errors, with a name."""

    def __init__(self, meter: Meter, failed: Callable[[Exception, str], None]) -> None:
        self.meter = meter
        self._failed = failed

    def counted(self, request: Request, claims: Sequence[Claim], outcome: Outcome) -> Outcome:
        """The same outcome, after it was counted. Never fails."""
        try:
            self._count(request, claims, outcome)
        except Exception as error:  # noqa: BLE001  # see above
            self._failed(error, METER)
        return outcome

    def amend(self, each: Counted, route: str, cost: int, *, requests: int = 0, refused: int = 0) -> None:
        """Count a correction. Never fails."""
        try:
            self.meter.amend(each.identity, each.limit, route, cost=cost, requests=requests, refused=refused)
        except Exception as error:  # noqa: BLE001  # see above
            self._failed(error, METER)

    def _count(self, request: Request, claims: Sequence[Claim], outcome: Outcome) -> None:
        refused, route = outcome.refusal is not None, self._route_of(request, claims)
        counted: list[Counted] = []
        for claim, ruling in _paired(claims, (*outcome.rulings, *outcome.shadows)):
            if claim.metered and (refused or ruling.has_charged):
                each = self._add(claim, ruling, route, refused=refused)
                if each is not None:
                    counted.append(each)
                    if claim.declared.watches_addresses and each.identity not in NO_CUSTOMERS:
                        address = request.client
                        if address is not None:
                            self.meter.addresses.note(each.identity, address)
        if len(counted) > 1:
            self.meter.join_requests(len(counted) - 1)
        outcome.metered = Metered(self, route, counted)

    def _add(self, claim: Claim, ruling: Ruling, route: str, *, refused: bool) -> Counted | None:
        """Count one limit's charge, and have its corrections counted; None if that fails."""
        identity, limit = fit_to_count(claim.identity or claim.key), claim.label or claim.limiter.name
        try:
            cost = cost_in_first_quota(claim.limiter, claim.cost, claim.kind)
            self.meter.add(identity, limit, cost, route, refused=refused)
        except Exception as error:  # noqa: BLE001  # the other limits are counted all the same
            self._failed(error, METER)
            return None
        reservation = ruling.reservation
        each = Counted(identity, limit, cost if reservation is None else 0, refused=not (claim.shadow or refused))
        if reservation is not None:
            reservation.on_correction(partial(self.amend, each, route))
        return each

    @staticmethod
    def _route_of(request: Request, claims: Sequence[Claim]) -> str:
        """The pattern or name of the request's route, of which there are few; empty if it leads nowhere."""
        route = request.route or next(iter(request.seek_templates()), "")
        if route:
            return route
        return next((path for claim in claims if (path := claim.declared.path_of(request))), "")


def _paired(claims: Sequence[Claim], rulings: Sequence[Ruling]) -> Iterable[tuple[Claim, Ruling]]:
    """Each ruling with the claim that it is about; claims whose limit has failed have none."""
    if len(claims) == len(rulings) == 1:
        return ((claims[0], rulings[0]),)
    of = {(id(claim.declared), id(claim.limiter), claim.key): claim for claim in claims}
    return [(of[id(ruling.declared), id(ruling.limiter), ruling.key], ruling) for ruling in rulings]


def count_call(meter: Meter, limiter: Limiter, key: str, cost: int, kind: str | None, decision: Decision) -> None:
    """Count a call of a function that a limit has decided about; one that charged nothing, for it is off, is not."""
    if has_charged(decision) or not decision.allowed:
        cost = cost_in_first_quota(limiter, cost, kind)
        meter.add(fit_to_count(key), limiter.name, cost, refused=not decision.allowed)


def fit_to_count(identity: str) -> str:
    """An identity as a meter can count it: what has NUL in it is no customer's."""
    return OTHERS if "\0" in identity else identity


def checked_meter(meter: object) -> Meter | None:
    """The meter of a guard. Raises InvalidSetting for anything else, such as what reports a meter."""
    if meter is None or isinstance(meter, Meter):
        return meter
    raise InvalidSetting("meter", meter, "is no Meter; write meter = Meter(), and give the same to a UsageReporter")


def check_contracts(limits: object, meter: Meter | None) -> None:
    """Raise InvalidSetting for contracts with a meter that the guard does not have.

    What requests are charged would be missing in it, which an invoice tells too late.
    """
    if isinstance(limits, Contracts) and limits.meter is not None and limits.meter is not meter:
        problem = "is the meter of the contracts, and the guard has another or none; give the guard the same meter="
        raise InvalidSetting("meter", limits.meter, problem)
