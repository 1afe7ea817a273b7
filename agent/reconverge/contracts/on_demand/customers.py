"""The customers of a version of the contracts, as far as their pages were fetched; the others are asked for."""

# Theory of operation.
#
# Decisions run in any thread, and must not wait; pages are fetched by the one loop that reads at the hub. Between them
# are plain dictionaries, of which every step is one of the interpreter: no lock, so none that a fork leaves closed.
#
#     a decision  --- meet: its page is not held ---> wanted, pending     and the loop is woken
#     the loop    --- put: the page has come -------> held; the pending   decide anew, with what was used
#     a decision  --- arrival: wait for it, if it may ---> a future
#
# Until its page is there, a customer is decided as one that the contracts do not name, by the plan of unknown
# customers, or refused. What is decided so is looked at again after PENDING_S at the latest, whatever was forgotten
# meanwhile.
#
# Names that stand on no page cost no more: with its page held, a name is known to be unknown. Of pages that are not
# kept, because there is no room and none of their customers was met, up to ABSENT_MAX such names are remembered.

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
"""How a customer is treated whose page is not there yet: as one that no contract names, or refused."""
PENDING_S: Final = 1.0
"""For so long it holds at most what was decided without a page; and a refusal says to come again after it."""
PENDING_MAX: Final = 256
"""So many customers of a page are decided anew the moment it comes; any more within PENDING_S."""
WAITING_MAX: Final = 1000
"""So many requests wait for one page; any more are decided from memory."""
ABSENT_MAX: Final = 10_000


class ContractsDecider(Protocol):
    """Decides by contracts whose customers are fetched on demand; `Contracts` does."""

    def check_customers(self, customers: Iterable[tuple[str, Customer]], document: Document) -> None:
        """Raise InvalidContracts if this node cannot have one of them."""
        ...

    def arrived(self, customers: OnDemandCustomers, hold: Callable[[], Iterable[str]]) -> None:
        """A page has come: `hold` has it be held, and returns the customers that were met without it.

        What these have used is where it belongs before one of them is decided by the page.
        """
        ...

    def forget_standings(self) -> None:
        """Look each customer up again with its next request, so that it is seen which pages are in use."""
        ...

    def met(self) -> list[str]:
        """The customers that were met lately, or have used something that counts."""
        ...


class OnDemandCustomers(Mapping[str, Customer]):
    """The customers whose pages are held. A look at one notes that its page is in use.

    Args:
        digests: those of all pages, by number.
        held: the pages that are there, by number; whatever fetches changes it.
        meanwhile: what a customer is without its page.
        wake: is called when another page is wanted; it must not wait.
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
        """Limits of the plan of unknown customers that were charged before the page was there, and count otherwise."""
        self.wanted: dict[int, None] = {}
        """The pages to be fetched, in the order in which they were met."""
        self._wake = wake
        self._pending: dict[int, dict[str, None]] = {}
        self._waiting: dict[int, dict[Future[None], None]] = {}
        self._absent: dict[str, None] = {}
        self.met_without = 0
        """How often a customer was met whose page was not there."""

    def number_of(self, identity: str) -> int:
        """On which page a customer stands, if on any."""
        return page_number(identity, len(self.digests))

    def knows(self, identity: str) -> bool:
        """Whether it is known what the contracts say of a customer."""
        return self.number_of(identity) in self.held or identity in self._absent

    def meet(self, identity: str) -> bool:
        """As `knows`; what is not known is asked for from now on."""
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
        """Is done as soon as the page of a customer that was met is there, or another version; None: do not wait."""
        number = self.number_of(identity)
        waiting = self._waiting.setdefault(number, {})
        if len(waiting) >= WAITING_MAX:
            return None
        future: Future[None] = new_future()
        waiting[future] = None
        if number in self.held:  # it has come between a look and this one
            self.leave(identity, future)
            return None
        return future

    def leave(self, identity: str, future: Future[None]) -> None:
        """Wait no longer for the page of a customer; for what `arrival` has returned, whether or not it is done."""
        future.cancel()
        self._waiting.get(self.number_of(identity), {}).pop(future, None)

    def peek(self, identity: str) -> Customer | None:
        """As `get`, and notes nothing."""
        page = self.held.get(self.number_of(identity))
        return None if page is None else self._with_formers(identity, page.peek(identity))

    def items_quietly(self) -> Iterator[tuple[str, Customer]]:
        """As `items`, and notes nothing: a page is not in use because it is checked."""
        for page in list(self.held.values()):
            for identity, customer in page.items_quietly():
                yield identity, self._with_formers(identity, customer) or customer

    def hold_on(self, identity: str, formers: Iterable[Former]) -> None:
        """Lets these limits hold for a customer as former ones, beside those that its page names."""
        page = self.held.get(self.number_of(identity))
        customer = None if page is None else page.peek(identity)
        own = () if customer is None else customer.former
        added = tuple(each for each in formers if each not in own)
        if added:
            self.formers[identity] = added

    def pending_of(self, number: int) -> list[str]:
        """The customers of a page that were met without it; they are forgotten here."""
        return list(self._pending.pop(number, ()))

    def are_absent(self, identities: Iterable[str]) -> None:
        """These stand on no page, although theirs is not held."""
        if len(self._absent) >= ABSENT_MAX:
            self._absent = {}
        self._absent |= dict.fromkeys(identities)

    def forget(self, is_named: Callable[[str], bool]) -> None:
        """Drops the names of customers that are to be erased. Those on a page go with the next version."""
        tables: list[dict[str, None]] = [self._absent, *list(self._pending.values())]
        for table in tables:
            for identity in filter(is_named, list(table)):
                table.pop(identity, None)
        for identity in filter(is_named, list(self.formers)):
            self.formers.pop(identity, None)

    def release(self, numbers: Iterable[int] | None = None) -> None:
        """Let those go on that wait for these pages, by default for any."""
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
