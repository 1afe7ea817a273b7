"""Provisional limits for a customer whose contract is not fetched yet, and the change to its own limits afterwards."""

# Theory of operation.
#
# Where contracts are fetched on demand, in pages of many customers each (`on_demand/customers.py`), a customer's first
# request may come before its page. The request is decided at once, as one of an unknown customer, or it is refused.
# Requests that may wait for the hub's answer wait for the page instead, within the same time.
#
# The use that was charged meanwhile moves with the customer when the page is there, as when its plan changes. If a
# limit of the plan for unknown customers has another algorithm or window than the customer's own limit of that name, it
# stays in force as a former limit until no charge to it counts any more. No other node knows these former limits, as no
# other has charged them.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.contracts.answers import Standing
from reconverge.contracts.model import REFUSED, Customer, Document, InvalidContracts
from reconverge.contracts.on_demand.customers import PENDING_S, OnDemandCustomers
from reconverge.contracts.store.changing import formers_of
from reconverge.contracts.terms import Terms, terms_of
from reconverge.runtime.interruptions import has_a_loop, in_a_handler


def terms_met(document: Document, customer: str, now_s: float, *, was_pending: bool = False) -> tuple[Terms, bool]:
    """Returns a customer's limits in force, and True if they are provisional, as its contract is not fetched yet.

    `was_pending` is True if the customer's previous limits were provisional. If its contract has come meanwhile,
    provisional limits that do not share their counts with the contract's limits stay in force as former limits.
    """
    customers = document.customers
    if not isinstance(customers, OnDemandCustomers):
        return terms_of(document, customer, now_s), False
    known = customers.meet(customer)
    if known and was_pending:
        keep_what_held(document, customers, customer, now_s)
    terms = terms_of(document, customer, now_s)
    if known and customers.meet(customer):  # it may have been dropped meanwhile
        return terms, False
    if customers.meanwhile == REFUSED:
        terms = Terms(REFUSED, ())
    return replace(terms, until=min(terms.until, now_s + PENDING_S)), True


async def wait_for_page(document: Document, customer: str, within_s: float) -> float:
    """Waits at most `within_s` seconds until a page with a customer's contract is fetched; returns the seconds left."""
    customers, begun_ns = document.customers, SystemClock.monotonic_ns()
    if within_s > 0 and isinstance(customers, OnDemandCustomers):
        arrival = customers.arrival(customer)
        if arrival is not None:
            try:
                await asyncio.wait([asyncio.wrap_future(arrival)], timeout=within_s)
            finally:
                customers.leave(customer, arrival)
    return _left_s(within_s, begun_ns)


def wait_for_page_blocking(document: Document, customer: str, within_s: float) -> float:
    """Waits as `wait_for_page` does, but blocks the thread; returns at once on an event loop or in a signal handler."""
    customers, begun_ns = document.customers, SystemClock.monotonic_ns()
    if within_s > 0 and isinstance(customers, OnDemandCustomers) and not (has_a_loop() or in_a_handler()):
        arrival = customers.arrival(customer)
        if arrival is not None:
            try:
                with contextlib.suppress(TimeoutError):
                    arrival.result(within_s)
            finally:
                customers.leave(customer, arrival)
    return _left_s(within_s, begun_ns)


def keep_what_held(document: Document, customers: OnDemandCustomers, identity: str, now_s: float) -> bool:
    """Keeps provisional limits of a customer in force if its fetched contract's limits do not share their counts.

    Counts are not shared if algorithm or window differ. Returns whether the fetched page has a contract for the
    customer.
    """
    customer = customers.peek(identity)
    if customer is None:
        return False
    if customers.meanwhile != REFUSED:
        unnamed = Document(document.plans, {}, document.unknown)
        with contextlib.suppress(InvalidContracts):  # the customer has the most former limits possible; these stay
            customers.hold_on(identity, formers_of(unnamed, document, identity, customer, now_s))
    return True


def is_past(standing: Standing, document: Document, customer: str, now_s: float) -> bool:
    """Returns whether a customer's cached limits, `standing`, are out of date.

    They are if they have expired, or if they are provisional and the customer's contract has been fetched since.
    """
    customers = document.customers
    came = standing.pending and isinstance(customers, OnDemandCustomers) and customers.knows(customer)
    return came or now_s >= standing.until


def still_pending(standings: Mapping[str, Standing]) -> dict[str, Standing]:
    """Returns those of the cached limits that are provisional, as the customer's contract was not fetched yet.

    They are needed when the contract comes, as their limits may have to stay in force; all others can be computed again
    quickly.
    """
    return {identity: each for identity, each in list(standings.items()) if each.pending}


def named_in(document: Document) -> Iterable[tuple[str, Customer]]:
    """Returns all customers whose contracts are in memory, with these; does not mark their pages as used."""
    customers = document.customers
    return customers.items_quietly() if isinstance(customers, OnDemandCustomers) else customers.items()


def customers_changed(before: Document, after: Document, met: Callable[[], list[str]]) -> list[str]:
    """Returns the customers whose quotas may differ between two documents.

    `met` returns the customers for which this node has counts.
    """
    was, now = before.customers, after.customers
    if before.plans != after.plans or before.unknown != after.unknown:
        return met()
    if isinstance(now, OnDemandCustomers):
        other = {number for number, digest in enumerate(now.digests) if not _is_page_of(was, number, now, digest)}
        return [identity for identity in met() if now.number_of(identity) in other] if other else []
    return [identity for identity in {**was, **now} if was.get(identity) != now.get(identity)]


def _is_page_of(was: Mapping[str, Customer], number: int, now: OnDemandCustomers, digest: str) -> bool:
    return isinstance(was, OnDemandCustomers) and len(was.digests) == len(now.digests) and was.digests[number] == digest


def _left_s(within_s: float, begun_ns: int) -> float:
    return max(0.0, within_s - (SystemClock.monotonic_ns() - begun_ns) / SECOND_NS)
