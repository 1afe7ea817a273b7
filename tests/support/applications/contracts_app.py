"""An application with the API of contracts under a prefix, for a real server."""

from __future__ import annotations

from fastapi import FastAPI

from reconverge import Agent
from reconverge.contracts.document import checked
from reconverge.integrations.contracts.api import contracts_api
from reconverge.testing import ManualClock
from tests.support.contracts import TABLE, TOKENS, FilledBook, LocalContracts

PREFIX = "/admin/contracts"


def create() -> FastAPI:
    """Makes the application; its contracts are lost with it."""
    clock = ManualClock(start=1_700_000_000.0)
    contracts = LocalContracts(Agent("memory://", clock=clock), checked(TABLE))
    app = FastAPI()
    app.mount(PREFIX, contracts_api(FilledBook(clock, TABLE), tokens=TOKENS, contracts=contracts))
    return app
