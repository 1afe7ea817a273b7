"""Options that several commands have, with the same help text everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import typer

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidLimit, InvalidSetting
from reconverge.limit.limit import ALGORITHMS, REFILLS, Limit
from reconverge.limiter.asking import within_s
from reconverge.policies import Policy

AlgorithmOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(ALGORITHMS)}. By default the one that an agent takes for such a limit.", metavar="NAME"
    ),
]
SlicesOption: TypeAlias = Annotated[
    int | None, typer.Option(help="Into how many parts sliding-slices divides the window.", metavar="N")
]
InitialOption: TypeAlias = Annotated[
    int | None, typer.Option(help="What a new key may use of a bucket; by default all of it.", metavar="N")
]
RefillOption: TypeAlias = Annotated[
    str, typer.Option(help=f"How a bucket gets its quota back: {', '.join(REFILLS)}.", metavar="NAME")
]
ProcessesOption: TypeAlias = Annotated[
    int,
    typer.Option(help="The number of processes that simulate.", metavar="N", min=1, show_default="one for each core"),
]
InDoubtOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help="What happens to a request that memory cannot settle: refuse (memory decides), or ask:25ms (it asks the "
        "hub, and waits so long for the answer).",
        metavar="WORD",
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
HubOption: TypeAlias = Annotated[
    str, typer.Option(help="The hub of the agents, as they name it.", metavar="URL", envvar="RECONVERGE_HUB")
]
MeetingOption: TypeAlias = Annotated[
    str, typer.Option(help="The hub of the nodes.", metavar="URL", envvar="RECONVERGE_HUB")
]
NamespaceOption: TypeAlias = Annotated[str, typer.Option(help="The agents' namespace.", metavar="NAME")]


def example(words: str) -> str:
    """Returns the end of a command's help: an example to copy, which calls `reconverge` with the arguments `words`."""
    return f"Example:\n\n$ reconverge {words}"


def asks_within_ns(in_doubt: str, *, policies: Sequence[Policy], round_trip_ns: int = 0) -> int:
    """Returns how long a request in doubt waits for the hub's answer, in nanoseconds; 0 if it does not wait ("refuse").

    Raises InvalidSetting if `in_doubt` is invalid, not longer than a round trip, or without effect because none of the
    policies uses allowances.
    """
    within_ns = round(within_s(in_doubt) * SECOND_NS)
    if 0 < within_ns <= round_trip_ns:
        raise InvalidSetting(
            "in_doubt",
            in_doubt,
            f"is not longer than a round trip of {round_trip_ns / SECOND_NS:g}s, so no request asks; lengthen it",
        )
    if within_ns and all(policy.merged_only for policy in policies):
        raise InvalidSetting(
            "in_doubt",
            in_doubt,
            "has an effect only with a policy that grants allowances; add one with --policy, such as balanced",
        )
    return within_ns


def limit_as_said(text: str, **fields: Any) -> Limit:
    """Returns the limit of a limit string with one quota; `fields` are its other settings, such as `algorithm`.

    Raises InvalidLimit, also for a quota of 0, which admits nothing.
    """
    return _admitting(text, (Limit.parse(text, **fields),))[0]


def limits_as_said(text: str, **fields: Any) -> tuple[Limit, ...]:
    """Returns a limit for each quota of a limit string; `fields` and errors are as for `limit_as_said`."""
    return _admitting(text, Limit.parse_all(text, **fields))


def _admitting(text: str, limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    if any(each.refuses_all for each in limits):
        raise InvalidLimit(text, "a quota of 0 refuses everything, so a run shows nothing; give at least 1")
    return limits


def named_values(option: str, given: Sequence[str], form: str, *, of: str = "") -> dict[str, str]:
    """Returns the values of a repeated option by name. Raises InvalidSetting for one that is not NAME=VALUE.

    `form` and `of` ("the limit ") describe the pair and the name in the errors.
    """
    values: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name or not value.strip():
            raise InvalidSetting(option, each, f"must be {form}")
        if name in values:
            raise InvalidSetting(option, each, f"names {of}{name} again; leave one out")
        values[name] = value
    return values
