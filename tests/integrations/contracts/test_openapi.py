"""Goal: the OpenAPI document is complete, and what it says is so.

Method: Schemathesis makes requests of it, valid ones and invalid ones, with a fixed seed, and compares every answer
with it; what is listed there is compared with the format of the contracts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields as dataclass_fields
from typing import Any, Final

import jsonschema
import pytest
import schemathesis
from hypothesis import settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.applications import Starlette
from starlette.routing import Mount

from reconverge import Agent
from reconverge.contracts.document import (
    CUSTOMER_FIELDS,
    DOCUMENT_FIELDS,
    FORMER_FIELDS,
    PLAIN_LIMIT_FIELDS,
    PLAN_FIELDS,
    PLAN_LIMIT_FIELDS,
    SWITCH_FIELDS,
    checked,
)
from reconverge.contracts.explaining import Explanation, LimitExplained
from reconverge.integrations.contracts.api import contracts_api
from reconverge.integrations.contracts.openapi import EXAMPLE_IDENTITY, EXAMPLES, openapi_document
from reconverge.integrations.contracts.schemas import SCHEMAS
from reconverge.testing import ManualClock
from tests.support.broken_contracts import put
from tests.support.contracts import TABLE, TOKENS, WRITER, ApiClient, ListBook, LocalContracts

RANDOM_REQUESTS: Final = 40
"""Of random requests for each operation, beside those at all edges of the schema."""


def application() -> Any:
    """An API of contracts in memory, whose time stands still."""
    clock = ManualClock(start=1_700_000_000.0)
    contracts = LocalContracts(Agent("memory://", clock=clock), checked(TABLE))
    return contracts_api(ListBook(clock, TABLE), tokens=TOKENS, contracts=contracts)


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
        client.put(f"/contracts/{EXAMPLE_IDENTITY}", EXAMPLES["Contract"]).status_code,
        client.post(f"/customers/{EXAMPLE_IDENTITY}/reset", EXAMPLES["Reset"]).status_code,
        client.post("/rollback", EXAMPLES["Rollback"]).status_code,
    ]

    assert [200, 200, 204, 200] == statuses
    assert {"Document", "Contract", "Reset", "Rollback"} == set(EXAMPLES)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("Document", DOCUMENT_FIELDS),
        ("Plan", PLAN_FIELDS),
        ("PlanLimit", PLAN_LIMIT_FIELDS),
        ("LimitTable", ("limit", *PLAIN_LIMIT_FIELDS)),
        ("Customer", CUSTOMER_FIELDS),
        ("Former", FORMER_FIELDS),
        ("Explanation", [each.name for each in dataclass_fields(Explanation)]),
        ("LimitExplained", [each.name for each in dataclass_fields(LimitExplained)]),
    ],
)
def test_a_schema_has_the_fields_of_the_format(name: str, fields: Sequence[str]) -> None:
    """All of them and no others, so that none is added to the format alone."""
    assert set(fields) == set(SCHEMAS[name]["properties"])


def test_a_switch_has_the_fields_of_the_format() -> None:
    """In its longest form."""
    assert set(SWITCH_FIELDS) == set(SCHEMAS["SwitchTable"]["properties"])


@pytest.mark.parametrize("soft", [0.1, "10%"])
def test_the_schema_of_documents_is_that_of_files(soft: object) -> None:
    """A document with all fields fits, in each way in which a field can be written."""
    judge = jsonschema.Draft202012Validator({**SCHEMAS["Document"], "components": {"schemas": SCHEMAS}})

    assert judge.is_valid(put("plans.free.limits.parts.soft", soft))
    assert not judge.is_valid(put("plans.free.limits.parts.soft", "ten"))


def test_every_schema_is_used_and_every_reference_leads_to_one() -> None:
    """From the paths, or from another schema."""
    text = json.dumps(openapi_document())
    used = set(re.findall(r"#/components/schemas/(\w+)", text))

    assert set(SCHEMAS) == used


def test_the_document_is_of_the_server_that_it_is_read_from() -> None:
    """Clients that are made of it find the API under its prefix."""
    mounted = Starlette(routes=[Mount("/admin/contracts", application())])
    document = ApiClient(mounted).get("/admin/contracts/openapi.json").json()

    assert [{"url": "/admin/contracts"}] == document["servers"]
    assert openapi_document(server="/admin/contracts") == document
