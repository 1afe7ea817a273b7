"""Writes decisions into the header fields of a response, in a chosen dialect.

`fields_of` makes the fields; the package of each framework adds them to its responses.

`ietf-11` is draft-ietf-httpapi-ratelimit-headers-11. `draft-06` is an earlier version of it, with a field for each
number. `x-ratelimit` is an old custom of many services, with the time of the reset in seconds since 1970.
"""

# In the RateLimit field, `t` is the time until a quota is available again, and Retry-After may not be shorter. A daily
# quota that has admitted the request would have a `t` of hours, while Retry-After is the second after which another
# limit admits. So in a refusal only quotas that have refused have a `t`, and Retry-After is the longest of these.
# Windows and waits are rounded up to whole seconds, so that a client that heeds them is not refused. For a window of
# less than a second, the fields therefore state a lower rate than the limit has.
#
# A limit without a name of its own still needs a name at the hub, the same in every process, so one is made from a
# module, a function or a hash. Clients must not see such a name, because it shows how the application is built. They
# see each quota's rate instead.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from reconverge.decision import Decision
from reconverge.errors import InvalidSetting
from reconverge.limit.limit import Limit

Fields: TypeAlias = list[tuple[str, str]]
"""The names and values of header fields, in order. Values have printable ASCII characters only."""

IETF_11: Final = "ietf-11"
DRAFT_06: Final = "draft-06"
X_RATELIMIT: Final = "x-ratelimit"
DIALECTS: Final = (IETF_11, DRAFT_06, X_RATELIMIT)
INTEGER_MAX: Final = 999_999_999_999_999
"""The largest integer of structured fields."""
FAR_S: Final = 10**9
"""Thirty years in seconds; a longer wait is left out of the fields."""
FAR_OFF_S: Final = float(FAR_S)
"""FAR_S as a float, because comparing a float with an integer takes twice as long."""
RETRY_AFTER: Final = "Retry-After"
POLICY: Final = "RateLimit-Policy"
SERVICE: Final = "RateLimit"
SLOTS_UNIT: Final = '"concurrent-requests"'
"""The unit of a quota on work in progress, as registered by `ietf-11`."""
LISTS: Final = frozenset({"ratelimit", "ratelimit-policy"})
"""The names of header fields that are lists. The limits add items to these; any other field of the application stays as
it is."""
OF_CONTENT: Final = frozenset({"content-type", "content-length"})
"""Fields of a refusal that describe its body; they are left out if the application has made the body."""

_UNITS: Final = {"1s": "second", "60s": "minute", "3600s": "hour", "86400s": "day"}


class QuotaDecision(NamedTuple):
    """A limit's decision, and the limit's quotas by name."""

    decision: Decision
    quotas: Mapping[str, Limit]


def checked_dialects(dialects: object) -> tuple[str, ...]:
    """Returns the dialects, given as a name, as names joined by commas, or as a sequence. Raises InvalidSetting."""
    names = dialects.split(",") if isinstance(dialects, str) else dialects
    if not isinstance(names, Sequence):
        raise InvalidSetting("dialect", dialects, f"is not one of {', '.join(DIALECTS)}")
    chosen = tuple(dict.fromkeys(name.strip() if isinstance(name, str) else repr(name) for name in names))
    for name in chosen:
        if name not in DIALECTS:
            raise InvalidSetting("dialect", name, f"is not one of {', '.join(DIALECTS)}")
    if IETF_11 in chosen and DRAFT_06 in chosen:
        advice = f"{IETF_11} and {DRAFT_06} both have a field RateLimit-Policy, but in different forms; choose one"
        raise InvalidSetting("dialect", dialects, advice)
    return chosen


def fields_of(
    decided_on: Sequence[QuotaDecision], dialects: Sequence[str], *, wall_s: float, refused: bool = False
) -> Fields:
    """Returns the response fields for decisions, in all given dialects; empty without a decision.

    The binding quota comes first: among the quotas that refused, the one with the longest wait; otherwise the one with
    the least left. `wall_s` is the time in seconds since 1970. `refused` means that another limit has refused already.
    """
    if not decided_on:
        return []
    decided_on = sorted(decided_on, key=lambda each: binding_first((None, each.decision)))
    fields: Fields = []
    for dialect in dialects:
        if dialect == IETF_11:
            decided = [(binding_of(decision.binding, *quotas.items()), decision) for decision, quotas in decided_on]
            fields += fields_11(decided, refused=refused)
        elif dialect == DRAFT_06:
            fields += _draft_06(decided_on)
        else:
            fields += _numbers("X-RateLimit", decided_on[0].decision, since_s=ceil(wall_s))
    return fields


def retry_after_of(*refusing: Decision) -> int | None:
    """Returns the whole seconds, at least one, until all these refusals have ended; None if that is unknown."""
    longest = max([decision.retry_after for decision in refusing], default=0.0)
    return max(1, _whole(longest)) if longest < FAR_S else None


@lru_cache(maxsize=1024)
def sf_string(text: str) -> str:
    """Returns `text` as a String of RFC 9651; characters outside of printable ASCII become %XX of their UTF-8 bytes."""
    escaped: list[str] = []
    for character in text:
        if character in '"\\':
            escaped.append(f"\\{character}")
        elif " " <= character <= "~":
            escaped.append(character)
        else:
            escaped += [f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass")]
    return f'"{"".join(escaped)}"'


class PolicyField:
    """The RateLimit-Policy field of `ietf-11` for some quotas, as text and as bytes.

    Each limit's binding quota comes first: the one that refuses, or else the one with the least left.
    """

    __slots__ = ("encoded", "field", "quotas", "services")

    def __init__(self, quotas: Mapping[str, str]) -> None:
        self.quotas = quotas
        """The policy item of each quota, by name."""
        text = ", ".join(quotas.values())
        self.field = (POLICY, text)
        self.encoded = (POLICY.lower().encode(), text.encode())
        """The name and the value of `field` as bytes, as ASGI requires."""
        self.services: str | None = None
        """The value of RateLimit, with placeholders for numbers; None if `written_11` must write it."""


class Binding(PolicyField):
    """The constant parts of the `ietf-11` fields of one limit, for decisions whose binding quota is `name`."""

    __slots__ = ("binding", "name", "service", "slots")

    def __init__(self, name: str, quotas: Mapping[str, Limit]) -> None:
        self.binding = {name: policy_11(name, quotas[name])} if name in quotas else {}
        """The policy item of the binding quota, by name; empty if that is not among these quotas."""
        super().__init__({**self.binding, **{each: policy_11(each, quotas[each]) for each in quotas if each != name}})
        self.name = sf_string(name)
        """The name of the binding quota, as a String of structured fields."""
        self.slots = name in quotas and quotas[name].slots
        self.service = b"%b;r=%%d;t=%%d" % self.name.encode().replace(b"%", b"%%")
        """The RateLimit item as bytes, with placeholders for its two numbers (remaining quota, seconds)."""


@lru_cache(maxsize=1024)
def binding_of(name: str, *quotas: tuple[str, Limit]) -> Binding:
    """Returns the cached `Binding` for a limit's quotas, for decisions whose binding quota is `name`."""
    return Binding(name, dict(quotas))


def written_11(decided: Sequence[tuple[Binding, Decision]], *, refused: bool) -> tuple[PolicyField, str]:
    """Returns the RateLimit-Policy field and the value of RateLimit; `refused` means that another limit has refused."""
    if len(decided) == 1:
        ((binding, decision),) = decided
        return binding, service_11(binding.name, decision, refused=refused, slots=binding.slots)
    decided = sorted(decided, key=binding_first)
    policy = policy_of(*[binding for binding, _ in decided])
    usual = None if refused else usual_11(policy, [decision for _, decision in decided])
    if usual is not None:
        return usual
    for _, decision in decided:
        refused = refused or not decision.allowed
    services: dict[str, str] = {}
    for each, decision in decided:  # two limits may show the same rate: the client needs the one that binds
        services.setdefault(each.name, service_11(each.name, decision, refused=refused, slots=each.slots))
    return policy, ", ".join(services.values())


def usual_11(policy: PolicyField, decisions: Sequence[Decision]) -> tuple[PolicyField, str] | None:
    """Returns the same as `written_11`, but faster, if the decisions about the quotas of `policy` are usual; else None.

    Decisions are usual if all of them admit, the smallest remaining quota comes first, and no number is too large.
    """
    numbers: list[int] = []
    least = 0
    for decision in decisions:
        remaining, after_s = decision.remaining, decision.reset_after
        if not (least <= remaining <= INTEGER_MAX and 0.0 < after_s < FAR_OFF_S and decision.allowed):
            return None
        least = remaining
        numbers += remaining, ceil(after_s)
    return None if policy.services is None else (policy, policy.services % tuple(numbers))


@lru_cache(maxsize=1024)
def policy_of(*bindings: Binding) -> PolicyField:
    """Returns the RateLimit-Policy field for the quotas of several limits, with the binding quotas first."""
    quotas: dict[str, str] = {}
    for each in bindings:
        quotas |= each.binding
    for each in bindings:
        for name, text in each.quotas.items():
            quotas.setdefault(name, text)
    policy = PolicyField(quotas)
    names = [each.name for each in bindings]
    if len(set(names)) == len(names) and not any(each.slots for each in bindings):
        policy.services = ", ".join([f"{name.replace('%', '%%')};r=%d;t=%d" for name in names])
    return policy


def fields_11(decided: Sequence[tuple[Binding, Decision]], *, refused: bool) -> Fields:
    """Returns the `ietf-11` fields for decisions; empty without any. `refused` means that another limit has refused."""
    if not decided:
        return []
    policy, service = written_11(decided, refused=refused)
    return [policy.field, (SERVICE, service)]


def service_11(name: str, decision: Decision, *, refused: bool = False, slots: bool = False) -> str:
    """Returns the RateLimit item of `ietf-11` for a decision; `name` is the quota's name as an RFC 9651 String.

    `refused` means that any limit refuses the request. With `slots`, the item has no time, because it is unknown when
    work will end.
    """
    remaining, after_s = decision.remaining, decision.reset_after
    if 0.0 < after_s < FAR_OFF_S and decision.allowed and not (refused or slots) and 0 <= remaining <= INTEGER_MAX:
        return f"{name};r={remaining};t={ceil(after_s)}"  # the same as below, earlier, because most decisions end here
    if not 0 <= remaining <= INTEGER_MAX:
        remaining = _integer(remaining)
    if slots:
        return f"{name};r={remaining}"
    if decision.allowed:
        # An admitting quota needs no wait, and Retry-After must never be earlier than a `t`.
        least_s = 0
        if refused or not after_s < FAR_S:
            return f"{name};r={remaining}"
    else:
        after_s, least_s = decision.retry_after, 1
        if not after_s < FAR_S:
            return f"{name};r={remaining}"
    return f"{name};r={remaining};t={ceil(after_s) if after_s > least_s else least_s}"


def _draft_06(decided_on: Sequence[QuotaDecision]) -> Fields:
    policies = {name: limit for _, quotas in decided_on for name, limit in quotas.items()}
    policy = ", ".join(_policy_numbers(limit) for limit in policies.values())
    return [*_numbers("RateLimit", decided_on[0].decision, since_s=0), (POLICY, policy)]


def _numbers(prefix: str, decision: Decision, *, since_s: int) -> Fields:
    """Returns three fields with a number each: limit, remaining quota, and reset; no reset if that is unknown.

    The reset is in seconds from now, plus `since_s`: 0, or the present time for dialects that state a time of day.
    """
    fields = [(f"{prefix}-Limit", str(_integer(decision.limit)))]
    fields.append((f"{prefix}-Remaining", str(_integer(decision.remaining))))
    after_s = _after_s(decision)
    if after_s is not None:
        fields.append((f"{prefix}-Reset", str(_integer(since_s + after_s))))
    return fields


@lru_cache(maxsize=1024)
def policy_11(name: str, limit: Limit) -> str:
    """Returns the RateLimit-Policy item of a quota in `ietf-11`; for a quota of slots, without a window."""
    return f"{sf_string(name)};q={_policy_numbers(limit)}"


@lru_cache(maxsize=1024)
def _policy_numbers(limit: Limit) -> str:
    if limit.slots:
        return f"{_integer(limit.nominal)};qu={SLOTS_UNIT}"
    return f"{_integer(limit.nominal)};w={_window_s(limit)}"


def _window_s(limit: Limit) -> int:
    """Returns the window in seconds for the fields, rounded up so that a client that keeps to it is not refused.

    For a bucket, the fields show the burst as the quota, so the window is the time in which the bucket drains.
    """
    share = limit.counted.nominal / limit.counted.quota
    return max(1, _whole(limit.window * share))


def binding_first(decided: tuple[object, Decision]) -> tuple[bool, float, int]:
    """Returns a key for sorting limits with their decisions: the refusing limit with the longest wait comes first."""
    _, decision = decided
    return (decision.allowed, -decision.retry_after, decision.remaining)


def _after_s(decision: Decision) -> int | None:
    """Returns the seconds until the quota has room after a refusal, or until it is full after an admission.

    Returns None if the number is too large for a field.
    """
    after = decision.reset_after if decision.allowed else decision.retry_after
    if not after < FAR_S:
        return None
    return _whole(after) if decision.allowed else max(1, _whole(after))


def _whole(seconds: float) -> int:
    return ceil(seconds) if seconds > 0 else 0


def _integer(number: int) -> int:
    return min(max(0, number), INTEGER_MAX)


def shown_name(name: str, limit_name: str, quotas: Mapping[str, Limit], given: str | None) -> str:
    """Returns the name in responses of the quota `name` of the limit `limit_name`.

    `given` is the name that the application has given to the limit, if any; it replaces the limit's name. A name
    outside of `quotas` is that of the limit's ban.
    """
    rest = name.removeprefix(limit_name)
    if given is not None:
        return f"{given}{rest}"
    limit = quotas.get(name)
    if limit is None:
        return f"{rate_of(next(iter(quotas.values())))}{rest}"
    return limit.name or rate_of(limit)


def rate_of(limit: Limit) -> str:
    """Returns a quota as a short text, such as `5/minute` or `20 in flight`."""
    if limit.slots:
        return f"{limit.quota} in flight"
    quota, _, window = str(limit).partition(" ")[0].partition("/")
    return f"{quota}/{_UNITS.get(window, window)}"
