"""The customers of the contracts on a node that holds only some pages (parts) of them, and requests other pages."""

# Theory of operation.
#
# Decisions run in any thread, and must not wait; pages are fetched by the one loop that reads at the hub. They share
# plain dictionaries, on which each operation is atomic in the interpreter. So there is no lock, which a fork could
# leave locked.
#
#     a decision  --- meet: its page is not held ---> wanted, pending     and the loop is woken
#     the loop    --- put: the page has come -------> held; the pending   decide anew, with what was used
#     a decision  --- arrival: wait for it, if it may ---> a future
#
# Until its page is there, requests of a customer are decided as those of a customer that the contracts do not name: by
# the plan of unknown customers, or refused. These provisional limits are valid for PENDING_S at most; then the page is
# looked up again.
#
# Names without a contract cost no further fetch: if the page of a name is held and lacks the name, the node knows that
# no contract has it. A page is not kept if there is no room for it and none of its customers has sent a request; up to
# ABSENT_MAX names that such pages lack are stored.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, Literal, Protocol

from reconverge.contracts.model import Customer, Document, Former
from reconverge.contracts.on_demand.packed_page import PackedPage
from reconverge.contracts.store.pages import page_number
from reconverge.runtime.locks import new_future

Meanwhile = Literal["unknown", "refused"]
"""The decision while a customer's page is being fetched: as for a customer without a contract, or refused."""
PENDING_S: Final = 1.0
"""The longest time, in seconds, for which provisional limits are valid. A refusal by them names it as the wait."""
PENDING_MAX: Final = 256
"""The most customers of a page whose counts move to their own limits when the page comes; others follow within
PENDING_S."""
WAITING_MAX: Final = 1000
"""The most requests that wait for one page; any more are decided from memory."""
ABSENT_MAX: Final = 10_000


class ContractsDecider(Protocol):
    """Decides requests by contracts whose customers are fetched on demand. `Contracts` implements it."""

    def check_customers(self, customers: Iterable[tuple[str, Customer]], document: Document) -> None:
        """Raises InvalidContracts if the contract of one of these customers cannot be in force on this node."""
        ...

    def arrived(self, customers: OnDemandCustomers, hold: Callable[[], Iterable[str]]) -> None:
        """Puts a fetched page of the contracts in force, and moves its customers' counts to their own limits.

        `hold` stores the page. It returns the customers whose requests were decided before the page came, by
        provisional limits. Their counts move before the next request of any of them is decided.
        """
        ...

    def forget_standings(self) -> None:
        """Drops the cached limits of all customers, so that their next requests look up their contracts again.

        A look-up marks the page of a contract as used.
        """
        ...

    def met(self) -> list[str]:
        """Returns the customers that have sent requests lately, or have use that still counts."""
        ...


class OnDemandCustomers(Mapping[str, Customer]):
    """The customers on the pages of contracts that this node holds. Looking up a customer marks its page as used.

    Args:
        digests: the digests of all pages, by page number.
        held: the pages in memory, by page number; the fetching loop changes this mapping.
        meanwhile: how a customer's requests are decided while its page is being fetched.
        wake: is called when another page has to be fetched; it must not wait.
    """

    def __init__(
        self,
        digests: tuple[str, ...],
        held: Mapping[int, PackedPage],
        *,
        meanwhile: Meanwhile,
        wake: Callable[[], None],
    ) -> None:
        self.digests = digests
        self.held = held
        self.meanwhile = meanwhile
        self.formers: dict[str, tuple[Former, ...]] = {}
        """For each customer, the limits that were charged before its page came, and are still in force: those of the
        plan for unknown customers."""
        self.wanted: dict[int, None] = {}
        """The numbers of the pages to be fetched, in the order in which they were needed."""
        self._wake = wake
        self._pending: dict[int, dict[str, None]] = {}
        self._waiting: dict[int, dict[Future[None], None]] = {}
        self._absent: dict[str, None] = {}
        self.met_without = 0
        """The number of look-ups of a customer whose page was not there."""

    def number_of(self, identity: str) -> int:
        """Returns the number of the page of contracts that has the customer, if any page has it."""
        return page_number(identity, len(self.digests))

    def knows(self, identity: str) -> bool:
        """Returns whether this node holds the page with the customer's contract, or knows that no page has one."""
        return self.number_of(identity) in self.held or identity in self._absent

    def meet(self, identity: str) -> bool:
        """Returns whether this node knows the customer's contract, as `knows` does; if not, also requests its page.

        Does not wait for the page.
        """
        if self.knows(identity):
            return True
        number = self.number_of(identity)
        pending = self._pending.setdefault(number, {})
        if len(pending) < PENDING_MAX:
            pending[identity] = None
        self.met_without += 1
        if number not in self.wanted:
            self.wanted[number] = None
            self._wake()
        return False

    def arrival(self, identity: str) -> Future[None] | None:
        """Returns a future that completes when the page of contracts with the customer has come, or a new version has.

        Returns None if the page has come already, or if too many requests wait for it.
        """
        number = self.number_of(identity)
        waiting = self._waiting.setdefault(number, {})
        if len(waiting) >= WAITING_MAX:
            return None
        future: Future[None] = new_future()
        waiting[future] = None
        if number in self.held:  # it has come since the caller looked
            self.leave(identity, future)
            return None
        return future

    def leave(self, identity: str, future: Future[None]) -> None:
        """Ends the wait for a customer's page. Call it for each future that `arrival` has returned, done or not."""
        future.cancel()
        self._waiting.get(self.number_of(identity), {}).pop(future, None)

    def peek(self, identity: str) -> Customer | None:
        """Returns a customer's contract without marking its page as used; None if no page that is held has it."""
        page = self.held.get(self.number_of(identity))
        return None if page is None else self._with_formers(identity, page.peek(identity))

    def items_quietly(self) -> Iterator[tuple[str, Customer]]:
        """Iterates over all customers with their contracts, without marking their pages as used."""
        for page in list(self.held.values()):
            for identity, customer in page.items_quietly():
                yield identity, self._with_formers(identity, customer) or customer

    def hold_on(self, identity: str, formers: Iterable[Former]) -> None:
        """Keeps the limits `formers` in force for a customer, beside the limits of its fetched contract."""
        page = self.held.get(self.number_of(identity))
        customer = None if page is None else page.peek(identity)
        own = () if customer is None else customer.former
        added = tuple(each for each in formers if each not in own)
        if added:
            self.formers[identity] = added

    def pending_of(self, number: int) -> list[str]:
        """Removes and returns the customers of a page of contracts that have sent requests while it was not held.

        `number` is the number of the page.
        """
        return list(self._pending.pop(number, ()))

    def are_absent(self, identities: Iterable[str]) -> None:
        """Stores that these customers have no contract: their page was fetched, lacks them, and is not kept."""
        if len(self._absent) >= ABSENT_MAX:
            self._absent = {}
        self._absent |= dict.fromkeys(identities)

    def forget(self, is_named: Callable[[str], bool]) -> None:
        """Drops the names of customers for which `is_named` is true, except names on pages of contracts that are held.

        Held pages are replaced when the next version of the contracts comes.
        """
        tables: list[dict[str, None]] = [self._absent, *list(self._pending.values())]
        for table in tables:
            for identity in filter(is_named, list(table)):
                table.pop(identity, None)
        for identity in filter(is_named, list(self.formers)):
            self.formers.pop(identity, None)

    def release(self, numbers: Iterable[int] | None = None) -> None:
        """Completes the futures of all requests that wait for the pages `numbers` of contracts; with None, for any."""
        for number in list(self._waiting) if numbers is None else numbers:
            for future in list(self._waiting.pop(number, {})):
                if future.set_running_or_notify_cancel():  # from here on it cannot be cancelled any more
                    future.set_result(None)

    def __getitem__(self, identity: str) -> Customer:
        customer = self._with_formers(identity, self.held[self.number_of(identity)][identity])
        assert customer is not None
        return customer

    def __iter__(self) -> Iterator[str]:
        for page in list(self.held.values()):
            yield from page

    def __len__(self) -> int:
        return sum(map(len, list(self.held.values())))

    def _with_formers(self, identity: str, customer: Customer | None) -> Customer | None:
        formers = self.formers.get(identity) if self.formers else None
        if not formers or customer is None:
            return customer
        return replace(customer, former=(*customer.former, *formers))
