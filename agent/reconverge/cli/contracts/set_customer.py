"""The commands `reconverge contracts set` and `remove`: change the contract of one customer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reconverge.cli.contracts.at_hub import (
    AuthorOption,
    ExpectedOption,
    IdentityArgument,
    ask_book,
    author_as_said,
    tell_version,
)
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption, named_values
from reconverge.errors import InvalidSetting


def set_customer(
    identity: IdentityArgument,
    plan: Annotated[str, typer.Argument(help="One of the plans that are published.", metavar="PLAN")],
    hub: HubOption,
    namespace: NamespaceOption = "default",
    limit: Annotated[
        list[str] | None,
        typer.Option(help="The customer's own limit in place of the plan's; may be repeated.", metavar="NAME=TEXT"),
    ] = None,
    since: Annotated[str | None, typer.Option(help="When the plan began, if it lasts.", metavar="MOMENT")] = None,
    until: Annotated[
        str | None, typer.Option(help="When the plan ends, as 2026-12-24T12:00:00Z.", metavar="MOMENT")
    ] = None,
    then: Annotated[str | None, typer.Option(help="The plan after --until.", metavar="PLAN")] = None,
    switch: Annotated[
        list[str] | None,
        typer.Option(
            help="on, shadow or off: of the contract, or of one limit; for some of its keys, or until a moment, as in"
            " calls=shadow,percent=10,until=2026-12-24. May be repeated.",
            metavar="[NAME=]WORD",
        ),
    ] = None,
    note: Annotated[str, typer.Option(help="A comment for human readers.", metavar="TEXT")] = "",
    author: AuthorOption = "",
    expected: ExpectedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a customer on a plan; settings that are not named here are as in the plan.

    If the change gives a limit another algorithm or window, the former limit also applies until no charge to it counts
    any more.
    """
    limits = named_values("--limit", limit or (), "a name and a limit string, as in calls=100/minute", of="the limit ")
    said: dict[str, Any] = {"plan": plan, "limits": limits, "note": note}
    said |= _switches(switch or [])
    said |= {name: each for name, each in (("since", since), ("until", until), ("then", then)) if each is not None}
    version = ask_book(
        hub,
        namespace,
        lambda book: book.set_customer(identity, said, author=author_as_said(author), expected=expected),
    )
    sentence = f"version {version} for namespace {namespace}: {identity} is on {plan}"
    tell_version(version, namespace, sentence, as_json=as_json)


def _switches(given: list[str]) -> dict[str, Any]:
    """Reads the values of --switch. Returns the fields `switch`, of the whole contract, and `switches`, by limit."""
    said: dict[str, Any] = {}
    for each in given:
        first, *more = each.split(",")
        name, equals, word = first.partition("=")
        name, word = (name, word) if equals else ("", name)
        if not word or (equals and not name):
            raise InvalidSetting(
                "--switch", each, "must be on, shadow or off, or a limit and one of these, as in calls=off"
            )
        switch: dict[str, Any] = {"to": word}
        for detail in more:
            field, _, value = detail.partition("=")
            if field not in ("percent", "until") or not value or field in switch:
                raise InvalidSetting("--switch", each, f"has {detail!r}, which is neither percent=10 nor until=MOMENT")
            switch[field] = _number(each, value) if field == "percent" else value
        place = said.setdefault("switches", {}) if name else said
        if (name or "switch") in place:
            raise InvalidSetting("--switch", each, f"names {name or 'the switch of the contract'} again; leave one out")
        place[name or "switch"] = switch
    return said


def _number(each: str, text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise InvalidSetting("--switch", each, f"has {text!r} for a percentage; write percent=10") from None


def remove(
    identity: IdentityArgument,
    hub: HubOption,
    namespace: NamespaceOption = "default",
    author: AuthorOption = "",
    expected: ExpectedOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a customer's contract: from then on it is one of the unknown customers."""
    version = ask_book(
        hub,
        namespace,
        lambda book: book.set_customer(identity, None, author=author_as_said(author), expected=expected),
    )
    sentence = f"version {version} for namespace {namespace}: {identity} has no contract"
    tell_version(version, namespace, sentence, as_json=as_json)
