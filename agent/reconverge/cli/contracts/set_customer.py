"""`reconverge contracts set` and `remove`: the contract of one customer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reconverge.cli.contracts.at_hub import (
    AuthorOption,
    ExpectedOption,
    HubOption,
    IdentityArgument,
    NamespaceOption,
    ask_book,
    author_as_said,
)
from reconverge.errors import InvalidSetting


def set_customer(
    identity: IdentityArgument,
    plan: Annotated[str, typer.Argument(help="One of the plans that are published.", metavar="PLAN")],
    hub: HubOption,
    namespace: NamespaceOption = "default",
    limit: Annotated[
        list[str] | None,
        typer.Option(help="In place of the plan's limit of that name; may be said again.", metavar="NAME=TEXT"),
    ] = None,
    since: Annotated[str | None, typer.Option(help="When the plan began, if it lasts.", metavar="MOMENT")] = None,
    until: Annotated[str | None, typer.Option(help="When it ends, as 2026-12-24T12:00:00Z.", metavar="MOMENT")] = None,
    then: Annotated[str | None, typer.Option(help="The plan after that.", metavar="PLAN")] = None,
    note: Annotated[str, typer.Option(help="For people.")] = "",
    author: AuthorOption = "",
    expected: ExpectedOption = None,
) -> None:
    """Have a customer be on a plan; whatever is not said here is as in the plan.

    A limit that is counted otherwise from now on holds beside the former one, until what was used of that has expired.
    """
    said: dict[str, Any] = {"plan": plan, "limits": _limits(limit or []), "note": note}
    said |= {name: each for name, each in (("since", since), ("until", until), ("then", then)) if each is not None}
    version = ask_book(
        hub,
        namespace,
        lambda book: book.set_customer(identity, said, author=author_as_said(author), expected=expected),
    )
    typer.echo(f"version {version} for namespace {namespace}: {identity} is on {plan}")


def _limits(given: list[str]) -> dict[str, str]:
    limits: dict[str, str] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name or not text:
            raise InvalidSetting("--limit", each, "must be a name and a limit string, as in calls=100/minute")
        if name in limits:
            raise InvalidSetting("--limit", each, f"says the limit {name} again")
        limits[name] = text
    return limits


def remove(
    identity: IdentityArgument,
    hub: HubOption,
    namespace: NamespaceOption = "default",
    author: AuthorOption = "",
    expected: ExpectedOption = None,
) -> None:
    """End a customer's contract: from then on it is one of the unknown customers."""
    version = ask_book(
        hub,
        namespace,
        lambda book: book.set_customer(identity, None, author=author_as_said(author), expected=expected),
    )
    typer.echo(f"version {version} for namespace {namespace}: {identity} has no contract")
