"""The facts of a request by which limits count, as parameters of a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconverge.contracts.contracts import Contracts
from reconverge.contracts.explaining import Explainer
from reconverge.contracts.model import CUSTOMER
from reconverge.errors import MissingExtra, asked
from reconverge.integrations.contracts.failures import wrong_parameter
from reconverge.integrations.contracts.parts import Facts
from reconverge.integrations.contracts.problems import Problem

try:
    from fastapi import Request
    from pydantic import TypeAdapter, ValidationError
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "fastapi", "api") from error

_FACTS: Final[TypeAdapter[dict[str, str]]] = TypeAdapter(Facts)
FACTS_IN_QUERY: Final = {
    "name": "facts",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "Facts of a request by which limits count, such as user=ada.",
    "schema": _FACTS.json_schema(),
}


def facts_in(request: Request) -> dict[str, str]:
    """The facts of a request that its query names. Raises Problem (400)."""
    try:
        return _FACTS.validate_python(dict(request.query_params))
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        raise wrong_parameter(mistake, "query", mistake["loc"]) from None


def check_facts(facts: Mapping[str, str], contracts: Explainer) -> None:
    """Raise Problem (400) for a fact by which no limit of any plan counts: its name may be misspelt."""
    if not facts or not isinstance(contracts, Contracts):
        return
    limits = [limit for plan in contracts.document.plans.values() for limit in plan.limits.values()]
    known = sorted({fact for limit in limits for fact in limit.by if fact != CUSTOMER})
    for name in facts:
        if name not in known:
            told_known = (
                f"those that limits count by: {', '.join(known)}" if known else "they count by the customer alone"
            )
            problem = f"no limit counts by {name!r}; {told_known}{asked(name, known)}"
            raise Problem(400, problem, parameter=name)
