"""An API of contracts in memory, and clients that may read or write."""

from __future__ import annotations

import pytest

from reconverge import Agent
from reconverge.contracts.document import checked
from reconverge.integrations.contracts.api import contracts_api
from reconverge.testing import ManualClock
from tests.support.contracts import READER, TABLE, TOKENS, ApiClient, FilledBook, LocalContracts


@pytest.fixture
def book(clock: ManualClock) -> FilledBook:
    """Version 1 of the contracts of the tests."""
    return FilledBook(clock, TABLE)


@pytest.fixture
def contracts(agent: Agent) -> LocalContracts:
    """The same contracts, in force."""
    return LocalContracts(agent, checked(TABLE))


@pytest.fixture
def writer(book: FilledBook, contracts: LocalContracts) -> ApiClient:
    return ApiClient(contracts_api(book, tokens=TOKENS, contracts=contracts))


@pytest.fixture
def reader(book: FilledBook, contracts: LocalContracts) -> ApiClient:
    return ApiClient(contracts_api(book, tokens=TOKENS, contracts=contracts), token=READER)
