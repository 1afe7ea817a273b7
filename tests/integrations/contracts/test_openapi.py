"""Goal: the OpenAPI document is complete, and what it says is so.

Method: Schemathesis makes requests of it, valid ones and invalid ones, with a fixed seed, and compares every answer
with it.
"""

from __future__ import annotations

from typing import Any, Final

import schemathesis
from hypothesis import settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from reconverge import Agent
from reconverge.contracts.document import checked
from reconverge.integrations.contracts.api import contracts_api
from reconverge.integrations.contracts.parts import EXAMPLES
from reconverge.testing import ManualClock
from tests.support.contracts import TABLE, TOKENS, WRITER, ApiClient, FilledBook, LocalContracts

RANDOM_REQUESTS: Final = 40
"""Of random requests for each operation, beside those at all edges of the schema."""


def application() -> Any:
    """An API of contracts in memory, whose time stands still."""
    clock = ManualClock(start=1_700_000_000.0)
    contracts = LocalContracts(Agent("memory://", clock=clock), checked(TABLE))
    return contracts_api(FilledBook(clock, TABLE), tokens=TOKENS, contracts=contracts)


REFUSALS: Final = ["400", "401", "403", "404", "405", "409", "412", "413", "415", "422"]
"""The mistakes of a request may be told in any order: its version (412) before its body (422)."""
# Each request has a token, so none can be drawn that is wrong for having none; `test_tokens.py` has those.
CONFIG: Final = SchemathesisConfig.from_dict(
    {
        "seed": 19,
        "generation": {"max-examples": RANDOM_REQUESTS, "with-security-parameters": False},
        "checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}},
    }
)
schema = schemathesis.openapi.from_asgi("/openapi.json", application(), config=CONFIG)


@schema.parametrize()
@settings(max_examples=RANDOM_REQUESTS, derandomize=True, deadline=None, database=None)
def test_every_answer_is_documented(case: Any) -> None:
    """Its status, its type, its fields and its body; and no request of any kind is an error of the server."""
    case.call_and_validate(headers={"Authorization": f"Bearer {WRITER}"}, excluded_checks=[positive_data_acceptance])


def test_every_example_is_done() -> None:
    """All bodies that the document shows go together, one after the other, and none is refused."""
    client = ApiClient(application())
    statuses = [
        client.put("/document", EXAMPLES["Document"]).status_code,
        client.put("/contracts/acme", EXAMPLES["Contract"]).status_code,
        client.post("/customers/acme/reset", EXAMPLES["Reset"]).status_code,
        client.post("/rollback", EXAMPLES["Rollback"]).status_code,
    ]

    assert [200, 200, 204, 200] == statuses
    assert {"Document", "Contract", "Reset", "Rollback"} == set(EXAMPLES)
