"""A vocabulary for tests of contracts: random valid documents, as tables."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from reconverge.contracts.document import checked
from reconverge.contracts.model import InvalidContracts

Table = dict[str, Any]
BY = {"api": None, "users": ["customer", "user"], "seats": ["customer", "organisation"]}
"""The facts by which a limit of each name counts, in all plans."""
TOGETHER = {"limit": "1000/hour", "by": ["organisation"]}
"""A limit that counts customers together, with the same settings in all plans."""

QUOTAS = st.integers(min_value=1, max_value=100_000)
WINDOWS = st.sampled_from(["s", "10s", "1500 ms", "minute", "PT10M", "P31D", "month", "2 weeks"])
STRINGS = st.builds("{}/{}".format, QUOTAS, WINDOWS)
MOMENTS = st.integers(min_value=0, max_value=4_000_000_000).map(
    lambda s: f"{1970 + s // 100_000_000}-03-01T12:00:{s % 60:02}Z"
)
WORDS = st.sampled_from(["on", "shadow", "off"])
SWITCHINGS = WORDS | st.fixed_dictionaries(
    {"to": WORDS}, optional={"percent": st.floats(min_value=0, max_value=100), "until": MOMENTS}
)
IDENTITIES = st.text(min_size=1, max_size=20).filter(lambda text: "\x00" not in text)


def _with(base: st.SearchStrategy[str], algorithm: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Table]:
    more = {"soft": st.sampled_from([0.5, "50%", 1]), "max_debt": st.integers(min_value=0, max_value=10**12)}
    costs = st.dictionaries(
        st.text(min_size=1, max_size=5), st.integers(min_value=0, max_value=1), min_size=1, max_size=3
    )
    return st.fixed_dictionaries(
        {"limit": base, "algorithm": st.just(algorithm)}, optional={**fields, **more, "costs": costs}
    )


LIMITS: st.SearchStrategy[Any] = st.one_of(
    STRINGS,
    _with(STRINGS, "sliding-window"),
    _with(STRINGS, "fixed-window", align=st.just("first-hit")),
    _with(st.just("500/day"), "fixed-window", align=st.just("calendar"), timezone=st.just("Europe/Berlin")),
    _with(STRINGS, "sliding-slices", slices=st.integers(min_value=1, max_value=1000)),
    _with(st.just("500/PT10M"), "sliding-log", count_refused=st.booleans()),
    _with(
        st.builds("{}/s burst {}".format, QUOTAS, QUOTAS),
        "token-bucket",
        initial=st.just(1),
        refill=st.just("interval"),
    ),
    st.builds("{}/s warmup {}s".format, QUOTAS, st.integers(min_value=1, max_value=60)),
)
"""Limits as a document has them, in every algorithm that has fields of its own."""


def _fits(table: Table) -> bool:
    """Returns whether a soft quota, which may add less than one request, and costs go with the rest."""
    try:
        checked(table)
    except InvalidContracts:
        return False
    return True


def _plan_limits() -> st.SearchStrategy[Table]:
    def with_facts(limit: Any, name: str, switching: Any) -> Any:
        said = {"limit": limit} if isinstance(limit, str) else limit
        by = {} if BY[name] is None else {"by": BY[name]}
        return (
            limit
            if not by and switching is None
            else {**said, **by, **({} if switching is None else {"switch": switching})}
        )

    each = {name: st.builds(with_facts, LIMITS, st.just(name), st.none() | SWITCHINGS) for name in BY}
    return st.fixed_dictionaries({"api": each.pop("api")}, optional={**each, "together": st.just(TOGETHER)})


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Draws a document of up to four plans, some of which end, and up to three customers."""
    number = draw(st.integers(min_value=1, max_value=4))
    plans: Table = {}
    for place in reversed(range(number)):
        plan: Table = {"limits": draw(_plan_limits())}
        if place + 1 < number and draw(st.booleans()):
            plan |= {"lasts": draw(st.sampled_from(["P14D", 3600, 0.5])), "then": f"plan{place + 1}"}
        plans[f"plan{place}"] = plan
    lasting = [name for name, plan in plans.items() if "lasts" not in plan]
    unknown = draw(st.sampled_from(["refused", *lasting]))
    customers: Table = {}
    for identity in draw(st.lists(IDENTITIES, max_size=3, unique=True)):
        name = draw(st.sampled_from(sorted(plans)))
        said: Table = {"plan": name, "since": draw(MOMENTS)}
        if draw(st.booleans()):
            said |= {"until": draw(MOMENTS), "then": draw(st.sampled_from(lasting))}
        if draw(st.booleans()):
            said |= {
                "switch": draw(SWITCHINGS),
                "switches": {"api": draw(SWITCHINGS)},
                "note": draw(st.text(max_size=20)),
            }
        if draw(st.booleans()):
            said["former"] = [{"name": "api", "until": draw(MOMENTS), "limit": draw(STRINGS), "by": "customer"}]
        own = {**said, "limits": {"api": draw(STRINGS | LIMITS)}}
        fits = _fits({"plans": plans, "customers": {identity: own}}) if _fits({"plans": plans}) else True
        customers[identity] = own if fits else said
    return {"plans": plans, "customers": customers, "unknown": unknown}


def documents() -> st.SearchStrategy[Table]:
    """Draws tables that `checked` accepts: a soft quota may add less than one request, and costs may not fit."""
    return tables().filter(_fits)
