"""What a refusal says in its body: problem details after RFC 9457."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

PROBLEM_JSON: Final = "application/problem+json"
QUOTA_EXCEEDED: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"
REDUCED_CAPACITY: Final = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
UNSPECIFIC: Final = "about:blank"
TITLES: Final = {429: "Too Many Requests", 503: "Service Unavailable"}
DETAIL_CHARACTERS_MAX: Final = 2000
"""Of what an application says in a refusal; more is cut off."""


def problem_of(
    status: int, *, violated: Sequence[str], retry_after: int | None, detail: str | None = None
) -> dict[str, Any]:
    """The members of a refusal's problem details.

    `violated` are the names of the quotas that refused, none if it was not for a quota; `retry_after` is in seconds.
    """
    kind = UNSPECIFIC
    if violated:
        kind = REDUCED_CAPACITY if status == 503 else QUOTA_EXCEEDED
    if detail is None:
        detail = "" if not violated else f"The quota {', '.join(violated)} is used up."
        if retry_after is not None:
            detail = f"{detail} Try again in {retry_after} s.".lstrip()
    problem: dict[str, Any] = {"type": kind, "title": TITLES[status], "status": status}
    if detail:
        problem["detail"] = detail[:DETAIL_CHARACTERS_MAX]
    if violated:
        problem["violated-policies"] = list(violated)
    return problem


def encoded(problem: dict[str, Any]) -> bytes:
    """The body, in ASCII, so that whatever it says it is valid in any encoding."""
    return json.dumps(problem, separators=(",", ":")).encode("ascii")
