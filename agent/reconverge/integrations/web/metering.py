"""Counts in a usage meter the charges of requests by a guard, and their later corrections."""

# Theory of operation.
#
# A request is counted once it is decided: the charge of each limit, under the identity, the limit's name and the route.
# A refused request is counted as refused by each of its limits, and costs nothing. If nothing is charged, nothing is
# counted: for a limit that is off, for one in shadow that would have refused, and for an exempt request.
#
# A charge may be corrected until long after the response: the cost of a reservation is settled or spent, or all charges
# are given back because another limit refuses the request. Each correction is reported to the meter where it happens. A
# reservation reports its own corrections (`Reservation.on_correction`), also if the application settles it, so the
# meter follows the limiter without computing anything again. A correction is counted in the period in which it happens.
#
# The route is a pattern of the framework or else of the rule, and never a path, because clients can invent any number
# of paths. All requests that match no route have the empty route.
#
# A failure of this module breaks no request: the guard counts and logs it under the name `meter`.

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
"""The name of the meter in counts and log messages about its failures."""
NO_CUSTOMERS: Final = frozenset({NO_IDENTITY, OTHERS})
"""Identities that stand for several customers, whose number of addresses has no meaning."""


class Counted(NamedTuple):
    """One limit's charge for a request, as a usage meter has counted it."""

    identity: str
    limit: str
    cost: int
    """The cost to subtract in the meter if the request is refused after all; 0 if its reservation reports that
    itself."""
    refused: bool
    """Whether to count the request as refused by this limit if it is refused after all; False for a limit in shadow."""


class Metered:
    """One request, admitted or refused, as a usage meter has counted it."""

    __slots__ = ("_counted", "_metering", "_route")

    def __init__(self, metering: Metering, route: str, counted: Sequence[Counted]) -> None:
        self._metering = metering
        self._route = route
        self._counted = counted

    def is_about_the_same_request(self) -> None:
        if self._counted:
            self._metering.meter.join_requests()

    def take_back(self) -> None:
        counted, self._counted = self._counted, ()
        for each in counted:
            self._metering.amend(each, self._route, -each.cost, requests=-1, refused=int(each.refused))


class Metering:
    """Counts the charges of a guard's requests in a usage meter. Calls `failed` with each error and the name METER."""

    def __init__(self, meter: Meter, failed: Callable[[Exception, str], None]) -> None:
        self.meter = meter
        self._failed = failed

    def counted(self, request: Request, claims: Sequence[Claim], outcome: Outcome) -> Outcome:
        """Counts a request in the meter by its `outcome`, admitted or refused. Returns `outcome`; raises no error."""
        try:
            self._count(request, claims, outcome)
        except Exception as error:  # noqa: BLE001  # see the head of the file
            self._failed(error, METER)
        return outcome

    def amend(self, each: Counted, route: str, cost: int, *, requests: int = 0, refused: int = 0) -> None:
        """Counts a later correction of the charge `each` in the meter. Never raises an error.

        `cost`, `requests` and `refused` are added to the meter's sums; they may be negative.
        """
        try:
            self.meter.amend(each.identity, each.limit, route, cost=cost, requests=requests, refused=refused)
        except Exception as error:  # noqa: BLE001  # see the head of the file
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
        """Counts one limit's charge, and later corrections, in the meter. Returns the record; None after a failure."""
        identity, limit = fit_to_count(claim.identity or claim.key), claim.label or claim.limiter.name
        try:
            cost = cost_in_first_quota(claim.limiter, claim.cost, claim.kind)
            self.meter.add(identity, limit, cost, route, refused=refused)
        except Exception as error:  # noqa: BLE001  # the other limits are still counted
            self._failed(error, METER)
            return None
        reservation = ruling.reservation
        each = Counted(identity, limit, cost if reservation is None else 0, refused=not (claim.shadow or refused))
        if reservation is not None:
            reservation.on_correction(partial(self.amend, each, route))
        return each

    @staticmethod
    def _route_of(request: Request, claims: Sequence[Claim]) -> str:
        """Returns the pattern or name of the request's route, of which there are few; empty if no route matches."""
        route = request.route or next(iter(request.seek_templates()), "")
        if route:
            return route
        return next((path for claim in claims if (path := claim.declared.path_of(request))), "")


def _paired(claims: Sequence[Claim], rulings: Sequence[Ruling]) -> Iterable[tuple[Claim, Ruling]]:
    """Returns each ruling (a limit's decision) with the claim that it decides; leaves out claims whose limit failed."""
    if len(claims) == len(rulings) == 1:
        return ((claims[0], rulings[0]),)
    of = {(id(claim.declared), id(claim.limiter), claim.key): claim for claim in claims}
    return [(of[id(ruling.declared), id(ruling.limiter), ruling.key], ruling) for ruling in rulings]


def count_call(meter: Meter, limiter: Limiter, key: str, cost: int, kind: str | None, decision: Decision) -> None:
    """Counts a call of a decorated function in a usage meter, unless the limit admitted the call without a charge."""
    if has_charged(decision) or not decision.allowed:
        cost = cost_in_first_quota(limiter, cost, kind)
        meter.add(fit_to_count(key), limiter.name, cost, refused=not decision.allowed)


def fit_to_count(identity: str) -> str:
    """Returns `identity` in a form that a usage meter can count.

    An identity with a NUL character, which no customer can have, becomes the common identity OTHERS.
    """
    return OTHERS if "\0" in identity else identity


def checked_meter(meter: object) -> Meter | None:
    """Returns `meter`, a `Meter` or None. Raises InvalidSetting for any other object, such as a reporter of usage."""
    if meter is None or isinstance(meter, Meter):
        return meter
    raise InvalidSetting(
        "meter", meter, "is not a Meter; write meter = Meter(), and pass the same one to a UsageReporter"
    )


def check_contracts(limits: object, meter: Meter | None) -> None:
    """Raises InvalidSetting if `limits` are contracts with another meter than `meter`, the guard's.

    The charges of requests would be missing in that meter, which would only show in an invoice.
    """
    if isinstance(limits, Contracts) and limits.meter is not None and limits.meter is not meter:
        problem = "is the meter of the contracts, but the guard has another or none; give the guard the same meter="
        raise InvalidSetting("meter", limits.meter, problem)
