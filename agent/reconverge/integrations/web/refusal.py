"""Makes the response to a refused request, with problem details (RFC 9457) as its body."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconverge.integrations.web.fields import RETRY_AFTER, Fields, QuotaDecision, retry_after_of
from reconverge.integrations.web.outcome import Refusal
from reconverge.integrations.web.rules import checked_message

if TYPE_CHECKING:
    from reconverge.integrations.web.bound_rule import Declared

Answer: TypeAlias = tuple[int, list[tuple[bytes, bytes]], bytes]
"""A refusal in the form of ASGI: status, header fields as bytes, and body."""

_json: Final = json.JSONEncoder(separators=(",", ":"))

VIOLATED: Final = "violated-policies"
PROBLEM_JSON: Final = "application/problem+json"
QUOTA_EXCEEDED: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"
REDUCED_CAPACITY: Final = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
UNSPECIFIC: Final = "about:blank"
TITLES: Final = {429: "Too Many Requests", 503: "Service Unavailable"}
PROBLEMS_MAX: Final = 1024
"""The most standard refusals that are cached; they differ in the quotas, and in the whole seconds until a retry."""
DETAIL_CHARACTERS_MAX: Final = 2000
"""The most characters of an application's message in a refusal; the rest is cut off."""


def problem_of(
    status: int,
    *,
    violated: Sequence[str],
    retry_after: int | None,
    detail: str | None = None,
    used_up: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Returns the members of a refusal's problem details.

    `violated` are the names of the quotas that refused; empty if the reason is not a quota. `used_up` are the quotas
    among them that are used up, by default all; the others refused because memory was not certain. `retry_after` is in
    seconds.
    """
    kind = UNSPECIFIC
    if violated:
        kind = REDUCED_CAPACITY if status == 503 else QUOTA_EXCEEDED
    if detail is None:
        detail = _grounds(violated, violated if used_up is None else used_up)
        if retry_after is not None:
            detail = f"{detail} Try again in {retry_after} s.".lstrip()
    problem: dict[str, Any] = {"type": kind, "title": TITLES[status], "status": status}
    if detail:
        problem["detail"] = detail[:DETAIL_CHARACTERS_MAX]
    if violated:
        problem[VIOLATED] = list(violated)
    return problem


def _grounds(violated: Sequence[str], used_up: Sequence[str]) -> str:
    if not violated:
        return ""
    if used_up:
        return f"The quota {', '.join(used_up)} is used up."
    return "Too many requests."


def encoded(problem: dict[str, Any]) -> bytes:
    """Returns problem details as a JSON body in ASCII, which is valid in any encoding of the client."""
    return _json.encode(problem).encode("ascii")


@lru_cache(maxsize=PROBLEMS_MAX)
def _usual(
    status: int, violated: tuple[str, ...], used_up: tuple[str, ...], retry_after: int | None
) -> tuple[dict[str, Any], bytes, str]:
    """Returns a standard refusal: its problem details, its body, and the body's length as text."""
    problem = problem_of(status, violated=violated, used_up=used_up, retry_after=retry_after)
    body = encoded(problem)
    return problem, body, str(len(body))


@lru_cache(maxsize=PROBLEMS_MAX)
def usual_answer(status: int, violated: tuple[str, ...], used_up: tuple[str, ...], retry_after: int | None) -> Answer:
    """Returns a standard refusal for ASGI, without RateLimit fields. It is cached and must not be changed."""
    _, body, length = _usual(status, violated, used_up, retry_after)
    head = [(name.lower().encode(), value.encode()) for name, value in _head(length, retry_after)]
    return status, head, body


BROKEN_STATUS: Final = 503
BROKEN: Final = "This request could not be checked against its limits."
NO_KEY: Final = "This request does not identify its sender."


def refusal_of(
    decisions: Sequence[QuotaDecision], declared: Declared | None, fields: Fields, *, silent: bool = False
) -> Refusal:
    """Returns the refusal by the rule `declared`, or, if that is None, the refusal because of a failure.

    `decisions` are the decisions of all limits, empty if the reason is not a quota. `fields` are added to the refusal.
    `silent` leaves out the rule's `error_message`.
    """
    refused = [decision for decision, _ in decisions if not decision.allowed]
    retry_after = retry_after_of(*refused) if refused else None
    detail = None
    if declared is None:
        detail = BROKEN
    elif declared.rule.error_message is not None and not silent:
        message = declared.rule.error_message
        detail = str(checked_message(message() if callable(message) else message))
    elif not refused:
        detail = NO_KEY
    status = BROKEN_STATUS if declared is None else declared.status
    violated: tuple[str, ...]
    used_up: tuple[str, ...]
    if len(refused) == 1:
        violated = (refused[0].binding,)
        used_up = violated if refused[0].certain else ()
    else:
        violated = tuple(dict.fromkeys([decision.binding for decision in refused]))
        used_up = tuple([name for name in violated if any(each.certain for each in refused if each.binding == name)])
    if detail is None:
        return usual_refusal(status, violated, used_up, retry_after, fields)
    problem = problem_of(status, violated=violated, used_up=used_up, retry_after=retry_after, detail=detail)
    body = encoded(problem)
    return Refusal(status, problem, body, _head(str(len(body)), retry_after) + fields)


def usual_refusal(
    status: int, violated: tuple[str, ...], used_up: tuple[str, ...], retry_after: int | None, fields: Fields
) -> Refusal:
    """Returns a standard refusal by the quotas `violated`; quotas not in `used_up` refused without certainty."""
    usual, body, length = _usual(status, violated, used_up, retry_after)
    problem = {**usual, VIOLATED: list(violated)}  # a copy, because an application may change it
    return Refusal(status, problem, body, _head(length, retry_after) + fields)


def _head(length: str, retry_after: int | None) -> Fields:
    head: Fields = [("Content-Type", PROBLEM_JSON), ("Content-Length", length)]
    if retry_after is not None:
        head.append((RETRY_AFTER, str(retry_after)))
    return head
